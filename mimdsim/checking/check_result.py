"""What a check of a program or kernel returns."""

from __future__ import annotations

from dataclasses import dataclass

from mimdsim.base.shown import Sheet, Shown
from mimdsim.machine import MimdMachine
from mimdsim.profile import Finding

LABELS = {"good": "ok  ", "note": "note", "bad": "FAIL"}


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckResult(Shown):
    """The findings of a check; str() is one line each. heading: what was checked."""

    machine: MimdMachine
    findings: tuple[Finding, ...]
    heading: str = ""

    @property
    def passed(self) -> bool:
        """Whether every finding passed."""
        return all(finding.passed for finding in self.findings)

    def __str__(self) -> str:
        lines = [f"{LABELS[finding.mood]}  {finding.name}: {finding.text}" for finding in self.findings]
        return "\n".join([self.heading, *lines] if self.heading else lines)

    def _sheet(self) -> Sheet:
        head = f"check {'passed' if self.passed else 'FAILED'} on {self.machine.name}"
        by_mood = sorted(self.findings, key=lambda one: list(LABELS)[::-1].index(one.mood))
        rows = [(LABELS[one.mood].strip(), one.name, one.text) for one in by_mood]
        return Sheet(f"{head}, {self.heading}" if self.heading else head, rows)
