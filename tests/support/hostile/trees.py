"""Changes of what a file says: values, keys and branches of a tree as JSON has it, and lines of a text as TOML."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import numpy as np

from hostile.changes import changed

HUGE = "9" * 5000
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3.5, -0.0, 1e-300, 1e308, float("inf"), float("nan"), 2**31, 2**53 + 1, 2**63 - 1,
    2**63, 2**64, -(2**63), "", "0", "1e300", "5 KiB", "nan", "x" * 5000, "\u202e\x1b[2J", "\ud800", "a\x00b", "../x",
    "=1+1", "\n", [], {}, [[]], [1, 2], [None], ["a"], {"a": {"b": 1}}, [0] * 1000,
)  # fmt: skip


def pick(options: Any, rng: np.random.Generator) -> Any:
    return options[int(rng.integers(0, len(options)))]


def places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key or index) of every entry of a tree."""
    found = []
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        found.append((tree, key))
        found += places(tree[key])
    return found


def changed_tree(tree: Any, rng: np.random.Generator) -> Any:
    """A copy with one to three entries changed, taken out, doubled, moved or renamed."""
    tree = copy.deepcopy(tree)
    for _ in range(int(rng.integers(1, 4))):
        found = places(tree)
        if not found:
            return tree
        holder, key = pick(found, rng)
        change = int(rng.integers(0, 8))
        if change <= 2:
            holder[key] = copy.deepcopy(pick(VALUES, rng))
        elif change == 3:
            now = holder[key]
            if isinstance(now, (int, float)):
                holder[key] = pick((now + 1, now - 1, -now, now * 2, float(now), str(now)), rng)
        elif change == 4:
            del holder[key]
        elif change == 5:
            other, at = pick(found, rng)
            holder[key] = copy.deepcopy(other[at] if other is not holder else pick(VALUES, rng))
        elif isinstance(holder, list):
            holder.insert(key, copy.deepcopy(pick((holder[key], pick(VALUES, rng)), rng)))
        else:
            name = pick((str(key) + "x", str(key)[1:], str(key).upper(), "x" * 300, "\u202e", "unknown"), rng)
            holder[name] = copy.deepcopy(holder[key])
            if change == 7:
                del holder[key]
    return tree


def as_json(tree: Any, rng: np.random.Generator) -> bytes:
    """JSON, now and then with a key twice, a number of thousands of digits, or brackets without end."""
    text = json.dumps(tree)
    change = int(rng.integers(0, 12))
    if change == 0:
        text = re.sub(r'"[^"]*": -?[0-9.e+-]+', lambda found: f"{found[0]}, {found[0]}1", text, count=1)
    elif change == 1:
        text = re.sub(r"(?<=[ \[])[0-9]+", HUGE, text, count=int(rng.integers(1, 3)))
    elif change == 2:
        at = int(rng.integers(0, len(text)))
        text = text[:at] + pick(("[", '{"a":'), rng) * 100_000 + text[at:]
    return text.encode()


def changed_lines(text: str, rng: np.random.Generator) -> bytes:
    """TOML with one to three changes of lines, keys and values, or of its bytes."""
    for _ in range(int(rng.integers(1, 4))):
        lines = text.split("\n")
        at = int(rng.integers(0, len(lines)))
        key, equals, value = lines[at].partition("=")
        change = int(rng.integers(0, 12))
        if change <= 4 and equals:
            lines[at] = f"{key}={pick(_TOML, rng)}"
        elif change == 5 and equals:
            names = (key.strip() + "x", key.strip()[1:], key.upper(), '"a.b"', "a." * 9 + "a")
            lines[at] = f"{pick(names, rng)} = {value}"
        elif change == 6:
            del lines[at]
        elif change == 7:
            lines.insert(int(rng.integers(0, len(lines))), lines[at])
        elif change == 8:
            lines.insert(at, pick(_LINES, rng))
        elif change == 9 and equals:
            numbers = list(re.finditer("[0-9.]+", value))
            if numbers:
                found = pick(numbers, rng)
                new = pick(("0", "-1", "1e308", "9" * 30, HUGE, "0x" + "f" * 5000, "1_0", "nan", "1" * 300), rng)
                lines[at] = f"{key}={value[: found.start()]}{new}{value[found.end() :]}"
        elif change == 10:
            return changed("\n".join(lines).encode(), [0], rng, text=True)
        elif equals:
            lines[at] = f"{key}={pick([line.partition('=')[2] for line in lines if '=' in line], rng)}"
        text = "\n".join(lines)
    return text.encode("utf-8", "surrogatepass")


_TOML = (
    "0", "-1", "1", "2.5", "1e308", "inf", "nan", "-0.0", "true", '""', '"x"', '"1e300"', '"5 KiB"', '"5 ms"', "[]",
    "[1]", "[[1]]", "{}", "{a = 1}", "1979-05-27", "9223372036854775807", "9223372036854775808", "100000", "1000000",
    '"\\u0000"', '"\\u202e\\u001b"', '"../x"', '"/abs"', f'"{"y" * 300}"', f"[{'1, ' * 2000}]", "[" * 500 + "]" * 500,
    HUGE, "0o17", '"1' + " " * 2000 + '!"', "'''\na\n'''", "[0, 1]", "[256, 128, 64, 32]",
)  # fmt: skip
_LINES = (
    "[data]", "[network]", "[[network]]", "[a.b.c]", "unknown = 1", "= 1", "[" + " " * 1600, "a." * 4000 + "a = 1",
    "seed = 3", "name = '../x'", "\n".join(f"u{number} = 1" for number in range(500)), "batch = 7", "'' = 1", "# \x07",
    "[tile.sources]", "x = {a.b = 1}", "[network.neuron_parameters]", "beta = 0.5",
)  # fmt: skip
