"""The rules of the machine, checked on a program without running it.

1 every vertex and every element is on a tile of the machine, and codelets take no arrays from elsewhere; 2 every box
lies inside its variable; 3 every read and every part of a copy is local or delivered to its tile in the same superstep;
4 every write is local; 5 nothing is written twice in a superstep, and nothing is read that another vertex of the
superstep or a copy of its exchange writes; 6 every timestep index is inside a repeat, and names an existing entry; 7 a
copy's shapes agree; 8 an exchange delivers exactly what is read and counts it correctly; 9 every element that is read,
and every element of an output, was written before; 10 loops run as often as boxes and recorded spikes say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from weakref import WeakSet

from mimdsim.base.errors import MappingError
from mimdsim.program.checks.bounds import (
    check_boxes,
    check_closures,
    check_copies,
    check_entries,
    check_extents,
    check_homes,
    check_interface,
    check_operands,
    check_shapes,
    check_tiles,
)
from mimdsim.program.checks.exchange import (
    check_conflicts,
    check_copies_apart,
    check_copies_delivered,
    check_deliveries,
    check_exchange,
    check_reach,
)
from mimdsim.program.checks.initialised import check_writers, check_written
from mimdsim.program.checks.scope import Scope
from mimdsim.program.mapping import TileMapping
from mimdsim.program.program import Program
from mimdsim.program.records import Problem

MAX_PROBLEMS = 20
_SOUND: WeakSet[Program] = WeakSet()  # programs that were verified and keep all rules

Checks = tuple[Callable[..., Iterable[Problem]], ...]
# groups of checks, each of which expects what those before it have found to be sound
OF_THE_PLACEMENT: tuple[Checks, ...] = ((check_interface, check_homes),)  # check(program, tiles of the machine)
OF_A_SUPERSTEP: tuple[Checks, ...] = (  # check(scope)
    (check_deliveries,),
    (check_copies, check_tiles, check_closures, check_operands),
    (check_shapes,),
    (check_entries,),
    (check_boxes,),
    (check_copies_delivered, check_copies_apart, check_reach),
    (check_conflicts,),
    (check_exchange,),
    (check_extents,),
)
OF_A_RUN: tuple[Checks, ...] = ((check_written,), (check_writers,))  # check(program, tiles)


def verify(program: Program, tiles: int) -> tuple[Problem, ...]:
    """The broken rules (at most MAX_PROBLEMS), in program order; empty when the program is sound.

    What cannot be determined while another rule is broken is not reported: of every superstep the problems of the
    first group of checks that finds any.
    """
    if not any(True for _ in program.supersteps()):
        raise MappingError("the program has no superstep")
    problems = _first_broken(OF_THE_PLACEMENT, program, tiles)
    described: dict[TileMapping, bytes] = {}
    for stretch in () if problems else program.stretches():
        for superstep in stretch.body:
            scope = Scope(program=program, superstep=superstep, tiles=tiles, stretch=stretch, described=described)
            problems += _first_broken(OF_A_SUPERSTEP, scope)
            if len(problems) >= MAX_PROBLEMS:
                return tuple(problems[:MAX_PROBLEMS])
    problems = problems or _first_broken(OF_A_RUN, program, tiles)
    if not problems:
        _SOUND.add(program)
    return tuple(problems[:MAX_PROBLEMS])


def _first_broken(groups: tuple[Checks, ...], *subject: object) -> list[Problem]:
    """The problems of the first group that finds any."""
    for checks in groups:
        problems = [problem for check in checks for problem in check(*subject)]
        if problems:
            return problems
    return []


def require_sound(program: Program) -> None:
    """Raise MappingError with the first broken rule of a program; a program already verified is not checked again."""
    problems = () if program in _SOUND else verify(program, program.tiles)
    if problems:
        raise MappingError(problems[0].message)
