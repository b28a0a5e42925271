"""A program by hand, written from top to bottom: variables, vertices in supersteps, repeats; exchanges are planned."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mimdsim.base.errors import MappingError, MimdsimError, suggest
from mimdsim.compiler import plan_exchanges
from mimdsim.graph.records import unique_name
from mimdsim.kernels.parts import FORMATS, in_number_format
from mimdsim.machine import Given, tiled_machine
from mimdsim.program import Codelet, Copy, Program, ProgramBuilder, Superstep, TileMapping, Variable
from mimdsim.program.mapping import whole_numbers

Tiles = int | Sequence[int] | np.ndarray
Operand = Variable | str  # of this kernel, itself or by name
OWN_FILES = (str(Path(__file__).resolve().parents[1]), contextlib.__file__)


class KernelError(MimdsimError):
    """A mistake in a program written by hand; its message begins with the file and the line where it was made."""


@contextmanager
def at_users_line() -> Iterator[None]:
    """Within it, or in a function that it decorates, errors name the line of the innermost caller outside the
    package: 'file.py, line 12'."""
    try:
        yield
    except KernelError:
        raise
    except (MimdsimError, ValueError) as refusal:
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN_FILES):
            frame = frame.f_back
        raise KernelError(f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}: {refusal}") from refusal


class Builder(ProgramBuilder):
    """Variables, vertices, supersteps and repeats of one program; `Kernel` adds the library's vertices.

    Every mistake is refused with a KernelError that names the line of the caller.
    """

    @at_users_line()
    def __init__(self, name: str, machine: Given):
        self.name, self.machine = name, tiled_machine(machine, "a kernel runs on a tiled machine")
        chips = self.machine.links.chips
        super().__init__(tiles=self.machine.chip.tiles * chips, chips=chips)
        self._constants: set[str] = set()
        self._taken: set[str] = set()  # names of supersteps

    @property
    def everywhere(self) -> TileMapping:
        """The mapping of a variable that every tile has a copy of; `broadcast` writes it."""
        return TileMapping.replicated(np.arange(self.tiles))

    # ---- variables

    @at_users_line()
    def variable(
        self,
        name: str,
        shape: int | Sequence[int],
        dtype: str = "float32",
        *,
        mapping: TileMapping | None = None,
        spread: int = 0,
        tiles: Tiles | None = None,
        category: str = "data",
    ) -> Variable:
        """Declare a variable of `shape`, spread evenly along its axis `spread` over `tiles` (default: all of them), or
        as `mapping` says. tiles: their numbers, each once; one number is that tile alone: 4 is tile number 4, range(4)
        are the first four.

        Raises KernelError for a name that is taken, and for an invalid shape, format or mapping.
        """
        self._new_name(name, self.variables, "a variable")
        extents = tuple(
            int(extent) for extent in np.atleast_1d(whole_numbers(f"'{name}': shape", np.atleast_1d(shape)))
        )
        if not extents or min(extents) < 1:
            raise MappingError(f"'{name}': shape {list(extents)} must have at least 1 element along every axis")
        try:
            dtype = np.dtype(dtype).name
        except TypeError:  # no format of numpy's either
            dtype = str(dtype)
        if dtype not in FORMATS:
            raise MappingError(f"'{name}': format '{dtype}' is not one that tiles have{suggest(dtype, FORMATS)}")
        if mapping is None:
            mapping = self._even_mapping(name, extents, spread, tiles)
        elif tiles is not None or spread:
            raise MappingError(f"'{name}': give a mapping, or spread and tiles to have one made, not both")
        declared = Variable(name=name, shape=extents, dtype=dtype, mapping=mapping, category=category)
        self._plan({name: declared}, ())
        self.variables[name] = declared
        return declared

    @at_users_line()
    def constant(
        self,
        name: str,
        values: ArrayLike,
        *,
        mapping: TileMapping | None = None,
        spread: int = 0,
        tiles: Tiles | None = None,
        category: str = "data",
    ) -> Variable:
        """Declare a variable that holds `values` from the start, loaded with the program; placed as by `variable`.

        Python numbers become float32 or int32.
        """
        given = np.asarray(values).dtype.name
        held = in_number_format(f"'{name}'", values, {"float64": "float32", "int64": "int32"}.get(given, given))
        declared = self.variable(
            name, held.shape, held.dtype.name, mapping=mapping, spread=spread, tiles=tiles, category=category
        )
        self._constants.add(name)
        self.variables[name] = replace(declared, persistent=True, values=held)
        return self.variables[name]

    @at_users_line()
    def input(self, variable: Variable | str, name: str | None = None) -> Variable:
        """Let the host write a variable before every run, as the input `name` (default: the variable's name)."""
        found = self.resolve(variable)
        self.inputs[self._new_name(name or found.name, self.inputs, "an input")] = found.name
        return found

    @at_users_line()
    def output(self, variable: Variable | str, name: str | None = None) -> Variable:
        """Let the host read a variable after every run, as the output `name` (default: the variable's name)."""
        found = self.resolve(variable)
        self.outputs[self._new_name(name or found.name, self.outputs, "an output")] = found.name
        return found

    def resolve(self, variable: Variable | str) -> Variable:
        """The variable of this kernel with this name; raises MappingError for any other."""
        name = variable.name if isinstance(variable, Variable) else variable
        if not isinstance(name, str):
            raise MappingError(f"{name!r} is not a variable; give one that k.variable(...) returned, or its name")
        found = self.variables.get(name)
        if found is None:
            raise MappingError(f"kernel '{self.name}' has no variable '{name}'{suggest(name, self.variables)}")
        if isinstance(variable, Variable) and variable is not found:
            raise MappingError(f"'{name}' is a variable of another kernel, not of '{self.name}'")
        return found

    def unused_name(self, name: str) -> str:
        """`name`, with a number appended if a variable has that name already."""
        return unique_name(name, self.variables, " ")

    def _new_name(self, name: str, known: Mapping[str, object], what: str) -> str:
        if not name or not name.isprintable():
            raise MappingError(f"the name {name!r} of {what} must be printable and not empty")
        if name in known:
            raise MappingError(f"kernel '{self.name}' already has {what} '{name}'")
        return name

    def _even_mapping(self, name: str, shape: tuple[int, ...], spread: int, tiles: Tiles | None) -> TileMapping:
        if not -len(shape) <= spread < len(shape):
            raise MappingError(f"'{name}' of shape {list(shape)} has no axis {spread} to be spread along")
        axis = spread % len(shape)
        chosen = np.arange(self.tiles) if tiles is None else whole_numbers(f"'{name}': tiles", np.atleast_1d(tiles))
        if not len(chosen):
            raise MappingError(f"'{name}': no tile to be placed on; give at least one")
        if isinstance(tiles, int) and tiles >= self.tiles:
            raise MappingError(
                f"'{name}': tiles={tiles} is tile number {tiles}, and the program has tiles 0 to {self.tiles - 1}; "
                f"write range(n) for the first n tiles"
            )
        numbers, often = np.unique(chosen, return_counts=True)
        if often.max() > 1:
            raise MappingError(f"'{name}': tiles names tile {numbers[often > 1][0]} more than once; name each once")
        return TileMapping.evenly(axis, shape[axis], chosen)

    # ---- supersteps

    @at_users_line()
    def vertices(
        self,
        codelet: Codelet,
        *,
        tiles: Tiles,
        operands: Mapping[str, Variable | str],
        columns: Mapping[str, ArrayLike] | None = None,
        constants: Mapping[str, object] | None = None,
    ) -> None:
        """Add one vertex of `codelet` for every entry of `tiles`, to the open superstep or in a new one.

        operands: the variable of every field; columns: whole numbers by name, one per vertex or one for all; constants
        by name.
        """
        self.place(
            codelet.name,
            codelet,
            np.atleast_1d(np.asarray(tiles)),
            {name: self.resolve(variable) for name, variable in operands.items()},
            columns or {},
            constants=constants,
        )

    def place(
        self,
        step: str,
        codelet: Codelet,
        tiles: np.ndarray,
        operands: Mapping[str, Variable],
        columns: Mapping[str, ArrayLike],
        *,
        constants: Mapping[str, object] | None = None,
    ) -> None:
        """As `vertices`, in a superstep named `step` if none is open."""
        strangers = sorted(set(operands) - {item.name for item in codelet.fields})
        if strangers:
            known = ", ".join(item.name for item in codelet.fields)
            raise MappingError(f"codelet '{codelet.name}' has no field {', '.join(strangers)}; its fields are {known}")
        for item in codelet.fields:
            if item.writes and item.name in operands:
                self._refuse_constant(operands[item.name], f"codelet '{codelet.name}'")
        tiles = whole_numbers(f"vertices of '{codelet.name}': tiles", tiles)
        self.add_vertices(
            Superstep(name=step),
            codelet,
            tiles,
            {name: variable.name for name, variable in operands.items()},
            {name: _column(f"column '{name}'", column, len(tiles)) for name, column in columns.items()},
            constants=constants,
        )

    def _refuse_constant(self, variable: Variable, who: str) -> None:
        if variable.name in self._constants:
            advice = "declare a variable, and fill it in a superstep of the program"
            raise MappingError(f"{who} writes '{variable.name}', which is a constant: {advice}")

    def move(self, step: str, source: Variable, target: Variable) -> None:
        """`target` <- `source`, written by the exchange of the open superstep, or of a new one."""
        self._refuse_constant(target, "a copy")
        self.add(Superstep(name=step, copies=(Copy(source=source.name, target=target.name),)))

    def add(self, more: Superstep) -> None:
        """As any builder, but an exchange that cannot be planned is refused at once, and names of supersteps are
        unique."""
        if self.open_superstep is not None:
            self._with_exchange(replace(more, name=self.open_superstep.name))
        else:
            name = unique_name(more.name, self._taken, " ")
            more = self._with_exchange(replace(more, name=name, stage=name))
            self._taken.add(name)
        super().add(more)

    def require_between_supersteps(self, what: str) -> None:
        """Refuse `what`, which takes several supersteps, inside a superstep."""
        if self.open_superstep is not None:
            where = f"outside of 'with k.superstep(\"{self.open_superstep.name}\")'"
            raise MappingError(f"{what} takes supersteps of its own; call it {where}")

    @contextmanager
    def superstep(self, name: str, phase: str = "compute") -> Iterator[None]:
        """`with k.superstep("name"):` all vertices added inside run in one superstep, reported under `phase`."""
        with at_users_line():
            if self.open_superstep is not None:
                raise MappingError(f"superstep '{self.open_superstep.name}' is still open; supersteps do not nest")
            self.open_superstep = Superstep(name=name, phase=phase)
        try:
            yield
        finally:
            opened, self.open_superstep = self.open_superstep, None
        with at_users_line():
            if not opened.tables and not opened.copies:
                raise MappingError(f"superstep '{name}' has no vertices; add some within it, or leave it out")
            self.add(opened)

    @contextmanager
    def repeat(self, times: int, *, reverse: bool = False) -> Iterator[None]:
        """`with k.repeat(times):` the supersteps added inside run that many times; "@t" in boxes is the number of the
        turn, from last to first if `reverse`."""
        with at_users_line():
            if isinstance(times, bool) or not isinstance(times, int | np.integer) or times < 1:
                raise MappingError(f"a repeat of {times!r} turns; a whole number of at least 1 is needed")
            self.require_between_supersteps("a repeat")
        self.open_repeat()
        try:
            yield
        except BaseException:
            self.bodies.pop()
            raise
        with at_users_line():
            self.close_repeat(int(times), reverse=reverse)

    @at_users_line()
    def program(self, **about: Any) -> Program:
        """The program, its exchanges planned. Raises KernelError if nothing has been added."""
        if self.open_superstep is not None or len(self.bodies) > 1:
            raise MappingError(f"kernel '{self.name}': a superstep or repeat is still open; call program() outside")
        if not self.body:
            raise MappingError(f"kernel '{self.name}' has no superstep; add vertices")
        return super().program(**about)

    def _with_exchange(self, superstep: Superstep) -> Superstep:
        """The superstep with its exchange; raises MappingError immediately if it cannot be planned."""
        names = {name for table in superstep.tables for name in table.operands.values()}
        names |= {name for copy in superstep.copies for name in (copy.source, copy.target)}
        made = self._plan({name: self.variables[name] for name in sorted(names)}, (superstep,))
        (planned,) = (step for step, _, _ in made.supersteps())
        return planned

    def _plan(self, variables: dict[str, Variable], body: tuple[Superstep, ...]) -> Program:
        return plan_exchanges(Program(tiles=self.tiles, chips=self.chips, variables=variables, body=body))


def _column(what: str, values: ArrayLike, vertices: int) -> np.ndarray:
    """One whole number per vertex, or the same for all."""
    given = np.asarray(values)
    return whole_numbers(what, np.full(vertices, given) if not given.shape else given)
