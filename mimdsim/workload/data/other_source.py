"""Selecting another data source in a description: keys that only the former source reads are removed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mimdsim.base.errors import DescriptionError
from mimdsim.base.schema import build
from mimdsim.workload.data.dataset import CAMERAS, input_shape
from mimdsim.workload.description.sections import FILE_SOURCES, IMAGE_SOURCES, Data

GENERATED = ("randman", "random")
WITH_PIXELS = ("events", *CAMERAS)
READERS: dict[str, tuple[str, ...]] = {  # keys that some sources do not have, and those that do
    "path": FILE_SOURCES,
    "encoding": IMAGE_SOURCES,
    "sensor": ("events",),
    "crop": WITH_PIXELS,
    "denoise_seconds": WITH_PIXELS,
    "grid": (*WITH_PIXELS, *IMAGE_SOURCES),
    "shift_pixels": (*WITH_PIXELS, *IMAGE_SOURCES),
    "levels": ("braille",),
    "inputs": ("events", *GENERATED),
    "classes": ("events", *GENERATED),
}


def change_source(data: dict[str, Any], source: Any, given: Collection[str]) -> None:
    """Remove from a [data] table what `source` does not read, except for the keys `given` with it.

    A generated source gets as many inputs and classes as the former source had.
    """
    former = data.get("source")
    if former == source or not isinstance(source, str):
        return
    shape = _shape(data) if source in GENERATED else {}
    for key, readers in READERS.items():
        if source not in readers and key not in given:
            data.pop(key, None)
    for key, number in shape.items():
        data.setdefault(key, number)


def _shape(data: dict[str, Any]) -> dict[str, int]:
    """Inputs and classes of the former source; empty if its description does not say."""
    try:
        inputs, classes = input_shape(build(Data, data, where="data"))
    except DescriptionError:
        return {}
    return {"inputs": inputs, "classes": classes}
