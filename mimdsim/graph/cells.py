"""Cells: neurons given by equations of a timestep, in arithmetic whose gradients are known, instead of by linear maps.

A cell is one record (`CellModel`) with a function that writes its equations with terms, which are values of the graph:

    def gru(cell):
        r_in, z_in, n_in = cell.from_inputs()
        r_own, z_own, n_own = cell.from_itself()
        r, z = sigmoid(r_in + r_own), sigmoid(z_in + z_own)
        n = tanh(n_in + r * n_own)
        return {OUTPUT: n + z * (cell.before - n)}

`cell_catalogue` has the records. What a cell sends is a number, for cells that spike 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mimdsim.base.errors import MappingError, suggest
from mimdsim.graph.elementwise import Line
from mimdsim.graph.names import ROLES, before, every_of, spikes_of
from mimdsim.graph.neuron_parts import Parameter
from mimdsim.graph.records import Carry, GraphBuilder, Value
from mimdsim.graph.spikes import Selection

OUTPUT = "output"
TAKEN = {*ROLES, *ROLES.values(), "spikes", "current", "normalised"}  # names that no row has


@dataclass(frozen=True, kw_only=True)
class CellModel:
    """One row of the table of cells.

    gates: blocks of as many columns as there are neurons in the weights [inputs, gates * neurons] and in the biases, in
    the order of the equations. recurrent: the layer's outputs of the timestep before, or a state (`recurrent_of`), have
    such weights, and biases, too. states: carried beside the output. parameters: numbers, the same for all neurons.
    rows: numbers per neuron that are trained, by the parameter that they start from; shared: those of them that are one
    number for the layer; learnable: parameters that may be (`learning`). equations: the terms of the output and of
    every state, by name.
    spiking: outputs are 0 or 1. sparse: outputs that are 0 send nothing; else all are sent always. reads_itself: the
    equations read the outputs of the timestep before.
    """

    name: str
    gates: int
    equations: Callable[[Equations], Mapping[str, Term]]
    equation: str
    source: str
    recurrent: bool = False
    recurrent_of: str = OUTPUT
    states: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    rows: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    learnable: tuple[str, ...] = ()
    spiking: bool = False
    sparse: bool = False
    reads_itself: bool = False

    def __post_init__(self) -> None:
        wrong = [f"state '{OUTPUT}'"] if OUTPUT in self.states else []
        wrong += [f"row '{row}'" for row in self.rows if row in TAKEN]
        if wrong:
            raise MappingError(f"cell '{self.name}' has a {wrong[0]}, a name that is taken: give it another")
        known = {parameter.name for parameter in self.parameters}
        if unknown := [row for row in (*self.rows, *self.learnable) if row not in known]:
            raise MappingError(f"cell '{self.name}': name a parameter '{unknown[0]}', from which that row starts")
        if self.recurrent_of not in (OUTPUT, *self.states):
            known_states = suggest(self.recurrent_of, self.states)
            raise MappingError(
                f"cell '{self.name}' has no state '{self.recurrent_of}' for its own weights{known_states}"
            )
        if strange := [row for row in self.shared if row not in self.rows]:
            raise MappingError(f"cell '{self.name}' shares '{strange[0]}', which it does not learn")

    def learning(self, names: tuple[str, ...]) -> CellModel:
        """The same, of which these parameters are trained, one number for the layer. Raises MappingError for others."""
        if unknown := [name for name in names if name not in self.learnable]:
            known = f'by it cells "{self.name}" learn {", ".join(self.learnable)}'
            if not self.learnable:
                known = f'cells "{self.name}" learn what their equations say, and nothing by this key: leave it out'
            raise MappingError(f"network.learned names '{unknown[0]}'; {known}")
        return replace(self, rows=(*self.rows, *names), shared=(*self.shared, *names))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The cells of a layer: a model with numbers for its parameters."""

    of: CellModel
    values: Mapping[str, float] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.of, *sorted(self.values.items())))

    @property
    def model(self) -> str:
        return self.of.name


@dataclass(frozen=True, eq=False)
class Term:
    """A value of the equations, [samples, neurons]; arithmetic with terms and numbers gives others."""

    name: str
    cell: Equations

    def __add__(self, other: Term | float) -> Term:
        return self.cell.made("add", self, other) if isinstance(other, Term) else self.line(1.0, other)

    def __sub__(self, other: Term | float) -> Term:
        return self.cell.made("subtract", self, other) if isinstance(other, Term) else self.line(1.0, -other)

    def __mul__(self, other: Term | float) -> Term:
        return self.cell.made("times", self, other) if isinstance(other, Term) else self.line(other)

    def __radd__(self, other: float) -> Term:
        return self.line(1.0, other)

    def __rsub__(self, other: float) -> Term:
        return self.line(-1.0, other)

    def __rmul__(self, other: float) -> Term:
        return self.line(other)

    def __neg__(self) -> Term:
        return self.line(-1.0)

    def __truediv__(self, other: Term | float) -> Term:
        return self * reciprocal(other) if isinstance(other, Term) else self.line(1.0 / other)

    def __rtruediv__(self, other: float) -> Term:
        return reciprocal(self) * other

    def line(self, scale: float, shift: float = 0.0) -> Term:
        """scale * term + shift. Raises MappingError for what is not finite."""
        if not math.isfinite(scale) or not math.isfinite(shift):
            raise MappingError(
                f"the equations of cell '{self.cell.model.name}' make {scale:g} of constants: lower them"
            )
        return self.cell.made("affine", self, attributes=Line(scale=float(scale), shift=float(shift)))


def sigmoid(x: Term) -> Term:
    """1 / (1 + e^-x)"""
    return x.cell.made("function", x, attributes="sigmoid")


def tanh(x: Term) -> Term:
    return x.cell.made("function", x, attributes="tanh")


def exponential(x: Term) -> Term:
    """e^x"""
    return x.cell.made("function", x, attributes="exponential")


def square_root(x: Term) -> Term:
    return x.cell.made("function", x, attributes="sqrt")


def logarithm(x: Term) -> Term:
    """The natural one."""
    return x.cell.made("function", x, attributes="log")


def reciprocal(x: Term) -> Term:
    """1 / x"""
    return x.cell.made("function", x, attributes="reciprocal")


def relu(x: Term) -> Term:
    """The larger of x and 0."""
    return x.cell.made("function", x, attributes="relu")


def damped(x: Term, factor: float) -> Term:
    """x, whose gradient is multiplied by a number."""
    return x.cell.made("rescale_gradient", x, attributes=float(factor))


def detached(x: Term) -> Term:
    """x, through which no gradient goes."""
    return damped(x, 0.0)


class Equations:
    """What the equations of a layer's cells are written with, in the body of the scan.

    p: the numbers of the parameters, by name. before: the outputs of the timestep before.
    """

    def __init__(
        self, body: GraphBuilder, name: str, cell: Cell, selection: Selection, current: str, spiking: bool = True
    ):
        """current: what weights and biases make of the sources [rows, gates * neurons]; spiking: as of the layer."""
        self.p, self._spiking = dict(cell.values), spiking
        self._body, self._layer, self.model, self._selection = body, name, cell.of, selection
        self._current, self._own = current, ""
        rows, columns = body.values[current].shape
        self._shape = rows, columns // cell.of.gates
        self._states = {state: self._enter(state) for state in cell.of.states}
        self._rows: dict[str, Term] = {}
        self._named: dict[str, str] = {}  # values that have got the name of what leaves the timestep

    def _enter(self, state: str) -> str:
        name = self._body.fresh(before(f"{state}.{self._layer}"))
        return self._body.declare(Value(name=name, shape=self._shape, layer=self._layer, shift=-1))

    @property
    def before(self) -> Term:
        """Raises MappingError for cells without synapses onto themselves, whose outputs nothing carries."""
        name = before(spikes_of(self._layer))
        if name not in self._body.values:
            raise MappingError(
                f"cell '{self.model.name}' reads its output of the timestep before: set reads_itself = True"
            )
        return Term(name, self)

    def add_own(self, weights: str, bias: str) -> None:
        """The product of the layer's own weights, and their biases, if there are some."""
        read, layer = (
            self.before if self.model.recurrent_of == OUTPUT else self.state(self.model.recurrent_of),
            self._layer,
        )
        self._own = self._body.one("matmul", (read.name, weights), f"recurrent.{layer}", layer=layer)
        if bias:
            self._own = self._body.one("bias_add", (self._own, bias), f"recurrent.{layer}.biased", layer=layer)

    def from_inputs(self) -> tuple[Term, ...]:
        """One term per gate: sums over the sources."""
        return self._split(self._current)

    def from_itself(self) -> tuple[Term, ...]:
        """One term per gate: sums over the layer's outputs of the timestep before, or over a state of it."""
        if not self._own:
            raise MappingError(f"cell '{self.model.name}' asks for synapses onto itself: set recurrent = True")
        return self._split(self._own)

    def gates(self) -> tuple[Term, ...]:
        """One term per gate: sums over the sources and over the layer's own outputs, or a state of it."""
        if not self._own:
            return self._split(self._current)
        return self._split(self.made("add", Term(self._current, self), Term(self._own, self)).name)

    def state(self, name: str) -> Term:
        """A state as the timestep before left it; 0 at first."""
        if name not in self._states:
            raise MappingError(f"cell '{self.model.name}' has no state '{name}'{suggest(name, self._states)}")
        return Term(self._states[name], self)

    def row(self, name: str) -> Term:
        """Trained numbers, one per neuron, for every sample."""
        if name not in self.model.rows:
            raise MappingError(f"cell '{self.model.name}' has no row '{name}'{suggest(name, self.model.rows)}")
        if name not in self._rows:
            held = f"{name}.{self._layer}"
            if name in self.model.shared:
                shape = (1, self._shape[1])
                held = self._body.declare(Value(name=every_of(self._layer, name), shape=shape, layer=self._layer))
            self._rows[name] = self.made("repeat_row", Term(held, self), attributes=self._shape[0])
        return self._rows[name]

    def value(self, name: str) -> Term | float:
        """Of a parameter: trained numbers where it is learned, else its number."""
        return self.row(name) if name in self.model.rows else self.p[name]

    def spike(self, x: Term) -> Term:
        """1 where x > 0, else 0; its gradient is the layer's surrogate at x."""
        made = self.made("spike", x, attributes=replace(self._selection, threshold=0.0, second_threshold=0.0))
        self._body.values[made.name] = replace(self._body.values[made.name], role="")
        return made

    def sent(self, potential: Term, threshold: Term | float) -> Term:
        """Spikes of what lies above the threshold; of a layer that is read by its potential, that."""
        return self.spike(potential - threshold) if self._spiking else potential

    def made(self, kind: str, *terms: Term, attributes: Any = None) -> Term:
        """The term that an operation of the graph makes of others."""
        names, layer = tuple(term.name for term in terms), self._layer
        return Term(self._body.one(kind, names, f"{layer}.{kind}", layer=layer, attributes=attributes), self)

    def _split(self, name: str) -> tuple[Term, ...]:
        if self.model.gates == 1:
            return (Term(name, self),)
        given = (name,)
        parts = self._body.add("split_columns", given, f"{name}.gate", layer=self._layer, attributes=self.model.gates)
        return tuple(Term(part, self) for part in parts)

    def finish(self) -> tuple[tuple[Carry, ...], str]:
        """Write the equations; what they carry and the name of the output."""
        model, found = self.model, dict(self.model.equations(self))
        wanted = {OUTPUT, *model.states}
        terms = {name for name, term in found.items() if isinstance(term, Term)}
        if found.keys() != wanted or terms != wanted:
            strange = "".join(f" ('{name}' is {found[name]!r})" for name in sorted(found.keys() - terms)[:1])
            raise MappingError(
                f"the equations of cell '{model.name}' give {', '.join(sorted(terms))}{strange}; they must give terms "
                f"for {', '.join(sorted(wanted))}"
            )
        output = self._own_value(found[OUTPUT], spikes_of(self._layer))
        self._body.values[output] = replace(self._body.values[output], role="spikes", layer=self._layer)
        carries = []
        for state in model.states:
            left = self._own_value(found[state], f"{state}.{self._layer}")
            carries.append(Carry(enters=self._states[state], leaves=left))
        return tuple(carries), output

    def _own_value(self, term: Term, name: str) -> str:
        """The value of a term under a name, in which no other state or output leaves the timestep."""
        body, given = self._body, self._named.get(term.name, term.name)
        name = body.fresh(name)
        made = next((op for op in body.operations if given in op.outputs), None)
        kept = made is None or len(made.outputs) > 1 or made.kind == "rescale_gradient"
        if kept or given != term.name or body.values[given].role == "spikes":  # of another layer
            return body.one("affine", (given,), name, layer=self._layer, attributes=Line(scale=1.0))
        body.rename(given, name)
        self._named[given] = name
        return name
