"""Predictions of dense products on tiled machines, one row of a table at a time.

Columns: operation (matmul, matvec), machine, m, k, n, dtype, variant, metric, value, unit; and if given clock_hz (of
the machine unless given), partials (as dtype unless given), tolerance and source. C[m, n] = A[m, k] B[k, n]; a matvec
has m rows and k columns.

A matmul costs what the plan of PopLibs' planner takes (`dense_plan.py`). Published rates divide by the intervals of
compute and of exchange, syncs left out (matmul_bench.py of graphcore-research/sparsity-benchmarks), and so do `tflops`,
`cycles` and `microseconds` here; `total_cycles` has the syncs. A matvec is the timed program of the tutorial, its
compute cycles means over tiles as in the vendor's profiles: `compute_cycles` with idle contexts, `busy_cycles` without.

The matrix-vector product of Graphcore's tutorial 6, y = A x, has the layout of its tut6.cpp. Every row is cut into
segments; the dot products of all rows with one segment of x come one after another, spread evenly over the tiles, and
are placed with their part of A and their partial sum. x is spread over all tiles, one element each; y is summed on
tiles spread evenly over the rows. Nothing of A moves while the product is computed.

The tutorial's program begins with A and x in host streams and ends with y in one, and its profile counts what that
costs on the chip: a stream is in row-major order, so what the host sends is moved by an exchange to the tile that needs
it, and y from the tile that made it. The placement of streams on the chip is not public. Assumed: packet by packet over
all tiles, packets as large as the host link carries them, 1,024 bytes to a tile and 256 bytes from a tile
(osmarks/ipu-stack exchange.rs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import numpy as np

from mimdsim.base.errors import DescriptionError, MimdsimError, suggest
from mimdsim.base.units import UNCERTAINTY
from mimdsim.codelets.matrix_vector import DOT_PRODUCT, PLACE, ROW_SUM
from mimdsim.machine import MimdMachine, changed_machine, load_machine
from mimdsim.pipeline import time_by_hand
from mimdsim.program import Copy, Program, ProgramBuilder, Superstep, TileMapping, Variable
from mimdsim.program.exchanges import plan_exchanges
from mimdsim.program.mapping import FLAT
from mimdsim.program.records import NO_SPIKES
from mimdsim.timing import bundles_of
from mimdsim.validation.dense_plan import plan_dense_product
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, whole_numbers, within_bounds

PACKET_IN_BYTES, PACKET_OUT_BYTES = 1024, 256
ITEM_BYTES = 4
MAX_ELEMENTS = 1 << 28


def tutorial_segments(machine: MimdMachine, rows: int, columns: int) -> int:
    """Segments of a row with the fewest cycles by the tutorial's own estimate (estimateCycles of tut6.cpp)."""
    if columns == 1:
        return 1
    split = np.arange(1, columns)
    contexts, tiles = machine.tile.worker_contexts, machine.chip.tiles
    length = -(-columns // split)
    vertices = np.maximum(-(-rows * split // tiles), 1)
    compute = -(-vertices // contexts) * contexts * (5 + (length + 1) // 2)
    exchange = -(-vertices // rows) * length * ITEM_BYTES // machine.exchange.bytes_per_cycle
    sums = max(-(-rows // tiles), 1)
    sum_compute = -(-sums // contexts) * contexts * (5 + (split + 1) // 2)
    sum_exchange = sums * split * ITEM_BYTES // machine.exchange.bytes_per_cycle
    return int(split[np.argmin(compute + exchange + sum_compute + sum_exchange)])


def matrix_vector_program(machine: MimdMachine, rows: int, columns: int, variant: str = "c++") -> Program:
    """The program of y[rows] = A[rows, columns] x[columns] in fp32; inputs "a" and "x", output "y".

    variant "c++" or "assembler" says how the vertices are written. Raises DescriptionError for a bad shape or variant.
    """
    _check(rows, columns, variant)
    tiles, segments = machine.chip.tiles, tutorial_segments(machine, rows, columns)
    row = np.tile(np.arange(rows), segments)
    segment = np.repeat(np.arange(segments), rows)
    pieces = {
        "row": row,
        "begin": segment * columns // segments,
        "end": (segment + 1) * columns // segments,
        "segment": segment,
    }
    tile = (segment * rows + row) * tiles // (segments * rows)
    made = ProgramBuilder(tiles=tiles, inputs={"a": "matrix.stream", "x": "x.stream"}, outputs={"y": "y.stream"})
    matrix, partials = (rows, columns), (rows, segments)
    packet_in, packet_out = PACKET_IN_BYTES // ITEM_BYTES, PACKET_OUT_BYTES // ITEM_BYTES

    def placed(low: np.ndarray, high: np.ndarray, shape: tuple[int, ...]) -> TileMapping:
        """Of pieces of rows, with the vertices that use them."""
        return TileMapping.of_boxes(tile, np.array([[row, row + 1], [low, high]]).transpose(2, 0, 1), shape)

    # x and y are spread over all tiles; packets from and to the host where they come or leave
    for name, shape, mapping, category in (
        ("matrix", matrix, placed(pieces["begin"], pieces["end"], matrix), "weights"),
        ("x", (columns,), _spread(columns, 1, tiles), "neuron states"),
        ("partials", partials, placed(segment, segment + 1, partials), "gradients"),
        ("y", (rows,), _spread(rows, 1, tiles), "neuron states"),
        ("matrix.stream", matrix, _spread(rows * columns, packet_in, tiles, axis=FLAT), "exchange buffers"),
        ("x.stream", (columns,), _spread(columns, packet_in, tiles), "exchange buffers"),
        ("y.stream", (rows,), _spread(rows, packet_out, tiles), "exchange buffers"),
    ):
        made.variables[name] = Variable(name=name, shape=shape, dtype="float32", mapping=mapping, category=category)
    made.add(_superstep("place x", Copy(source="x.stream", target="x")))
    operands = {"stream": "matrix.stream", "matrix": "matrix"}
    made.add_vertices(_superstep("place A"), PLACE, tile, operands, pieces)
    operands = {"row": "matrix", "vector": "x", "partial": "partials"}
    made.add_vertices(_superstep("multiply"), DOT_PRODUCT[variant], tile, operands, pieces)
    each, operands = np.arange(rows), {"partials": "partials", "out": "y"}
    made.add_vertices(_superstep("add"), ROW_SUM[variant], each * tiles // rows, operands, {"row": each})
    made.add(_superstep("leave y", Copy(source="y", target="y.stream")))
    return plan_exchanges(made.program())


def _check(rows: int, columns: int, variant: str) -> None:
    problems = [
        f"'{name}' is {extent!r}; a whole number of at least 1 is needed"
        for name, extent in (("rows", rows), ("columns", columns))
        if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or extent < 1
    ]
    if not problems and rows * columns > MAX_ELEMENTS:
        problems.append(f"{rows} x {columns} elements; at most {MAX_ELEMENTS}")
    if variant not in DOT_PRODUCT:
        problems.append(f"'variant' is {variant!r}; write one of {', '.join(DOT_PRODUCT)}")
    if problems:
        raise DescriptionError("matrix-vector product", problems)


def _spread(elements: int, grain: int, tiles: int, axis: int = 0) -> TileMapping:
    """Runs of `grain` elements over all tiles, evenly."""
    grains = -(-elements // grain)
    number = np.arange(grains)
    return TileMapping.split(axis, number * tiles // grains, number * grain, np.minimum((number + 1) * grain, elements))


def _superstep(name: str, *copies: Copy) -> Superstep:
    return Superstep(name=name, op="product", phase="forward", stage=name, copies=copies, mergeable=False)


COLUMNS = {"operation", "machine", "m", "k", "n", "dtype", "variant", "metric", "value", "unit"}
PREDICTED = ("matmul", "matvec")
UNITS = {"tflops": "TFLOP/s", "microseconds": "us"}  # of metrics; of all others cycles
Cycles = dict[str, tuple[float, float, float]]  # by metric, with its interval
# The table's name of a device -> the machine whose clock its figures must come from: 60 TFLOP/s in fp32 would be 96 %
# of what a GC200 can at 1.33 GHz, exchange included, so the chips were Bow (1.85 GHz).
DEVICES = {"IPU(GC200)": "bow"}
DTYPES = {"fp16": "f16", "fp32": "f32"}  # their names there
PRODUCT_SHAPE = ("M", "N", "K", "batch")  # columns there, 1 where empty


def tiled_product(row: Mapping[str, str]) -> tuple[str, str, Callable[[MimdMachine], float]]:
    """(machine, number format, microseconds on such a machine) of a row with the columns gpu, dtype, batch, M, N, K;
    raises MimdsimError where there are none. Syncs are left out.

    C[M, N] = A[M, K] B[K, N] with B as the weights: its transpose is planned, N by K times K by M.
    """
    if row["gpu"] not in DEVICES:
        raise MimdsimError(f"no description of device '{row['gpu']}'; known: {', '.join(DEVICES)}")
    dtype = DTYPES.get(row["dtype"].lower())
    if dtype is None:
        raise MimdsimError(f"no tiled product for dtype '{row['dtype']}'; known: fp16, fp32")
    m, n, k, batch = whole_numbers(row, *PRODUCT_SHAPE, default=1)
    if batch != 1:
        raise MimdsimError(f"batch = {batch}: only single products are planned on tiled machines")
    return DEVICES[row["gpu"]], dtype, lambda on: _matmul(on, n, k, m, dtype, dtype)["microseconds"][0]


def predict_tiled_product(row: Mapping[str, str]) -> tuple[float, float, float]:
    """(prediction, low, high) of one row of the table; raises MimdsimError where there is none."""
    try:
        for name in ("m", "k", "n"):
            int(row[name])
        clock = _clock_of(row)
    except ValueError:
        text = f"m={row['m']} k={row['k']} n={row['n']} clock_hz={row.get('clock_hz')}: not numbers"
        raise MimdsimError(text) from None
    if row["operation"] == "matmul" and row["variant"] != "poplibs":
        raise MimdsimError(f"'{row['variant']}' is another software stack; only PopLibs' planner is described")
    if row["operation"] not in PREDICTED:
        raise MimdsimError(f"no operation '{row['operation']}'{suggest(row['operation'], PREDICTED)}")
    found = _cycles_of(row, _machine(row["machine"], clock))
    metric = row["metric"]
    if metric not in found:
        raise MimdsimError(f"no metric '{metric}' of a {row['operation']}{suggest(metric, sorted(found))}")
    return found[metric]


def _clock_of(row: Mapping[str, str]) -> dict[str, float]:
    """The change of a machine to the row's clock."""
    return {"chip.clock_hz": float(row["clock_hz"])} if row.get("clock_hz") else {}


def _cycles_of(row: Mapping[str, str], machine: MimdMachine) -> Cycles:
    m, k, n = (int(row[name]) for name in ("m", "k", "n"))
    if row["operation"] == "matmul":
        return _matmul(machine, m, k, n, row["dtype"], row.get("partials") or row["dtype"])
    return _matvec(machine, m, k, n, row["dtype"], row["variant"])


def _machine(name: str, clock: dict[str, float]) -> MimdMachine:
    machine = load_machine(name, clock)
    if not isinstance(machine, MimdMachine):
        raise DescriptionError(f"machine '{name}'", ["is not a tiled machine; tiled products need one"])
    return machine


def _off_by(middle: float, off: float) -> tuple[float, float, float]:
    return middle, middle - off, middle + off


@lru_cache(maxsize=256)
def _matmul(machine: MimdMachine, m: int, k: int, n: int, dtype: str, partials_dtype: str) -> Cycles:
    plan = plan_dense_product(machine, m, k, n, dtype, partials_dtype)
    compute, exchange, sync = plan.compute_cycles, plan.exchange_cycles, plan.sync_cycles
    compute_off = UNCERTAINTY["published"] * (compute - plan.copy_cycles) + UNCERTAINTY["assumed"] * plan.copy_cycles
    exchange_off, sync_off = (UNCERTAINTY["derived"] * cycles for cycles in (exchange, sync))
    cycles, off = compute + exchange, compute_off + exchange_off
    in_us, rate = 1e6 / machine.chip.clock_hz, 2e-12 * m * k * n * machine.chip.clock_hz
    return {
        "compute_cycles": _off_by(compute, compute_off),
        "exchange_cycles": _off_by(exchange, exchange_off),
        "cycles": _off_by(cycles, off),
        "total_cycles": _off_by(cycles + sync, off + sync_off),
        "microseconds": (cycles * in_us, (cycles - off) * in_us, (cycles + off) * in_us),
        "tflops": (rate / cycles, rate / (cycles + off), rate / (cycles - off)),
    }


@lru_cache(maxsize=16)
def _matvec(machine: MimdMachine, rows: int, columns: int, n: int, dtype: str, variant: str) -> Cycles:
    if dtype != "f32" or n != 1:
        raise DescriptionError("matrix-vector product", [f"dtype '{dtype}', n = {n}: the tutorial has f32 and n = 1"])
    program = matrix_vector_program(machine, rows, columns, variant)
    profile = time_by_hand(program, machine)
    kind = UNCERTAINTY["derived" if variant == "c++" else "published"]
    means = (
        ("compute_cycles", sum(span.busy_cycles for span in profile.spans) / program.tiles, kind),
        ("busy_cycles", bundles_of(program, machine, NO_SPIKES) / program.tiles, kind),
        ("exchange_cycles", sum(span.exchange_cycles for span in profile.spans), UNCERTAINTY["assumed"]),
        ("total_cycles", sum(span.cycles for span in profile.spans), kind),
    )
    return {name: (middle, middle * (1 - off), middle * (1 + off)) for name, middle, off in means}


def _product_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    published = row.number("value")
    shape = f"{row['m']}x{row['k']}x{row['n']}"
    name = f"{row['operation']} {row['machine']} {row['dtype']} {shape} {row['variant']} {row['metric']}"
    tolerance = row.number("tolerance", default=0.15)
    yield row.figure(name, row["unit"], published, tolerance, f"{row['operation']} {row['metric']}")

    def again(machine: MimdMachine) -> float:
        return _cycles_of(row, changed_machine(machine, _clock_of(row)))[row["metric"]][0]

    found = predict_tiled_product(row)
    row.check_unit(row["metric"], UNITS.get(row["metric"], "cycles"))
    formula = f"{row['operation']} in {row['dtype']}, {row['variant']}: {row['metric']}"
    yield within_bounds(*found) | {"bearing": row.bearing(row["machine"], published, again, formula=formula)}


TILED_PRODUCTS = ReferenceTable(
    needed=COLUMNS,
    also={"clock_hz", "partials", "tolerance", "source"},
    read_row=_product_row,
    figures="product on tiles",
)
