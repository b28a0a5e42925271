"""Which tests reach which blocks: a pytest plugin that counts nothing and only notes, at the start of every block.

Run as a program, `python reached.py OUTPUT TEST_FILE`, in the root of a checkout. Modules of the package are changed as
they are imported: each block of statements in a function first notes its line. Compiled kernels cannot note; with
NUMBA_DISABLE_JIT=1 they are ordinary functions and do.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from source_mutants.mutants import FUNCTIONS, blocks_of

HITS: set[str] = set()


class _Noting(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        tree = ast.parse(data)
        where = str(Path(path).relative_to(Path.cwd()))
        for node in list(ast.walk(tree)):
            compiled = isinstance(node, FUNCTIONS) and node.decorator_list and "numerics" in where
            if isinstance(node, FUNCTIONS) and not (compiled and not os.environ.get("NUMBA_DISABLE_JIT")):
                _note(node, where)
        (hits,) = ast.parse("from source_mutants.reached import HITS as _hits_").body
        tree.body.insert(_after_imports(tree.body), hits)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)


def _note(node: ast.AST, where: str) -> None:
    for body in blocks_of(node):
        for statement in body:
            if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                _note(statement, where)
        at = 1 if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else 0
        body.insert(at, ast.parse(f"_hits_.add({f'{where}:{body[0].lineno}'!r})").body[0])


def _after_imports(body: list[ast.stmt]) -> int:
    return max((i + 1 for i, node in enumerate(body[:3]) if isinstance(node, ast.Expr | ast.ImportFrom)), default=0)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] != "mimdsim":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path or [str(Path.cwd())], target)
        if found is not None and isinstance(found.loader, importlib.machinery.SourceFileLoader):
            found.loader = _Noting(name, str(found.origin))
        return found


class Recorder:
    """What each passed test reached, and how long it took with what it set up."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.imported: list[str] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        HITS.clear()
        began = time.perf_counter()
        yield
        seconds = round(time.perf_counter() - began, 3)
        self.tests.setdefault(item.nodeid, {}).update(seconds=seconds, hits=sorted(HITS))

    def pytest_collection_finish(self) -> None:
        """What a test file calls as it is imported, parameters of its tests for one, is reached by all of its tests."""
        self.imported = sorted(HITS)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.tests.setdefault(report.nodeid, {})["failed"] = True


def main() -> None:
    output, *files = sys.argv[1:]
    sys.meta_path.insert(0, _Finder())
    sys.path.insert(0, str(Path.cwd()))
    sys.modules["source_mutants.reached"] = sys.modules["__main__"]
    recorder = Recorder()
    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=line", *files], plugins=[recorder])
    passed = {name: test for name, test in recorder.tests.items() if not test.get("failed")}
    failed = sorted(set(recorder.tests) - set(passed))
    Path(output).write_text(json.dumps({"imported": recorder.imported, "tests": passed, "failed": failed}))


if __name__ == "__main__":
    main()
