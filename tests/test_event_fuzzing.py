"""Mutations of small valid files of every format: each is loaded or refused; none crashes, hangs or takes over 1 GB."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hostile.limits import LIMIT_BYTES, LIMIT_SECONDS, peak_bytes, time_limit
from hostile.recordings import fields_of, mutated, subject

from mimdsim.base.errors import MimdsimError
from mimdsim.base.rng import stream

FEW, MANY = 200, 10_000


def outcomes(form: str, folder: Path, count: int) -> dict[str, int]:
    """How many of `count` mutations were loaded, refused, and refused because HDF5 died on them."""
    seen = {"loaded": 0, "refused": 0, "died": 0, "slowest_ms": 0}
    rng = stream(0, "fuzzing", form)
    with subject(form, folder) as (good, target, load):
        content = good.read_bytes()
        load(good)
        fields = fields_of(form, content)
        start_bytes = peak_bytes(again=True)
        for number in range(count):
            # A new name each time for HDF5, which may hold a damaged file open under its old one.
            path = target.with_stem(f"{target.stem}{number}") if target.suffix == ".h5" else target
            path.write_bytes(mutated(form, content, fields, rng))
            began = time.monotonic()
            try:
                with time_limit(3 * LIMIT_SECONDS):
                    load(path)
                seen["loaded"] += 1
            except MimdsimError as problem:
                seen["died" if "crashed or hung" in str(problem) else "refused"] += 1
            except BaseException:
                print(f"{form}, mutation {number}: {path.read_bytes().hex()}")  # what to write down as a test
                raise
            seen["slowest_ms"] = max(seen["slowest_ms"], round((time.monotonic() - began) * 1000))
            if path != good:
                path.unlink()
        assert peak_bytes() - start_bytes < LIMIT_BYTES
        good.write_bytes(content)
        load(good)  # whatever came before, a good file is still read
    print(form, seen)
    return seen


FORMS = ["nmnist", "shd", "aedat", "csv", "trials", "npz", "npz packed", "npz members", "hdf5", "hdf5 packed"]
FORMS += ["braille", "braille packed", "braille members"]


@pytest.mark.parametrize("form", FORMS)
def test_a_few_mutations(tmp_path: Path, form: str) -> None:
    seen = outcomes(form, tmp_path, FEW)
    assert seen["refused"] > FEW // 10


@pytest.mark.slow
@pytest.mark.parametrize("form", [form for form in FORMS if form != "trials"])
def test_many_mutations(tmp_path: Path, form: str) -> None:
    seen = outcomes(form, tmp_path, MANY)
    assert seen["refused"] > MANY // 10
    assert seen["slowest_ms"] < 3 * LIMIT_SECONDS * 1000
