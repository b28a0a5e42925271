"""What a run may ask of a training step by kind, so that no engine needs to know the names a compiler gives."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Potential:
    """What a layer compares with its threshold: a graph value that supersteps define, and the variable
    [timesteps, batch, neurons] that keeps it, '' if the program does not keep it for every timestep."""

    value: str
    sequence: str = ""


@dataclass(frozen=True, kw_only=True)
class Observables:
    """In addition to `Program.recorded`, the spikes by layer; a program written by hand may leave it all out.

    gradients: the output that holds the gradient, by trained input. generators: inputs that hold the states of random
    number generators, drawn afresh before every run. potentials: for layers that spike.
    """

    gradients: dict[str, str] = field(default_factory=dict)
    generators: tuple[str, ...] = ()
    potentials: dict[str, Potential] = field(default_factory=dict)
