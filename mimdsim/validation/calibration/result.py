"""What measurements make of a machine, and of their own predictions."""

from __future__ import annotations

from dataclasses import dataclass

from mimdsim.machine import MimdMachine
from mimdsim.machine.calibrated import CalibrationFile, Interval


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A row of a table: its figure, spread (one standard deviation) and predictions, in its unit.

    before: by the machine as described. after: by the narrowed one. from_others: by the machine that all other rows
    narrow; None where there are too many rows to try. contradicts: the rows, itself among them, that cannot be met
    together, and were left out.
    """

    name: str
    what: str
    unit: str
    measured: float
    spread: float
    before: float
    after: float
    from_others: float | None
    contradicts: tuple[str, ...] = ()

    def error(self, predicted: float | None) -> float:
        """Distance from the measured figure, as a share of it; NaN for None."""
        return float("nan") if predicted is None else abs(predicted / self.measured - 1)


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """What measurements make of a machine: `machine`, and `content` for a file of its own.

    stay: doubted numbers on which no row bears. formulas: what else the predictions of a kind of rows are doubted for,
    (low, value, high) in shares of that doubt, -1 to 1; the machine does not hold these. other: rows not used, by why.
    """

    sourced: MimdMachine
    machine: MimdMachine
    content: CalibrationFile
    rows: tuple[Measured, ...]
    stay: tuple[str, ...]
    formulas: dict[str, Interval]
    other: dict[str, int]

    @property
    def contradictions(self) -> tuple[tuple[str, ...], ...]:
        """Rows that cannot be met together within their spreads and the intervals, by set."""
        return tuple(dict.fromkeys(row.contradicts for row in self.rows if row.contradicts))

    def __str__(self) -> str:
        from mimdsim.validation.calibration.render import narrowed_lines

        return "\n".join(narrowed_lines(self))
