"""Braille letters read by a fingertip of 12 pressure taxels: arrays of pressures, turned into level-crossing events.

Recordings: Müller-Cleve et al. 2022, "Braille letter reading", Frontiers in Neuroscience 16:951164 (CC BY 4.0): 26
letters and the space, 50 times each. The file is an NPZ of three plain arrays: `taxel` [rows, 12] with the concatenated
pressures of all samples, 0 to 255; `offset` [samples + 1], where each sample begins; `label` [samples].

A row is one timestep. The range of pressures is cut by `levels` evenly spaced levels; where a taxel's pressure crosses
one upwards from row to row, the input for (ON, taxel, level) spikes, downwards that for (OFF, taxel, level). The first
row only sets where a taxel stands. Unlike one ON and one OFF input a taxel, this keeps how strong the pressure is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data.event_columns import NpzStore, SampleFile, check_range
from mimdsim.workload.data.events import POLARITIES, Ints, rank_in_run, refused

TAXELS = 12
CLASSES = 27
PRESSURES = 256
MAX_ROWS = 1 << 16  # assumed: of a sample; the published ones have 76 or 77
LAYOUT = "an .npz file with the arrays 'taxel' [rows, 12], 'offset' [samples + 1] and 'label' [samples]"
ARRAYS = ("taxel", "offset", "label")


def inputs_of(levels: int) -> int:
    """Inputs of `levels` levels; raises DescriptionError for none, or more than there are distinct pressures."""
    if not 0 < levels < PRESSURES:
        raise refused(f"'data.levels' is {levels}; source 'braille' needs 1 to {PRESSURES - 1}, for instance 63")
    return POLARITIES * TAXELS * levels


class BrailleFile(SampleFile):
    """An opened file: labels, and the pressures of samples."""

    def __init__(self, path: Path):
        super().__init__(NpzStore(path, ARRAYS, {"taxel": TAXELS}))

    def samples(self, chosen: Sequence[int]) -> Iterator[Ints]:
        """Pressures int64[rows, 12] of the samples `chosen` (ascending), one in memory at once."""
        for sample, first, (values,) in self._pieces(["taxel"], chosen, TAXELS):
            check_range(self.path, "taxel", values, PRESSURES - 1, first=first, sample=sample)
            yield values.astype(np.int64).reshape(-1, TAXELS)

    def _open(self) -> None:
        self._need(ARRAYS, f"expected is {LAYOUT}")
        self._need_whole_numbers(ARRAYS)
        self._check_lengths("label", "offset")
        self._read_offsets("offset", entries=self._columns["taxel"].length // TAXELS, most=MAX_ROWS, of="row")
        if (np.diff(self.offsets) == 0).any():
            sample = int(np.argmax(np.diff(self.offsets) == 0))
            raise DataFileError(self.path, f"sample {sample} has no row; leave it out")
        self._read_labels("label", CLASSES)


def crossings(pressures: Ints, *, levels: int) -> Ints:
    """Ascending keys row * inputs + id of one sample; the id is (polarity * 12 + taxel) * levels + level."""
    # how many levels a pressure has reached; going from 3 to 5 crosses levels 3 and 4
    band = pressures * (levels + 1) // PRESSURES
    row, taxel = np.nonzero(band[1:] != band[:-1])
    before, after = band[row, taxel], band[row + 1, taxel]
    polarity = after > before  # as elsewhere, 1 is ON
    first = (((row + 1) * POLARITIES + polarity) * TAXELS + taxel) * levels + np.minimum(before, after)
    crossing = np.repeat(np.arange(row.size), np.abs(after - before))
    return np.sort(first[crossing] + rank_in_run(crossing))
