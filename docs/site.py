"""For MkDocs: the site has the folders of the repository, so that links between pages, and to what they rest on, are
the same on both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
SHOWN = ("*.md", "LICENSE", "CITATION.cff", "docs/*.*", "references/README.md", "notebooks/*.ipynb", "models/*.toml")
LINKED = ("reports/example/report.html", "mimdsim/validation/silicon/wafer.py")


def on_files(files: Files, config: Any) -> Files:
    """The pages, their pictures and what they link to, by their paths in the repository; and the theme's own files."""
    paths = {path for pattern in (*SHOWN, *LINKED) for path in ROOT.glob(pattern)} - {Path(__file__)}
    shown = [
        File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)) for path in sorted(paths)
    ]
    return Files([*shown, *(each for each in files if each.src_dir != config.docs_dir)])
