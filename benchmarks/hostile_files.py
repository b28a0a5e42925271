"""Mutants of every file format that is read: refused with a reason, or read as what they contain.

    python benchmarks/hostile_files.py --count 2000 --format toml --seed 1 --keep failures

Fails (exit 1) for a traceback, for over 10 s or 1 GB, and for what is read as something else than another reading of
the same file finds (standard parsers, numpy, h5py; for checkpoints and sweeps, what was written).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / folder) for folder in ("support", "laws")]

from hostile.formats import FORMATS  # noqa: E402
from hostile.running import outcome_of  # noqa: E402


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="mutants of each format")
    parser.add_argument("--format", action="append", choices=list(FORMATS), help="only this one; repeat for more")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the mutants that fail")
    given = parser.parse_args()
    failed = 0
    for name in given.format or FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            form = FORMATS[name](Path(folder))
            found = outcome_of(form, given.count, given.seed, given.keep)
            form.close()
        print(f"{name:<14} {found}", flush=True)
        for number, failure in found.failures[:10]:
            print(f"  mutant {number}: {failure}", flush=True)
        failed += len(found.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
