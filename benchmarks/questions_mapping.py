"""Open questions 6 to 11: where things lie, replicas, tiles, memory, chips."""

from __future__ import annotations

from questions_bench import (
    CAPACITIES,
    CASES,
    LARGE,
    Bench,
    Changes,
    crossing,
    kib,
    ms,
    per_timestep,
    table,
    turns,
    with_change,
)


def where_to_select(bench: Bench) -> list[str]:
    """6. Where should spike selection and the sums of input gradients be placed?"""
    variants: dict[str, Changes] = {"as published": {}}
    variants["selection on the last tiles"] = {"mapping.selection_tiles": "last"}
    variants |= {f"{states} states per worker": {"mapping.states_per_worker": states} for states in (16, 32, 128)}
    variants["reduce tiles: even"] = {"mapping.reduce_rule": "even"}
    variants |= {f"reduce tiles: work^{power}": {"mapping.reduce_exponent": power} for power in (0.5, 1.0)}
    cases = {case: at for case, at in CASES.items() if at[1] == CAPACITIES[at[0]][-1]}
    rows = []
    for said, changes in variants.items():
        cells: list[str] = []
        for name, slots in cases.values():
            profile, base = bench.timed(name, slots, changes), bench.timed(name, slots)
            select = per_timestep(profile, ("scan flags", "combine"))
            reduce = per_timestep(profile, ("reduce",))
            cells += [with_change(profile, base), f"{select:,.0f}", f"{reduce:,.0f}", f"{profile.tile_balance:.2f}"]
        rows.append([said, *cells])
    header = [""]
    for case in cases:
        header += [f"{case}, ms", "selection", "sums", "balance"]
    return [
        *table(header, rows),
        "Selection (scans and combines) and sums of input gradients in cycles per timestep; balance is the mean "
        "divided by the largest busy cycles of the tiles. It pays to spread the selection over the chip: on the last "
        "tiles, one per sample and layer, it takes three to five times as long. 64 states per worker are a good "
        "choice; 16 to 64 differ by about 2 % at most, intervals included. For the sums, the number of tiles should "
        "grow more slowly than the work: exponents of 0.5 and 0.8 (the authors' choice) are about equal; 1.0 starves "
        "the small output layer, whose few tiles all others wait for, and an even split starves the large one. The "
        "scan rests on 4.5 bundles per flag (derived, 30 %), the sums on arranging and exchange (derived); the "
        "placement of vertices follows the published rules exactly.",
    ]


def state_gradient(bench: Bench) -> list[str]:
    """7. State gradient on one tile per sample, or on every neuron tile?"""
    rows, lines = [], []
    older: Changes = {"mapping.state_gradient": "per_batch"}
    for name, capacities in (("nmnist-2", (14, 72, 146, 366, 733, 1466)), ("nmnist-4", (6, 36, 72, 183, 366, 732))):
        pairs = [[bench.timed(name, slots, changes) for changes in ({}, older)] for slots in capacities]
        for slots, (tilewise, per_batch) in zip(capacities, pairs, strict=True):
            both, part = (per_batch, tilewise), ("state gradient", "scatter")
            parts = [f"{per_timestep(profile, part):,.0f}" for profile in both]
            rows.append([f"{name} S {slots}", ms(per_batch, True), with_change(tilewise, per_batch), *parts])
        cross = crossing(list(capacities), *([float(pair[k].cycles) for pair in pairs] for k in (0, 1)))
        lines.append(f"{cross} slots on {name}")
    return [
        *table(["", "per batch, ms", "tile-wise, ms", "per batch, cycles", "tile-wise, cycles"], rows),
        "Cycles are those of the state gradient alone, gather and scatter included. Per batch, three rows of a "
        "layer's width are gathered on one tile per sample and one is scattered, whatever the capacity; tile-wise, "
        "every neuron tile receives and scans every list, which grows with the capacity. The older operation is "
        f"faster from a capacity of {' and of '.join(line.removeprefix('at ') for line in lines)}, at least four "
        "times the largest published one: the authors' change was right for their networks, and what still grows "
        "there is the broadcast of empty slots. The gather depends on one number, 24 bundles to arrange a piece "
        "(derived; 21 and 43 are vendor figures too), which was adopted because the published times of the older "
        "operation require it; there is no published time for the tile-wise one. Up to the published capacities the "
        "tile-wise one is faster at both ends of the interval; where the two cross is uncertain: at two and a half "
        "and at five times the published capacity the interval contains both answers, on both networks.",
    ]


def replicas(bench: Bench) -> list[str]:
    """8. How many replicas of the weight gradient?"""
    rows = []
    for case, (name, slots) in CASES.items():
        six = bench.timed(name, slots)
        for number in (1, 2, 3, 6):
            profile = bench.timed(name, slots, {"mapping.weight_gradient_replicas": number})
            part = per_timestep(profile, "weight gradient")
            cells = [with_change(profile, six), f"{part:,.0f}", kib(profile.memory.peak_bytes)]
            rows.append([case, number, *cells])
    return [
        *table(["", "replicas", "ms", "weight gradient, cycles", "peak KiB"], rows),
        "A replica serves one worker context, so fewer replicas leave workers idle: with one, the weight gradient "
        "takes five times as long. Three cost 6 to 10 % more time and save 54 KiB on the fullest tile of these "
        "networks (18 KiB a replica: 2,312 inputs, two neurons, four bytes); two, the authors' way out of a network "
        "that did not fit, cost 12 to 20 %. Seven bundles per spike and pair are derived (30 %); the bytes are exact.",
    ]


def tiles_and_contexts(bench: Bench) -> list[str]:
    """9. More neurons a tile, more worker contexts, assembler instead of C++?"""
    variants: dict[str, tuple[Changes, Changes]] = {"as published": ({}, {})}
    variants |= {f"{number} neurons a tile": ({"mapping.neurons_per_tile": number}, {}) for number in (4, 8)}
    variants |= {f"{number} contexts": ({}, {"tile.worker_contexts": number}) for number in (3, 12)}
    variants |= {f"dual issue {share}": ({}, {"tile.compiled_dual_issue": share}) for share in (0.5, 1)}
    rows = []
    for said, (changes, machine) in variants.items():
        cells = []
        for name, slots in CASES.values():
            profile = bench.timed(name, slots, changes, machine)
            cells.append(f"{with_change(profile, bench.timed(name, slots))}, {kib(profile.memory.peak_bytes)} KiB")
        rows.append([said, *cells])
    return [
        *table(["", *CASES], rows),
        "ms and peak KiB. Two neurons a tile are best: with four on half the tiles the training step takes 21 to 34 "
        "% longer, not twice as long, because sync, launches and broadcasts do not grow (8 neurons need more than "
        "the 624 KiB of a tile). Six contexts fill the issue slots: three leave half of them empty, twelve merely "
        "even out the last round. Dual issue is the share of loads, stores and address updates that go into the "
        "bundle of an arithmetic instruction: assembler with the same loops saves 3 to 8 %, because library calls, "
        "exchange and the dependency chain of each loop remain. Rewritten loops that take two spikes at a time might "
        "save more and are not modelled. The number of instructions that can be paired is our own count (derived, 30 "
        "%).",
    ]


def memory(bench: Bench) -> list[str]:
    """10. What does memory allow?"""
    variants: dict[str, Changes] = {f"{number} timesteps": {"data.timesteps": number} for number in (50, 100, 200, 400)}
    variants |= {f"batch {number}": {"training.batch": number} for number in (24, 48, 96, 192)}
    rows = []
    for said, changes in variants.items():
        cells: list[str] = []
        for case in (LARGE, "nmnist-4 S 72"):
            profile = bench.timed(*CASES[case], changes)
            fits = "yes" if profile.memory.peak_bytes <= profile.memory.limit_bytes else "no"
            cells += [ms(profile), kib(profile.memory.peak_bytes), fits]
        rows.append([said, *cells])
    most = []
    for case in (LARGE, "nmnist-4 S 72"):
        short, long = (bench.timed(*CASES[case], {"data.timesteps": number}).memory for number in (200, 400))
        each = (long.peak_bytes - short.peak_bytes) / 200
        most.append(f"{int(400 + (long.limit_bytes - long.peak_bytes) / each):,}" if each > 0 else "any number")
    header = ["", f"{LARGE}, ms", "peak KiB", "fits", "nmnist-4 S 72, ms", "peak KiB", "fits"]
    return [
        *table(header, rows),
        "Longer sequences and larger batches repeat the recorded spikes. Memory grows linearly with timesteps "
        f"(states and lists are kept for the backward pass): the longest sequences that fit are about {most[0]} and "
        f"{most[1]} timesteps at batch 48, with everything stashed (`mapping.stash` keeps less, docs/stash.md). A "
        "larger batch costs less time per sample; its limit is that ids and input gradients of the whole batch are "
        "held on every neuron tile. Bytes of variables are exact; those of code are assumed (24 KiB plus what "
        "codelets add).",
    ]


def chips(bench: Bench) -> list[str]:
    """11. What do several chips cost, and what would overlapping the links save?"""
    rows = []
    for slots in CAPACITIES["nmnist-4"]:
        one = bench.timed("nmnist-4", slots)
        for number in (1, 2, 4):
            profile = bench.timed("nmnist-4", slots, {"layers times": number}, {"links.chips": number})
            link = sum(span.link_cycles for span in profile.spans)
            saved = profile.seconds(link) / profile.seconds_per_training_step
            outer = f"{(profile.sync_cycles - one.sync_cycles) / turns(profile):,.0f}"
            cells = [with_change(profile, one), f"{link / turns(profile):,.0f}", outer, f"{saved:.1%}"]
            rows.append([f"S {slots}", number, 4 * number, *cells])
    header = ["", "chips", "hidden layers", "ms", "link cycles", "sync cycles more", "links' share"]
    return [
        *table(header, rows),
        "Weak scaling: four hidden layers on every chip, carrying the spikes of the four on one chip. The second "
        "chip costs 13 to 14 %, the third and fourth cost nothing more, because all chips work at once and exchange "
        "data only with the next. Four exchanges of a timestep cross links: spikes handed on, incoming gradients, "
        "saved ids copied to the neuron tiles, and sums of input gradients. Over three quarters of their cycles are "
        "the fixed 1.27 us of a global exchange, not the kilobytes they carry; so overlapping all of it with compute "
        "would save at most the links' share (last column), and fewer exchanges would save nearly as much. The fixed "
        "part is derived from 16 chips of the first generation (30 %; for two or four chips it is more of an upper "
        "bound).",
    ]
