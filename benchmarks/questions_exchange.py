"""Open questions 1 to 5: exchange, formats, copies and slices, vertices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from questions_bench import (
    CAPACITIES,
    CASES,
    LARGE,
    NETWORKS,
    SMALL,
    Bench,
    Changes,
    crossing,
    fitted,
    full_lists,
    ms,
    per_timestep,
    rests_on,
    table,
    turns,
    with_change,
)

from mimdsim.codelets.vertex_costs import overhead_bundles
from mimdsim.compiler import Compiled, plan_exchanges
from mimdsim.compiler.merge import merge_supersteps
from mimdsim.pipeline import retime
from mimdsim.profile import TiledProfile
from mimdsim.program import Program, Superstep


def bandwidth_or_latency(bench: Bench) -> list[str]:
    """1. Is communication bound by bandwidth or by latency?"""
    variants: dict[str, Changes] = {"as described": {}}
    variants |= {f"{rate} bytes a cycle": {"exchange.bytes_per_cycle": rate} for rate in (2, 8, 16)}
    variants |= {f"exchange set-up {cycles}": {"exchange.fixed_cycles": cycles} for cycles in (0, 50, 200)}
    variants |= {f"sync {cycles}": {"sync.internal_cycles": cycles} for cycles in (0, 63, 252)}
    free = {"exchange.bytes_per_cycle": 1e9, "exchange.fixed_cycles": 0, "sync.internal_cycles": 0}
    variants["bytes free"] = {"exchange.bytes_per_cycle": 1e9}
    variants["pieces free"] = {"exchange.send_fragment_cycles": 0, "exchange.receive_fragment_cycles": 0}
    variants["all communication free"] = variants["pieces free"] | free
    found: dict[str, dict[str, TiledProfile]] = {}
    for case, (name, slots) in CASES.items():
        compiled, activity = bench.compiled(name, slots), bench.activity(name, slots)
        found[case] = {
            variant: retime(compiled, bench.machine(changes), activity) for variant, changes in variants.items()
        }
    first = {case: by["as described"] for case, by in found.items()}
    shares = []
    for case, by in found.items():
        base = by["as described"]
        setup = base.exchange_cycles - by["exchange set-up 0"].exchange_cycles
        alone = [by[other].exchange_cycles - setup for other in ("pieces free", "bytes free")]
        parts = (base.compute_cycles, *alone, base.exchange_cycles - setup, setup, base.sync_cycles)
        shares.append([case, *(f"{part / base.cycles:.0%}" for part in parts)])
    rows = [[variant, *(with_change(found[case][variant], first[case]) for case in CASES)] for variant in variants]
    narrow, wide = shares[0], shares[1]
    free_of = [first[case].cycles / found[case]["all communication free"].cycles for case in (SMALL, LARGE)]
    header = ["share of cycles", "compute", "bytes alone", "pieces alone", "both", "exchange set-up", "sync"]
    return [
        *table(["ms per training step", *CASES], rows),
        *table(header, shares),
        "An exchange takes the longer of its bytes and its pieces at the busiest tile (2 control cycles to send or "
        "receive a piece), plus a set-up; sending does not delay receiving. Compute is most of the time everywhere. "
        "At the smallest capacity of nmnist-2, communication is bound by latency: its bytes alone would take "
        f"{narrow[2]} of the time, its pieces {narrow[3]}, set-up {narrow[5]}, sync {narrow[6]}; two bytes a cycle "
        f"instead of four cost next to nothing. At the largest it is bound by bandwidth: bytes {wide[2]}, pieces "
        f"{wide[3]}, set-up {wide[5]}, sync {wide[6]}. The bytes are mostly two broadcasts of all ids, and the ids "
        "and gradients of the state gradient, to every neuron tile. Free communication would make the training step "
        f"{free_of[0]:.2f} and {free_of[1]:.2f} times as fast. The rate of four bytes a cycle is published. Set-up "
        "(100 cycles) and sync (126) are derived, and a planner for a sister chip assumes 600 for each: with these "
        "values the latency would be five to six times as large, so its share is the least certain figure here. "
        f"{rests_on(first[SMALL])}",
    ]


def dense_or_ids(bench: Bench) -> list[str]:
    """2. Would dense spike vectors be faster than ids?"""
    dense: Changes = {"mapping.spike_exchange": "dense"}
    rows, lines = [], []
    for name, capacities in (("nmnist-2", (14, 146, 366, 733, 1466)), ("nmnist-4", (6, 72, 183, 366, 732))):
        pairs = [[bench.timed(name, slots, changes) for changes in ({}, dense)] for slots in capacities]
        updates = [[per_timestep(profile, "LIF update", "exchange_cycles") for profile in pair] for pair in pairs]
        for slots, pair, update in zip(capacities, pairs, updates, strict=True):
            walk = [f"{per_timestep(profile, 'LIF update', 'compute_cycles'):,.0f}" for profile in pair]
            cells = [ms(pair[0], True), with_change(pair[1], pair[0]), *(f"{cycles:,.0f}" for cycles in update)]
            rows.append([f"{name} S {slots}", *cells, *walk])
        broadcast = crossing(list(capacities), *zip(*updates, strict=True))  # type: ignore[arg-type]
        exchange = crossing(list(capacities), *([float(pair[k].exchange_cycles) for pair in pairs] for k in (0, 1)))
        whole = crossing(list(capacities), *([float(pair[k].cycles) for pair in pairs] for k in (0, 1)))
        scan, base = per_timestep(pairs[0][1], "LIF update", "compute_cycles"), pairs[0][0].cycles / turns(pairs[0][0])
        lines.append(
            f"On {name} dense vectors make the broadcast to the neuron tiles cheaper {broadcast} slots, all "
            f"exchange together {exchange}, the training step {whole}: at the smallest capacity, inspecting every "
            f"byte of every sample costs {scan:,.0f} cycles a timestep, the whole timestep with ids {base:,.0f}."
        )
    header = ["", "ids, ms", "dense, ms", "broadcast ids", "broadcast dense", "update ids", "update dense"]
    return [
        *table(header, rows),
        "Broadcast (exchange) and LIF update (compute) in cycles per timestep. Capacities above the published ones "
        "only add empty slots, because no list is full there. " + " ".join(lines) + " The crossing of the exchange, "
        "one byte per neuron against four per slot, follows from the sizes alone and is certain. The answer is no as "
        "long as a vertex inspects the bytes one by one: 4.5 bundles per byte and sample are derived (30 %) and would "
        "have to be seven to eight times fewer even where every neuron has a slot. A scan of eight bytes at a time, "
        "which are mostly all zero, could come close; the compiler does not have one.",
    ]


def short_formats(bench: Bench) -> list[str]:
    """3. What would uint16 ids and half precision bring?"""
    ids, half = {"mapping.id_bytes": 2}, {"mapping.value_bytes": 2, "mapping.neurons_per_tile": 0}
    rows, exchange = [], []
    for case, (name, slots) in CASES.items():
        profiles = [bench.timed(name, slots, changes) for changes in ({}, ids, half)]
        moved = [sum(span.bytes_received for span in profile.spans) for profile in profiles]
        exchange.append(profiles[1].exchange_cycles / profiles[0].exchange_cycles - 1)
        cells = [with_change(profiles[1], profiles[0]), f"{moved[1] / moved[0] - 1:+.0%}"]
        rows.append([case, ms(profiles[0], True), *cells, with_change(profiles[2], profiles[0])])
    for per_tile in (2, 4, 8, 16):
        name = f"multi-neuron-{per_tile}"
        for said, full in (("hidden layers nearly silent", False), ("all lists full", True)):
            found, moved = [], []
            for changes in ({}, ids, {"mapping.value_bytes": 2, "mapping.neurons_per_tile": max(4, per_tile)}):
                compiled = bench.compiled(name, 0, changes)
                spikes = full_lists(compiled) if full else fitted(bench.activity(name), compiled)
                found.append(retime(compiled, bench.machine(), spikes))
                moved.append(sum(span.bytes_received for span in found[-1].spans))
            cells = [with_change(found[1], found[0]), f"{moved[1] / moved[0] - 1:+.0%}"]
            rows.append([f"{name}, {said}", ms(found[0], True), *cells, with_change(found[2], found[0])])
    return [
        *table(["ms per training step", "32 bits", "ids of 16 bits", "bytes moved", "half values"], rows),
        f"16-bit ids save about a third of the bytes and {-max(exchange):.0%} to {-min(exchange):.0%} of the exchange "
        "cycles of the published networks, but hardly any time: exchange is the smaller part, and a tile stores at "
        "least 32 bits at a time, so inserting a 16-bit id into its word costs 8 bundles. Half-precision code works "
        "on four neurons at a time. The published networks have two per tile; in half precision they have four on "
        "half as many tiles and get slower (four neurons in 32 bits: section 9). From four neurons a tile upwards "
        "half precision pays off, and more so the more neurons a vertex has. Its cycles are derived from the same "
        "loops with wider vectors (30 %), but as separate code, so nothing cancels in the interval: the gain is "
        "certain for the widest multi-neuron network only. What half precision does to learning: convergence.md. In "
        "the multi-neuron networks (10 timesteps, batch 24) real activity lies between the two rows.",
    ]


LIBRARY = {
    "dynamic slice": ("slice",),
    "dynamic update": ("stash",),
    "multiply in place": ("scale gradient", "decay gradient"),
    "copy of the adjoint": ("copy adjoint",),
    "copy of spikes to the next layer": ("hand on",),
    "copy of ids to every neuron tile": ("replicate",),
}


def one_vertex_per_neuron(program: Program) -> tuple[int, int, int]:
    """Bytes received in the LIF update of all tiles: as compiled, one vertex per neuron, and one copy per vertex."""
    update = next(step for step, times, _ in program.supersteps() if step.name == "LIF update" and times > 1)
    tables, per_vertex = [], 0
    for old in update.tables:
        pairs = old.columns["stop"] - old.columns["start"] == 2
        one, two = ({name: column[pairs] for name, column in old.columns.items()} for _ in (0, 1))
        one["stop"], two["start"] = one["start"] + 1, two["start"] + 1
        columns = {name: np.concatenate([one[name], two[name]]) for name in one}
        tables.append(replace(old, tiles=np.tile(old.tiles[pairs], 2), columns=columns, extents={}))
        row = sum(program.variables[old.operands[name]].shape[-1] * 4 for name in ("ids", "counts"))
        per_vertex += tables[-1].vertices * row
    moved = []
    for step in (update, replace(update, tables=tuple(tables))):
        planned = next(plan_exchanges(replace(program, body=(step,))).supersteps())[0]
        assert planned.exchange is not None
        moved.append(int(planned.exchange.bytes_received.sum()))
    return moved[0], moved[1], per_vertex


def merged(compiled: Compiled, names: tuple[str, ...]) -> Compiled:
    """The program with library calls of these names joined wherever none waits for another."""

    def joinable(step: Superstep) -> Superstep:
        found = next((name for name in names if step.name.startswith(name)), "")
        return replace(step, mergeable=True, stage=found, exchange=None) if found else step

    program = merge_supersteps(compiled.program.map_supersteps(joinable))
    return replace(compiled, program=plan_exchanges(program))


def copies_and_slices(bench: Bench) -> list[str]:
    """4. Are ids moved once per tile or per vertex? Why are slices, mulInPlace and Copy so expensive?"""
    bytes_rows, rows, saved = [], [], []
    for case, (name, slots) in CASES.items():
        compiled, activity = bench.compiled(name, slots), bench.activity(name, slots)
        base = retime(compiled, bench.machine(), activity)
        bytes_rows.append([case, *(f"{number:,}" for number in one_vertex_per_neuron(compiled.program))])
        whole = base.cycles / turns(base)
        if slots == CAPACITIES[name][0]:
            for kind, starts in LIBRARY.items():
                spans = [span for span in base.spans if span.name.startswith(starts) and span.times > 1]
                parts = [per_timestep(base, starts, f"{part}_cycles") for part in ("compute", "exchange", "sync")]
                each = " / ".join(f"{part / len(spans):,.0f}" for part in parts)
                rows.append([case, kind, len(spans), each, f"{sum(parts):,.0f}", f"{sum(parts) / whole:.0%}"])
        both = retime(merged(compiled, ("slice", "stash")), bench.machine(), activity)
        every = ("slice", "stash", "scale gradient", "decay gradient", "copy adjoint")
        all_of = retime(merged(compiled, every), bench.machine(), activity)
        cells = [with_change(profile, base) for profile in (both, all_of)]
        fixed = sum(len(base.spans) - len(profile.spans) for profile in (all_of,))
        saved.append([case, ms(base, True), *cells, fixed])
    header = ["bytes received in the LIF update", "as compiled", "one vertex per neuron", "if sent once per vertex"]
    return [
        *table(header, bytes_rows),
        "Once per tile: data that several vertices of a tile read are sent once, and data that several tiles read "
        "leave their tile once (assumed for the vendor's compiler too; we found no document that confirms it). One "
        "vertex per neuron instead of one per pair does not change the bytes.",
        *table(["", "library call", "per timestep", "one: compute / exchange / sync", "all", "of the timestep"], rows),
        "Slices do make copies: a dynamic slice writes a separate variable, on the tile that holds the sequence (a "
        "slice with a fixed index would be a view). Only the four bytes of the timestep travel, yet they cost a sync "
        "and an exchange set-up, and the library vertex takes some 400 cycles however little it moves (the vendor's "
        "formula, published, 10 %). Few tiles take part in slices of ids because the list is shorter than the chip "
        "is wide. An in-place multiplication pays the same again because its factor is spread over the chip. The "
        "expensive copy is that of ids to every neuron tile: all bytes of the batch arrive at every tile at 4 a "
        "cycle.",
        *table(["ms per training step", "as compiled", "slices and updates merged", "all merged", "calls gone"], saved),
        "Merged: one superstep for all calls of a kind in all layers, wherever none waits for another; compiled and "
        "timed this way. Sync and set-up are paid once and calls on different tiles run side by side; calls on the "
        "same tile still run one after another. Nothing in the cost model prevents this, but every call of the "
        "vendor's functions is a separate program, so it requires custom codelets. Most of the saving is sync and "
        "set-up (derived, 30 %, more likely too low than too high).",
    ]


def vertices(bench: Bench) -> list[str]:
    """5. One vertex per neuron, per worker, or a MultiVertex?"""
    rows = []
    for name in NETWORKS:
        slots = CAPACITIES[name][0]
        compiled, base = bench.compiled(name, slots), bench.timed(name, slots)
        per_tile, batch = compiled.placement.neurons_per_tile, compiled.network.batch
        contexts, issue = base.worker_contexts, bench.machine().tile.issue_cycles
        flags = next(
            held.codelet for step, _, _ in compiled.program.supersteps() for held in step.tables
            if held.codelet.name == "FlagSpikes"
        )  # fmt: skip
        pairs, loop = per_tile * batch, 12 + 2  # the published body, and count and branch
        call = overhead_bundles(scalars=4, vectors=2)  # launch included
        share = -(-pairs // contexts)
        single = flags.cost.fixed  # type: ignore[union-attr]
        small, large = flags.vertex_state_bytes, flags.vertex_state_bytes + 8
        choices = {
            "per neuron and sample (as published)": (pairs, contexts, share * single, small),
            "per sample": (batch, contexts, -(-batch // contexts) * (call + per_tile * loop), large),
            "per worker": (contexts, contexts, call + share * loop, large),
            "per tile, one worker": (1, 1, call + pairs * loop, large),
            "per tile, MultiVertex": (1, contexts, 12 / issue + call + share * loop, large),
        }
        as_published = issue * share * single
        for said, (count, used, bundles, state) in choices.items():
            cycles = issue * bundles
            part = (cycles - as_published) / (base.cycles / turns(base))
            rows.append([name, said, count, used, f"{cycles:,.0f}", f"{part:+.1%}", f"{count * state:,}"])
    header = ["", "flag spikes: one vertex", "vertices on a tile", "workers", "cycles", "of a timestep", "vertex bytes"]
    return [
        *table(header, rows),
        "Worked out by hand from the codelet's bundles: 12 to launch and return, 12 for the published body, 2 more "
        "to count and branch in a loop, 19 for the frame and fields of a vertex with a loop; vertex state is a word "
        "per field, column and constant. An ordinary vertex gets one worker, in turn; a MultiVertex gets all six, "
        "launched by the supervisor in about 12 cycles. One vertex per worker or a MultiVertex needs two thirds of "
        "the cycles and a twelfth of the vertex state or less. It is 1 % of a timestep: worth it for the memory and "
        "the compile time rather than for the speed. One ordinary vertex per tile is the choice to avoid, because "
        "five of six workers are idle. All bundles are derived (30 %); the order does not depend on them.",
    ]
