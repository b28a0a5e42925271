"""All formats by name."""

from __future__ import annotations

from hostile.columns import DetailFile
from hostile.descriptions import DESCRIPTIONS
from hostile.events import EVENTS
from hostile.folders import FOLDERS
from hostile.forged import FORGED
from hostile.running import Format
from hostile.tensors import TENSORS

FORMATS: dict[str, type[Format]] = {
    form.name: form for form in (*DESCRIPTIONS, *TENSORS, DetailFile, *FOLDERS, *FORGED)
}
FORMATS |= {f"recording {form.name}" if form.name in FORMATS else form.name: form for form in EVENTS}
