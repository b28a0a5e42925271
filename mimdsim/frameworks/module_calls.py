"""One forward pass of a PyTorch module, recorded: which layers ran on what, in the order in which they ran.

The module runs on its example input as it is: loops over time, containers and Python code of the user's own need not be
understood. Calls of the layers that are known are recorded as one each, tensor functions between them one by one
(recording.py).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch.nn.utils.prune import BasePruningMethod

from mimdsim.base.errors import MimdsimError
from mimdsim.frameworks.delays import delays_of
from mimdsim.frameworks.neurons import (
    SNNTORCH_STATES,
    WRITTEN_OUT,
    Reading,
    as_its_model,
    has_model,
    match_gradients,
    neuron_key,
    numbers_of,
    read_neuron,
    refusal,
    tell,
)
from mimdsim.frameworks.origins import (
    THROUGH,
    VOTE,
    Dropped,
    FunctionResult,
    Input,
    Joined,
    LayerOutput,
    Made,
    Origin,
    Parameter,
    Pooled,
    Product,
    Step,
    added_up,
    currents_in,
    each_in,
    is_sent,
    parts_of,
    undropped,
    unweighted,
    votes_in,
    with_votes,
)
from mimdsim.frameworks.planes import ROW_NORMS, function_of, options_of
from mimdsim.frameworks.recorded import NeuronCalls, Recorded
from mimdsim.frameworks.recording import dropped
from mimdsim.frameworks.recording_arithmetic import FRAMEWORKS, NOT_OF_USERS
from mimdsim.frameworks.recording_sequences import SequenceRecorder
from mimdsim.frameworks.tensors import copy_of, tensors_in
from mimdsim.graph.derived import WeightFunction

# what comes nearest to modules that are no layers here
_DROPOUT = "torch.nn.Dropout, neuron by neuron, or Dropout2d of whole planes"
_CONVOLUTION = "torch.nn.Conv1d or Conv2d, of every timestep"
_NORM = (
    "torch.nn.LayerNorm, RMSNorm, GroupNorm, or BatchNorm1d or 2d right after a linear layer or a convolution, which "
    "is trained as such, and in eval() folded into the weights before it"
)
_POOLING = "torch.nn.MaxPool2d or AvgPool2d"
_ENCODED = "encode the example before the module gets it"
_CELL = "torch.nn.RNN, GRU or LSTM, or a recurrent spiking layer, such as snntorch.RLeaky"
BNTT = "BatchNormThroughTime"
NEAREST = {
    **dict.fromkeys(("Dropout3d", "AlphaDropout", "FeatureAlphaDropout"), _DROPOUT),
    **dict.fromkeys(("Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), _CONVOLUTION),
    **dict.fromkeys(("InstanceNorm3d", "LocalResponseNorm", "NeuNorm"), _NORM),
    "ThresholdDependentBatchNorm3d": "spikingjelly ThresholdDependentBatchNorm2d",
    **dict.fromkeys(
        (f"TemporalEffectiveBatchNorm{d}d" for d in (1, 2, 3)), "a batch norm for each timestep (BNTT), or one for all"
    ),
    **dict.fromkeys((f"{BNTT}{d}d" for d in (1, 2, 3)), "the same with step_mode='s', called in every timestep"),
    **dict.fromkeys(
        ("MaxPool3d", "AvgPool3d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d"), _POOLING
    ),
    **dict.fromkeys(("LPPool1d", "LPPool2d", "FractionalMaxPool2d"), _POOLING),
    **dict.fromkeys(
        (f"{kind}Pad{d}d" for kind in ("Circular", "Reflection", "Replication") for d in (1, 2)),
        "padding of the convolution, by zeros",
    ),
    **dict.fromkeys(
        ("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"), "a convolution of the planes as they are"
    ),
    "SConv2dLSTM": _CELL,
    **dict.fromkeys(("AssociativeLeaky", "LeakyParallel", "LinearLeaky", "StateLeaky"), "snntorch Leaky"),
    **dict.fromkeys(
        ("CobaLIFCell", "LIFCorrelation", "LIFMCRecurrentCell", "LIFMCRefracRecurrentCell"), "norse LIFCell"
    ),
    **dict.fromkeys(("ConstantCurrentLIFEncoder", "PoissonEncoder", "PopulationEncoder"), _ENCODED),
    **dict.fromkeys(("LatencyEncoder", "PeriodicEncoder", "SpikeLatencyEncoder", "SpikeLatencyLIFEncoder"), _ENCODED),
    **dict.fromkeys(("PSN", "MaskedPSN"), "spikingjelly SlidingPSN"),
    **dict.fromkeys(("DSRIFNode", "DSRLIFNode", "ILIFNode", "OTTTLIFNode"), "spikingjelly IFNode or LIFNode"),
    "GatedLIFNode": "spikingjelly ParametricLIFNode",
    "ElementWiseRecurrentContainer": "spikingjelly LinearRecurrentContainer of spikes, or snntorch RLeaky",
    **dict.fromkeys(("Dcls2d", "Dcls3d", "Dcls3_1d", "Dcls2dK1d"), "DCLS Dcls1d, over time"),
    **dict.fromkeys(
        ("CELU", "GELU", "Hardswish", "LogSigmoid", "Mish", "SELU"),
        "ReLU, LeakyReLU, SiLU, Softplus, Softsign, Sigmoid, Hardsigmoid or Tanh",
    ),
}
# modules of PyTorch of whose functions each is recorded, some in neurons that are written out
_NN = torch.nn
# norms of each by itself
OF_SAMPLES = (*ROW_NORMS, _NN.GroupNorm, _NN.InstanceNorm1d, _NN.InstanceNorm2d)
OF_FUNCTIONS = (
    _NN.Flatten, _NN.Identity, _NN.Unflatten, _NN.Sigmoid, _NN.Tanh, _NN.Hardtanh, _NN.LogSoftmax, _NN.Softmax,
    _NN.ConstantPad1d, _NN.ConstantPad2d, _NN.ReLU, _NN.LeakyReLU, _NN.SiLU, _NN.Softsign, _NN.Hardsigmoid,
    _NN.Softplus, _NN.ELU, _NN.PReLU, _NN.Embedding,
)  # fmt: skip


# batch norms whose gains begin as a multiple of the threshold
DROPOUTS = ("spikingjelly.Dropout", "spikingjelly.Dropout2d")
OF_THRESHOLDS = tuple(f"spikingjelly.ThresholdDependentBatchNorm{d}d" for d in (1, 2))


class Kind(Enum):
    """What a module is to the recorder."""

    FUNCTION = "weights and a bias, or a pool"
    NEURON = "neurons"
    DROPOUT = "leaves some of its values out"
    NORM = "batch norm of the product before it"
    SPIKE = "a step with a surrogate gradient"
    DELAYS = "weights with delays that are learned"
    VOTE = "the mean of adjacent outputs, which stand for a class"
    CONTAINER = "its own calls are recorded instead"
    UNKNOWN = "refused"


def kind_of(module: torch.nn.Module) -> Kind:
    """Containers are modules of the user's own and of the frameworks that are no layers themselves."""
    key = neuron_key(module)
    if has_model(module):
        return Kind.NEURON
    if function_of(module):
        return Kind.FUNCTION
    if key == "DCLS.Dcls1d":
        return Kind.DELAYS
    if any(kind.__name__ == "SurrogateFunctionBase" for kind in type(module).__mro__):
        return Kind.SPIKE
    if isinstance(module, torch.jit.ScriptModule):
        return Kind.UNKNOWN
    if isinstance(module, OF_FUNCTIONS):
        return Kind.CONTAINER
    parents = [kind for kind in type(module).__mro__ if kind is not torch.nn.Module]
    if isinstance(module, (_NN.Dropout, _NN.Dropout1d, _NN.Dropout2d)) or key in DROPOUTS:
        return Kind.DROPOUT
    if isinstance(module, (_NN.BatchNorm1d, _NN.BatchNorm2d, _NN.BatchNorm3d, *OF_SAMPLES)) or key in OF_THRESHOLDS:
        return Kind.NORM
    if key == "spikingjelly.VotingLayer":
        return Kind.VOTE
    if isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)):
        return Kind.CONTAINER
    of_torch = any(kind.__module__.startswith("torch.nn.modules.") for kind in parents)
    name = type(module).__name__
    by_timestep = name.startswith(BNTT) and getattr(module, "step_mode", "") == "s"
    refused = key.partition(".")[0] in FRAMEWORKS and name in NEAREST and not by_timestep
    return Kind.UNKNOWN if of_torch or refused else Kind.CONTAINER


class ModuleRecorder(SequenceRecorder):
    """Follows tensors through the calls of modules, too."""

    def __init__(self, module: torch.nn.Module, written: Collection[str], zero_states: bool, by_timestep: int | None):
        """written: names of neurons whose own operations are read; the others as of `SequenceRecorder`."""
        super().__init__(module, zero_states, by_timestep)
        self._written = written
        self._kept: dict[int, list[tuple[Any, torch.Tensor]]] = {}  # states that neurons keep, by id of the module

    @contextmanager
    def calls(self) -> Iterator[None]:
        """While modules are called through this recorder."""
        plain = torch.nn.Module.__call__

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            name = self.names.get(id(module), "")
            plainly = self._inside or "parametrizations." in name or name in self._written
            if plainly or (kind := kind_of(module)) is Kind.CONTAINER:
                written = None if self._inside else WRITTEN_OUT.get(neuron_key(module))
                return written(module, *args) if written else plain(module, *args, **kwargs)
            if kind is Kind.UNKNOWN:
                raise refusal(f"{self._where(module)} is not among the layers that run here{nearest(module)}")
            self._inside += 1
            try:
                with as_its_model(module) as finished:
                    if kind is Kind.NEURON and not any(True for _ in tensors_in([args[1:], kwargs])):
                        self._check_kept(module)
                    made = plain(module, *args, **kwargs)
                    if kind is Kind.NEURON:
                        self._kept[id(module)] = _kept_by(module)
                    self._record_call(kind, module, (*args, *kwargs.values()), made)
            finally:
                self._inside -= 1
            return finished(made)

        torch.nn.Module.__call__ = call
        with self._own_gradients(), self._scripts():
            try:
                yield
            finally:
                torch.nn.Module.__call__ = plain

    def _check_kept(self, module: Any) -> None:
        """Of states that neurons of snnTorch and SpikingJelly keep: that they are those which they begin with, or which
        their last call left; spikes alone would rarely tell."""
        kept, held = _kept_by(module), self._kept.get(id(module))
        begins = getattr(module, "v_reset", None) or 0.0
        same = (
            all(bool((values == begins).all()) for _, values in kept)
            if held is None
            else all(one is two and torch.equal(now, then) for (one, now), (two, then) in zip(kept, held, strict=True))
        )
        if not same:
            raise refusal(f"{self._where(module)} has a potential that is set from outside; leave that out")

    @contextmanager
    def _scripts(self) -> Iterator[None]:
        """While functions of TorchScript are called as they were written."""
        plain = torch.jit.ScriptFunction.__call__

        def call(script: Any, *args: Any, **kwargs: Any) -> Any:
            written = getattr(script, "_torchdynamo_inline", None)
            if self._inside or written is None:
                return plain(script, *args, **kwargs)
            return written(*args, **kwargs)

        torch.jit.ScriptFunction.__call__ = call
        try:
            yield
        finally:
            torch.jit.ScriptFunction.__call__ = plain

    @contextmanager
    def _own_gradients(self) -> Iterator[None]:
        """While functions with gradients of their own are recorded as one call each, however they are called and
        wherever they are defined."""
        found: list[Any] = [torch.autograd.Function]
        plain: list[tuple[Any, Any]] = []

        def record(kind: Any, forward: Any = None) -> None:
            plain.append((kind, kind.__dict__.get("forward")))
            kind.forward = staticmethod(partial(self._own_gradient, kind, forward or kind.forward))

        for kind in found:  # which grows
            found += [each for each in kind.__subclasses__() if not each.__module__.startswith("torch.")]
        # also those that inherit it, with another gradient
        for kind, forward in [(kind, kind.forward) for kind in found[1:]]:
            record(kind, forward)
        found[0].__init_subclass__ = classmethod(record)  # of those that the module defines while it runs
        try:
            yield
        finally:
            del found[0].__init_subclass__
            for kind, own in plain:
                if own is None:
                    del kind.forward
                else:
                    kind.forward = own

    def _own_gradient(self, kind: Any, forward: Any, *args: Any) -> Any:
        self._inside += 1
        try:
            made = forward(*args)
            given = args[1:] if args and isinstance(args[0], torch.autograd.function.FunctionCtx) else args
            places = [at for at, arg in enumerate(given) if self.origin(arg) is not None]
            if self._inside == 1 and places:
                steps = [(self._step_alone(kind, given, place), place) for place in places]
                step, place = next((each for each in steps if each[0] is not None), (None, places[0]))
                if step and isinstance(made, torch.Tensor):
                    self._spike(kind.__name__, step, given[place], made)
                else:
                    self.mark(made, self._unread(kind.__name__, *(self.origin(given[place]) for place in places)))
        finally:
            self._inside -= 1
        return made

    def _step_alone(self, kind: Any, given: Any, place: int) -> Step | None:
        """The step that a function is of one of what it reads, where other values of neurons make no difference."""
        others = [arg for at, arg in enumerate(given) if at != place]
        many = [isinstance(arg, torch.Tensor) and (arg.numel() > 1 or self._varies(arg)) for arg in others]

        def function(fill: float, x: torch.Tensor) -> torch.Tensor:
            filled = [torch.full_like(x, fill) if more else arg for arg, more in zip(others, many, strict=True)]
            made: torch.Tensor = kind.apply(*filled[:place], x, *filled[place:])
            return made

        plain = (arg for arg, more in zip(others, many, strict=True) if not more)
        numbers = (repr(arg.tolist() if isinstance(arg, torch.Tensor) else arg) for arg in plain)
        tried = (partial(function, fill) for fill in ((0.0, 0.375) if any(many) else (0.0,)))
        return self._step((kind, place, *numbers), *tried)

    def _varies(self, tensor: torch.Tensor) -> bool:
        """Whether it is made of what is known, and is no parameter that stays as it is."""
        origin = self.origin(tensor)
        return origin is not None and not (isinstance(origin, Parameter) and not tensor.requires_grad)

    def _where(self, module: torch.nn.Module) -> str:
        return f"'{self.names.get(id(module), type(module).__name__)}' ({type(module).__name__})"

    def _record_call(self, kind: Kind, module: torch.nn.Module, args: Any, made: Any) -> None:
        name, where = self.names.get(id(module), type(module).__name__), self._where(module)
        pruned = {
            each._tensor_name: each
            for each in module._forward_pre_hooks.values()
            if isinstance(each, BasePruningMethod)
        }
        if _hooks_of(module):
            kinds = {type(each).__name__ for each in module._forward_pre_hooks.values()}
            how = " (torch.nn.utils.remove_weight_norm, which keeps the weights that it made)" * ("WeightNorm" in kinds)
            raise refusal(f"{where} has hooks, which nothing here would call: remove them{how}")
        given = args[0]
        of = self.origin(given)
        if kind in (Kind.NEURON, Kind.NORM, Kind.DROPOUT):
            self._with_gradients(f"{where} runs", given, *module.parameters())
        if isinstance(given, torch.Tensor) and given.layout != torch.strided:
            raise refusal(f"{where} reads a tensor of layout {given.layout}; nearest: a dense one")
        others = [
            each for each in getattr(module, "parametrizations", {}) if each != "weight" or kind is not Kind.FUNCTION
        ]
        if others:
            raise refusal(
                f"{where} computes its '{others[0]}' of others (parametrizations); nearest: one that begins as these "
                "leave it, trained as it is"
            )
        if kind in (Kind.NORM, Kind.DROPOUT):
            self.layouts.alike(made, given)
        if kind is Kind.SPIKE:
            self._spike(where, self._step(module, module), given, made)
        elif kind is Kind.DROPOUT:
            if module.p and not module.training:
                tell(f"{where} is off in eval(), and so left out; call train() to keep it")
            if of is not None:
                key = neuron_key(module)
                per = "sequence" if key.startswith("spikingjelly.") else "timestep"
                both = [made, given] if getattr(module, "inplace", False) else made
                planes = isinstance(module, (_NN.Dropout1d, _NN.Dropout2d)) or key == "spikingjelly.Dropout2d"
                in_time = getattr(module, "step_mode", "s") == "m"
                if planes and given.ndim - in_time not in (3, 4):
                    raise refusal(f"{where} reads {list(given.shape)}; nearest: [samples, channels, height, width]")
                leaves_out = "plane" if planes else "neuron"
                self.mark(both, dropped(of, module.p if module.training else 0.0, per, leaves_out))
            elif module.p and module.training and given.any():
                self._draw(name, [], made)
        elif kind is Kind.VOTE:
            if isinstance(of, FunctionResult) and of.votes > 1:
                raise refusal(f"{where} votes on what another made of votes; nearest: one of both sizes")
            self.mark(made, FunctionResult(by=VOTE, of=() if of is None else (of,), votes=int(module.voting_size)))
        elif kind is Kind.NORM:
            self.seen.norms[name] += 1
            self.mark(made, _normalised(where, name, module, self._unweighted(name, module, given, of) or of))
        elif kind is Kind.NEURON:
            self._record_neurons(name, where, module, args, made)
        else:
            prefix = f"{name}." if name else ""
            names: dict[str, Any] = {"weight": "", "bias": ""}
            for role in ("weight", "bias"):
                if torch.nn.utils.parametrize.is_parametrized(module, role):
                    names[role], names["made_by"] = self._parametrized(where, module)
                elif role in pruned:
                    mask = numbers_of(getattr(module, f"{role}_mask"))
                    names[role] = self._used(self._mask(f"{prefix}{role}_orig", mask))
                elif getattr(module, role, None) is not None:
                    names[role] = self._used(Parameter(name=f"{prefix}{role}"))
            if (function := function_of(module)) is None:
                self.mark(made, self._with_delays(where, module, given, f"{prefix}P", **names))
                return
            options = options_of(where, function, module, given, made)
            result = self._of_function(where, function, given, options, **names)
            if function.kind == "linear":
                self._lay_channels_last(made, result)
            self.mark(made, result)

    def _unweighted(self, name: str, norm: Any, given: torch.Tensor, of: Origin | None) -> Product | None:
        """What a norm reads of layers, as their current without weights."""
        learns = norm.training or isinstance(norm, OF_SAMPLES)
        if (of := added_up(of)) is None or not is_sent(of) or not learns:
            return None
        if any(isinstance(each, (Input, Dropped, Product)) for each in each_in((Joined, *THROUGH), of)):
            return None
        neurons = self._neurons_of(of)
        shape = next((given.shape[k:] for k in range(given.ndim) if given.shape[k:].numel() == neurons), None)
        if shape is None:
            return None
        read = f"what '{name}' normalises"
        self._multiplied[read] += 1
        return unweighted(of, read, shape, self._multiplied[read] - 1)

    def _neurons_of(self, of: Any) -> int:
        """How many of layers send it, or what a pool makes of them."""
        if isinstance(of, Pooled):
            return of.pool.over(of.planes).neurons
        if isinstance(of, Joined):
            return sum(map(self._neurons_of, of.parts))
        if isinstance(of, LayerOutput):
            return self.seen.layers[of.layer].neurons
        if isinstance(of, Made) and of.tensor is not None:
            return int(of.tensor.shape[1:].numel())
        return self._neurons_of(parts_of(of)[0])

    def _parametrized(self, where: str, module: Any) -> tuple[str, WeightFunction | None]:
        """The parameter of which a module makes its weights, and the function, found by making them again."""
        inside, self._inside = self._inside, 0
        found = self._weights(where, module.weight, True)
        self._inside = inside
        if found is None:
            raise refusal(
                f"{where} computes its weights of others (parametrizations) by what is not known here; nearest: "
                "weights that begin as these leave them, trained as they are"
            )
        return self._used(found[0]), found[1]

    def _with_delays(
        self, where: str, module: Any, given: torch.Tensor, positions: str, weight: str, bias: str
    ) -> Product:
        """What a Dcls1d makes of what was padded."""
        of = self.origin(given)
        delays = delays_of(where, module, of)
        read, dropout = undropped(added_up(parts_of(of)[0]) or FunctionResult(by="a tensor of unknown origin", of=()))
        made = Product(
            of=read, inputs=module.in_channels, weight=weight, biases=(bias,) * bool(bias), transposed=True,
            dropout=dropout, delays=delays, positions=self._used(Parameter(name=positions)),
        )  # fmt: skip
        return self._counted(made, given)

    def _record_neurons(self, name: str, where: str, module: torch.nn.Module, args: Any, made: Any) -> None:
        if name not in self.seen.layers:
            reading = read_neuron(where, module)
            if (layers := getattr(module, "num_layers", 1)) > 1:
                args, reading = self._record_lower_layers(name, module, reading, layers, args)
            self.seen.layers[name] = NeuronCalls(name=name, module=module, reading=reading)
        calls = self.seen.layers[name]
        handed = list(tensors_in(args[1:]))
        if not calls.outputs and calls.reading.has_potential and any(self._begins_elsewhere(module, args[0], handed)):
            raise refusal(f"{where} begins with a state that is not the one it begins with by itself; leave that out")
        for state in handed:
            origin = self.origin(state)
            if origin is None and calls.outputs:
                loops = "; if the module loops over time itself, leave timesteps out" * self.seen.stepwise
                raise refusal(f"{where} gets a state that it did not return; hand on the state that it returned{loops}")
            own = isinstance(origin, LayerOutput) and (origin.layer, origin.call) == (name, len(calls.outputs) - 1)
            if origin is not None and not own:
                by = getattr(origin, "by", f"a call of '{getattr(origin, 'layer', 'something else')}' before")
                raise refusal(f"{where} gets a state that comes from {by}; hand on the state that it just returned")
        reading = calls.reading
        if not reading.spiking and hasattr(module, "v_threshold"):  # spikingjelly, whose spikes nobody reads
            made = module.v_seq if reading.in_time else module.v
        parts = list(tensors_in(made))
        if isinstance(made, list):  # of all timesteps
            parts = [torch.stack(parts)]
        if not isinstance(args[0], torch.Tensor):
            raise refusal(f"{where} reads a {type(args[0]).__name__}; nearest: a tensor of sequences of one length")
        if reading.of_cells and args[0].ndim != 2 + reading.in_time:
            raise refusal(f"{where} reads {args[0].ndim} axes; nearest: a batch of samples")
        number = len(calls.outputs)
        first = partial(torch.movedim, source=int(reading.batch_first), destination=0)  # the axis of time
        given = self.origin(args[0])
        calls.currents.append(first(self.in_planes(args[0], given).detach()))
        calls.origins.append((currents_in(self._operand(args[0])) if isinstance(given, Made) else None) or given)
        if not number:
            calls.pixels = self._planes_made(calls.origins) or self._planes_sent(calls.origins[0])
        for part in parts:
            self.layouts.alike(part, args[0])
        # others may be added to it in place
        sent = self.in_planes(parts[0], given).detach().clone()
        calls.outputs.append(first(sent))
        calls.states += (
            []
            if reading.in_time or not reading.spiking
            else [self.in_planes(part, given).detach() for part in parts[1:][-1:]]
        )
        for place, part in enumerate(parts[1:]):
            # the first state of cells that return a sequence is the last of what they sent
            of_cells = reading.of_cells and reading.in_time and place == 0
            self.mark(part, LayerOutput(layer=name, call=number, spikes=of_cells))
        sends = LayerOutput(layer=name, call=number, spikes=reading.spiking, in_time=reading.in_time)
        self.mark(made if isinstance(made, list) else parts[0], sends)

    def _begins_elsewhere(self, module: Any, given: torch.Tensor, handed: list[torch.Tensor]) -> Iterator[bool]:
        """Of states that are handed to the first call of neurons, whether they are others than the module's own."""
        own = list(tensors_in(module.state_fallback(given))) if handed and hasattr(module, "state_fallback") else []
        for state, begins in zip_longest(handed, own[: len(handed)], fillvalue=torch.zeros(1)):
            yield not bool((state == begins).all())

    def _record_lower_layers(
        self, name: str, module: Any, reading: Reading, layers: int, args: Any
    ) -> tuple[tuple[Any, ...], Reading]:
        """All layers of recurrent cells but the last as layers of their own; what the last one reads, and is."""
        first, given = partial(torch.movedim, source=int(reading.batch_first), destination=0), args[0]
        held = dict(module.named_parameters())
        for number in range(layers):
            fields = ("weights", "recurrent", "bias", "recurrent_bias")
            named: dict[str, Any] = {each: re.sub("_l0$", f"_l{number}", getattr(reading, each)) for each in fields}
            if number == layers - 1:
                return (given, *args[1:]), replace(reading, **named)
            more = {"nonlinearity": module.nonlinearity} if hasattr(module, "nonlinearity") else {}
            one = type(module)(
                given.shape[-1], module.hidden_size, bias=module.bias, batch_first=module.batch_first, **more
            )
            one.load_state_dict({each: held[re.sub("_l0$", f"_l{number}", each)] for each, _ in one.named_parameters()})
            with torch.no_grad():
                sent = one(given.detach())[0]
            below = NeuronCalls(
                name=f"{name}, layer {number}", module=module, reading=replace(reading, **named), path=name
            )
            below.currents.append(first(given.detach()))
            below.origins.append(self.origin(given))
            below.outputs.append(first(sent))
            self.seen.layers[below.name] = below
            self.mark(sent, LayerOutput(layer=below.name, call=0, spikes=reading.spiking))
            given = sent
        raise AssertionError("modules have layers")


def _normalised(where: str, name: str, module: Any, of: Origin | None) -> Origin:
    """A product with a batch norm, which has constants in eval()."""
    if not isinstance(of, Product) or of.norm or (of.convolution and of.convolution.after):
        pooled = isinstance(of, Product) and not of.norm
        near = "an example that is normalised" if isinstance(of, Input) else "right after it"
        raise refusal(
            f"{where} does not follow a convolution or linear layer at once; nearest: {near}"
            f"{', before the pool' * pooled}"
        )
    if isinstance(module, OF_SAMPLES):
        if getattr(module, "track_running_stats", False):
            raise refusal(f"{where} averages its statistics; nearest: track_running_stats=False")
        return replace(of, norm=name)
    if module.running_var is None:
        tell(
            f"{where} keeps no running averages and normalises by the batch in evaluation, too; it is evaluated by "
            "running averages here, with which track_running_stats=True evaluates in PyTorch",
        )
        return replace(of, norm=name)
    if module.bias is None and not module.training:
        raise refusal(
            f"{where} is folded in eval() and has no shift to become its layer's bias; nearest: "
            "track_running_stats=True and affine=True, or train()"
        )
    if module.training:
        if module.momentum is None:
            raise refusal(f"{where} averages over all batches (momentum=None); nearest: momentum=0.1")
        return replace(of, norm=name)
    tell(
        f"{where} is in eval() and is folded into '{of.weight}': its statistics and gain, and a bias before it, stay "
        "as they are; the weights with its gain, and its shift, are trained",
    )
    return replace(of, norm=name, folded=True)


def neurons_of_models(module: torch.nn.Module) -> tuple[str, ...]:
    """The names of neurons of snnTorch, Norse and SpikingJelly whose own operations may be read; none where one has
    hooks, which nothing here would call."""
    of_frameworks = {name: each for name, each in module.named_modules() if neuron_key(each).startswith(FRAMEWORKS)}
    found = {name: each for name, each in of_frameworks.items() if has_model(each)}
    return () if any(map(_hooks_of, found.values())) else tuple(found)


def _hooks_of(module: torch.nn.Module) -> bool:
    """Whether it has hooks other than those of pruning."""
    before = [each for each in module._forward_pre_hooks.values() if not isinstance(each, BasePruningMethod)]
    return bool(before or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks)


def record(
    module: torch.nn.Module,
    example: torch.Tensor,
    timesteps: int | None,
    written: Collection[str] = (),
    zero_states: bool = False,
    by_timestep: int | None = None,
    tried: bool = True,
) -> Recorded:
    """A forward pass on the example: one call, or one for each of the timesteps. written: names of neurons of a
    framework whose own operations are read; zero_states, by_timestep: as of `SequenceRecorder`; tried: it is called
    again, and with other weights, to see whether it changes.

    With `timesteps` the module takes one timestep a call: example[t] where the example has that many entries, else the
    same in every one.
    """
    recorder = ModuleRecorder(module, written, zero_states, by_timestep)
    seen = recorder.seen
    steps = steps_of(example, timesteps)
    made: Any = None
    every: list[Origin | None] = []
    reset_states(module)
    fixed = {name: (each, each.detach().clone()) for name, each in _fixed_in(module)}
    restore = as_it_is(module)
    seen.timesteps, seen.stepwise = timesteps or 0, timesteps is not None
    try:
        with (
            torch.enable_grad(),
            operation_by_operation(module),
            recorder.calls(),
            recorder,
        ):  # what runs without gradients is then known
            recorder.example = example if timesteps is None else None
            for number, step in enumerate(steps):
                recorder.mark(step, Input(entry=None if timesteps is None else (number, timesteps)))
                made = module(step)
                seen.made_by_call.append([*tensors_in(made)])
                every += [recorder.origin(tensor) for tensor in seen.made_by_call[-1]]
    except MimdsimError:
        raise
    except Exception:
        _run_alone(module, steps)
        raise
    finally:
        changed = _changed_in(module, {name: before for name, (_, before) in fixed.items()})
        for each, before in map(fixed.__getitem__, changed):
            each.data = before
        restore()  # nor does it keep a mask that leaves nothing out
    if changed := changed or (_changed_of_others(module, steps) if tried else []):
        raise refusal(
            f"the module changes '{changed[0]}' in its forward pass, which nothing here would do; nearest: a function "
            "of the parameter (abs, relu), torch.nn.utils.prune for zeros, or the change before the module is read"
        )
    if not seen.made_by_call[-1]:
        raise refusal(f"the module returns a {type(made).__name__} and no tensor; return what its last layer sent")
    if tried and not _makes_the_same_again(module, steps):
        tell(
            "the module makes something else of the same example when it is called again: what it keeps from call to "
            "call begins anew in every training step here, and what it draws outside PyTorch stays as it was",
        )
    for name, calls in seen.layers.items():
        where = f"'{name}' ({type(calls.module).__name__})"
        calls.reading = match_gradients(where, calls.module, calls.reading, calls.neurons)
    logits = recorder.logits if timesteps is None else {}
    ends = [logits.get(id(tensor), tensor) for tensor in seen.made_by_call[-1]]
    seen.made_by_call[-1] = ends
    seen.log_softmax = len(ends) == 1 and id(made) in logits
    seen.returned = [with_votes(recorder.origin(tensor)) for tensor in ends]
    seen.votes = max(map(votes_in, seen.returned), default=1)
    seen.returned_before = [*map(with_votes, every[: len(every) - len(seen.returned)])]
    return seen


def axes_of_time(module: torch.nn.Module) -> tuple[int, ...]:
    """The axes along which timesteps may lie in what a module is called with."""
    return (1,) if any(getattr(each, "batch_first", False) is True for each in module.modules()) else (0, 1)


def steps_of(example: torch.Tensor, timesteps: int | None) -> list[torch.Tensor]:
    """What a module is called with."""
    if timesteps is None:
        return [example]
    return list(example) if len(example) == timesteps else [example] * timesteps


def count_on(module: torch.nn.Module, steps: list[torch.Tensor]) -> None:
    """Give a module the single numbers, such as of what it counts, that a call leaves in it."""
    called = copy_of(module)
    reset_states(called)
    with suppress(Exception), torch.no_grad(), warnings.catch_warnings(action="ignore"):
        for step in steps:
            called(step)
    for each, after in zip(module.modules(), called.modules(), strict=False):
        vars(each).update((name, value) for name, value in vars(after).items() if isinstance(value, (int, float)))
        for buffer, left in zip(each.buffers(False), after.buffers(False), strict=False):
            if buffer.shape == left.shape and left.numel() == 1:
                buffer.data.copy_(left)


RAISES = "the module itself raises"
ENLARGED = 100.0  # times weights as they are: further than bounds that a module keeps them in


def _run_alone(module: torch.nn.Module, steps: list[torch.Tensor]) -> None:
    """Raise DescriptionError for what the module raises without being recorded."""
    reset_states(module)
    for step in steps:
        try:
            module(step)
        except Exception as error:
            said = next(iter(str(error).splitlines()), "")
            given = f"{list(step.shape)} of {step.dtype}"
            raise refusal(f"{RAISES} {type(error).__name__} where it gets {given}: {said}") from error


@contextmanager
def operation_by_operation(module: torch.nn.Module) -> Iterator[None]:
    """While surrogate functions of SpikingJelly are of classes that its fused kernels do not know, so that its neurons
    run operation by operation."""
    found = [(each, type(each)) for each in module.modules() if kind_of(each) is Kind.SPIKE]
    for each, kind in found:
        each.__class__ = type(kind.__name__, (kind,), {})
    try:
        yield
    finally:
        for each, kind in found:
            each.__class__ = kind


@contextmanager
def matrices_as_parameters(module: torch.nn.Module) -> Iterator[bool]:
    """While matrices that modules of the user's own keep as buffers, but for masks and signs, are parameters that are
    not trained, as the weights of a reservoir are; whether there are any."""
    held = [(each, dict(each._buffers), dict(each._parameters)) for each in module.modules()]
    found = [
        (each, name, buffer)
        for each, buffers, _ in held
        for name, buffer in buffers.items()
        if type(each).__module__.partition(".")[0] not in NOT_OF_USERS and _is_matrix(buffer)
    ]
    try:
        for each, name, buffer in found:
            del each._buffers[name]
            each._parameters[name] = torch.nn.Parameter(buffer, requires_grad=False)
        yield bool(found)
    finally:
        for each, buffers, parameters in held if found else ():
            for own, before in ((each._buffers, buffers), (each._parameters, parameters)):
                own.clear()
                own.update(before)


@contextmanager
def constants_as_fixed(module: torch.nn.Module, example: torch.Tensor, timesteps: int | None) -> Iterator[list[str]]:
    """While parameters of modules of the user's own that get no gradient, such as constants that neurons only compare,
    need none: which."""
    learned = {
        f"{path}.{name}".lstrip("."): parameter
        for path, each in module.named_modules()
        for name, parameter in each.named_parameters(recurse=False)
        if parameter.requires_grad and kind_of(each) is Kind.CONTAINER
    }
    called = copy_of(module)
    reset_states(called)
    made = [each for step in steps_of(example, timesteps) for each in tensors_in(called(step))]
    ends = [each.sum() for each in made if each.requires_grad]
    of_copy = dict(called.named_parameters())
    gradients = torch.autograd.grad(ends, [of_copy[name] for name in learned], allow_unused=True)
    fixed = [name for name, gradient in zip(learned, gradients, strict=True) if gradient is None]
    try:
        for name in fixed:
            learned[name].requires_grad_(False)
        yield fixed
    finally:
        for name in fixed:
            learned[name].requires_grad_(True)


def _is_matrix(buffer: torch.Tensor | None) -> bool:
    if buffer is None or buffer.ndim != 2 or min(buffer.shape) < 2 or not buffer.is_floating_point():
        return False
    return not torch.isin(buffer, torch.tensor([-1.0, 0.0, 1.0]).to(buffer)).all()


def as_it_is(module: torch.nn.Module) -> Callable[[], None]:
    """What makes a module again what it is: states that it keeps, running averages, which a forward pass moves."""
    lazy = torch.nn.parameter.UninitializedBuffer
    kept = [(each, each.clone()) for each in module.buffers() if not isinstance(each, lazy)]
    held = [
        (each, type(each), dict(vars(each)), dict(each._buffers), dict(each._parameters)) for each in module.modules()
    ]

    def restore() -> None:
        for each, kind, before, *tensors in held:
            if type(each) is not kind:  # a lazy one, which has sizes now
                continue
            vars(each).clear()
            vars(each).update(before)
            for own, values in zip((each._buffers, each._parameters), tensors, strict=True):
                own.clear()
                own.update(values)
        reset_states(module)
        for buffer, values in kept:
            if buffer.shape == values.shape:
                buffer.data.copy_(values)
            elif values.numel():  # else a state that began with the first current
                buffer.data = values

    return restore


def _makes_the_same_again(module: torch.nn.Module, steps: list[torch.Tensor]) -> bool:
    """Whether a second call makes what the first one makes, of a copy where there can be one, without being recorded;
    True where it cannot be called so."""
    restore, drawn, made = as_it_is(module), torch.get_rng_state(), list[list[torch.Tensor]]()
    called = module
    with suppress(Exception):
        called = copy_of(module)
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            for _ in range(2):
                torch.set_rng_state(drawn)
                reset_states(called)
                reset_states(module)  # which functions that the copy holds may call
                made.append([each.clone() for step in steps for each in tensors_in(called(step))])
    except Exception:
        return True
    finally:
        torch.set_rng_state(drawn)
        restore()
    same = (
        one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
        for one, other in zip(*made, strict=False)
    )
    return len(made[0]) == len(made[1]) and all(same)


def _fixed_in(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, and constants of neurons, which no forward pass may change."""
    lazy = torch.nn.parameter.UninitializedParameter
    yield from ((name, each) for name, each in module.named_parameters() if not isinstance(each, lazy))
    for path, each in module.named_modules():
        if neuron_key(each).startswith("snntorch."):
            for name, constant in each.named_buffers(recurse=False):
                if name not in SNNTORCH_STATES:
                    yield f"{path}.{name}".lstrip("."), constant


def _changed_in(module: torch.nn.Module, before: Mapping[str, torch.Tensor]) -> list[str]:
    """Which of `_fixed_in` are not what they were."""
    after = dict(_fixed_in(module))
    return [name for name, values in before.items() if not torch.equal(after.get(name, values), values)]


def _changed_of_others(module: torch.nn.Module, steps: list[torch.Tensor]) -> list[str]:
    """What a forward pass changes of other values than those that the module has, which may be as it leaves them, as
    zeros are that it writes where a mask is 0; none where there can be no copy."""
    restore, drawn = as_it_is(module), torch.get_rng_state()
    try:
        for step, times in ((1e-3, 1.0), (-1e-3, 1.0), (0.0, ENLARGED)):
            called = copy_of(module)
            reset_states(called)
            with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                for _, each in _fixed_in(called):
                    if each.is_floating_point():
                        each.mul_(times).add_(step * torch.rand_like(each))
                before = {name: each.clone() for name, each in _fixed_in(called)}
                for given in steps:
                    called(given)
            if changed := _changed_in(called, before):
                return changed
        return []
    except Exception:
        return []
    finally:
        torch.set_rng_state(drawn)
        restore()


def _kept_by(module: Any) -> list[tuple[Any, torch.Tensor]]:
    """The states that neurons keep between timesteps, and their values, which may be changed in place."""
    names = SNNTORCH_STATES if neuron_key(module).startswith("snntorch.") else ("v",)
    states = [getattr(module, name) for name in names if hasattr(module, name)]
    return [(state, torch.as_tensor(state).detach().clone()) for state in states]


def reset_states(module: torch.nn.Module) -> None:
    """Set the states that neurons keep between sequences to those they begin with."""
    for each in module.modules():
        if hasattr(each, "_memories"):
            each.reset()
        if neuron_key(each).startswith("spikingjelly.NonSpiking"):  # which begins anew in every call
            vars(each).pop("v", None)
        for state in SNNTORCH_STATES:
            if neuron_key(each).startswith("snntorch.") and hasattr(each, state):
                setattr(each, state, torch.zeros(0))


def nearest(module: torch.nn.Module) -> str:
    """'; nearest: ...', where something comes near."""
    for kind in type(module).__mro__:
        if kind.__name__ in NEAREST:
            return f"; nearest: {NEAREST[kind.__name__]}"
    return ""
