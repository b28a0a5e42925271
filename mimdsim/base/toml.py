"""Tables as TOML text, for the files that mimdsim writes for people to read and change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(table: dict[str, Any], comment: str = "") -> str:
    """A table as TOML: its values, then its tables, each under its own heading."""
    head = [f"# {line}" for line in comment.splitlines()]
    return "\n".join([*head, *_lines(table, ())]).strip() + "\n"


def _lines(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None and not _is_table(value, path):
            yield f"{toml_key(key)} = {toml_value(value)}"
    for key, value in table.items():
        if _is_table(value, path):
            yield ""
            yield f"[{'.'.join(map(toml_key, (*path, key)))}]"
            yield from _lines(value, (*path, key))


def _is_table(value: Any, path: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and (not path or any(isinstance(each, dict) for each in value.values()))


def toml_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml_value(key)


def toml_value(value: object) -> str:
    """A number, text, list or table of them as TOML."""
    if isinstance(value, dict):
        inner = (f"{toml_key(key)} = {toml_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {', '.join(inner)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return str(value).lower() if isinstance(value, bool) else str(value)
