"""The Python API: what the commands do, as functions that return their results.

`mimdsim.run`, `compare`, `sweep`, `study`, `place` and `check` are these; docs/api.md shows them at work. User errors
raise MimdsimError. Where several of something can be given, so can one alone.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mimdsim.base.atomic_folder import KERNEL, RUN, refuse_other, replace_files
from mimdsim.base.console import Progress, silent
from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.base.processes import Background, background_processes
from mimdsim.base.search_path import Named, several
from mimdsim.base.units import counted, parse_numbers
from mimdsim.execution import Checkpoints, constant_layers
from mimdsim.machine import GpuMachine, MimdMachine, given_machine
from mimdsim.pipeline.detail import WINDOW, is_kept
from mimdsim.pipeline.findings import constant_layer_texts
from mimdsim.pipeline.identity import descriptions_of
from mimdsim.pipeline.overrides import load_gpu, load_line_up, load_tiled, split_changes
from mimdsim.pipeline.pipeline import is_worth_advice, recorded_spikes, simulate
from mimdsim.pipeline.recorded_run import SPIKES_FILE, save_recorded
from mimdsim.pipeline.result import Run
from mimdsim.pipeline.what_if import Request
from mimdsim.profile import MAPPING_FILE, save_profile
from mimdsim.profile.detail import DETAIL_FILE, save_detail
from mimdsim.program import Program
from mimdsim.search import Aims, Case, Objective, SearchResult, parse_limits, search, smallest_sram
from mimdsim.workload import MappingOptions, Workload, filled_activity, load_workload, network_of, write_mapping_file
from mimdsim.workload.interchange.layers import write_trained

if TYPE_CHECKING:
    from mimdsim.checking.kernel import CheckResult
    from mimdsim.checking.program import Subject
    from mimdsim.studies import Study as StudyRecord
    from mimdsim.studies import StudyResult
    from mimdsim.studies.page_data import SweptRows

OF_A_RUN = ("profile.json", DETAIL_FILE, SPIKES_FILE, "weights.safetensors")  # beside the report
GivenWorkload = Named | Workload
GivenMachine = Named | MimdMachine
GivenGpu = Named | GpuMachine
Changes = Mapping[str, Any]

SPIKES_OF = 20  # training steps before spikes are recorded for a search


def run(
    workload: GivenWorkload = "digits",
    machine: GivenMachine = "bow",
    *,
    changes: Changes | None = None,
    mapping: str | Path | None = None,
    gpus: GivenGpu | Iterable[GivenGpu] = ("a100",),
    report: str | Path | None = None,
    dump: str | Path | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    accept_other_code: bool = False,
    window: str | int | Sequence[int] | None = None,
    inference: bool = False,
    progress: Progress = silent,
) -> Run:
    """Train a workload on the tiles of a machine and profile its last training step; compare GPUs on the same graph.

    workload: a name, the path of a TOML file (a text or `pathlib.Path`), or what `load_workload` or `Network` returns.
    machine: a name, a path, or what `load_machine` or `Machine` returns. gpus: one or several that are timed beside it.
    changes: fields of workload and machine by dotted key or nested, {"training.epochs": 2, "tile": {"worker_contexts":
    12}}. mapping: a file with options of the mapping, as `place` writes it. report: a folder for the report, the
    profile and the trained weights; written as a whole at the end. progress: called with what is being done, how many
    are done and how many there are; by default nothing is shown. checkpoint: a file that the training is saved to after
    every epoch; resume: continue from it; accept_other_code: also where other sources of mimdsim wrote it, which the
    profile records. dump: a folder for the program as text. window: timesteps of which every tile is kept one by one,
    as "40-49" or numbers (default: the first ten). inference: time the forward pass of test samples too, on its own
    program (docs/inference.md).

        >>> short = {"data.timesteps": 3, "network": {"hidden": [12], "capacity": [6, 4]}}
        >>> short |= {"training": {"max_training_steps": 1, "evaluate": "never"}}
        >>> result = mimdsim.run("digits", "tiny", changes=short, gpus="a100")
        >>> result.machine.name, len(result.log.loss)
        ('tiny', 1)
    """
    if resume and checkpoint is None:
        problem = "needs a file to continue from: add  --checkpoint FILE  (from Python: checkpoint=FILE)"
        raise DescriptionError("resume", [problem])
    if accept_other_code and not resume:
        raise DescriptionError("accept-other-code", ["is for a training that is continued: add  --resume"])
    if report is not None:
        refuse_other(Path(report), RUN)
    for_workload, for_machine = split_changes(dict(changes or {}))
    wanted, tiled = _loaded(workload, for_workload, mapping), load_tiled(machine, for_machine)
    gpus = several(gpus)
    beside = tuple(load_gpu(gpu) for gpu in gpus)
    saved = None
    if checkpoint is not None:
        saved = Checkpoints(path=Path(checkpoint), resume=resume, accept_other_code=accept_other_code)
    chosen = WINDOW if window is None else _window(window, wanted.data.timesteps)
    with _backgrounds(report) as (advising, drawing), _named(mapping):
        made = simulate(
            *(wanted, tiled, beside),
            dump=None if dump is None else Path(dump),
            checkpoints=saved,
            described=descriptions_of(workload, (machine, *gpus), mapping),
            progress=progress,
            changes=for_workload | for_machine | _from_file(mapping),
            background=advising,
            inference=inference,
        )
        made = replace(made, window=chosen, asked=_asked(workload, machine, changes, mapping))
        return _written(made, report, progress, advising, drawing)


@contextlib.contextmanager
def _backgrounds(report: str | Path | None) -> Iterator[tuple[Background | None, Background | None]]:
    """Processes that look for advice, and those that draw; none while another one compiles kernels for a first run."""
    from mimdsim.numerics.compiled import compile_ahead
    from mimdsim.report import prepare_figures

    first = compile_ahead()
    if first is not None and first.poll() is None:
        yield None, None
        return
    with contextlib.ExitStack() as held:
        drawing = None if report is None else held.enter_context(background_processes(prepare_figures))
        yield held.enter_context(background_processes()), drawing


def _window(given: str | int | Sequence[int], timesteps: int) -> Sequence[int]:
    text = given if isinstance(given, str) else ",".join(map(str, several(given)))
    return sorted(set(parse_numbers(text, timesteps, "window (timesteps)")))


def compare(
    workload: GivenWorkload = "digits",
    machines: GivenMachine | GivenGpu | Sequence[GivenMachine | GivenGpu] = ("bow", "a100", "h100"),
    *,
    changes: Changes | None = None,
    mapping: str | Path | None = None,
    best_mapping: int = 0,
    report: str | Path | None = None,
    progress: Progress = silent,
) -> Run:
    """Compare tiled machines and GPUs on the same training step: training runs on the first tiled machine that it fits,
    the others are timed with its spikes. workload, changes, mapping, report, progress: as in `run`. machines: one
    or several, tiled ones and GPUs. best_mapping: search for the best mapping of every tiled machine among so many,
    with the spikes of some training steps.

        >>> mimdsim.compare("digits", ("bow", "mk2", "a100"), report="reports/three")  # doctest: +SKIP
    """
    if best_mapping and mapping is not None:
        raise DescriptionError("compare", [f"best_mapping finds one for every machine: leave out mapping {mapping}"])
    if report is not None:
        refuse_other(Path(report), RUN)
    for_workload, for_machine = split_changes(dict(changes or {}))
    line_up = several(machines)
    wanted, (tiled, gpus) = _loaded(workload, for_workload, mapping), load_line_up(line_up, for_machine)
    found: dict[str, MappingOptions] = {}
    if best_mapping:
        spikes = recorded_spikes(wanted, tiled[0], SPIKES_OF, progress)
        for each in tiled:
            case = Case.of(network_of(wanted), each, spikes, wanted.mapping)
            processes = os.cpu_count() or 1
            with contextlib.suppress(DoesNotFit):  # said where it is compiled
                best = search(
                    *(case, Aims.of(each)),
                    candidates=best_mapping,
                    processes=processes,
                    progress=progress,
                    explained=False,
                )
                found[each.name] = best.best.options
    given = [one for one in line_up if isinstance(given_machine(one), MimdMachine)]
    with _backgrounds(report) as (advising, drawing), _named(mapping):
        refusals: dict[str, str] = {}
        for place, reference in enumerate(tiled):
            try:
                made = simulate(
                    wanted.model_copy(update={"mapping": found.get(reference.name, wanted.mapping)}),
                    *(reference, gpus),
                    beside=(*tiled[:place], *tiled[place + 1 :]),
                    mappings=found,
                    described=descriptions_of(workload, line_up, mapping),
                    progress=progress,
                    changes=for_workload | for_machine | _from_file(mapping),
                    background=advising,
                )
                break
            except DoesNotFit as refusal:
                refusals[reference.title] = str(refusal)
        else:
            raise DoesNotFit("\n".join(refusals.values()))
        why = [f"the reference is {reference.title}, not {no}: {it.splitlines()[0]}" for no, it in refusals.items()]
        made = replace(made, profile=replace(made.profile, warnings=(*why, *made.profile.warnings)))
        if not best_mapping:
            made = replace(made, asked=_asked(workload, given[place], changes, mapping))
        return _written(made, report, progress, advising, drawing)


def sweep(
    workload: Named,
    machine: GivenMachine,
    axes: Mapping[str, Any],
    *,
    gpus: Named | Iterable[Named] = (),
    training_steps: int = 20,
    fill: float | None = None,
    mapping: str | Path | None = None,
    best_mapping: int = 0,
    processes: int | None = None,
    folder: str | Path | None = None,
    progress: Progress = silent,
) -> SweptRows:
    """Time a workload for every combination of the values of `axes`; returns one row each, in order.

    workload: a name, or the path of a file. machine, gpus, progress: as in `run`. processes: how many work at once
    (default: one for each processor). axes: by dotted key, a list of values, or a range as studies take it.
    training_steps: training steps before spikes are recorded (0: the whole training); fill: fill lists to this share
    instead of training. mapping: a file with options of the mapping; best_mapping: search for the best mapping of every
    point among so many. folder: where points are saved, so that the same call continues where it stopped.

        >>> rows = mimdsim.sweep("digits", "bow", {"tile.worker_contexts": (3, 6)}, fill=0.5)  # doctest: +SKIP
        >>> rows[0]["ms_per_training_step"]  # milliseconds; rows.plot.lines() draws them  # doctest: +SKIP
    """
    from mimdsim.studies import make_study
    from mimdsim.studies.page_data import SweptRows

    if best_mapping and mapping is not None:
        raise DescriptionError("sweep", [f"best_mapping finds a mapping for every point: leave out mapping {mapping}"])
    given = make_study(
        "sweep",
        workloads=[workload],
        machine=machine,
        axes={key: each if isinstance(each, Mapping) else several(each) for key, each in axes.items()},
        training_steps=training_steps,
        gpus=several(gpus),
        fill=fill,
        mapping="best" if best_mapping else "published" if mapping is None else mapping,
        candidates=best_mapping or None,
    )
    return SweptRows(study(given, folder, processes=processes, progress=progress))


def Study(base: str | Path | StudyRecord | None = None, /, **keys: Any) -> StudyRecord:
    """A study of these keys, as its file would have them, for `study`.

    base: a study, itself or by name or file, that it is but for `keys`; None: all is given here. keys: by keyword, as
    docs/reference-study.md lists them; one name may stand for a list of names, a list of workloads for their weights.

    Checked as files are; raises DescriptionError with every problem.

        >>> asked = mimdsim.Study(
        ...     question="How many contexts?", workloads="digits", fill=0.5, axes={"tile.worker_contexts": [3, 6, 12]}
        ... )
        >>> asked.machine, asked.varied
        ('bow', ('tile.worker_contexts',))
        >>> mimdsim.Study(asked, gpus="a100").gpus
        ('a100',)
    """
    from mimdsim.studies import make_study, read_study

    original = read_study(base) if isinstance(base, str | Path) else base
    given = {} if original is None else {key: getattr(original, key) for key in original.model_fields_set}
    return make_study("Study", **(given | keys))


def study(
    given: str | Path | StudyRecord,
    folder: str | Path | None = None,
    *,
    processes: int | None = None,
    dask: str | None = None,
    as_is: bool = False,
    progress: Progress = silent,
) -> StudyResult:
    """Compute the points of a study, and answer its question.

    given: the name or file of a study, or what `Study` returns. folder: where points and tables
    are kept, so that the same call continues where it stopped. processes: local ones; dask: the address of a Dask
    scheduler whose workers are used instead. as_is: compute nothing. progress: as in `run`.

        >>> mimdsim.study("ids-or-dense", as_is=True).complete
        False
    """
    from mimdsim.studies import Dask, Local, read_study, run_study

    wanted = read_study(given) if isinstance(given, str | Path) else given
    engine = Local(processes) if dask is None else Dask(dask)
    with tempfile.TemporaryDirectory() as spare, contextlib.closing(engine):
        return run_study(wanted, Path(folder or spare), engine, progress, as_is)


def place(
    workload: GivenWorkload = "digits",
    machine: GivenMachine = "bow",
    *,
    objective: Objective = "time",
    within: str = "",
    changes: Changes | None = None,
    fill: float = 0.5,
    training_steps: int = 0,
    candidates: int = 240,
    processes: int | None = None,
    out: str | Path | None = None,
    smallest: bool = False,
    progress: Progress = silent,
) -> SearchResult:
    """The best mapping of a workload on a machine: how the layers are cut, and the form of the program. The same call
    finds the same.

    workload, machine, changes, progress: as in `run`. processes: how many work at once (default: one for each
    processor). objective: what is least, "time", "memory" (of the fullest tile), "energy" or "product" (of time and
    memory). within: limits, "max memory 400 KiB, max tiles 1000". fill: the share of their capacity that lists hold;
    training_steps: record spikes after so many instead. candidates: mappings that are lowered; many more are made of
    their layers. out: a mapping file to write, for `run`, `compare`, `sweep`. smallest: find the least tile.sram_bytes
    that some mapping fits (the peak bytes of the best one); its energy is that of a machine with so much memory.

        >>> found = mimdsim.place("digits", "bow", candidates=20, out="best.toml")  # doctest: +SKIP
        >>> found.best.figures.cycles  # of a training step, where found.published takes more  # doctest: +SKIP
    """
    for_workload, for_machine = split_changes(dict(changes or {}))
    wanted, tiled = _loaded(workload, for_workload), load_tiled(machine, for_machine)
    network = network_of(wanted)
    recorded = recorded_spikes(wanted, tiled, training_steps, progress) if training_steps else None
    case = Case.of(network, tiled, recorded or filled_activity(network, fill), wanted.mapping)
    aims = Aims.of(tiled, objective=objective, within=parse_limits(within))
    find = smallest_sram if smallest else search
    found = find(case, aims, candidates=candidates, processes=processes or os.cpu_count() or 1, progress=progress)
    if recorded is not None:
        found = replace(found, doubted=tuple(constant_layer_texts(network, constant_layers(network, recorded))))
    if out is not None:
        write_found(out, found, wanted, tiled)
    return found


def write_found(
    path: str | Path,
    found: SearchResult,
    workload: GivenWorkload,
    machine: GivenMachine,
    changes: Changes | None = None,
) -> None:
    """Write the best mapping that a search found for a workload on a machine as a mapping file."""
    for_workload, for_machine = split_changes(dict(changes or {}))
    wanted, tiled = _loaded(workload, for_workload), load_tiled(machine, for_machine)
    figures = found.best.figures
    title = f"{figures.cycles:,} cycles and {figures.peak_bytes:,} bytes a tile on {counted(figures.tiles, 'tile')}"
    write_mapping_file(
        Path(path),
        found.best.options,
        network_of(wanted),
        title=title,
        workload=wanted.name,
        machine=tiled.name,
    )


def check(
    workload: Named,
    machine: GivenMachine = "bow",
    *,
    program: Callable[[Subject], Program] | str | Path | None = None,
    changes: Changes | None = None,
    strict: bool = False,
    timesteps: int = 6,
    batch: int = 8,
    reference: str = "reference",
    report: str | Path | None = None,
    progress: Progress = silent,
) -> CheckResult:
    """Check rules, memory and values of the compiled workload, of what `program` (a function, or a file with `build`)
    makes of it, or of a kernel (a path that ends in .py, with its function `reference`).

    workload: a workload, or the path of a kernel, which ends in .py. program: makes another program of the compiled
    one, or a file with such a function `build`. strict: also run vertex by vertex on poisoned memory. timesteps, batch:
    what a workload is shortened to; 0 keeps it; as many samples at least as make some tile take two, where the whole
    batch does. machine, changes, progress: as in `run`. reference: the name of the kernel's function that computes what
    it should. report: a folder for the report of a kernel.

        >>> small = {"network": {"hidden": (12,), "capacity": (6, 4)}}
        >>> mimdsim.check("digits", "tiny", changes=small).passed  # doctest: +SKIP
        True
    """
    from mimdsim.checking.kernel import CheckResult
    from mimdsim.checking.program import check_program, load_build, shrunk

    progress("checking", 0, 1)
    for_workload, for_machine = split_changes(dict(changes or {}))
    chosen = load_tiled(machine, for_machine)
    if not isinstance(workload, Workload) and os.fspath(workload).endswith(".py"):
        if program is not None:
            raise DescriptionError("check", [f"--program {program} changes a compiled workload, not a kernel"])
        no_workload_changes(for_workload)
        asked = _asked(workload, machine, for_machine, None, "check")
        return _checked_kernel(
            *(Path(os.fspath(workload)), chosen, reference, strict),
            folder=None if report is None else Path(report),
            asked=asked,
            progress=progress,
        )
    if report is not None:
        raise DescriptionError("check", [f"--out {report} is for the report of a kernel; a workload's: mimdsim run"])
    build = load_build(Path(program)) if isinstance(program, str | Path) else program
    whole = _loaded(workload, for_workload)
    small = shrunk(whole, timesteps, batch, chosen)
    return CheckResult(
        findings=tuple(check_program(small, whole, chosen, build, strict=strict)),
        machine=chosen,
        heading=f"at {counted(small.data.timesteps, 'timestep')} and batch {small.training.batch}; memory at full size",
    )


def no_workload_changes(changes: dict[str, Any]) -> None:
    """Raise DescriptionError for workload changes given with a kernel."""
    if changes:
        raise DescriptionError(
            "--set", [f"{key}: a kernel has no workload; only fields of its machine can be changed" for key in changes]
        )


def _checked_kernel(
    path: Path,
    machine: MimdMachine,
    reference: str,
    strict: bool,
    *,
    folder: Path | None,
    asked: Request | None,
    progress: Progress,
) -> CheckResult:
    from mimdsim.checking.kernel import load_kernel, profile_of
    from mimdsim.report import report_files, write_report

    if folder is not None:
        refuse_other(folder, KERNEL)
    kernel = load_kernel(path, reference)
    result = kernel.check(machine, strict=strict)
    if folder is not None:
        profile = profile_of(kernel, result, asked)
        detail = result.detail(profile.config_sha256)
        with replace_files(folder, ("profile.json", DETAIL_FILE, *report_files())) as draft:
            save_profile(draft / "profile.json", profile)
            if detail is not None:
                save_detail(draft / DETAIL_FILE, detail)
            write_report(profile, draft, progress, detail)
    return result


def _asked(
    workload: GivenWorkload,
    machine: GivenMachine | GivenGpu,
    changes: Changes | None,
    mapping: str | Path | None,
    name: Literal["run", "check"] = "run",
) -> Request | None:
    """What a command can say of a run; None for objects, which it cannot name."""
    if isinstance(workload, Workload) or isinstance(machine, (MimdMachine, GpuMachine)):
        return None
    named = os.fspath(workload), os.fspath(machine)
    return Request(
        workload=named[0], machine=named[1], changes=dict(changes or {}), mapping=str(mapping or ""), name=name
    )


@contextlib.contextmanager
def _named(mapping: str | Path | None) -> Iterator[None]:
    """Problems with keys of a mapping begin with the file that has them."""
    try:
        yield
    except (MappingError, DoesNotFit) as problem:
        if mapping is None or not str(problem).startswith("mapping."):
            raise
        raise type(problem)(f"{mapping}: {problem}") from None


def _from_file(mapping: str | Path | None) -> dict[str, str]:
    """The mapping file of a run, as one of its changes."""
    return {} if mapping is None else {MAPPING_FILE: str(mapping)}


def _loaded(workload: GivenWorkload, changes: dict[str, Any], mapping: str | Path | None = None) -> Workload:
    if not isinstance(workload, Workload):
        return load_workload(workload, changes, mapping)
    if mapping is not None:
        raise DescriptionError("mapping", [f"{mapping}: the workload is already loaded; pass this to load_workload"])
    if changes:
        problems = [
            f"{key}: the workload is already loaded; pass this to load_workload, or its with_" for key in changes
        ]
        raise DescriptionError("changes", problems)
    return workload


def _written(
    made: Run,
    folder: str | Path | None,
    progress: Progress,
    advising: Background | None,
    drawing: Background | None,
) -> Run:
    """The run with advice; writes its files if `folder` is given."""
    from mimdsim.report import begin_figures, report_files, write_report

    walked = folder is not None and is_kept(made.compiled.program)
    drawn = None if drawing is None else begin_figures(made.profile, drawing, walked)  # advice is in none of them
    detail = made.detail if walked else None  # while changes are still estimated
    wanted = is_worth_advice(made)
    if wanted:
        progress("looking for advice", 0, 1)
    looking = made.begin_advice(advising) if wanted else tuple

    def advised() -> Run:
        return replace(made, profile=replace(made.profile, advice=looking()), estimated=None)  # its processes end

    if folder is None:
        return advised()
    with replace_files(Path(folder), (*OF_A_RUN, *report_files())) as draft:
        if detail is not None:
            save_detail(draft / DETAIL_FILE, detail)
        save_recorded(draft / SPIKES_FILE, made)
        training = made.profile.training
        said = training.said_of_lists if training is not None else ""
        write_trained(draft / "weights.safetensors", made.log.weights, made.workload, said)
        made = advised()
        save_profile(draft / "profile.json", made.profile)
        write_report(made.profile, draft, progress, detail, drawn=drawn)
    return made
