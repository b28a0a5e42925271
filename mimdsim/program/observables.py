"""What a run may ask of a training step by what it is, so that no engine has to know how a compiler calls things."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Potential:
    """What of a layer is held against its threshold: a graph value that supersteps define, and the variable
    [timesteps, batch, neurons] that keeps it, '' where the program does not keep it of every timestep."""

    value: str
    sequence: str = ""


@dataclass(frozen=True, kw_only=True)
class Observables:
    """Beside `Program.recorded`, the spikes by layer; a program by hand may leave all of it out.

    gradients: the output that holds the gradient, by the input that is trained. generators: inputs that hold the states
    of random numbers, drawn anew before every run. potentials: of layers that spike.
    """

    gradients: dict[str, str] = field(default_factory=dict)
    generators: tuple[str, ...] = ()
    potentials: dict[str, Potential] = field(default_factory=dict)
