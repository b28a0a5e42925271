"""Whether an exchange delivers exactly the data that is read and counts its bytes and pieces correctly."""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import near
from mimdsim.numerics.columns import boxes as numerics
from mimdsim.program.exchanges import Described, derived_exchange, is_derived
from mimdsim.program.program import Program
from mimdsim.program.records import EXCHANGE_COLUMNS, Exchange, Problem, Superstep, at_large
from mimdsim.program.vertex_boxes import bounds_of, describe_box

EXCHANGE_RULE = "an exchange delivers what is read"


def check_deliveries(program: Program, superstep: Superstep) -> list[Problem]:
    """Anything that an exchange names but that does not exist, so that its deliveries cannot be checked."""
    return _of_exchange(superstep, "" if superstep.exchange is None else _misplaced(program, superstep.exchange))


def check_exchange(program: Program, superstep: Superstep, described: Described) -> list[Problem]:
    """What an exchange delivers though nothing reads it, or counts wrongly, compared with one derived from the boxes.

    Expects a superstep that keeps the other rules.
    """
    given = superstep.exchange
    if given is None or is_derived(program, superstep, described):
        return []
    wanted = derived_exchange(program, superstep, described)
    if wanted is None:
        nothing = np.zeros((len(EXCHANGE_COLUMNS), 0), np.int64)
        wanted = Exchange(deliveries=(), total_tiles=program.tiles, tiles=np.zeros(0, np.int64), columns=nothing)
    return _of_exchange(superstep, _other_parts(given, wanted) or _other_counts(given, wanted))


def _of_exchange(superstep: Superstep, text: str) -> list[Problem]:
    """The problem `text` of an exchange; none if it is empty."""
    if not text:
        return []
    advice = "plan the exchanges again (plan_exchanges)"
    return [at_large(EXCHANGE_RULE, f"superstep '{superstep.name}': its exchange {text}; {advice}", superstep.name)]


def _misplaced(program: Program, exchange: Exchange) -> str:
    """Deliveries of data, or to tiles, that do not exist."""
    if exchange.total_tiles != program.tiles:
        return f"is planned for {exchange.total_tiles} tiles, the program has {program.tiles}"
    for delivery in exchange.deliveries:
        variable = program.variables.get(delivery.variable)
        if variable is None:
            known = near(delivery.variable, program.variables)
            return f"delivers '{delivery.variable}', which is not a variable of the program{known}"
        shapes = [(len(delivery.tiles), axes, 2) for axes in (len(variable.shape), len(variable.shape) - 1) if axes]
        if delivery.boxes.shape not in shapes or delivery.tiles.ndim != 1:
            given = f"boxes of shape {list(delivery.boxes.shape)}, tiles of {list(delivery.tiles.shape)}"
            return f"delivers parts of '{variable.name}' in {given}; they must be [parts, axes, 2] and [parts]"
        strange = np.flatnonzero((delivery.tiles < 0) | (delivery.tiles >= program.tiles))
        if len(strange):
            row = int(strange[0])
            box = describe_box(variable.name, delivery.boxes[row])
            last = program.tiles - 1
            return f"delivers {box} to tile {int(delivery.tiles[row])}, the program is placed on tiles 0 to {last}"
        shape = np.array(variable.shape[len(variable.shape) - delivery.boxes.shape[1] :], np.int64)
        row = int(numerics.first_outside(bounds_of(delivery.boxes), shape)) if len(delivery.tiles) else -1
        if row >= 0:
            box = describe_box(variable.name, delivery.boxes[row])
            return f"delivers {box}, outside the variable's shape {shape.tolist()}"
    if exchange.columns.shape != (len(EXCHANGE_COLUMNS), len(exchange.tiles)):
        return f"has columns of shape {list(exchange.columns.shape)} for {len(exchange.tiles)} tiles"
    strange = np.flatnonzero((exchange.tiles < 0) | (exchange.tiles >= program.tiles))
    if len(strange):
        return f"counts bytes on tile {int(exchange.tiles[strange[0]])}, which is not there"
    twice = np.flatnonzero(exchange.tiles[1:] <= exchange.tiles[:-1])
    return f"names tile {int(exchange.tiles[twice[0] + 1])} out of order or twice" if len(twice) else ""


def _parts(exchange: Exchange) -> dict[tuple[str, int], np.ndarray]:
    """int64[parts, 1 + 2 axes] by variable and axes: tile and box of every part, sorted."""
    found: dict[tuple[str, int], list[np.ndarray]] = {}
    for delivery in exchange.deliveries:
        rows = np.concatenate([delivery.tiles[:, None], delivery.boxes.reshape(len(delivery.tiles), -1)], axis=1)
        found.setdefault((delivery.variable, delivery.boxes.shape[1]), []).append(rows)
    parts = {key: np.concatenate(rows) for key, rows in found.items()}
    return {key: rows[np.lexsort(rows.T[::-1])] for key, rows in parts.items()}


def _other_parts(given: Exchange, wanted: Exchange) -> str:
    """The first part that is delivered but not wanted, or wanted but not delivered, counting repetitions."""
    there, here = _parts(wanted), _parts(given)
    for key in sorted(there | here):
        empty = np.zeros((0, 1 + 2 * key[1]), np.int64)
        held, asked = here.get(key, empty), there.get(key, empty)
        if np.array_equal(held, asked):
            continue
        rows, which = np.unique(np.concatenate([held, asked]), axis=0, return_inverse=True)
        which = which.ravel()
        more = np.bincount(which[: len(held)], minlength=len(rows)) - np.bincount(
            which[len(held) :], minlength=len(rows)
        )
        row = int(np.flatnonzero(more)[0])
        part = f"{describe_box(key[0], rows[row, 1:].reshape(-1, 2))} to tile {int(rows[row, 0])}"
        if more[row] < 0:
            return f"does not deliver {part}, where it is read"
        wanted_at_all = bool((which[len(held) :] == row).any())
        return (
            f"delivers {part} more often than it is read"
            if wanted_at_all
            else f"delivers {part}, which nothing there reads"
        )
    return ""


def _other_counts(given: Exchange, wanted: Exchange) -> str:
    """The first tile and column whose count differs from the sum of the parts."""
    tiles = np.union1d(given.tiles, wanted.tiles)
    sides = []
    for exchange in (given, wanted):
        spread = np.zeros((len(EXCHANGE_COLUMNS), len(tiles)), exchange.columns.dtype)
        spread[:, np.searchsorted(tiles, exchange.tiles)] = exchange.columns
        sides.append(spread)
    wrong = np.argwhere(sides[0] != sides[1])
    if len(wrong):
        column, at = wrong[0].tolist()
        return (
            f"counts {sides[0][column, at]} {EXCHANGE_COLUMNS[column].replace('_', ' ')} on tile {tiles[at]}, what it "
            f"delivers amounts to {sides[1][column, at]}"
        )
    # the planner records no link bytes if nothing crosses a link
    linked, amount = (
        None if each.link_bytes is None or not each.link_bytes.any() else each.rounds for each in (given, wanted)
    )
    same = linked is amount if linked is None or amount is None else np.array_equal(linked, amount)
    return "" if same else "does not count the bytes over links that it delivers"
