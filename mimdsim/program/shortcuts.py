"""What an engine may execute in one pass instead of table by table, as declared where the tables are emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mimdsim.program.records import VertexTable


@dataclass(frozen=True, kw_only=True, eq=False)
class Shortcut:
    """Tables whose joint result a single pass gives with the same bits. The program means the same without it.

    `unwritten`: variables that only these tables use and that the pass leaves unchanged. `numbers`: what the pass
    needs to know of the layout, int64 arrays by name. An engine takes a shortcut only if all of its tables are in the
    program as they were emitted and nothing else touches the variables between them.

    "input gradient": products of each part, sums over the parts of a group, sums over groups. numbers: `starts` and
    `stops` [parts], the neurons of each part; `group` [parts], the group it belongs to, ascending.
    "weight gradient": zeros, sums over the samples of a replica in every timestep, sum over replicas. numbers:
    `replica` [batch], the replica that a sample is added to; `copies` [1], groups of replicas that are
    summed first.
    """

    kind: Literal["input gradient", "weight gradient"]
    tables: tuple[VertexTable, ...]
    unwritten: tuple[str, ...]
    numbers: Mapping[str, np.ndarray]
