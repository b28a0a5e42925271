"""Copies of a superstep: what each tile of the target receives, and the rules they must keep."""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError, near
from mimdsim.program.conflicts import MEANWHILE, TWICE
from mimdsim.program.delivered import undelivered
from mimdsim.program.local import is_local
from mimdsim.program.mapping import BANDED, FLAT
from mimdsim.program.program import Program
from mimdsim.program.records import Copy, Problem, Relay, Superstep, at_large
from mimdsim.program.repeats import IN_REPEAT, Stretch, unfit_entries
from mimdsim.program.vertex_boxes import boxes_on_tiles, describe_box, order_of, spatial_mapping


def copy_parts(program: Program, copy: Copy, receiving: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(tiles, int64[parts, axes, 2]): the parts of the source that each target tile needs, a timestep axis left out;
    only tiles of `receiving` bool[tiles], if given.

    Expects a copy in which `check_copies` finds no problem.
    """
    source, target = program.variables[copy.source], program.variables[copy.target]
    shape = source.shape[copy.source_shift is not None :]
    mapping = spatial_mapping(target, copy.target_shift is not None)
    return boxes_on_tiles(mapping if receiving is None else mapping.on_some(receiving), shape)


def check_copies(program: Program, superstep: Superstep) -> list[Problem]:
    """Copies of unknown variables, of variables spread by timesteps, and between different shapes, which cannot be
    planned."""
    problems = []
    for copy in superstep.copies:
        unknown = [name for name in (copy.source, copy.target) if name not in program.variables]
        for name in unknown:
            text = f"copies '{name}', which is not a variable of the program{near(name, program.variables)}"
            problems.append(_of_copy("variable exists", superstep, text))
        if unknown:
            continue
        shapes = []
        for name, shift in ((copy.source, copy.source_shift), (copy.target, copy.target_shift)):
            shapes.append(program.variables[name].shape[shift is not None :])
            try:
                spatial_mapping(program.variables[name], shift is not None)
            except MappingError as failure:
                problems.append(_of_copy("box fits variable", superstep, f"cannot copy: {failure}"))
        text = f"copies '{copy.source}' {list(shapes[0])} to '{copy.target}' {list(shapes[1])}"
        if shapes[0] != shapes[1]:
            text += "; the shapes must be the same, without the axis of a timestep that is taken"
            problems.append(_of_copy("shapes of a copy agree", superstep, text))
        elif not shapes[0]:
            text += ", which leaves no axis to copy along; give both one of extent 1"
            problems.append(_of_copy("shapes of a copy agree", superstep, text))
        if copy.relay is not None and (text := _too_early(copy.relay, program.chips)):
            problems.append(_of_copy("chips pass on what they have", superstep, f"copies '{copy.source}' {text}"))
    return problems


def _too_early(relay: Relay, chips: int) -> str:
    """What of a relay cannot be: a chip that passes on what it gets later, or never."""
    if any(len(rows) != chips or any(len(row) != chips for row in rows) for rows in (relay.parent, relay.step)):
        return f"by a relay that is not of the program's {chips} chips; give parent and step for every pair of chips"
    parent, step = np.array(relay.parent), np.array(relay.step)
    source, target = np.nonzero(parent >= 0)
    giver = parent[source, target]
    known = (giver < chips) & (source != target)
    by = source, np.minimum(giver, chips - 1)
    has = np.where(giver == source, 0, np.where(parent[by] < 0, 1, step[by]))
    wrong = np.flatnonzero((source != target) & (~known | (step[source, target] <= has) | (giver == target)))
    if not len(wrong):
        return ""
    one, to, way = (int(each[wrong[0]]) for each in (source, target, giver))
    return (
        f"from chip {one} to chip {to} by way of chip {way} in round {int(step[one, to])}, before that chip has it; "
        "let a chip pass it on in a later round than it gets it"
    )


def check_planned_copies(program: Program, superstep: Superstep, stretch: Stretch) -> list[Problem]:
    """Copies, otherwise sound, at timesteps that do not exist, and of data that the exchange does not deliver."""
    problems = []
    for copy in superstep.copies:
        source, target = program.variables[copy.source], program.variables[copy.target]
        for variable, shift, writes in ((source, copy.source_shift, False), (target, copy.target_shift, True)):
            text = "" if shift is None else unfit_entries(variable, shift, stretch, writes=writes)
            if text:
                problems.append(_of_copy(IN_REPEAT, superstep, f"a copy {text}"))
        drop = copy.source_shift is not None
        tiles, boxes = copy_parts(program, copy)
        remote = np.flatnonzero(~is_local(spatial_mapping(source, drop), tiles, boxes, source.shape[drop:]))
        remote = remote[order_of(tiles[None, remote], [0])]  # parts are looked up tile by tile
        missing = remote[undelivered(superstep, source.name, tiles[remote], boxes[remote])]
        if len(missing):
            text = (
                f"copies {describe_box(source.name, boxes[missing[0]])} to '{target.name}' on tile "
                f"{int(tiles[missing[0]])}, which this superstep's exchange does not deliver; plan its exchange"
            )
            problems.append(_of_copy("reads are local or delivered", superstep, text))
    return problems


def bytes_within_tiles(program: Program) -> int:
    """Bytes that the copies in one turn of every superstep move within a tile, which takes no cycles."""
    found = 0
    for superstep, _, _ in program.supersteps():
        for copy in superstep.copies:
            source, drop = program.variables[copy.source], copy.source_shift is not None
            mapping = spatial_mapping(source, drop)
            tiles, boxes = copy_parts(program, copy)
            sizes = boxes[:, :, 1] - boxes[:, :, 0]
            if mapping.axis in (FLAT, BANDED):  # parts that lie whole on the tile
                local = is_local(mapping, tiles, boxes, source.shape[drop:])
                found += int(sizes[local].prod(axis=1).sum()) * source.item_bytes
                continue
            if mapping.is_replicated:
                here = np.where(np.isin(tiles, mapping.tiles), sizes[:, mapping.axis], 0)
            else:
                here = np.zeros(len(tiles), np.int64)
                for tile, start, stop in zip(mapping.tiles, mapping.starts, mapping.stops, strict=True):
                    along = boxes[:, mapping.axis]
                    both = np.minimum(along[:, 1], stop) - np.maximum(along[:, 0], start)
                    here += np.where((tiles == tile) & (both > 0), both, 0)
            others = np.delete(sizes, mapping.axis, axis=1).prod(axis=1)
            found += int((here * others).sum()) * source.item_bytes
    return found


def check_copies_apart(superstep: Superstep) -> list[Problem]:
    """Pairs of copies in a superstep where the second writes what the first reads or writes, as both happen at once."""
    problems = []
    for place, copy in enumerate(superstep.copies):
        for other in superstep.copies[:place] + superstep.copies[place + 1 :]:
            if reaches(other, copy.source, copy.source_shift):
                text = f"copies '{copy.source}' to '{copy.target}' while '{other.source}' is copied there"
                problems.append(_of_copy(MEANWHILE, superstep, f"{text}; copy it in the next superstep"))
        for other in superstep.copies[:place]:
            if reaches(other, copy.target, copy.target_shift):
                text = f"copies both '{other.source}' and '{copy.source}' to '{copy.target}'"
                problems.append(_of_copy(TWICE, superstep, f"{text}; move one of them to another superstep"))
    return problems


def reaches(copy: Copy, variable: str, shift: int | None) -> bool:
    """Whether a copy writes the entry of a variable that "@t" and a shift take (None: all of it)."""
    return copy.target == variable and (shift == copy.target_shift or None in (shift, copy.target_shift))


def _of_copy(rule: str, superstep: Superstep, text: str) -> Problem:
    return at_large(rule, f"superstep '{superstep.name}': {text}", superstep.name)
