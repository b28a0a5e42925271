"""A model, whatever format it came in: populations with their discrete equations; and the file of it that
`mimdsim import` makes and `network.imported` names in a workload.

For one population, in timestep t (`current` is the weighted sum of the spikes it receives, of all its sources):

    current[t] = source[t - delay] @ weights + ... + own[t-1] @ recurrent + bias
    i[t] = synapse_decay * i[t-1] + synapse_gain * current[t]        (without a synapse: i[t] = current[t])
    v[t] = rest + decay * (v[t-1] - rest) + gain * i[t]
    own[t] = 1 where v[t] > threshold, else 0                        (a read-out sends v[t] itself)

and a neuron that fired at t-1 is reset before or after it integrates, as `reset` says. It starts with v = rest, i = 0.

The file is safetensors, with arrays by layer ('hidden0', ..., 'output'): w.<layer>, and where it has them b.<layer>
and r.<layer>; the neurons' constants as decay.<layer>, gain.<layer> and so on, named as the fields of `Dynamics`, one
number per neuron. Notes give the kind of every layer, its reset and delay, and the length of a timestep; of a layer
that reads planes also <layer>.convolution, the record `Convolution` as JSON: its arrays are then by channel. Of a layer
that reads others than the one before it, <layer>.sources are what it reads and at which ages, in place of its delay:
'hidden0@t input@t-2'. Weights from the second on are w.<layer>.from.<source>, as in training; the form is then 2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from mimdsim.base.errors import DataFileError, MappingError, shortened
from mimdsim.base.files import parse_json
from mimdsim.graph.convolution import Convolution
from mimdsim.graph.names import INPUT, aged
from mimdsim.graph.sources import Source, labels_of, source_of
from mimdsim.workload.interchange.nir_nodes import Reals, bounded
from mimdsim.workload.interchange.weights_file import (
    FROM,
    chain_of,
    layer_names,
    read_notes,
    read_safetensors,
    write_safetensors,
)

FORM, FORM_OF_SOURCES = "mimdsim model 1", "mimdsim model 2"
_NEEDED = ("decay", "gain", "rest")
MOST_DELAY = 10_000

Array = npt.NDArray[Any]
Reset = Literal["zero", "zero_after", "subtract", "subtract_decayed", "none"]
# zero: v[t-1] becomes the reset value before integrating (NIR with v_reset, Norse, snnTorch Leaky "zero").
# zero_after: v[t] becomes the reset value, so what came in at t is lost (snnTorch Synaptic and RLeaky "zero").
# subtract: the threshold is subtracted from v[t] and does not decay (snnTorch "subtract", its default).
# subtract_decayed: the threshold is subtracted from v[t-1], so it decays (NIR up to 1.0.4, snnTorch reset_delay=False).
RESETS: tuple[Reset, ...] = ("zero", "zero_after", "subtract", "subtract_decayed", "none")


@dataclass(frozen=True, kw_only=True, eq=False)
class Dynamics:
    """Constants of a population, float64[neurons] each. Without `threshold` it never fires; `reset_value` is for
    the resets to zero."""

    decay: Reals
    gain: Reals
    rest: Reals
    synapse_decay: Reals | None = None
    synapse_gain: Reals | None = None
    threshold: Reals | None = None
    reset: Reset = "none"
    reset_value: Reals | None = None

    @property
    def states(self) -> int:
        return 1 if self.synapse_decay is None else 2

    def matrices(self) -> tuple[Reals, Reals]:
        """(A [states, states, neurons], B [states, neurons]) of x[t] = A x[t-1] + B current[t], x[-1] = 0.

        Row 0 is the membrane potential less `rest`, row 1 the synaptic current.
        """
        if self.synapse_decay is None or self.synapse_gain is None:
            return self.decay[None, None], self.gain[None]
        zero = np.zeros_like(self.decay)
        a = np.array([[self.decay, self.gain * self.synapse_decay], [zero, self.synapse_decay]])
        return a, np.array([self.gain * self.synapse_gain, self.synapse_gain])


@dataclass(frozen=True, kw_only=True, eq=False)
class Population:
    """Neurons that read one source or several. reads: these, a source several times if at several ages, with weights
    [inputs, neurons] for each; bias [neurons], recurrent [neurons, neurons] (from, to) for recurrence 'all_to_all',
    [neurons] for 'one_to_one'; `node` says where in the file it was.

    convolution: how it reads planes; weights are then [channels read * taps, channels], and bias and constants of
    neurons one for each channel.
    """

    node: str
    kind: str
    reads: tuple[tuple[Source, Reals], ...]
    dynamics: Dynamics
    bias: Reals | None = None
    recurrent: Reals | None = None
    convolution: Convolution | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for source, _ in self.reads)

    @property
    def weights(self) -> Reals:
        """Those of the source that it reads first."""
        return self.reads[0][1]

    @property
    def inputs(self) -> int:
        return self.sources[0].neurons

    @property
    def neurons(self) -> int:
        return self.convolution.result.neurons if self.convolution else int(self.weights.shape[1])

    @property
    def recurrence(self) -> Literal["none", "one_to_one", "all_to_all"]:
        if self.recurrent is None:
            return "none"
        return "one_to_one" if self.recurrent.ndim == 1 else "all_to_all"

    @property
    def spiking(self) -> bool:
        return self.dynamics.threshold is not None


@dataclass(frozen=True, kw_only=True, eq=False)
class ImportedNetwork:
    """Populations in order: each reads those before it in the same timestep, or later, and others from the next one on;
    dt_seconds is the length of a timestep (0: unknown).

    `notes` list decisions made while reading where another choice would be possible.
    """

    populations: tuple[Population, ...]
    dt_seconds: float
    notes: tuple[str, ...] = ()

    @property
    def inputs(self) -> int:
        return self.populations[0].inputs

    @property
    def outputs(self) -> int:
        return self.populations[-1].neurons

    @property
    def layers(self) -> tuple[tuple[str, Population], ...]:
        """The populations by the names of layers."""
        return tuple(zip(layer_names(len(self.populations)), self.populations, strict=True))

    @property
    def sources(self) -> tuple[tuple[Source, ...], ...]:
        """What every population reads, by the names of layers."""
        return tuple(each.sources for each in self.populations)

    @property
    def title(self) -> str:
        """'12-38-7'"""
        return "-".join(str(width) for width in (self.inputs, *(each.neurons for each in self.populations)))


_CONSTANTS = tuple(each.name for each in fields(Dynamics) if each.name != "reset")


def weights_named(layer: str, sources: Sequence[Source]) -> tuple[str, ...]:
    """The names of the weights that a layer has for what it reads."""
    return f"w.{layer}", *(f"w.{layer}.from.{label}" for label in labels_of(tuple(sources))[1:])


def arrays_of(network: ImportedNetwork) -> dict[str, Array]:
    """The weights of a network by the names that training gives them, float64."""
    arrays: dict[str, Array] = {}
    for layer, each in network.layers:
        arrays |= zip(weights_named(layer, each.sources), (values for _, values in each.reads), strict=True)
        if each.bias is not None:
            arrays[f"b.{layer}"] = each.bias
        if each.recurrent is not None:
            arrays[f"r.{layer}"] = each.recurrent
    return arrays


def write_model(path: Path, network: ImportedNetwork) -> None:
    """Write a network whole or not at all, float32."""
    arrays = arrays_of(network)
    notes = {"form": FORM, "dt_seconds": repr(network.dt_seconds)}
    before = INPUT
    for layer, each in network.layers:
        for name in _CONSTANTS:
            values = getattr(each.dynamics, name)
            if values is not None:
                arrays[f"{name}.{layer}"] = values
        notes[f"{layer}.kind"] = each.kind
        notes[f"{layer}.reset"] = each.dynamics.reset
        if [one.name for one in each.sources] == [before]:
            notes[f"{layer}.delay"] = str(each.sources[0].lag or 0)
        else:
            notes[f"{layer}{SOURCES}"] = " ".join(aged(one.name, one.lag or 0) for one in each.sources)
            notes["form"] = FORM_OF_SOURCES
        before = layer
        if each.convolution:
            described = asdict(each.convolution)
            if each.convolution.groups == 1:
                del described["groups"]  # as in files of before there were any
            del described["own"]  # which no file has
            notes[f"{layer}.convolution"] = json.dumps(described)
    write_safetensors(path, arrays, notes)


def read_model(path: Path) -> ImportedNetwork:
    """A network as `write_model` wrote it, float32 values; raises DataFileError for anything else."""
    notes = read_notes(path, "no such file; make it with  mimdsim import MODEL.nir")
    if notes.get("form") not in (FORM, FORM_OF_SOURCES):
        raise DataFileError(
            path, "is not a model made by 'mimdsim import'; weights alone go to training.initial_weights"
        )
    arrays = {name: values.astype(np.float64) for name, values in read_safetensors(path).items()}
    for name, values in arrays.items():
        if not np.all(np.isfinite(values)):
            raise DataFileError(path, f"'{name}' holds values that are not finite")
    found = {
        name.removesuffix(NOTE): _convolution(path, name, text) for name, text in notes.items() if name.endswith(NOTE)
    }
    sizes = {layer: (each.planes.neurons, each.result.neurons) for layer, each in found.items()}
    trained = {name: values for name, values in arrays.items() if name[:2] in ("w.", "r.", "b.")}
    layers = layer_names(sum(name.startswith("w.") and FROM not in name for name in trained))
    places = {INPUT: 0} | {layer: place for place, layer in enumerate(layers, 1)}
    names = {layer: _sources(path, layer, before, places, notes) for before, layer in zip(places, layers, strict=False)}
    chain_of(path, trained, sizes, {layer: {name: one.name for name, one in of.items()} for layer, of in names.items()})
    noted = {name.removesuffix(SOURCES) for name in notes if name.endswith(SOURCES)}
    for what, said in (("a convolution", {*found}), ("sources", noted)):
        if strays := said.difference(layers):
            raise DataFileError(path, f"says {what} of '{min(strays)[:40]}'; its layers are {', '.join(layers)}")
    populations = tuple(_population(path, layer, arrays, notes, (found.get(layer), names[layer])) for layer in layers)
    try:
        dt = float(notes.get("dt_seconds", "0"))
    except ValueError:
        raise DataFileError(path, f"says a timestep is {notes['dt_seconds'][:40]!r} seconds long") from None
    return ImportedNetwork(populations=populations, dt_seconds=dt if np.isfinite(dt) and dt > 0 else 0.0)


NOTE, SOURCES = ".convolution", ".sources"
_CONVOLUTION = TypeAdapter(Convolution)
_Found = tuple[Convolution | None, dict[str, Source]]  # and the weights for what it reads


def _convolution(path: Path, name: str, text: str) -> Convolution:
    try:
        found = bounded(_CONVOLUTION.validate_json(text, strict=True))
        if not _all_read(parse_json(text), asdict(found)):
            raise MappingError("it has keys that no convolution has")
        if found.own:
            raise MappingError("it has a kernel over its own spikes, which files have not")
    except (ValueError, RecursionError, MappingError) as problem:  # pydantic's ValidationError is a ValueError
        said = shortened(" ".join(str(problem).split()), 200)
        raise DataFileError(path, f"says '{shortened(text)}' of '{shortened(name)}': {said}") from None
    return found


def _sources(
    path: Path, layer: str, before: str, places: Mapping[str, int], notes: Mapping[str, str]
) -> dict[str, Source]:
    """What a layer reads, as far as it can be told without weights, by the names of these."""
    delay = notes.get(f"{layer}.delay", "0")
    text = notes.get(f"{layer}{SOURCES}", f"{before}@t" + (f"-{delay}" if delay != "0" else ""))
    try:
        sources = tuple(source_of(each) for each in text.split(" "))
    except MappingError:
        sources = ()
    read = [(each.name, each.lag) for each in sources]
    least = {name: int(places[name] > places[layer]) for name, _ in read if name in places and name != layer}
    ages = all(lag is not None and least.get(name, MOST_DELAY + 1) <= lag <= MOST_DELAY for name, lag in read)
    if not read or not ages or len(set(read)) < len(read) or (before == INPUT != read[0][0]):
        raise DataFileError(
            path,
            f"says that '{layer}' reads '{shortened(text)}'; needed are '{INPUT}', which the first layer reads first, "
            f"and others, each at an age of at most {MOST_DELAY}, one after it from 1 on: 'hidden0@t {INPUT}@t-2'",
        )
    return dict(zip(weights_named(layer, sources), sources, strict=True))


def _all_read(given: Any, read: Any) -> bool:
    """Whether JSON has no other keys than what was read of it."""
    return not isinstance(given, dict) or all(name in read and _all_read(given[name], read[name]) for name in given)


def _population(
    path: Path, layer: str, arrays: Mapping[str, Reals], notes: Mapping[str, str], found: _Found
) -> Population:
    convolution, reads = found
    weights = arrays[f"w.{layer}"]
    neurons = weights.shape[1]
    if convolution and weights.shape != (convolution.fan_in, convolution.channels):
        raise DataFileError(path, f"'w.{layer}' has the shape {list(weights.shape)}, not that of its convolution")
    constants: dict[str, Reals] = {}
    for name in _CONSTANTS:
        values = arrays.get(f"{name}.{layer}")
        if values is None and name in _NEEDED:
            raise DataFileError(path, f"has no '{name}.{layer}'; create it again with  mimdsim import")
        if values is not None:
            if values.shape != (neurons,):
                raise DataFileError(path, f"'{name}.{layer}' has the shape {list(values.shape)} for {neurons} neurons")
            constants[name] = values
    if ("synapse_decay" in constants) != ("synapse_gain" in constants):
        raise DataFileError(path, f"layer '{layer}' has half of a synapse: synapse_decay and synapse_gain go together")
    reset = next((known for known in RESETS if known == notes.get(f"{layer}.reset")), None)
    if reset is None:
        raise DataFileError(path, f"says reset '{notes.get(f'{layer}.reset')}' of '{layer}'")
    if convolution and len(reads) > 1:
        raise DataFileError(path, f"says that '{layer}', a convolution, reads {len(reads)} sources; it reads one")
    return Population(
        node=layer,
        kind=notes.get(f"{layer}.kind", "LIF"),
        reads=tuple(
            (replace(one, neurons=convolution.planes.neurons if convolution else len(arrays[name])), arrays[name])
            for name, one in reads.items()
        ),
        dynamics=Dynamics(**constants, reset=reset),
        bias=arrays.get(f"b.{layer}"),
        recurrent=arrays.get(f"r.{layer}"),
        convolution=convolution,
    )
