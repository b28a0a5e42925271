"""Names of workloads and machines, and the paths they give.

Names become names of folders and columns and are shown to people, so they must be plain: no path, nothing invisible,
nothing that changes the direction of the text around it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

MAX_NAME_BYTES, MAX_PATH_CHARACTERS = 255, 4000  # what file systems take
LONGEST_BYTES = 100  # a folder is named after a workload and a machine; names of files end at 255 bytes


def checked_name(name: str) -> str:
    """`name` unchanged; raises a ValueError that says what it must be."""
    if not name or name != name.strip():
        raise ValueError("must be a name, neither empty nor with spaces around it")
    if not name.isprintable():  # control, bidirectional and other invisible characters, lone surrogates
        raise ValueError("must be a plain name: it contains characters that cannot be shown")
    if "/" in name or "\\" in name or name.startswith("."):
        raise ValueError("must be a name, not a path: without / and \\, and not beginning with a dot")
    if len(name.encode()) > LONGEST_BYTES:
        raise ValueError(f"must be a name of at most {LONGEST_BYTES} bytes, has {len(name.encode()):,}")
    return name


Name = Annotated[str, AfterValidator(checked_name)]


def possible_path(text: str) -> str:
    """`text`, if a file can have that name; else raises ValueError."""
    if "\0" in text or any(0xD800 <= ord(letter) < 0xE000 for letter in text):
        raise ValueError("has a character that no path can have (NUL, half a surrogate pair)")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in text.split("/")) or len(text) > MAX_PATH_CHARACTERS:
        raise ValueError(f"has a name of over {MAX_NAME_BYTES} bytes, or over {MAX_PATH_CHARACTERS} characters")
    return text


NAMES_FILES = "names files"  # mark of fields whose files a result belongs to (`base/identity.py`)
PathText = Annotated[str, AfterValidator(possible_path), NAMES_FILES]  # the path of a file or folder, in a description
