"""The benchmark that changes the source: which changes it makes, what it leaves alone, and which tests it picks."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''"""Not 7 of this."""

from __future__ import annotations

__all__ = ["area", 3]
WIDE: int = 4  # not the 8 of a comment
TALL = [WIDE, -1]


def area(width: int, height: int = 2) -> int:
    """Nor 9."""
    if width < 0 and height:
        raise ValueError(f"width {width + 1} is below {0}")
    rows = list(range(width))
    rows[0] = max(width, height)
    rows.append(divmod(height, 5))
    return sum(rows[1:width]) + 1


class Box:
    edge = 6
'''


@pytest.fixture(autouse=True, scope="module")
def _benchmarks_on_path() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture
def made(tmp_path: Path) -> list[Any]:
    from source_mutants.mutants import mutants_of

    (tmp_path / "mimdsim" / "machine").mkdir(parents=True)
    path = tmp_path / "mimdsim" / "machine" / "boxes.py"
    path.write_text(SOURCE)
    return mutants_of(path, tmp_path)


def test_each_place_is_changed_in_all_ways(made: list[Any]) -> None:
    changes = {(one.line, one.operator, one.before, one.after) for one in made}
    assert changes == {
        *((6, "constant", "4", after) for after in ("(5)", "(3)", "(8)")),
        *((7, "constant", "1", after) for after in ("(2)", "(0)", "(2)")),
        *((10, "constant", "2", after) for after in ("(3)", "(1)", "(4)")),
        (12, "condition", "width < 0 and height", "(not (width < 0 and height))"),
        (12, "condition", "width < 0 and height", "(width < 0 or height)"),
        (12, "comparison", "width < 0", "(width <= 0)"),
        (12, "constant", "0", "(1)"),
        (15, "statement", "rows[0] = max(width, height)", "pass"),
        (15, "constant", "0", "(1)"),
        (15, "min and max", "max", "min"),
        (16, "statement", "rows.append(divmod(height, 5))", "pass"),
        (16, "arguments", "divmod(height, 5)", "divmod(5, height)"),
        *((16, "constant", "5", after) for after in ("(6)", "(4)", "(10)")),
        (17, "arithmetic", "sum(rows[1:width]) + 1", "(sum(rows[1:width]) - 1)"),
        *((17, "constant", "1", after) for after in ("(2)", "(0)", "(2)")),
        (17, "bound", "width", "(width) + 1"),
        *((21, "constant", "6", after) for after in ("(7)", "(5)", "(12)")),
    }
    assert {one.package for one in made} == {"machine"}
    assert all(one.path == "mimdsim/machine/boxes.py" for one in made)


def test_a_mutant_is_python_and_differs_in_one_place(made: list[Any]) -> None:
    whole = ast.dump(ast.parse(SOURCE))
    for one in made:
        changed = one.applied(SOURCE.encode()).decode()
        assert ast.dump(ast.parse(changed)) != whole
        assert len(changed.splitlines()) == len(SOURCE.splitlines())
        assert changed.replace(one.after, one.before, 1) == SOURCE or one.after in SOURCE


def test_a_place_is_the_block_or_what_the_module_defines(made: list[Any], tmp_path: Path) -> None:
    from source_mutants.mutants import users

    blocks = {one.line: (one.block, one.names) for one in made}
    assert blocks[6] == (0, ("WIDE",))
    assert blocks[10] == (0, ("area",))
    assert blocks[12] == (11, ("area",))
    assert blocks[15] == (11, ("area",))
    assert blocks[21] == (0, ("Box", "edge"))
    (tmp_path / "mimdsim" / "use.py").write_text("def tall():\n    return TALL\n\n\ndef other():\n    return 1\n")
    assert users(("WIDE",), tmp_path) == {"mimdsim/use.py:2"}  # by way of TALL
    assert users(("area",), tmp_path) == {"mimdsim/machine/boxes.py:11"}


def test_the_quickest_tests_that_reach_a_place_come_first(tmp_path: Path) -> None:
    from source_mutants.running import Reached

    tests = {"t.py::slow": (3, ["a:1"]), "t.py::quick": (1, ["a:1", "a:9"]), "t.py::beside": (0.5, ["b:1"])}
    other = {"u.py::other": (0.1, ["b:7"])}
    for name, found in (("test_t", tests), ("test_u", other)):
        recorded = {test: {"seconds": seconds, "hits": hits} for test, (seconds, hits) in found.items()}
        (tmp_path / f"{name}.json").write_text(json.dumps({"imported": [], "tests": recorded, "failed": []}))
    reached = Reached(tmp_path)
    assert reached.tests(["a:1"], 10) == ["t.py::quick", "t.py::slow", "t.py::beside"]
    assert reached.tests(["a:1"], 2) == ["t.py::quick"]
    assert reached.tests(["a:9"], 10)[0] == "t.py::quick"
    assert reached.tests(["b:2"], 10) == ["u.py::other", "t.py::beside", "t.py::quick", "t.py::slow"]  # by its file
    assert reached.tests(["c:1"], 10) == []


def test_quick_tables_of_a_module_are_read_for_what_it_defines(tmp_path: Path) -> None:
    """A table may hold a record of the module without calling what names it."""
    from source_mutants.running import Reached

    quick, slow, user = (
        f"tests/{name}"
        for name in ("golden/test_pinned_a.py::test_q", "golden/test_pinned_a.py::test_s", "unit/test_b.py::test_u")
    )
    held = {
        quick: {"seconds": 0.1, "hits": ["m.py:9"]},
        slow: {"seconds": 2.0, "hits": ["m.py:9"]},
        user: {"seconds": 0.01, "hits": ["n.py:1"]},
    }
    (tmp_path / "test_all.json").write_text(json.dumps({"imported": [], "failed": [], "tests": held}))
    reached = Reached(tmp_path)
    assert reached.tests(["n.py:1"], 40) == [user]
    assert reached.tests(["n.py:1"], 40, "m.py") == [quick, user]
