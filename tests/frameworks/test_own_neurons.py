"""Neurons that are written out in PyTorch: read as PyTorch computes and learns them, or refused by name."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from networks import interpreted
from torch_training import check_steps

from mimdsim.base.errors import MimdsimError
from mimdsim.workload import network_of
from mimdsim.workload.interchange.layers import given_weights

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
zoo = pytest.importorskip("torch_networks")
frameworks = pytest.importorskip("mimdsim.frameworks")
step_of = pytest.importorskip("mimdsim.frameworks.arithmetic").step_of
nn, spike = zoo.nn, zoo.spike_fn
functions: Any = torch.nn.functional
LEAST = 1e-5  # relative, of gradients in float32


class Loop(nn.Module):  # type: ignore[misc, name-defined]
    """Neurons with a reset of one's own, and a read-out that leaks. reset(v, spikes): what is left of the potential;
    current(module, step, spikes); ends(list of what the read-out is in every timestep); start: of the potential;
    share: of what the read-out is given."""

    def __init__(
        self, reset: Any = None, current: Any = None, ends: Any = torch.stack, start: Any = 0.0, share: Any = None
    ):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(zoo.INPUTS, zoo.HIDDEN), nn.Linear(zoo.HIDDEN, zoo.CLASSES)
        self.reset, self.ends, self.start = reset or (lambda v, z: v - z.detach()), ends, start
        self.share = share
        self.current = current or (lambda module, step, _: module.fc1(step))

    def forward(self, x: Any) -> Any:
        v = torch.zeros(x.shape[1], zoo.HIDDEN, dtype=x.dtype) + self.start
        spikes, y, out = torch.zeros_like(v), 0.0, []
        for step in x:
            v = 0.9 * v + self.current(self, step, spikes)
            spikes = spike(v - 1)
            v = self.reset(v, spikes)
            y = 0.8 * y + (self.fc2(spikes) if self.share is None else self.share * self.fc2(spikes))
            out.append(y)
        return self.ends(out)


def made(**how: Any) -> tuple[Any, Any, Any]:
    return zoo.example(zoo.TorchNetwork(make=lambda: Loop(**how), judge=None, scale=3.0))


def without_gradients(function: Any) -> Any:
    def run(v: Any, z: Any) -> Any:
        with torch.no_grad():
            made = function(v, z)
        return made

    return run


def written_into(v: Any, z: Any) -> Any:
    v = v.clone()
    v[z > 0] = 0.1
    return v


def taken(v: Any, z: Any, other: Any = None) -> Any:
    """Values where it fired, of which something is made and written there."""
    v, fired = v.clone(), z > 0
    v[fired] = 0.5 * v[fired if other is None else other(z)] - 0.2 * torch.ones_like(v)[fired]
    v[fired] -= 0.1
    return v


def refractory(module: Any, step: Any, spikes: Any) -> Any:
    """A count of timesteps, which are whole numbers."""
    left = spikes if not spikes.requires_grad else torch.where(spikes > 0, 2.0, (module.left - 1).clamp(min=0))
    module.left = left
    return module.fc1(step) * (left <= 0)


def biased(module: Any, step: Any, spikes: Any) -> Any:
    """In place, with what is subtracted of the spikes before."""
    current = step @ module.fc1.weight.T + module.fc1.bias
    current -= 0.3 * spikes.detach()
    return current


READ = {
    "not where it fired": {"reset": lambda v, z: torch.where(z <= 0, v * ~(z > 0.5), 0.0) + 0.1 * (z == 1)},
    "whole numbers have no gradient": {"reset": lambda v, z: torch.where(z.to(torch.bool), 0.0, v) - z.int()},
    "a surrogate without gradients": {"reset": lambda v, _: v - without_gradients(lambda v, _: spike(v - 1))(v, _)},
    "all without gradients": {"reset": without_gradients(lambda v, z: v * (1 - z))},
    "gradients at limits": {"reset": lambda v, z: torch.clamp(v * (1 - z.clamp(0, 1)), min=0)},
    "none at limits": {"reset": lambda v, z: functions.hardtanh(v - z, 0.0, 1.0) - 0.1 * functions.relu6(z)},
    "written into it": {"reset": written_into},
    "taken and written back": {"reset": taken},
    "divided by states": {"reset": lambda v, z: torch.sub(v, z, alpha=0.5) / (1 + z + v.abs())},
    "subtracted the other way round": {"reset": lambda v, z: -torch.rsub(v, 0.5 * z, alpha=0.9)},
    "the larger": {"reset": lambda v, z: torch.maximum(v * (1 - z), 0.1 * v) + torch.min(v, z) - z},
    "a bias by hand": {"current": biased},
    "refractory": {"current": refractory},
    "a read-out that averages, from a number on": {"share": 0.2},
    "states that begin elsewhere": {"start": 0.25},
    "and are made of their reset": {"start": -0.25, "reset": lambda v, z: torch.where(z > 0, -0.25, v)},
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_written_neurons_learn_as_pytorch_says(name: str) -> None:
    module, spikes, labels = made(**READ[name])
    workload = frameworks.from_torch(module, spikes)
    network = network_of(workload)
    network_weights = given_weights(workload, network)
    assert network_weights is not None
    from test_from_torch import given_to, off

    given = given_to(network, network_weights, spikes.numpy(), labels.numpy())
    outcome = interpreted(network, given)
    double = copy.deepcopy(module).double()
    functions.cross_entropy(double(spikes.double()).sum(0), labels).backward()
    for layer, name in (("hidden0", "fc1"), ("output", "fc2")):
        wanted = double.get_submodule(name).weight.grad.numpy().T
        assert np.abs(wanted).max() > 0
        assert off(outcome.gradients[layer], wanted) < LEAST, layer


def test_thresholds_that_begin_where_they_decay_to_are_read() -> None:
    """What they begin with is made of what a number in their sum is, and the other way round."""

    class Adaptive(Loop):
        def forward(self, x: Any) -> Any:
            v = torch.zeros(x.shape[1], zoo.HIDDEN, dtype=x.dtype)
            threshold, y, out = torch.ones_like(v), 0.0, []
            for step in x:
                v = 0.8 * v + self.fc1(step)
                spikes = spike(v - threshold)
                threshold = 0.9 * threshold + 0.1 + 0.4 * spikes
                v = v - threshold * spikes
                y = 0.8 * y + self.fc2(spikes)
                out.append(y)
            return torch.stack(out)

    module, spikes, labels = zoo.example(zoo.TorchNetwork(make=Adaptive, judge=None, scale=3.0))
    workload = frameworks.from_torch(module, spikes)
    network = network_of(workload)
    from test_from_torch import given_to, off

    given = given_to(network, given_weights(workload, network), spikes.numpy(), labels.numpy())
    outcome = interpreted(network, given)
    double = copy.deepcopy(module).double()
    functions.cross_entropy(double(spikes.double()).sum(0), labels).backward()
    for layer, weight in (("hidden0", double.fc1.weight), ("output", double.fc2.weight)):
        wanted = weight.grad.numpy().T
        assert np.abs(wanted).max() > 0
        assert off(outcome.gradients[layer], wanted) < LEAST, layer


ENDS = {
    "sum": torch.stack,
    "sum, as a list": list,
    "last": lambda out: out[-1],
    "mean": lambda out: torch.stack(out, 1).mean(1),
    "max": lambda out: torch.stack(out).max(0).values,
}


@pytest.mark.parametrize("name", ENDS)
def test_what_they_return_is_read_as_such(name: str) -> None:
    module, spikes, _ = made(ends=ENDS[name])
    assert frameworks.from_torch(module, spikes).training.reading == name.partition(",")[0]


def test_entries_before_the_first_timestep_are_said_to_be_left_out() -> None:
    module, spikes, _ = made(ends=lambda out: torch.stack([torch.zeros_like(out[0]), *out]))
    with pytest.warns(UserWarning, match="returns 15 timesteps of 14"):
        frameworks.from_torch(module, spikes, loss="ce_max_membrane_loss")


class Step(torch.autograd.Function):  # type: ignore[misc]
    """shape: of its gradient."""

    shape: Any = None

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return (x > 0.5).to(x.dtype)

    @classmethod
    def backward(cls, ctx: Any, gradient: Any) -> Any:
        return gradient * Step.shape(ctx.saved_tensors[0] - 0.5)


def normal(x: Any, mean: float, deviation: float) -> Any:
    return torch.exp(-(((x - mean) / deviation) ** 2) / 2) / (deviation * (2 * torch.pi) ** 0.5)


SHAPES = {
    ("gaussian", 2.0, 0.4431135): lambda x: 0.5 * torch.exp(-4 * x * x),  # times sqrt(pi) / 4
    ("gaussian", 1.414214, 0.3): lambda x: 0.3 * normal(x, 0, 0.5),
    ("double_gaussian", 1.414214, 0.5): lambda x: 0.5 * (1.15 * normal(x, 0.0, 0.5) - 0.3 * normal(x, 0.0, 3.0)),
    ("multi_gaussian", 1.414214, 0.5): lambda x: (
        0.5 * (1.15 * normal(x, 0, 0.5) - 0.15 * normal(x, 0.5, 3.0) - 0.15 * normal(x, -0.5, 3.0))
    ),
    ("exponential", 5.0, 0.4): lambda x: torch.exp(-5 * x.abs()),
    ("boxcar", 1.25, 0.8): lambda x: (x.abs() < 0.4).double(),
    ("boxcar", 1.0, 1.0): lambda x: (x.abs() < 0.5).double(),
    ("boxcar", 0.2, 5.0): lambda x: (x.abs() < 2.5).double(),
    ("triangular", 1.0, 0.3): lambda x: 0.3 * (1 - x.abs()).clamp(min=0),
    ("superspike", 100.0, 1.0): lambda x: 1 / (100 * x.abs() + 1) ** 2,
    ("arctan", 6.3662, 0.314159): lambda x: 1 / (1 + (10 * x) ** 2),
    ("sigmoid", 4.0, 1.0): lambda x: 4 * torch.sigmoid(4 * x) * torch.sigmoid(-4 * x),
    ("straight_through", 1.0, 1.0): torch.ones_like,
}


def test_a_surrogate_that_limits_gradients_is_none() -> None:
    class Clipped(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return (x > 0).to(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return functions.hardtanh(gradient)

    assert step_of(Clipped.apply) is None


@pytest.mark.parametrize("wanted", SHAPES)
def test_surrogates_are_found_by_height_and_width(wanted: tuple[str, float, float]) -> None:
    Step.shape = SHAPES[wanted]
    found = step_of(Step.apply)
    assert (found.threshold, found.surrogate) == (0.5, wanted[0])
    assert (found.slope, found.factor) == pytest.approx(wanted[1:], rel=1e-5)


def test_a_gradient_of_another_shape_is_refused_with_the_nearest() -> None:
    Step.shape = lambda x: 1 / (1 + x**4)
    with pytest.raises(MimdsimError, match=r"is none of .*, times a factor; nearest: "):
        step_of(Step.apply)


class OfTwo(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, v: Any, spikes: Any) -> Any:
        return v * (1 - spikes)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


class Told(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """A step whose gradient depends on something else that it reads."""

    @staticmethod
    def forward(ctx: Any, v: Any, since: Any) -> Any:
        ctx.save_for_backward(since)
        return (v > 0).to(v)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * torch.exp(-ctx.saved_tensors[0]), None


def hooked(v: Any, z: Any) -> Any:
    v.register_hook(lambda gradient: 0.5 * gradient)
    return v - z


def sliced(v: Any) -> Any:
    v = v.clone()
    v[:, :3] = 0.0
    return v


class Truncated:
    """A reset that lets no gradient through in one timestep, as truncated backpropagation does."""

    calls = 0

    def __call__(self, v: Any, z: Any) -> Any:
        self.calls += 1
        return v.detach() - z if self.calls % zoo.TIMESTEPS == 7 else v - z


REFUSED = {
    "'sin' of it is not read; what is: docs/pytorch.md": {"reset": lambda v, z: torch.sin(v) - z},
    "leave out gradients in timestep 6 or in the last one, and not in both": {"reset": Truncated()},
    "make values that are off by 0.0009": {"start": torch.linspace(0.0, 0.001, zoo.HIDDEN)},
    "'erf' of it is not read; what is: docs/pytorch.md": {"reset": lambda v, z: torch.erf(v) - z},
    "'OfTwo' of it is not read": {"reset": OfTwo.apply},
    "'Told' of it is not read": {"reset": lambda v, z: v - Told.apply(v - 1, z)},
    "'setitem' of it is not read; what is": {"reset": lambda v, z: taken(v, z, lambda z: z > 0.5)},
    "'cos' of it is not read": {"reset": lambda v, _: torch.cos(v) * torch.sin(v) * (v + 1) * v},  # 4^14 ways back
    "'half' of it is not read": {"reset": lambda v, z: v - z.half().to(v.dtype)},
    "'setitem' of it is not read": {"reset": lambda v, _: sliced(v)},
    "a hook acts on a gradient (register_hook)": {"reset": hooked},
    "'add' reads random numbers that the module draws, others every time": {
        "current": lambda module, step, _: module.fc1(step) + 0.1 * torch.randn(step.shape[0], zoo.HIDDEN)
    },
    "'gt' reads random numbers that the module draws, others every time; nearest: encode the example": {
        "current": lambda module, step, _: module.fc1(step.gt(torch.rand_like(step)).float())
    },
    "'fc1.weight' is multiplied without gradients (no_grad)": {
        "current": lambda module, step, z: without_gradients(lambda m, s: m.fc1(s))(module, step) + 0 * z
    },
    "the output goes through 'softmax'": {"ends": lambda out: torch.stack(out).softmax(-1)},
    "goes through 'a slice'": {"ends": lambda out: torch.stack(out)[:3].mean(0)},
    "nor a reading of it": {"ends": lambda out: torch.stack(out[3:]).mean(0)},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_not_read_is_refused_by_name(said: str) -> None:
    module, spikes, _ = made(**REFUSED[said])
    with pytest.raises(MimdsimError) as refused:
        frameworks.from_torch(module, spikes)
    assert said in str(refused.value)


class Shares(torch.nn.Module):  # type: ignore[misc]
    """A cell made of two shares of one product, by what is given."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.fc, self.own = torch.nn.Linear(zoo.INPUTS, 24), torch.nn.Linear(8, 24)
        self.decay, self.read = torch.nn.Parameter(torch.zeros(zoo.TIMESTEPS)), torch.nn.Linear(8, zoo.CLASSES)
        self.cell = cell

    def forward(self, x: Any) -> Any:
        h = torch.zeros(x.shape[1], 8)
        for t, step in enumerate(x):
            h = self.cell(self.fc(step) + self.own(h), h, self.decay[t])
        return self.read(h)


SHARES = {
    "read shares of one product that differ in width; nearest: chunk, of equal shares": (
        lambda made, h, decay: h * decay.sigmoid() + made[:, :8].tanh() * made[:, 8:].sigmoid().sum(1, keepdim=True)
    ),
    "'own.weight' is multiplied by what 'a slice' made": lambda made, _, decay: made[:, ::3].tanh() * decay,
    "makes what is sent last of other things than a timestep earlier": (
        lambda made, h, decay: h * decay.sigmoid() + made[:, :8].tanh() * made[:, 8:16].sigmoid() + made[:, 16:].tanh()
    ),
}


@pytest.mark.parametrize("said", SHARES)
def test_shares_that_differ_and_constants_of_a_timestep_are_refused(said: str) -> None:
    with pytest.raises(MimdsimError, match=re.escape(said)):
        frameworks.from_torch(Shares(SHARES[said]), torch.rand(zoo.TIMESTEPS, zoo.BATCH, zoo.INPUTS))


def test_a_module_of_one_timestep_a_call_that_is_called_once_asks_for_their_number() -> None:
    class Step(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.v = nn.Linear(zoo.INPUTS, 8), nn.Linear(8, zoo.CLASSES), 0.0

        def forward(self, x: Any) -> Any:
            self.v = 0.9 * self.v + self.first(x)
            return self.last(zoo.SurrogateSpike.apply(self.v - 1.0))

    with pytest.raises(MimdsimError, match="ran for one timestep; if it takes one a call, say how many: timesteps=10"):
        frameworks.from_torch(Step(), torch.ones(zoo.TIMESTEPS, 2, zoo.INPUTS))


def test_a_module_that_pytorch_cannot_train_is_said_to_be_its_own() -> None:
    """Spikes are changed in place after their surrogate has kept them."""

    class Changed(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(zoo.INPUTS, zoo.HIDDEN), nn.Linear(zoo.HIDDEN, zoo.CLASSES)

        def forward(self, x: Any) -> Any:
            v, z, out = torch.zeros(x.shape[1], zoo.HIDDEN), torch.zeros(x.shape[1], zoo.HIDDEN), []
            for step in x:
                v = 0.9 * v * (1 - z.mul_(1.0)) + self.first(step)
                z = zoo.SurrogateSpike.apply(v - 1.0)
                out.append(self.last(z))
            return torch.stack(out).mean(0)

    with pytest.raises(MimdsimError, match="the module itself raises RuntimeError in its backward pass: one of the"):
        frameworks.from_torch(Changed(), torch.ones(zoo.TIMESTEPS, 2, zoo.INPUTS))


class SharedValues(nn.Module):  # type: ignore[misc, name-defined]
    """Each value is read twice by the next function, so that there are 2**28 paths from the last to the first."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.first, self.second, self.where = nn.Linear(6, 8), nn.Linear(8, 4), where

    def at(self, where: str, value: Any) -> Any:
        for _ in range(28 if where == self.where else 0):
            value = value * torch.sigmoid(value)
        return value

    def forward(self, x: Any) -> Any:
        v, total = torch.zeros(x.shape[1], 8), 0
        for step in x:
            v = self.at("state", 0.5 * v) + self.first(self.at("input", step))
            total = total + self.at("output", self.second(self.at("between", torch.sigmoid(v))))
        return self.at("end", total)


@pytest.mark.parametrize("where", ["state", "input", "between", "output", "end"])
def test_what_several_functions_read_is_followed_once(where: str) -> None:
    spikes = (torch.rand(4, 3, 6) < 0.4).float()
    if where in ("state", "output"):
        assert frameworks.from_torch(SharedValues(where), spikes).data.timesteps == 4
    else:
        with pytest.raises(MimdsimError):
            frameworks.from_torch(SharedValues(where), spikes)


class Traced(nn.Module):  # type: ignore[misc, name-defined]
    """Neurons whose filtered spikes weights read in every timestep, as in e-prop; own: weights of their spikes, too;
    behind: a second layer between."""

    def __init__(self, own: bool = False, share: float = 1.0, behind: bool = False):
        super().__init__()
        self.fc, self.out = nn.Linear(zoo.INPUTS, zoo.HIDDEN), nn.Linear(zoo.HIDDEN, zoo.CLASSES)
        self.own = nn.Linear(zoo.HIDDEN, zoo.HIDDEN) if own else None
        self.share, self.behind = share, nn.Linear(zoo.HIDDEN, zoo.HIDDEN) if behind else None

    def forward(self, x: Any) -> Any:
        v = z = trace = u = y = torch.zeros(x.shape[1], zoo.HIDDEN)
        out = []
        for step in x:
            v = 0.9 * v + 3.0 * self.fc(step) + (self.own(z) if self.own else 0.0) - z
            z = spike(v - 1)
            trace = 0.8 * trace + (z if self.share == 1 else self.share * z)
            if self.behind:
                u = 0.9 * u + self.behind(trace) - y
                y = spike(u - 1)
            out.append(self.out(y if self.behind else trace))
        return torch.stack(out)


@pytest.mark.parametrize(
    "how", [{}, {"own": True}, {"own": True, "share": 0.2}, {"behind": True}, {"own": True, "behind": True}], ids=str
)
def test_traces_that_weights_read_train_as_in_pytorch(how: dict[str, Any]) -> None:
    module, spikes, _ = zoo.example(zoo.TorchNetwork(make=lambda: Traced(**how), judge=None, scale=1.0))
    check_steps(module, spikes)


class ReadOut(nn.Module):  # type: ignore[misc, name-defined]
    """Rates, or spikes, and the input or others beside them, read at the end by weights of each or by one matrix."""

    def __init__(self, read: Callable[[Any, Any, Any], Any], spiking: bool = False):
        super().__init__()
        self.fc, self.own = nn.Linear(zoo.INPUTS, zoo.HIDDEN), nn.Linear(zoo.HIDDEN, zoo.HIDDEN)
        self.out, self.skip = nn.Linear(zoo.HIDDEN, zoo.CLASSES), nn.Linear(zoo.INPUTS, zoo.CLASSES, bias=False)
        self.both = nn.Linear(zoo.HIDDEN + zoo.INPUTS, zoo.CLASSES)
        self.read, self.spiking = read, spiking

    def forward(self, x: Any) -> Any:
        v = sent = torch.zeros(x.shape[1], zoo.HIDDEN)
        out = []
        for step in x:
            current = 3.0 * self.fc(step) + self.own(sent)
            v = 0.9 * v + current - sent if self.spiking else current
            sent = spike(v - 1) if self.spiking else torch.tanh(v)
            out.append(self.read(self, sent, step))
        return torch.stack(out)


READ_OUTS: dict[str, dict[str, Any]] = {
    "a skip from the input": {"read": lambda m, h, x: m.out(h) + m.skip(x)},
    "first the skip": {"read": lambda m, h, x: m.skip(x) + m.out(h)},
    "subtracted": {"read": lambda m, h, x: m.out(h) - m.skip(x)},
    "one matrix for both": {"read": lambda m, h, x: m.both(torch.cat([h, x], 1))},
    "spikes and a skip": {"read": lambda m, h, x: m.out(h) + m.skip(x), "spiking": True},
    "spikes and one matrix": {"read": lambda m, h, x: m.both(torch.cat([h, x], 1)), "spiking": True},
}


@pytest.mark.parametrize("name", READ_OUTS)
def test_read_outs_of_several_train_as_in_pytorch(name: str) -> None:
    module, spikes, _ = zoo.example(zoo.TorchNetwork(make=lambda: ReadOut(**READ_OUTS[name]), judge=None, scale=1.0))
    check_steps(module, spikes)


@pytest.mark.parametrize("read", [sum, lambda out: out[-1], lambda out: torch.stack(out).mean(0)])
def test_sums_at_the_end_are_read_over_time(read: Any) -> None:
    class Over(ReadOut):
        def forward(self, x: Any) -> Any:
            return read([*super().forward(x)])

    module = Over(lambda m, h, x: m.out(h) + m.skip(x))
    check_steps(module, zoo.example(zoo.TorchNetwork(make=lambda: module, judge=None, scale=1.0))[1])


@pytest.mark.parametrize(
    "decay",
    [lambda p: torch.sigmoid(p)[1], lambda p: torch.exp(-1 / (2 + p[0:1])), lambda p: torch.sigmoid(p).unbind(0)[0]],
)
@pytest.mark.parametrize("wide", [(), (zoo.HIDDEN,)], ids=str)
def test_a_row_of_what_was_made_of_a_parameter_is_learned(decay: Any, wide: tuple[int, ...]) -> None:
    class Rows(Loop):
        def __init__(self) -> None:
            super().__init__(reset=lambda v, z: decay(self.tau) * v - z)
            self.tau = nn.Parameter(torch.linspace(-0.5, 1.0, 2).reshape(2, *[1] * len(wide)).expand(2, *wide).clone())

    module, spikes, _ = zoo.example(zoo.TorchNetwork(make=Rows, judge=None, scale=3.0))
    check_steps(module, spikes)


class LowRank(nn.Module):  # type: ignore[misc, name-defined]
    """A recurrence through few numbers, of rates or spikes."""

    def __init__(self, spiking: bool, layers: bool):
        super().__init__()
        self.fc, self.out = nn.Linear(zoo.INPUTS, zoo.HIDDEN), nn.Linear(zoo.HIDDEN, zoo.CLASSES)
        self.n = nn.Linear(zoo.HIDDEN, 3, bias=False) if layers else nn.Parameter(torch.randn(zoo.HIDDEN, 3) * 0.5)
        self.m = nn.Linear(3, zoo.HIDDEN, bias=False) if layers else nn.Parameter(torch.randn(3, zoo.HIDDEN) * 0.5)
        self.spiking, self.layers = spiking, layers

    def forward(self, x: Any) -> Any:
        h = sent = torch.zeros(x.shape[1], zoo.HIDDEN)
        out = []
        for step in x:
            own = self.m(self.n(sent)) if self.layers else sent @ self.n @ self.m
            h = 0.8 * h + own + self.fc(step)
            sent = spike(h - 1) if self.spiking else torch.tanh(h)
            out.append(self.out(sent))
        return torch.stack(out)


def test_a_bias_within_a_recurrence_of_low_rank_is_no_zero() -> None:
    """It is learned, so that what is sent before the first timestep does not stay 0."""
    module = LowRank(False, True)
    module.n = nn.Linear(zoo.HIDDEN, 3)
    nn.init.zeros_(module.n.bias)
    _, spikes, _ = zoo.example(zoo.TorchNetwork(make=lambda: LowRank(False, True), judge=None, scale=2.0))
    with pytest.raises(MimdsimError, match="the first layer reads"):
        frameworks.from_torch(module, spikes)


@pytest.mark.parametrize("spiking", [False, True])
@pytest.mark.parametrize("layers", [False, True])
def test_recurrences_of_low_rank_train_as_in_pytorch(spiking: bool, layers: bool) -> None:
    network = zoo.TorchNetwork(make=lambda: LowRank(spiking, layers), judge=None, scale=2.0)
    module, spikes, _ = zoo.example(network)
    check_steps(module, spikes)
