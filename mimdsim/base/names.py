"""Names of workloads and machines. They become names of folders and columns and are shown to people, so they are only
names: no path, nothing invisible, nothing that turns the text around it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

LONGEST_BYTES = 100  # a folder is named after a workload and a machine; names of files end at 255 bytes


def checked_name(name: str) -> str:
    """`name` as it is; raises ValueError that says what it must be."""
    if not name or name != name.strip():
        raise ValueError("must be a name, neither empty nor with spaces around it")
    if not name.isprintable():  # control, bidirectional and other invisible characters, lone surrogates
        raise ValueError("must be a plain name: it holds characters that cannot be shown")
    if "/" in name or "\\" in name or name.startswith("."):
        raise ValueError("must be a name, not a path: without / and \\, and not beginning with a dot")
    if len(name.encode()) > LONGEST_BYTES:
        raise ValueError(f"must be a name of at most {LONGEST_BYTES} bytes, has {len(name.encode()):,}")
    return name


Name = Annotated[str, AfterValidator(checked_name)]
