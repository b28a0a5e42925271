"""Execute notebooks and write them back with their outputs: python notebooks/execute.py [FILE ...]

Needs the extra 'notebooks'. What differs from one execution to the next (times, versions) is not kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
SECONDS = 300  # for one cell, on a slow machine


def executed(path: Path) -> Any:
    """The notebook of a file with the outputs of its cells; raises nbclient's CellExecutionError where one fails."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", record_timing=False, resources=resources).execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def main(paths: list[Path]) -> None:
    import nbformat

    for path in paths:
        nbformat.write(executed(path), path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main([Path(given).resolve() for given in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")))
