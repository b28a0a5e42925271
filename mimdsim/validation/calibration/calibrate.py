"""`mimdsim calibrate`, as a function."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mimdsim.base.search_path import Named, is_path, several
from mimdsim.machine import sourced_machine
from mimdsim.machine.calibrated import write_narrowing
from mimdsim.validation.calibration.fit import narrow
from mimdsim.validation.calibration.result import Narrowed
from mimdsim.validation.tables import Progress, find_table, silent


def calibrate(
    machine: Named,
    tables: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    spread: float = 0.02,
    data: str | Path | None = None,
    progress: Progress = silent,
) -> Narrowed:
    """Calibrate the uncertain parameters of a machine against tables of measurements, with columns as in references/.

    out: a file to write, which can be given wherever a machine can. spread: standard deviation of a figure, as a share
    of it, where its row has no `spread`. data: recordings for rows of training steps. Raises DataFileError for tables
    that cannot be read, DescriptionError where no row bears on the machine.
    """
    machine = os.fspath(machine)
    sourced = sourced_machine(machine)
    folder = Path.cwd() if out is None else Path(out).parent
    named = os.path.relpath(machine, folder) if is_path(machine) else machine
    found = narrow(
        sourced,
        [find_table(str(table)) for table in several(tables)],
        named=named,
        spread=spread,
        data=None if data is None else Path(data),
        progress=progress,
    )
    if out is not None:
        write_narrowing(Path(out), found.content, [f"mimdsim run digits {Path(out).name}"])
    return found
