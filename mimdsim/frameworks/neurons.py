"""Neurons of snnTorch, Norse and SpikingJelly as models of the table in docs/neurons.md.

A reader knows a class: which model it is with which parameters, which of its options change that, and how one is run
over time. What it read is then compared with what the module does, in float64: potentials and spikes, the surrogate,
and the gradient of its currents through the reset. A reader that is wrong, or an option that nobody knew, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.frameworks.tensors import copy_of
from mimdsim.graph import OPERATIONS
from mimdsim.graph.cell_catalogue import CELL_MODELS
from mimdsim.graph.convolution import Window
from mimdsim.graph.linear_neurons import RESET_GRADIENTS, Gradient, LinearNeuron
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.surrogates import SURROGATES, half_width

Parameters = dict[str, Any]
TIMESTEPS, BATCH = 12, 5  # of what a reading is compared on
SAME = 1e-6  # relative: parameters are float32 in the frameworks
WIDEST = 1e3  # slope times x, of what is the same everywhere
FINE = np.geomspace(1e-4, 300, 200)  # from the threshold, as parts of where it is half as high
SAME_SURROGATE = 1e-4
SAME_GRADIENT = 1e-5  # relative: spikes, and with them their gradients, are float32 in some of the frameworks


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A layer of neurons. model, parameters, reset: as a workload describes them; recurrent: the name of the weights
    [to, from], or of one number a neuron, from its own spikes of the timestep before, and its bias; own_window: of
    planes, by a kernel; weights: those of its input, where the module has them, and of cells their bias. in_time: one
    call is a whole sequence, of which samples may be the first axis. learned: parameters of the model that the module
    trains, with its names for them. written: of neurons that are written out, their equations (own_neurons.Written)."""

    model: str
    parameters: Parameters
    reset: str
    spiking: bool = True
    in_time: bool = False
    weights: str = ""
    recurrent: str = ""
    recurrent_bias: str = ""
    own_window: Window | None = None
    bias: str = ""
    batch_first: bool = False
    reset_gradient: str = "mask"
    surrogate: str = "superspike"
    slope: float = 1.0
    learned: Mapping[str, str] = field(default_factory=dict)
    written: Any = None

    @property
    def of_cells(self) -> bool:
        """Whether the model is one of cells, or of equations."""
        return self.model in CELL_MODELS or self.written is not None

    @property
    def has_potential(self) -> bool:
        """Whether it returns a potential beside what it sends."""
        return not self.of_cells or (self.model in CELL_MODELS and CELL_MODELS[self.model].spiking)

    @property
    def neuron(self) -> LinearNeuron:
        return neuron_of(self.model, self.parameters, reset=self.reset, reset_gradient=self.reset_gradient)


# spikes or potentials [timesteps, batch, neurons] of currents of that shape
Run = Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """read: what the module is; problems: options of the module that nothing here stands for; run: neurons over time,
    None of cells, which are compared with the weights that they have."""

    read: Callable[[Any], Reading]
    problems: Callable[[Any], Iterator[str]]
    run: Run | None = None


REFUSED_BY = "from_torch"
ONE_TIMESTEP = "the module ran for one timestep; if it takes one a call, say how many: timesteps=10"


def refusal(*problems: str) -> DescriptionError:
    return DescriptionError(REFUSED_BY, problems)


TOLD: ContextVar[list[str]] = ContextVar("TOLD")  # of what is being read


def tell(text: str) -> None:
    """Warn the caller of `from_torch`, once it is known which way was taken."""
    TOLD.get().append(text)


def refused_backward(problem: RuntimeError) -> DescriptionError:
    said = str(problem).partition("\n")[0]
    return refusal(f"the module itself raises RuntimeError in its backward pass: {said}")


class ReadingRefused(DescriptionError):
    """Of how outputs are read over time, which other neurons would not change."""


def numbers_of(tensor: torch.Tensor) -> np.ndarray:
    """float64, of the same shape."""
    values: np.ndarray = tensor.detach().cpu().double().numpy()
    return values


def neuron_key(module: torch.nn.Module) -> str:
    """'snntorch.Leaky': the package and the name of a module's class."""
    return f"{type(module).__module__.partition('.')[0]}.{type(module).__name__}"


def number(value: Any, *, every: bool = False) -> float | tuple[float, ...]:
    """One number, or one for every neuron; `every`: also where all are the same."""
    array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value, np.float64).reshape(-1)
    alike = array.size == 1 or (not every and np.all(array == array[0]))
    return float(array[0]) if alike else tuple(map(float, array))


# ---- snnTorch

SNNTORCH_STATES = ("spk", "syn", "syn_exc", "syn_inh", "mem")


def _snntorch_problems(module: Any) -> Iterator[str]:
    if type(module).__name__ == "Lapicque" and isinstance(module.beta, torch.nn.Parameter):
        yield "learns its beta (learn_beta), which its R and C do not follow: leave it out, or write snntorch Leaky"
    if module.inhibition:
        yield "has inhibition, which lets one neuron of a layer fire: leave it out"
    if module.state_quant:
        yield "rounds its state (state_quant): leave it out, and give mapping.value_bytes for halves"


def _snntorch(model: str, *names: str) -> Callable[[Any], Reading]:
    def read(module: Any) -> Reading:
        renamed = {"resistance": "R", "capacitance": "C"}
        held = {name: getattr(module, renamed.get(name, name)) for name in (*names, "threshold")}
        for name in ("alpha", "beta"):
            if name in held:
                held[name] = held[name].clamp(0, 1)
        trained = {name for name, each in module.named_parameters(recurse=False) if each.requires_grad}
        # what differs from neuron to neuron lies on tiles beside what is learned, and is frozen there
        apart = (
            {name for name, each in held.items() if isinstance(number(each), tuple)} if trained & set(held) else set()
        )
        learned = {name: name for name in held if name in trained | apart}
        reading = Reading(
            model=model,
            parameters={name: number(value, every=name in learned) for name, value in held.items()},
            reset=module.reset_mechanism,
            learned=learned,
        )
        if not hasattr(module, "recurrent"):
            return reading
        if module.all_to_all:
            bias = "recurrent.bias" if module.recurrent.bias is not None else ""
            own = module.recurrent if module.kernel_size is not None else None
            window = Window(kernel=own.kernel_size, padding=own.padding) if own else None
            return replace(reading, recurrent="recurrent.weight", recurrent_bias=bias, own_window=window)
        return replace(reading, recurrent="V")

    return read


def _slstm(module: Any) -> Reading:
    """snnTorch 1.0 clears the states of one whose input has another width than they have in every timestep."""
    keeps, learns = module.input_size == module.hidden_size, isinstance(module.threshold, torch.nn.Parameter)
    if not keeps:
        tell(
            f"an SLSTM of {module.input_size} inputs and {module.hidden_size} neurons keeps nothing from one timestep "
            "to the next: snnTorch sets its states to 0 in every timestep where these widths differ, and so they are "
            "here; give it as many neurons as inputs",
        )
    return Reading(
        model="slstm" if module.reset_mechanism == "none" else f"slstm_{module.reset_mechanism}",
        parameters={"threshold": number(module.threshold, every=learns), "memory": float(keeps)},
        reset="",
        reset_gradient="",
        weights="lstm_cell.weight_ih",
        recurrent="lstm_cell.weight_hh",
        bias="lstm_cell.bias_ih" if module.bias else "",
        recurrent_bias="lstm_cell.bias_hh" if module.bias else "",
        learned={"threshold": "threshold"} if learns and module.threshold.requires_grad else {},
    )


class _Nothing(torch.nn.Module):  # type: ignore[misc]
    def forward(self, spikes: torch.Tensor) -> torch.Tensor:
        return 0 * spikes


def _run_snntorch(module: Any, currents: torch.Tensor) -> torch.Tensor:
    module.init_hidden, module.output = False, True
    module.graded_spikes_factor = torch.ones(())
    if hasattr(module, "recurrent"):
        module.recurrent = _Nothing()
    for state in SNNTORCH_STATES:
        if hasattr(module, state):
            setattr(module, state, torch.zeros(0, dtype=currents.dtype))
    return torch.stack([module(current)[0] for current in currents])


# ---- Norse


def _norse(model: str, *names: str, spiking: bool = True) -> Callable[[Any], Reading]:
    def read(module: Any) -> Reading:
        parameters = {name: number(getattr(module.p, name)) for name in names}
        by = getattr(getattr(module.p, "reset_method", None), "__name__", "reset_value")
        reset = {"reset_value": "zero", "reset_subtract": "subtract"}.get(by, by)
        own = hasattr(module, "recurrent_weights")
        in_time = any(kind.__name__ in ("SNN", "SNNRecurrent") for kind in type(module).__mro__)
        return Reading(
            model=model,
            parameters=parameters | {"dt": float(module.dt)},
            reset=reset if spiking else "none",
            spiking=spiking,
            in_time=in_time,
            weights="input_weights" if own else "",
            recurrent="recurrent_weights" if own else "",
        )

    return read


def _norse_problems(module: Any) -> Iterator[str]:
    for name, value in module.p._asdict().items():
        by_norse = name == "v_reset" and not isinstance(value, torch.nn.Parameter)  # where states begin
        if isinstance(value, torch.Tensor) and value.requires_grad and not by_norse:
            yield f"learns its constant '{name}', which is fixed here: give it requires_grad=False"


def _norse_iaf(module: Any) -> Reading:
    parameters = {"v_threshold": number(module.p.v_th), "v_reset": number(module.p.v_reset)}
    return Reading(model="if", parameters=parameters, reset="zero")


def _run_norse(module: Any, currents: torch.Tensor) -> torch.Tensor:
    if hasattr(module, "recurrent_weights"):
        size = currents.shape[-1]
        del module.input_weights, module.recurrent_weights
        module.input_weights = torch.eye(size, dtype=currents.dtype)
        module.recurrent_weights = torch.zeros(size, size, dtype=currents.dtype)
    if any(kind.__name__ in ("SNN", "SNNRecurrent") for kind in type(module).__mro__):
        sent: torch.Tensor = module(currents)[0]
        return sent
    state, made = None, []
    for current in currents:
        sent, state = module(current, state)
        made.append(sent)
    return torch.stack(made)


# ---- PyTorch's own


def _cell_problems(module: Any) -> Iterator[str]:
    """Options of a cell that nothing here stands for."""
    if getattr(module, "bidirectional", False):
        yield "runs in both directions (bidirectional=True); nearest: one direction"
    if getattr(module, "num_layers", 1) > 1 and module.dropout:
        yield "has dropout between its layers; nearest: torch.nn.Dropout between modules of one layer each"
    if getattr(module, "proj_size", 0):
        yield "projects its outputs (proj_size); nearest: torch.nn.Linear after it"


def _cells(model: str, module: Any) -> Reading:
    """A module over a sequence, or one timestep."""
    in_time = hasattr(module, "num_layers")
    end = "_l0" if in_time else ""
    return Reading(
        model="rnn_relu" if getattr(module, "nonlinearity", "") == "relu" else model,
        parameters={},
        reset="",
        reset_gradient="",
        in_time=in_time,
        batch_first=in_time and module.batch_first,
        weights=f"weight_ih{end}",
        recurrent=f"weight_hh{end}",
        bias=f"bias_ih{end}" if module.bias else "",
        recurrent_bias=f"bias_hh{end}" if module.bias else "",
    )


# ---- SpikingJelly

NEVER = 1e9  # a threshold of neurons that are read by their potential, as in the code of Hammouamri et al. 2024


def _spikingjelly_problems(module: Any) -> Iterator[str]:
    if not getattr(module.surrogate_function, "spiking", True):
        yield "sends what its surrogate function makes, and no spikes (spiking=False): leave that out"
    if module.v_threshold >= NEVER and module.step_mode == "m" and not module.store_v_seq:
        yield "never spikes, and keeps no potentials that could be read: set store_v_seq=True"
    for name, _ in module.named_parameters():
        if (type(module).__name__, name) != ("ParametricLIFNode", "w"):
            yield f"learns its constant '{name}', which is fixed here"


def _spikingjelly(model: str, **constants: float) -> Callable[[Any], Reading]:
    """A reader of a class with these constants, and with `tau` and `decay_input` where it has them; w: what
    ParametricLIFNode learns, whose sigmoid is a share."""

    def read(module: Any) -> Reading:
        held = {name: float(getattr(module, name)) for name in ("tau", "decay_input") if hasattr(module, name)}
        learns = hasattr(module, "w")
        share = {"share": float(module.w.detach().double().sigmoid())} if learns else {}
        # it fires at its threshold, models here above theirs: above what float32 has just below
        threshold = float(np.nextafter(np.float32(module.v_threshold), np.float32(0)))
        spiking = module.v_threshold < NEVER
        limits = {"v_reset": float(module.v_reset or 0.0)} | ({"v_threshold": threshold} if spiking else {})
        return Reading(
            model=model,
            parameters={**share, **held, **constants, **limits},
            reset="none" if not spiking else "subtract" if module.v_reset is None else "zero",
            spiking=spiking,
            in_time=module.step_mode == "m",
            learned={"share": "w"} if learns and module.w.requires_grad else {},
        )

    return read


# what neurons that never spike make of their potentials of all timesteps, [timesteps, batch, neurons]; of other names
# they return them as they are
DECODES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max-mem": lambda every: torch.max(every, 0).values,
    "mean-mem": lambda every: torch.mean(every, 0),
    "last_mem": lambda every: every[-1],
}


def _reader_problems(module: Any) -> Iterator[str]:
    if module.decode == "max-abs-mem":
        yield "reads the potential that is furthest from 0 (decode='max-abs-mem'); nearest: 'max-mem'"


def _spikingjelly_reader(module: Any) -> Reading:
    leaks = {"tau": float(module.tau), "decay_input": 1.0} if hasattr(module, "tau") else {}
    model, parameters = ("spikingjelly_lif", leaks) if leaks else ("if", {"r": 1.0})
    return Reading(model=model, parameters=parameters, reset="none", spiking=False, in_time=True)


def _run_reader(module: Any, currents: torch.Tensor) -> torch.Tensor:
    module.decode = None
    return torch.stack(module(currents))


def _run_spikingjelly(module: Any, currents: torch.Tensor) -> torch.Tensor:
    if hasattr(module, "reset"):
        module.reset()
    module.step_mode = "s"
    every = ((module(current), module.v)[module.v_threshold >= NEVER] for current in currents)
    return torch.stack(list(every))


def _sliding_psn(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Neurons whose potential is a weighted sum of their last currents, which SpikingJelly makes of all at once."""
    currents: list[torch.Tensor] = []
    if module.step_mode == "s":
        currents = module.queue = list(module.queue)
    made = []
    for current in x if module.step_mode == "m" else [x]:
        currents.append(current)
        del currents[: -module.k]
        weighted = (module.weight[module.k - 1 - age] * each for age, each in enumerate(reversed(currents)))
        made.append(module.surrogate_function(sum(weighted, module.bias)))
    return torch.stack(made) if module.step_mode == "m" else made[0]


# what modules do that do it in a way that is not read, written out
WRITTEN_OUT: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {"spikingjelly.SlidingPSN": _sliding_psn}
_NORSE = ("tau_mem_inv", "v_leak", "v_th", "v_reset")
_LIF, _LSNN = ("tau_syn_inv", *_NORSE), ("tau_syn_inv", "tau_adapt_inv", "beta", *_NORSE)
_READ_OUT = ("tau_syn_inv", "tau_mem_inv", "v_leak")
NEURONS: dict[str, Reader] = {
    f"{package}.{name}": Reader(read=read, run=run, problems=problems)
    for package, run, problems, readers in (
        ("snntorch", _run_snntorch, _snntorch_problems, {
            "Leaky": _snntorch("leaky", "beta"),
            "RLeaky": _snntorch("rleaky", "beta"),
            "Lapicque": _snntorch("lapicque", "resistance", "capacitance", "time_step"),
            "Synaptic": _snntorch("synaptic", "alpha", "beta"),
            "RSynaptic": _snntorch("synaptic", "alpha", "beta"),
            "Alpha": _snntorch("alpha", "alpha", "beta"),
            "SLSTM": _slstm,
        }),
        ("norse", _run_norse, _norse_problems, {
            **dict.fromkeys(("LIFCell", "LIF", "LIFRecurrentCell", "LIFRecurrent"), _norse("norse_lif", *_LIF)),
            "LIFBoxCell": _norse("norse_lif_box", *_NORSE),
            "IAFCell": _norse_iaf,
            **dict.fromkeys(("LSNNCell", "LSNN", "LSNNRecurrentCell", "LSNNRecurrent"), _norse("norse_lsnn", *_LSNN)),
            **dict.fromkeys(("LICell", "LI"), _norse("norse_lif", *_READ_OUT, spiking=False)),
        }),
        ("spikingjelly", _run_spikingjelly, _spikingjelly_problems, {
            "LIFNode": _spikingjelly("spikingjelly_lif"),
            "ParametricLIFNode": _spikingjelly("spikingjelly_plif"),
            "IFNode": _spikingjelly("if", r=1.0),
        }),
        ("spikingjelly", _run_reader, _reader_problems, {
            **dict.fromkeys(("NonSpikingLIFNode", "NonSpikingIFNode"), _spikingjelly_reader),
        }),
    )
    for name, read in readers.items()
}  # fmt: skip
NEURONS |= {
    f"torch.{kind}{cell}": Reader(read=partial(_cells, kind.lower()), problems=_cell_problems)
    for kind in ("GRU", "LSTM", "RNN")
    for cell in ("", "Cell")
}


def _size_of_spikes(module: Any) -> float | None:
    """The number that they are multiplied by; None: it is learned, or one a neuron."""
    size: Any = getattr(module, "graded_spikes_factor", 1.0)
    return None if isinstance(size, torch.nn.Parameter) or torch.as_tensor(size).numel() > 1 else float(size)


def has_model(module: Any) -> bool:
    """Whether it is of a class of NEURONS, and not with options of which its own operations are read: a reset in the
    timestep of the spike, spikes of a size that is learned or differs."""
    plain = getattr(module, "reset_delay", True) and _size_of_spikes(module) is not None
    refused = getattr(module, "inhibition", False) or getattr(module, "state_quant", False)
    return neuron_key(module) in NEURONS and bool(plain or refused)


@contextmanager
def as_its_model(module: Any) -> Iterator[Callable[[Any], Any]]:
    """While a module sends potentials, or spikes of 1, as its model does; and what it makes of these by itself."""
    decode, size = DECODES.get(str(getattr(module, "decode", None))), _size_of_spikes(module)
    plain: dict[str, Any] = {"decode": None} if decode else {}
    if size not in (None, 1.0):
        plain = {"graded_spikes_factor": torch.ones_like(module.graded_spikes_factor)}

    def finished(made: Any) -> Any:
        if decode:
            return decode(torch.stack(made))
        if not plain:
            return made
        return (made[0] * size, *made[1:]) if isinstance(made, tuple) else made * size

    held = {name: getattr(module, name) for name in plain}
    try:
        for name, value in plain.items():
            setattr(module, name, value)
        yield finished
    finally:
        for name, value in held.items():
            setattr(module, name, value)


def read_neuron(where: str, module: torch.nn.Module) -> Reading:
    """What a module of one of NEURONS says it is; raises DescriptionError for options that nothing here stands for."""
    reader = NEURONS[neuron_key(module)]
    problems = [f"{where} {problem}" for problem in reader.problems(module)]
    if problems:
        raise refusal(*problems)
    reading = reader.read(module)
    if not reading.learned or reading.of_cells:
        return reading
    try:
        neuron_of(reading.model, reading.parameters, reset=reading.reset, learned=reading.learned)
    except MappingError as problem:
        raise refusal(f"{where} learns {', '.join(reading.learned.values())}: {problem}") from None
    return reading


def match_gradients(where: str, module: torch.nn.Module, reading: Reading, width: int) -> Reading:
    """The reading with the surrogate and the reset gradient that the module has; raises DescriptionError where what it
    does is not what was read."""
    for key, value in reading.parameters.items():
        if isinstance(value, tuple) and (reading.of_cells or len(value) != width):
            raise refusal(f"{where} has {len(value)} values of {key} for {width} neurons; nearest: one for all of them")
    if reading.of_cells and reading.has_potential:
        name, slope, _ = nearest_surrogate(where, partial(_derivative, where, copy_of(module.spike_grad)), False)
        return replace(reading, surrogate=name, slope=slope)
    if reading.of_cells:
        return reading
    run = NEURONS[neuron_key(module)].run
    assert run is not None
    plain = copy_of(module).double()
    plain.train()
    if reading.spiking:
        name, slope = _surrogate(where, run, plain, reading.neuron, width)
        reading = replace(reading, surrogate=name, slope=slope)
    return replace(reading, reset_gradient=_reset_gradient(where, run, plain, reading, width))


def _derivative(where: str, spike: Callable[[torch.Tensor], torch.Tensor], x: np.ndarray) -> np.ndarray:
    """Of spikes, by how far potentials are above the threshold."""
    above = torch.tensor(x, requires_grad=True)
    spikes = spike(above)
    if not spikes.requires_grad:
        raise _without_surrogate(where)
    found: np.ndarray = torch.autograd.grad(spikes.sum(), above)[0].numpy()
    return found


def _without_surrogate(where: str) -> DescriptionError:
    return refusal(f"{where} has no surrogate gradient (surrogate_disable, method='heaviside'): leave that out")


def _surrogate(where: str, run: Run, module: torch.nn.Module, neuron: LinearNeuron, width: int) -> tuple[str, float]:
    """The record of SURROGATES that has the derivative of a spike by its potential, and its slope."""
    after, gain = impulse(neuron)  # timesteps until a current reaches the potential, and what it adds there
    start = float(run_neuron(neuron, np.zeros((after + 1, 1, neuron.neurons)))[1][-1].flat[0])

    def derivative(x: np.ndarray) -> np.ndarray:
        currents = torch.zeros(after + 1, len(x), width, dtype=torch.float64)
        currents[0] = torch.tensor((x + neuron.threshold - start) / gain)[:, None]
        currents.requires_grad_()
        spikes = run(copy_of(module), currents)
        if not spikes.requires_grad:
            raise _without_surrogate(where)
        spikes[after, :, 0].sum().backward()
        assert currents.grad is not None
        found: np.ndarray = currents.grad[0, :, 0].numpy() / gain
        return found

    return nearest_surrogate(where, derivative, scaled=False)[:2]


def nearest_surrogate(
    where: str, derivative: Callable[[np.ndarray], np.ndarray], scaled: bool
) -> tuple[str, float, float]:
    """The record of SURROGATES that is the derivative of a spike by its distance from the threshold, its slope, and a
    factor, which is 1 unless it may be `scaled`; raises DescriptionError for none."""
    near = derivative(np.array([1e-6, 2e-6]))
    peak = float(2 * near[0] - near[1])
    half, beyond = 1e-6, 1e3
    while peak > 0 and beyond - half > 1e-10 * beyond:  # where it is half as high
        tried = np.geomspace(half, beyond, 200)
        below = np.flatnonzero(~(derivative(tried) > peak / 2))
        last = int(below[0]) if below.size else len(tried)
        half, beyond = (tried[max(last - 1, 0)], tried[min(last, len(tried) - 1)])
    places = half * np.concatenate([FINE, -FINE])
    found, tried_as = derivative(places), []
    # a wide box looks like what is the same everywhere
    for name in sorted(SURROGATES, key=half_width, reverse=True) if np.isfinite(found).all() and peak > 0 else ():
        shape, slope = SURROGATES[name].derivative, float(f"{min(half_width(name), WIDEST) / half:.6g}")
        factor = float(f"{peak / float(shape(np.zeros(1), slope)[0]):.6g}") if scaled else 1.0
        values = factor * shape(places, slope)
        if name in ("boxcar", "triangular"):  # which end where rounding says
            values = np.where(np.abs(np.abs(places) * slope - (0.5 if name == "boxcar" else 1)) < 1e-4, found, values)
        tried_as.append((float(np.abs(values - found).max() / peak), name, slope, factor))
    off, name, slope, factor = min(tried_as, default=(np.inf, "", 0.0, 0.0))
    if not off <= SAME_SURROGATE:
        times = f" times {factor:g}" if scaled else ""
        said = f"; nearest: {name} with slope {slope:g}{times}, off by up to {off:.2g}" if name else ""
        known = ", ".join(SURROGATES) + (", times a factor" if scaled else "")
        raise refusal(f"{where}: its surrogate gradient is none of {known}{said}")
    return name, slope, factor


def _reset_gradient(where: str, run: Run, module: torch.nn.Module, reading: Reading, width: int) -> str:
    """The reset gradient with which the model does what the module does; raises DescriptionError for none."""
    random = np.random.default_rng(7)
    neuron = reading.neuron
    gain = impulse(neuron)[1]
    size = 1.5 * neuron.threshold / abs(gain) if reading.spiking else 1.0
    given = random.normal(0.5 * size, size, (TIMESTEPS, BATCH, width))
    weight = random.normal(size=given.shape)
    currents = torch.tensor(given, requires_grad=True)
    sent = run(copy_of(module), currents)
    (sent * torch.tensor(weight)).sum().backward()
    assert currents.grad is not None
    gradient = currents.grad.numpy()
    quiet = neuron if reading.spiking else replace(neuron, fired=None)
    spikes, u, _ = run_neuron(quiet, given)
    mine = spikes if reading.spiking else u
    theirs = sent.detach().numpy()
    if not agree(mine, theirs):
        raise _mismatch(where, reading, "what it sends", mine, theirs)
    offered = RESET_GRADIENTS if reading.spiking and reading.reset != "none" else ("mask",)
    tried = {}
    for name in sorted(offered, key=lambda each: each != "mask"):
        tried[name] = gradient_of_currents(
            replace(quiet, reset_gradient=name),
            given,
            weight,
            reading.surrogate if reading.spiking else "",
            reading.slope,
        )
        if agree(tried[name], gradient, SAME_GRADIENT):
            return name
    raise _mismatch(where, reading, "the gradient of its currents", tried["mask"], gradient)


def agree(one: np.ndarray, other: np.ndarray, relative: float = SAME) -> bool:
    return bool(abs(one - other).max() <= relative * max(abs(other).max(), 1e-30))


def _mismatch(where: str, reading: Reading, what: str, mine: np.ndarray, theirs: np.ndarray) -> DescriptionError:
    off = np.abs(mine - theirs).max() / max(np.abs(theirs).max(), 1e-30)
    return refusal(
        f"{where}: read as model '{reading.model}' (reset '{reading.reset}', {reading.surrogate} with slope "
        f"{reading.slope:g}), but {what} differs by up to {off:.2g} of the largest; an option of it is not known here"
    )


# ---- a layer of linear neurons run alone over time, forward and backward, in float64: what a module is compared with


MOST_STEPS = 8  # a current reaches the potential within as many timesteps as there are states, less one


def run_neuron(neuron: LinearNeuron, currents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(spikes, what is compared with the threshold, states [timesteps, states, batch, neurons]), from a state of 0."""
    neuron_step = OPERATIONS["neuron"].evaluate
    x = np.zeros((len(neuron.states), *currents.shape[1:]))
    fired = np.zeros(currents.shape[1:], bool)
    spikes, potentials = np.zeros_like(currents), np.zeros_like(currents)
    states = np.zeros((len(currents), *x.shape))
    for t, current in enumerate(currents):
        x, potentials[t] = neuron_step(neuron, x, current, fired)
        states[t] = x
        spikes[t] = fired = potentials[t] > neuron.threshold
    return spikes, potentials, states


def gradient_of_currents(
    neuron: LinearNeuron, currents: np.ndarray, weight: np.ndarray, surrogate: str, slope: float
) -> np.ndarray:
    """The gradient by the currents of sum(weight * spikes), or without a surrogate of sum(weight * potentials)."""
    spikes, potentials, states = run_neuron(neuron, currents)
    full = neuron.resets and neuron.reset_gradient == "full"
    matrix, drive = neuron.differs
    about = Gradient(
        neuron=neuron,
        switched=neuron.resets and neuron.reset_gradient != "pass",
        reads_state=full and matrix,
        reads_current=full and drive,
        of_fired=full,
    )
    gradient = np.zeros_like(currents)
    dx, of_fired = np.zeros_like(states[0]), np.zeros(currents.shape[1:])
    for t in reversed(range(len(currents))):
        du = weight[t]
        if surrogate:
            du = (du + of_fired) * SURROGATES[surrogate].derivative(potentials[t] - neuron.threshold, np.float64(slope))
        (dx,) = OPERATIONS["neuron_readout_gradient"].evaluate(neuron, dx, du)
        fired = spikes[t - 1] > 0 if t else np.zeros(currents.shape[1:], bool)
        before = states[t - 1] if t else np.zeros_like(states[0])
        given = [fired] if about.switched else []
        given += [before] if about.reads_state else []
        given += [currents[t]] if about.reads_current else []
        dx, gradient[t], *rest = OPERATIONS["neuron_gradient"].evaluate(about, dx, *given)
        of_fired = rest[0] if rest else of_fired
    return gradient


def impulse(neuron: LinearNeuron) -> tuple[int, float]:
    """(timesteps until a current reaches the potential, what a current of 1 adds to it then)."""
    currents = np.zeros((MOST_STEPS, 1, neuron.neurons))
    quiet = run_neuron(neuron, currents)[1]
    currents[0] = 1e-9  # too little to fire
    response = (run_neuron(neuron, currents)[1] - quiet)[:, 0, 0] / 1e-9
    after = int(np.argmax(np.abs(response) > 1e-6))
    return after, float(response[after])
