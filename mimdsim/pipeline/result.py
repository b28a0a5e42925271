"""The result of a run: the profile that is written, and the objects behind it, each available in one line."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mimdsim.base.files import digest_of
from mimdsim.base.processes import Background
from mimdsim.base.schema import dotted_changes
from mimdsim.compiler import Compiled, compile_graph
from mimdsim.execution import TrainingLog
from mimdsim.machine import Given, MimdMachine, changed_machine, tiled_machine
from mimdsim.pipeline.detail import WINDOW, bytes_between, detail_of
from mimdsim.pipeline.overrides import is_of_machine
from mimdsim.pipeline.retiming import retime
from mimdsim.pipeline.warnings import machine_warnings
from mimdsim.pipeline.what_if import Lever, LeverEstimates, Request, begin_advice, what_if
from mimdsim.profile import Change, Inference, RunProfile, TiledProfile, Training, WhatIf
from mimdsim.profile.detail import Detail
from mimdsim.profile.operations import longest_superstep
from mimdsim.profile.queries import RunQueries
from mimdsim.report.plots import Plotted
from mimdsim.search import Case
from mimdsim.timing import Explanation, explain
from mimdsim.workload import Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Run(Plotted, RunQueries):
    """A training on `machine` and the profile of its last training step, with all that can be asked of it."""

    profile: RunProfile
    compiled: Compiled
    log: TrainingLog
    machine: MimdMachine
    workload: Workload
    asked: Request | None = None  # for commands that do the same; None: no command can
    window: Sequence[int] = WINDOW  # timesteps of `detail`
    estimated: LeverEstimates | None = None  # for advice, if it was begun during the training

    @property
    def cycles(self) -> int:
        """Cycles of a training step."""
        return self.tiled.cycles

    @property
    def inference(self) -> tuple[Inference, ...]:
        """The forward pass alone, by batch, one sample first; of runs with inference=True."""
        return self.profile.inference

    @property
    def gradients(self) -> dict[str, np.ndarray]:
        """Of the last training step, as used by the update: 'hidden0' float32[inputs, neurons], 'hidden0.recurrent'
        and 'hidden0.bias' if there are any."""
        return self._public(self.log.gradients)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The trained weights, by the names of `gradients`."""
        return self._public(self.log.weights)

    def _public(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        parameters = self.compiled.network.parameters
        return {parameters[name].public: value for name, value in arrays.items()}

    @cached_property
    def detail(self) -> Detail:
        """Every tile in every superstep, and in the timesteps of `window`."""
        return self.detail_in(self.window)

    def detail_in(self, window: Sequence[int]) -> Detail:
        """Every tile in every superstep, and in some timesteps.

        window: these timesteps.

            >>> made.detail_in([0, 2]).window.shape[1]  # int64[supersteps, timesteps, tiles]: busy cycles
            2
        """
        made = self.compiled
        of_run = self.profile.config_sha256
        return detail_of(made.program, self.machine, self.log.activity, made.memory, of_run, window)

    def bytes_between(self, superstep: str | int) -> np.ndarray:
        """int64[tiles, tiles of a chip]: bytes from each tile to each tile of its chip over all executions of a
        superstep; a message to several tiles counts for each of them.

        superstep: its name or number.

            >>> made.bytes_between("LIF update").shape
            (16, 16)
        """
        return bytes_between(self.compiled.program, self.number_of(superstep))

    def explain(self, superstep: str | int, tile: int | None = None, timestep: int | None = None) -> Explanation:
        """Why a superstep takes its cycles, as sums that add up.

        superstep: its name or number; where several are meant, the longest. tile: from which it is seen (default: the
        one with most work in it). timestep: the execution shown vertex by vertex (default: the longest).

            >>> print(made.explain("zero states"))  # doctest: +ELLIPSIS
            superstep 'zero states' (forward) takes ... cycles on tiny...
        """
        longest = longest_superstep(self.tiled.spans, str(superstep))
        return explain(self.compiled.program, self.machine, longest, tile, self.log.activity, timestep)

    @property
    def case(self) -> Case:
        """What another mapping of the training step is timed for."""
        return Case(
            network=self.compiled.network,
            graph=self.compiled.graph,
            machine=self.machine,
            activity=self.log.activity,
            options=self.workload.mapping,
        )

    @property
    def advice(self) -> tuple[WhatIf, ...]:
        """Changes that save time, most first; looked for on first use after a short training."""
        return self.profile.advice or self._advice

    @cached_property
    def _advice(self) -> tuple[WhatIf, ...]:
        return self.begin_advice(None)()

    def begin_advice(self, background: Background | None) -> Callable[[], tuple[WhatIf, ...]]:
        """Begin to look for `advice`; what is returned waits for it.

        background: processes that look for it; None: this one does, when it is waited for.

            >>> advice = made.begin_advice(None)()  # doctest: +SKIP
        """
        return begin_advice(self.case, self.compiled, self.tiled, self.asked, self.estimated, background)

    def what_if(self, changes: Mapping[str, Any]) -> WhatIf:
        """What changes would make of the training step with the same spikes, compiled and timed again.

        changes: of the mapping and the machine, by dotted key: {"tile.worker_contexts": 7,
        "mapping.split.hidden0.batch": 2}.

        Raises MimdsimError for other keys and for what cannot be placed.

            >>> made.what_if({"exchange.bytes_per_cycle": 8.0}).gain > 0  # the share of the time that it saves
            True
        """
        return what_if(self.case, self.compiled, self.tiled, Lever.of(changes), self.asked)

    def retime(self, machine: Given | Mapping[str, Any]) -> Run:
        """The run with the training step on another machine: the same mapping and recorded spikes, nothing is trained.

        machine: a name or file, a machine, or changes of this one by dotted key. With as many tiles it gets the same
        program; else it is compiled for it with the same options of the mapping. Whether it fits is in the profile.
        Raises DescriptionError for a GPU.

            >>> made.retime({"tile.worker_contexts": 3}).cycles > made.cycles
            True
            >>> made.retime("mk1").tiled.tiles
            1216
        """
        kept = self.profile.changes
        if isinstance(machine, Mapping):
            changes = dotted_changes(machine)
            other = changed_machine(self.machine, changes)
            kept += recorded_changes(changes)
        else:
            kept = tuple(one for one in kept if not is_of_machine(one.key))
            other = tiled_machine(machine, "give a tiled machine; GPUs are timed by run(..., gpus=...)")
        made = self.compiled
        if made.program.tiles_per_chip != other.chip.tiles or made.program.chips > other.links.chips:
            made = compile_graph(made.graph, made.network, other, self.workload.mapping, must_fit=False)
        elif not made.memory_reads.same_on(other):
            made = made.measured(other)
        before, after = ({*machine_warnings(*each)} for each in ((self.compiled, self.machine), (made, other)))
        profile = replace(
            self.profile,
            tiled=retime(made, other, self.log.activity),
            tiled_beside=(),
            inference=(),
            advice=(),
            changes=tuple(sorted({one.key: one for one in kept}.values(), key=lambda one: one.key)),
            config_sha256=digest_of([self.profile.config_sha256, other.model_dump(mode="json")]),
            warnings=(*sorted(after - before), *(one for one in self.profile.warnings if one not in before - after)),
        )
        return replace(self, profile=profile, compiled=made, machine=other, asked=None, estimated=None)

    def on(self, machine: MimdMachine) -> TiledProfile:
        """The name of `retime` in 0.1, for one release; the profile alone.

        machine: the other one.

            >>> made.on(machine).cycles  # doctest: +SKIP
        """
        warnings.warn("Run.on is Run.retime from 0.2 on, which returns a run: .tiled is its profile", FutureWarning, 2)
        return self.retime(machine).tiled


OF_THE_LOG = (
    "loss", "train_accuracy", "test_samples", "test_accuracy_by_epoch", "train_accuracy_by_epoch",
    "validation_accuracy_by_epoch", "validation_samples", "best_epoch", "engine",
)  # fmt: skip


def training_profile(log: TrainingLog, batch: int, all_spikes: float | None = None) -> Training:
    """Loss and accuracies as profile records. all_spikes: the test accuracy where no list drops a spike."""
    by_epoch = log.test_accuracy_by_epoch
    return Training(
        **{name: getattr(log, name) for name in OF_THE_LOG},
        training_steps=len(log.loss),
        samples=len(log.loss) * batch,
        batch=batch,
        test_accuracy=by_epoch[-1 if log.best_epoch is None else log.best_epoch] if by_epoch else None,
        scheduled=tuple(sorted(log.scheduled.items())),
        test_accuracy_all_spikes=all_spikes,
    )


def recorded_changes(changes: Mapping[str, Any]) -> tuple[Change, ...]:
    """Changed fields by key, so that their order does not change the profile; texts as typed."""
    shown = {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in changes.items()}
    return tuple(Change(key=key, value=shown[key]) for key in sorted(shown))
