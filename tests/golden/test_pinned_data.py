"""Data that are made and not read, shapes and bounds of descriptions, refusals: as they are, in `pinned_data.txt`.

The same seed gives the same samples, for years: results that were published rest on them. After a change that is
meant, `python tests/golden/test_pinned_data.py` writes the file anew; its difference says what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_text import number, numbers
from event_lists import filmed
from pins import assert_as_pinned
from pydantic import ValidationError

from mimdsim.base.errors import DescriptionError
from mimdsim.base.rng import stream
from mimdsim.base.schema import Section
from mimdsim.workload import Workload
from mimdsim.workload.data import digits
from mimdsim.workload.data.dataset import SpikeDataset, input_shape, open_dataset
from mimdsim.workload.description.workload import Data

FILE = Path(__file__).resolve().parent / "pinned_data.txt"
KEPT = {"source": "random", "timesteps": 5, "input_capacity": 4, "inputs": 30, "classes": 3, "activity": 0.1}


def bounds() -> Iterator[str]:
    """Every field of a workload's sections: its default, and what its numbers must keep to."""
    sections = [(name, field.annotation) for name, field in Workload.model_fields.items()]
    for section, kind in (("workload", Workload), *sections):
        if isinstance(kind, type) and issubclass(kind, Section):
            for name, field in kind.model_fields.items():
                kept = [f"{key} {value}" for each in field.metadata for key, value in _limits(each)]
                default = "required" if field.is_required() else repr(field.default)
                default = "a section" if isinstance(field.default, Section) or len(default) >= 60 else default
                yield f"{section}.{name}: {', '.join(kept) or 'any'}; {default}"


def _limits(each: Any) -> Iterator[tuple[str, Any]]:
    for key in ("gt", "ge", "lt", "le", "min_length", "max_length"):
        if getattr(each, key, None) is not None:
            yield key, getattr(each, key)


def dataset_lines(name: str, found: SpikeDataset) -> Iterator[str]:
    yield f"{name}: {found.inputs} inputs, {found.classes} classes, {found.surplus_events} surplus, {found.ids.dtype}"
    for column in ("ids", "counts", "labels"):
        values = getattr(found, column)
        yield f"  {column} {values.shape}: {numbers(values)}"
    if found.values is not None:
        yield f"  images {found.values.shape}: {numbers(found.values)}"
    yield f"  activity {number(found.activity)}"


def made() -> Iterator[str]:
    """Samples of generated sources, and films of invented images."""
    random = {"timesteps": 6, "input_capacity": 5, "inputs": 20, "classes": 3, "train_samples": 7, "test_samples": 4}
    cases = {
        "random": random | {"source": "random", "activity": 0.2},
        "randman": random | {"source": "randman"},
        "randman in two dimensions": random | {"source": "randman", "manifold_dimensions": 2, "smoothness": 1.1},
        "digits": {"source": "digits", "timesteps": 8, "input_capacity": 24, "train_samples": 40, "test_samples": 15},
        "digits, grid": {"source": "digits", "timesteps": 5, "input_capacity": 6, "grid": 9, "train_samples": 20},
        "images": {
            "source": "digits", "timesteps": 4, "input_capacity": 1, "encoding": "image", "train_samples": 33,
        },
    }  # fmt: skip
    for name, given in cases.items():
        for part, found in zip(("train", "test"), open_dataset(Data(**given), 3), strict=True):
            yield from dataset_lines(f"{name}, {part}", found)
    pixels = stream(0, "invented images").integers(0, 256, (5, 28, 28)).astype(np.uint8)
    images = digits.Images(pixels=pixels, labels=np.arange(5), brightest=255)
    for grid, timesteps in ((34, 9), (20, 5)):
        told: list[tuple[int, int]] = []
        ids, counts, surplus = filmed(
            images,
            timesteps=timesteps,
            grid=grid,
            capacity=90,
            rng=stream(1),
            progress=lambda *at, into=told: into.append(at),
        )
        yield f"film on {grid}: {numbers(ids)}; {numbers(counts)}; {surplus} surplus; {told}"
    yield f"path: {numbers(digits.saccade_path(7))}; intensities: {numbers(digits._log_intensities())}"


def shapes() -> Iterator[str]:
    """Inputs and classes of descriptions, or why there are none."""
    camera = {"source": "nmnist", "inputs": 0, "classes": 0}
    events = {"source": "events", "inputs": 0, "sensor": (9, 6, 2), "classes": 4}
    cases: list[dict[str, Any]] = [
        {}, {"inputs": 0}, {"classes": 0}, {"inputs": 0, "classes": 0}, {"levels": 3}, {"sensor": (3, 3, 1)},
        {"crop": 3}, {"denoise_seconds": 1.0}, {"shift_pixels": 1}, {"source": "digits"},
        *({"source": "digits", "inputs": 0, "classes": 0} | more for more in (
            {}, {"grid": 8}, {"shift_pixels": 15}, {"shift_pixels": 16}, {"encoding": "image"},
            {"encoding": "image", "grid": 4}, {"encoding": "image", "shift_pixels": 1})),
        {"source": "mnist5k", "inputs": 0, "classes": 0},
        {"source": "mnist5k", "inputs": 0, "classes": 0, "encoding": "image"},
        *(camera | more for more in (
            {}, {"crop": 20}, {"crop": 34}, {"crop": 35}, {"grid": 17}, {"grid": 34}, {"grid": 35},
            {"crop": 20, "grid": 20}, {"crop": 20, "grid": 21}, {"shift_pixels": 33}, {"shift_pixels": 34},
            {"denoise_seconds": 0.5})),
        *({"source": name, "inputs": 0, "classes": 0} for name in ("dvs_gesture", "shd", "ssc", "braille")),
        {"source": "shd", "inputs": 0, "classes": 0, "grid": 3},
        {"source": "braille", "inputs": 0, "classes": 0, "levels": 7},
        {"source": "braille", "inputs": 0, "classes": 0, "levels": 7, "grid": 2},
        *(events | more for more in (
            {}, {"sensor": (9, 6, 1)}, {"sensor": (9, 6, 3)}, {"sensor": (9, 6)}, {"sensor": (0, 6, 1)}, {"classes": 0},
            {"crop": 6}, {"crop": 7}, {"grid": 3}, {"grid": 7}, {"shift_pixels": 5}, {"shift_pixels": 6},
            {"sensor": (), "inputs": 12}, {"sensor": (), "inputs": 12, "grid": 2}, {"sensor": (), "inputs": 0},
            {"inputs": 12}, {"sensor": (), "inputs": 12, "shift_pixels": 1}, {"sensor": (4097, 1, 1)})),
    ]  # fmt: skip
    for case in cases:
        try:
            said = str(input_shape(Data(**(KEPT | case))))
        except (DescriptionError, ValidationError) as problem:
            said = " / ".join(str(problem).splitlines()[:3])
        yield f"{', '.join(f'{key}={value}' for key, value in case.items())}: {said}"


PARTS: dict[str, Callable[[], Iterator[str]]] = {"bounds": bounds, "made": made, "shapes": shapes}


@pytest.mark.parametrize("name", PARTS)
def test_data_are_as_pinned(name: str) -> None:
    if name == "made":
        pytest.importorskip("sklearn")
    _, *parts = FILE.read_text(encoding="utf-8").split("# ")
    (known,) = (part.splitlines()[1:] for part in parts if part.splitlines()[0] == name)
    assert_as_pinned(list(PARTS[name]()), known, __file__)


def main() -> None:
    text = "".join(f"# {name}\n" + "".join(f"{line}\n" for line in lines()) for name, lines in PARTS.items())
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
