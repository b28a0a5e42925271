"""The Fourier transform of complex points, radix 2, decimation in frequency: natural order in, bit-reversed order out.

The points are stored in runs, one for every vertex. While butterflies span a run or more, each of their stages is a
superstep that brings the other run by exchange (or finds it on the same tile); the remaining stages stay within runs,
in one superstep.

    mimdsim check examples/kernels/fft.py bow --strict
"""

import numpy as np

from mimdsim.kernels import (
    Codelet,
    Column,
    Field,
    Kernel,
    Length,
    MimdMachine,
    Program,
    Term,
    TileMapping,
    WorkerBundles,
)

POINTS, RUN = 1024, 16  # powers of two: points in all, points of a vertex
OWN, OTHER = ("start:stop", ":"), ("start_other:stop_other", ":")


def halves(points: np.ndarray) -> np.ndarray:
    """[n, 2] real and imaginary parts as n complex numbers."""
    return points[:, 0] + 1j * points[:, 1]


def put(target: np.ndarray, values: np.ndarray) -> None:
    target[:, 0], target[:, 1] = values.real, values.imag


def upper(new: np.ndarray, one: np.ndarray, other: np.ndarray) -> None:
    """The first of two runs: their sum."""
    new[:] = one + other


def lower(new: np.ndarray, one: np.ndarray, other: np.ndarray, turn: np.ndarray) -> None:
    """The second of two runs: their difference, turned."""
    put(new, (halves(other) - halves(one)) * halves(turn))


def within(points: np.ndarray, turn: np.ndarray, stages: int) -> None:
    """All stages that stay within a run; turn [RUN / 2, 2] of the first."""
    now = halves(points)
    for stage in range(stages):
        pairs = now.reshape(2**stage, 2, -1)
        turned = (pairs[:, 0] - pairs[:, 1]) * halves(turn)[:: 2**stage]
        now = np.stack([pairs[:, 0] + pairs[:, 1], turned], axis=1).reshape(-1)
    put(points, now)


def codelet(
    name: str, compute: object, bundles: int, flops: int, fields: tuple[Field, ...], loops: dict[str, object], does: str
) -> Codelet:
    """bundles and flops of one turn of all `loops`."""
    return Codelet(
        name=name,
        fields=fields,
        columns=tuple(loop for loop in loops if loop == "stages"),
        compute=compute,
        form="vertex",
        cost=WorkerBundles(
            fixed=26,
            terms=(Term(bundles=bundles, extents=tuple(loops)),),
            kind="assumed",
            source=f"our own count, every instruction alone: launch, frame and pointers; {does}, the loop",
        ),
        flops=(Term(bundles=flops, extents=tuple(loops)),),
        extents=loops,
    )


NEW = Field(name="new", access="write", box=OWN)
READ = tuple(Field(name=name, access="read", box=box) for name, box in (("one", OWN), ("other", OTHER)))
TURN = Field(name="turn", access="read", box=("turn_start:turn_stop", ":"))
POINT = {"points": Length("new", 0)}
UPPER = codelet("Upper", upper, 5, 2, (NEW, *READ), POINT, "a point takes two loads, an add and a store of 64 bits")
LOWER = codelet(
    "Lower",
    lower,
    9,
    8,
    (NEW, *READ, TURN),
    POINT,
    "a point takes three loads, a subtract and a store of 64 bits, and three bundles to turn",
)
WITHIN = codelet(
    "Within",
    within,
    11,
    10,
    (Field(name="points", access="update", box=OWN), Field(name="turn", access="read", box=(":", ":"))),
    {"butterflies": Length("points", 0, per=2), "stages": Column("stages")},
    "a butterfly takes three loads, an add, a subtract and two stores of 64 bits, and three bundles to turn",
)


def turns(span: int) -> np.ndarray:
    """[span, 2]: the roots of unity that a stage of this span turns by."""
    angle = -np.pi * np.arange(span) / span
    return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


def build(machine: MimdMachine, points: int = POINTS, run: int = RUN) -> Program:
    k = Kernel("FFT", machine)
    start = np.arange(0, points, run)
    tiles = start * k.tiles // points
    in_runs = TileMapping.split(0, tiles, start, start + run)
    now = k.input(k.variable("points", (points, 2), mapping=in_runs))
    span = points // 2
    while span >= run:
        then = k.variable(f"after span {span}", (points, 2), mapping=in_runs)
        turn = k.constant(f"turn {span}", turns(span))
        first = start // span % 2 == 0
        with k.superstep(f"butterflies {span}", phase="exchange stages"):
            for each, chosen, away in ((UPPER, first, span), (LOWER, ~first, -span)):
                here = start[chosen]
                other = here + away
                operands = {"new": then, "one": now, "other": now}
                columns = {"start": here, "stop": here + run, "start_other": other, "stop_other": other + run}
                if each is LOWER:
                    operands["turn"] = turn
                    columns |= {"turn_start": here % span, "turn_stop": here % span + run}
                k.vertices(each, tiles=tiles[chosen], operands=operands, columns=columns)
        now, span = then, span // 2
    with k.superstep("butterflies within runs", phase="local stages"):
        k.vertices(
            WITHIN,
            tiles=tiles,
            operands={"points": now, "turn": k.constant("turn within", turns(run // 2), mapping=k.everywhere)},
            columns={"start": start, "stop": start + run, "stages": run.bit_length() - 1},
        )
    k.output(now, "spectrum")
    return k.program()


def reference(points: np.ndarray) -> np.ndarray:
    count = len(points)
    digits = count.bit_length() - 1
    reversed_bits = np.array([int(f"{index:0{digits}b}"[::-1], 2) for index in range(count)])
    spectrum = np.fft.fft(points[:, 0].astype(np.float64) + 1j * points[:, 1])[reversed_bits]
    return np.stack([spectrum.real, spectrum.imag], axis=1)
