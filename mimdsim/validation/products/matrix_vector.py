"""The matrix-vector product of Graphcore's tutorial 6, y = A x, with the layout of its tut6.cpp.

Every row is cut into segments; the dot products of all rows with one segment of x come one after another, spread evenly
over the tiles, and are placed with their part of A and their partial sum. x is spread over all tiles, one element each;
y is summed on tiles spread evenly over the rows. Nothing of A moves while the product is computed.

The tutorial's program begins with A and x in host streams and ends with y in one, and its profile counts what that
costs on the chip: a stream is in row-major order, so what the host sends is moved by an exchange to the tile that needs
it, and y from the tile that made it. The placement of streams on the chip is not public. Assumed: packet by packet over
all tiles, packets as large as the host link carries them, 1,024 bytes to a tile and 256 bytes from a tile
(osmarks/ipu-stack exchange.rs). `streams=False` leaves these phases out.
"""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import DescriptionError
from mimdsim.codelets.matrix_vector import DOT_PRODUCT, PLACE, ROW_SUM
from mimdsim.machine import MimdMachine
from mimdsim.program import Copy, Program, Superstep, TileMapping, Variable, VertexTable
from mimdsim.program.exchanges import plan_exchanges
from mimdsim.program.mapping import FLAT

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


def matrix_vector_program(
    machine: MimdMachine,
    rows: int,
    columns: int,
    variant: str = "c++",
    segments: int | None = None,
    streams: bool = True,
) -> Program:
    """The program of y[rows] = A[rows, columns] x[columns] in fp32; inputs "a" and "x", output "y".

    variant "c++" or "assembler" says how the vertices are written. Raises DescriptionError for a bad shape or variant.
    """
    segments = _check(machine, rows, columns, variant, segments)
    tiles = machine.chip.tiles
    row = np.tile(np.arange(rows), segments)
    segment = np.repeat(np.arange(segments), rows)
    pieces = {
        "row": row,
        "begin": segment * columns // segments,
        "end": (segment + 1) * columns // segments,
        "segment": segment,
    }
    tile = (segment * rows + row) * tiles // (segments * rows)
    variables = _variables(rows, columns, segments, pieces, tile, tiles)
    multiply = VertexTable(
        codelet=DOT_PRODUCT[variant],
        layer="",
        tiles=tile,
        operands={"row": "matrix", "vector": "x", "partial": "partials"},
        columns=pieces,
    )
    add = VertexTable(
        codelet=ROW_SUM[variant],
        layer="",
        tiles=np.arange(rows) * tiles // rows,
        operands={"partials": "partials", "out": "y"},
        columns={"row": np.arange(rows)},
    )
    body = [_superstep("multiply", tables=(multiply,)), _superstep("add", tables=(add,))]
    if streams:
        variables += _streams(rows, columns, tiles)
        operands = {"stream": "matrix.stream", "matrix": "matrix"}
        place = VertexTable(codelet=PLACE, layer="", tiles=tile, operands=operands, columns=pieces)
        arrive = [
            _superstep("place x", copies=(Copy(source="x.stream", target="x"),)),
            _superstep("place A", tables=(place,)),
        ]
        body = [*arrive, *body, _superstep("leave y", copies=(Copy(source="y", target="y.stream"),))]
    tail = ".stream" if streams else ""
    program = Program(
        tiles=tiles,
        variables={variable.name: variable for variable in variables},
        body=tuple(body),
        layers=(),
        inputs={"a": f"matrix{tail}", "x": f"x{tail}"},
        outputs={"y": f"y{tail}"},
    )
    return plan_exchanges(program)


def _variables(
    rows: int, columns: int, segments: int, pieces: dict[str, np.ndarray], tile: np.ndarray, tiles: int
) -> list[Variable]:
    """A and the partial sums with the vertices that use them, x and y spread over all tiles."""
    row, begin, end, segment = pieces.values()
    order = np.lexsort((segment, row))  # row-major, as elements of A and of the partial sums are counted
    return [
        _variable("matrix", (rows, columns), _flat(tile, row * columns + begin, row * columns + end, order), "weights"),
        _variable("x", (columns,), _spread(columns, 1, tiles), "neuron states"),
        _variable("partials", (rows, segments), _flat(tile, row * segments + segment, None, order), "gradients"),
        _variable("y", (rows,), _each(np.arange(rows) * tiles // rows), "neuron states"),
    ]


def _streams(rows: int, columns: int, tiles: int) -> list[Variable]:
    """Where packets from and to the host lie."""
    packet_in, packet_out = PACKET_IN_BYTES // ITEM_BYTES, PACKET_OUT_BYTES // ITEM_BYTES
    landed = _spread(rows * columns, packet_in, tiles, axis=FLAT)
    return [
        _variable("matrix.stream", (rows, columns), landed, "exchange buffers"),
        _variable("x.stream", (columns,), _spread(columns, packet_in, tiles), "exchange buffers"),
        _variable("y.stream", (rows,), _spread(rows, packet_out, tiles), "exchange buffers"),
    ]


def _check(machine: MimdMachine, rows: int, columns: int, variant: str, segments: int | None) -> int:
    problems = [
        f"'{name}' is {extent!r}; a whole number of at least 1 is needed"
        for name, extent in (("rows", rows), ("columns", columns))
        if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or extent < 1
    ]
    if not problems and rows * columns > MAX_ELEMENTS:
        problems.append(f"{rows} x {columns} elements; at most {MAX_ELEMENTS}")
    if variant not in DOT_PRODUCT:
        problems.append(f"'variant' is {variant!r}; write one of {', '.join(DOT_PRODUCT)}")
    if not problems and segments is None:
        segments = tutorial_segments(machine, rows, columns)
    if not problems and not (isinstance(segments, int | np.integer) and 1 <= segments <= columns):
        problems.append(f"'segments' is {segments!r}; a row of {columns} elements has 1 to {columns}")
    if problems:
        raise DescriptionError("matrix-vector product", problems)
    assert segments is not None
    return int(segments)


def _flat(tile: np.ndarray, start: np.ndarray, stop: np.ndarray | None, order: np.ndarray) -> TileMapping:
    start = start[order]
    return TileMapping.split(FLAT, tile[order], start, start + 1 if stop is None else stop[order])


def _each(tile: np.ndarray) -> TileMapping:
    return TileMapping.split(0, tile, np.arange(len(tile)), np.arange(1, len(tile) + 1))


def _spread(elements: int, grain: int, tiles: int, axis: int = 0) -> TileMapping:
    """Runs of `grain` elements over all tiles, evenly."""
    grains = -(-elements // grain)
    number = np.arange(grains)
    return TileMapping.split(axis, number * tiles // grains, number * grain, np.minimum((number + 1) * grain, elements))


def _variable(name: str, shape: tuple[int, ...], mapping: TileMapping, category: str) -> Variable:
    return Variable(name=name, shape=shape, dtype="float32", mapping=mapping, category=category)


def _superstep(name: str, tables: tuple[VertexTable, ...] = (), copies: tuple[Copy, ...] = ()) -> Superstep:
    return Superstep(
        name=name, op="product", phase="forward", stage=name, tables=tables, copies=copies, mergeable=False
    )
