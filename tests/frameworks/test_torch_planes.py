"""Convolutions and pools of networks written in PyTorch: what they are read as, what is refused, weights back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_training import check_by_operations

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.graph.convolution import Convolution, Planes, Pool, Window
from mimdsim.workload import network_of
from mimdsim.workload.interchange.layers import given_weights

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
zoo = pytest.importorskip("torch_networks")
nn, snn, functional = zoo.nn, zoo.snn, torch.nn.functional
neuron, surrogate = zoo.neuron, zoo.jelly_surrogate
STEPS, BATCH = 5, 3
INPUT = Planes(channels=2, height=6, width=6)


def spikes(*sample: int, batch: int = BATCH) -> Any:
    draw = torch.Generator().manual_seed(4)
    return (torch.rand((STEPS, batch, *(sample or (2, 6, 6))), generator=draw) < 0.4).float()


def leaky(**more: Any) -> Any:
    return snn.Leaky(beta=0.8, init_hidden=True, **more)


def sequential(*layers: Any) -> Any:
    torch.manual_seed(0)
    module = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3)
    return module


def chain(*layers: Any, outputs: int, sample: tuple[int, ...] = ()) -> Any:
    """The layers, and a linear one that reads their outputs, one timestep a call."""
    return sequential(*layers, leaky(), nn.Flatten(), nn.Linear(outputs, 4), leaky())


def read(module: Any, example: Any = None, timesteps: int | None = STEPS, **more: Any) -> Any:
    example = spikes() if example is None else example
    return network_of(mimdsim.from_torch(module, example, timesteps=timesteps, **more))


def first(module: Any, example: Any = None) -> Convolution:
    found = read(module, example).layers[0].convolution
    assert found is not None
    return found


def window(*kernel: int, **more: Any) -> Window:
    return Window(kernel=(kernel[0], kernel[-1]), **more)


READ: dict[str, tuple[Any, Window, Pool | None]] = {
    "same": (lambda: nn.Conv2d(2, 3, (3, 5), padding="same"), window(3, 5, padding=(1, 2)), None),
    "valid": (lambda: nn.Conv2d(2, 3, 3, padding="valid", stride=(2, 1)), window(3, stride=(2, 1)), None),
    "a sum": (
        lambda: (nn.Conv2d(2, 3, 3), nn.AvgPool2d(2, divisor_override=1)),
        window(3), Pool(kind="sum", window=window(2, stride=(2, 2))),
    ),
    "a stride, padding": (
        lambda: (nn.Conv2d(2, 3, 3), nn.MaxPool2d((2, 3), stride=1, padding=(1, 0))),
        window(3), Pool(kind="max", window=window(2, 3, padding=(1, 0))),
    ),
    "padding that is not there": (
        lambda: (nn.Conv2d(2, 3, 3), nn.AvgPool2d(2, count_include_pad=False)),
        window(3), Pool(kind="average", window=window(2, stride=(2, 2))),
    ),
    "adaptive": (
        lambda: (nn.Conv2d(2, 3, 3), nn.AdaptiveAvgPool2d((2, None))),
        window(3), Pool(kind="average", window=window(2, 1, stride=(2, 1))),
    ),
    "adaptive, overlapping": (
        lambda: (nn.Conv2d(2, 3, 3), nn.AdaptiveAvgPool2d(3)),
        window(3), Pool(kind="average", window=window(2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ.values(), ids=READ)
def test_options_are_read(case: tuple[Any, Window, Pool | None]) -> None:
    make, expected, after = case
    layers = make()
    layers = layers if isinstance(layers, tuple) else (layers,)
    with torch.no_grad():
        outputs = nn.Sequential(*layers)(spikes()[0]).flatten(1).shape[1]
    convolution = first(chain(*layers, outputs=outputs))
    assert convolution == Convolution(planes=INPUT, window=expected, channels=3, after=after)


def test_groups_are_read() -> None:
    plain = Convolution(planes=INPUT, window=window(3), channels=4, groups=2)
    assert first(chain(nn.Conv2d(2, 4, 3, groups=2), outputs=64)) == plain
    line = Convolution(planes=Planes(channels=2, height=1, width=9), window=window(1, 3), channels=4, groups=2)
    assert first(chain(nn.Conv1d(2, 4, 3, groups=2), outputs=28), spikes(2, 9)) == line


class Loop(nn.Module):  # type: ignore[misc, name-defined]
    """A convolution and a linear layer, with functions on the way."""

    def __init__(self, given: Any = None, sent: Any = None, current: Any = None, time: int = 0):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = nn.Conv2d(2, 3, 3), nn.Linear(48, 4)
        self.one, self.two = snn.Leaky(beta=0.8), snn.Leaky(beta=0.8)
        same = lambda x: x  # noqa: E731
        self.given, self.sent, self.current, self.time = given or same, sent or same, current or same, time
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(3)

    def forward(self, x: Any) -> Any:
        one, two, out = self.one.reset_mem(), self.two.reset_mem(), []
        for step in x.unbind(self.time):
            spk, one = self.one(self.current(self.conv(self.given(step))), one)
            spk2, two = self.two(self.fc(self.sent(spk).flatten(1)), two)
            out.append(spk2)
        return torch.stack(out)


def test_axes_of_time_and_samples_are_found() -> None:
    expected = read(Loop(), timesteps=None)
    assert expected.layers[0].convolution == Convolution(planes=INPUT, window=window(3), channels=3)
    assert read(Loop(time=1), spikes().movedim(0, 1), timesteps=None) == expected
    square = spikes(batch=STEPS)  # as many samples as timesteps: currents tell which axis is which
    assert read(Loop(time=1), square.movedim(0, 1), timesteps=None).layers == expected.layers
    flat = spikes().flatten(2)
    assert read(Loop(given=lambda x: x.view(-1, 2, 6, 6)), flat, timesteps=None) == expected
    assert read(Loop(given=lambda x: x.unflatten(1, (2, 6, 6))), flat, timesteps=None) == expected


def test_an_image_shown_in_every_timestep_is_read() -> None:
    class Shown(Loop):
        def forward(self, x: Any) -> Any:
            return super().forward(x.unsqueeze(0).expand(STEPS, -1, -1, -1, -1))

    module = chain(nn.Conv2d(2, 3, 3), outputs=48)
    assert first(module, spikes()[0]) == first(module)
    shown = read(Shown(), spikes()[0], timesteps=None)
    assert (shown.timesteps, shown.layers) == (STEPS, read(Loop(), timesteps=None).layers)


@pytest.mark.parametrize("how", ["cast", "unsqueezed in place", "stacked"])
def test_an_image_of_one_channel_may_be_laid_out_in_any_way(how: str) -> None:
    """Its axis of one channel is none of time."""

    class Shown(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc, self.cell = nn.Conv2d(1, 3, 3), nn.Linear(48, 5), snn.Leaky(beta=0.9)

        def forward(self, x: Any) -> Any:
            if how == "unsqueezed in place":
                x = x.clone()
                x.unsqueeze_(1)
                x = x.repeat(1, STEPS, 1, 1, 1).transpose(0, 1)
            elif how == "stacked":
                x = torch.stack([x] * STEPS, 1).transpose(0, 1)
            mem, out = self.cell.reset_mem(), []
            for t in range(STEPS):
                spk, mem = self.cell(self.conv(x.float() if how == "cast" else x[t]), mem)
                out.append(self.fc(spk.flatten(1)))
            return torch.stack(out).mean(0)

    torch.manual_seed(0)
    shown = read(Shown(), spikes()[0, :, :1], timesteps=None)
    assert shown.timesteps == STEPS
    assert shown.layers[0].convolution == Convolution(
        planes=Planes(channels=1, height=6, width=6), window=window(3), channels=3
    )


@pytest.mark.parametrize("end", [
    lambda net, x: net.fc(net.pool(x.flatten(0, 1)).view(*x.shape[:2], 3).mean(0)),
    lambda net, x: net.fc(functional.adaptive_avg_pool3d(x, (None, 1, 1)).flatten(2).sum(0) / STEPS),
    lambda net, x: net.fc(x.mean((3, 4))).mean(0),
    lambda net, x: net.fc(x.flatten(3).mean(3).mean(0)),
])  # fmt: skip
def test_planes_are_averaged_before_a_linear_read_out(end: Any) -> None:
    """As SEW and MS ResNets and spiking transformers end."""

    class Ends(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.cell = nn.Conv2d(2, 3, 3), snn.Leaky(beta=0.9)
            self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(3, 5)

        def forward(self, x: Any) -> Any:
            mem, out = self.cell.reset_mem(), []
            for step in x:
                spk, mem = self.cell(self.conv(step), mem)
                out.append(spk)
            return end(self, torch.stack(out))

    torch.manual_seed(0)
    before = read(Ends(), spikes(), timesteps=None).layers[-1].convolution.before
    assert (before.kind, before.window.kernel) == ("average", (4, 4))


def test_a_pool_of_one_pixel_is_none() -> None:
    made = first(chain(nn.Conv2d(2, 3, 3), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), outputs=12))
    assert made == first(chain(nn.Conv2d(2, 3, 3), nn.AvgPool2d(2), outputs=12))


class WholeSequence(Loop):
    """Products of all timesteps at once, neurons one after another."""

    def forward(self, x: Any) -> Any:
        one, two, out = self.one.reset_mem(), self.two.reset_mem(), []
        currents = self.conv(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        for step in currents:
            spk, one = self.one(step, one)
            spk2, two = self.two(self.fc(spk.flatten(1)), two)
            out.append(spk2)
        return torch.stack(out)


def test_a_product_of_the_whole_sequence_is_read() -> None:
    assert read(WholeSequence(), timesteps=None) == read(Loop(), timesteps=None)


def test_containers_of_spikingjelly_are_read() -> None:
    jelly, neuron = zoo.jelly, zoo.neuron
    plain = (nn.Conv2d(2, 3, 3, bias=False), nn.AvgPool2d(2))
    net = sequential(
        jelly.SeqToANNContainer(*plain), neuron.IFNode(step_mode="m"),
        jelly.SeqToANNContainer(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, 4)), neuron.IFNode(step_mode="m"),
    )  # fmt: skip
    one, two = read(net, timesteps=None).layers
    pool = Pool(kind="average", window=window(2, stride=(2, 2)))
    assert one.convolution == Convolution(planes=INPUT, window=window(3), channels=3, after=pool)
    largest = Pool(kind="max", window=window(2, stride=(2, 2)))
    planes = Planes(channels=3, height=2, width=2)
    assert two.convolution == Convolution(planes=planes, window=window(1), channels=4, before=largest)


class Reshaped(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, *planes: int):
        super().__init__()
        self.planes = planes

    def forward(self, x: Any) -> Any:
        return x.view(-1, *self.planes)


class Twice(nn.Conv2d):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


class Both(nn.Module):  # type: ignore[misc, name-defined]
    """Spikes of two convolutions of the input are joined."""

    def __init__(self, join: Any):
        super().__init__()
        self.a, self.b, self.fc = nn.Conv2d(2, 3, 3), nn.Conv2d(2, 3, 3), nn.Linear(96, 4)
        self.cells, self.join = nn.ModuleList([leaky() for _ in range(3)]), join

    def forward(self, x: Any) -> Any:
        first, second, last = self.cells
        return last(self.fc(self.join(first(self.a(x)), second(self.b(x))).flatten(1)))


class UpAndDown(nn.Module):  # type: ignore[misc, name-defined]
    """Planes side by side along their height."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, 3, 1)

    def forward(self, x: Any) -> Any:
        return self.mix(torch.cat([x, 1 - x], dim=2))


class ReadsItself(nn.Module):  # type: ignore[misc, name-defined]
    """Planes that read what they sent a timestep before."""

    def __init__(self, own: Any):
        super().__init__()
        self.conv, self.own, self.cell, self.sent = nn.Conv2d(2, 3, 3), own, leaky(), None

    def forward(self, x: Any) -> Any:
        current = self.conv(x)
        self.sent = self.cell(current if self.sent is None else current + self.own(self.sent))
        return self.sent


class Past(nn.Module):  # type: ignore[misc, name-defined]
    """The second convolution, and a linear layer of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 4, 4)
        self.past, self.fc = nn.Linear(72, 4), nn.Linear(4, 4)
        self.cells = nn.ModuleList([leaky() for _ in range(3)])

    def forward(self, x: Any) -> Any:
        first, second, last = self.cells
        return last(self.fc(second(self.b(first(self.a(x))).flatten(1) + self.past(x.flatten(1)))))


class Block(nn.Module):  # type: ignore[misc, name-defined]
    """Neurons whose spikes are joined with what they read; again: with what they sent a timestep before, too."""

    def __init__(self, join: Callable[..., Any], again: bool):
        super().__init__()
        self.conv, self.cells, self.join, self.again = nn.Conv2d(3, 3, 3, padding=1), leaky(), join, again
        self.sent: Any = None

    def forward(self, x: Any) -> Any:
        self.sent = self.cells(self.conv(x + self.sent if self.again and self.sent is not None else x))
        return self.join(self.sent, x)


def block(join: Callable[..., Any], last: Any = None, again: bool = False) -> Callable[[], Any]:
    return lambda: sequential(
        nn.Conv2d(2, 3, 3), leaky(), Block(join, again), last or nn.Conv2d(3, 4, 4), leaky(),
    )  # fmt: skip


class Recurrent(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.own, self.fc = nn.Conv2d(2, 3, 6), nn.Linear(3, 3), nn.Linear(3, 4)
        self.one, self.two = leaky(), leaky()

    def forward(self, x: Any) -> Any:
        spk, out = torch.zeros(x.shape[1], 3), []
        for step in x:
            spk = self.one(self.conv(step).flatten(1) + self.own(spk))
            out.append(self.two(self.fc(spk)))
        return torch.stack(out)


def conv(*more: Any, **options: Any) -> Any:
    return lambda: chain(nn.Conv2d(2, 3, 3, **options), *more, outputs=48)


def pool(kind: Any, *args: Any, **options: Any) -> Any:
    """A pool of spikes, then a convolution."""
    return lambda: chain(nn.Conv2d(2, 3, 3), leaky(), kind(*args, **options), nn.Conv2d(3, 3, 1), outputs=12)


def reading_planes(*layers: Any) -> Any:
    return lambda: chain(nn.Conv2d(2, 3, 3), leaky(), *layers, outputs=1)


COMBINED = {
    "hidden0*hidden1": lambda s, x: x * s,
    "hidden0*(1-hidden1)": lambda s, x: x * (1.0 - s),
    "(1-hidden1)*hidden0+hidden1": lambda s, x: torch.rsub(s, 1) * x + s,
    "max_pool(hidden1,3,1,1)+hidden0": lambda s, x: nn.MaxPool2d(3, 1, padding=1)(s) + x,
    "average_pool(hidden0*hidden1,1,1,0)*hidden0": lambda s, x: nn.AvgPool2d(1)(x * s) * x,
}


@pytest.mark.parametrize("written", COMBINED)
def test_products_and_pools_of_spikes_are_read_by_other_layers(written: str) -> None:
    network = read(block(COMBINED[written])())
    assert network.sources(network.layers[2])[0].names == written


REFUSED = {
    "has padding_mode='circular'; nearest: padding_mode='zeros'": conv(padding=1, padding_mode="circular"),
    "has padding='same' that differs from side to side; nearest: an odd kernel": lambda: chain(
        nn.Conv2d(2, 3, 2, padding="same"), outputs=108
    ),
    "'0' (ConvTranspose2d) is not among the layers that run here; nearest: torch.nn.Conv1d or Conv2d": lambda: chain(
        nn.ConvTranspose2d(2, 3, 3), outputs=192
    ),
    "'1' (Conv3d) is not among the layers that run here; nearest: torch.nn.Conv1d or Conv2d": lambda: chain(
        Reshaped(1, 2, 6, 6), nn.Conv3d(1, 3, (2, 3, 3)), outputs=48
    ),
    "'1' (InstanceNorm2d) averages its statistics": conv(nn.InstanceNorm2d(3, track_running_stats=True)),
    "'1' normalises along another axis than that of '2's 3 neurons; nearest: torch.nn.GroupNorm(1, 3)": conv(
        nn.LayerNorm((3, 4, 4))
    ),
    "'0' (Twice) does more than its class says; write it as torch.nn.Conv2d": lambda: chain(
        Twice(2, 3, 3), outputs=48
    ),
    "'1.weight' is multiplied by what 'pad' made": lambda: chain(
        nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(2, 3, 3), outputs=75
    ),
    "'0' (ReflectionPad2d) is not among the layers that run here; nearest: padding of the convolution": lambda: chain(
        nn.ReflectionPad2d(1), nn.Conv2d(2, 3, 3), outputs=108
    ),
    "'0' (WSConv2d) does more than its class says": lambda: chain(zoo.jelly.WSConv2d(2, 3, 3), outputs=48),
    "'2' (MaxPool2d) pools what another pool made; nearest: one pool over the windows": conv(
        nn.AvgPool2d(1), nn.MaxPool2d(1)
    ),
    "'3' (AvgPool2d) pools what another pool made": reading_planes(nn.MaxPool2d(2), nn.AvgPool2d(2)),
    "'2' (MaxPool2d) has ceil_mode=True, whose last windows are smaller; nearest: ceil_mode=False": pool(
        nn.MaxPool2d, 3, ceil_mode=True
    ),
    "(AvgPool2d) has ceil_mode=True": pool(nn.AvgPool2d, 3, ceil_mode=True),
    "'2' (MaxPool2d) returns where its largest values are; nearest: return_indices=False": pool(
        nn.MaxPool2d, 2, return_indices=True
    ),
    "'2' (MaxPool2d) has dilation=2; nearest: dilation=1": pool(nn.MaxPool2d, 2, dilation=2),
    "leaves its padding out of the mean; nearest: count_include_pad=True": pool(
        nn.AvgPool2d, 2, padding=1, count_include_pad=False
    ),
    "has divisor_override=3; nearest: 1 (a sum) or None (a mean)": pool(nn.AvgPool2d, 2, divisor_override=3),
    "'2' (LPPool2d) is not among the layers that run here; nearest: torch.nn.MaxPool2d or AvgPool2d": pool(
        nn.LPPool2d, 2, 2
    ),
    "'2' (AdaptiveMaxPool2d) is not among the layers that run here; nearest: torch.nn.MaxPool2d": pool(
        nn.AdaptiveMaxPool2d, 2
    ),
    "'1' (AdaptiveAvgPool2d) makes 3 of 5 pixels by windows of several sizes; nearest: AvgPool2d": lambda: chain(
        nn.Conv2d(2, 3, 2), nn.AdaptiveAvgPool2d(3), outputs=27
    ),
    "'1' (MaxPool1d) pools a product with '0.weight'; pools of convolutions, and of spikes": lambda: sequential(
        nn.Linear(6, 6), nn.MaxPool1d(2), leaky()
    ),
    "'3' (MaxPool2d) reads [3, 12, 4]; [samples, channels, height, width] is needed": reading_planes(
        nn.Flatten(1, 2), nn.MaxPool2d(2)
    ),
    "'3.weight' is multiplied by 2 of 12 pooled values; nearest: flatten them all": reading_planes(
        nn.MaxPool2d(2), nn.Linear(2, 2)
    ),
    "'4' (Conv2d) reads planes of 4 x 3 x 1, which were made as 3 x 2 x 2: leave out what": reading_planes(
        nn.MaxPool2d(2), Reshaped(4, 3, 1), nn.Conv2d(4, 4, 1)
    ),
    "layer '4' reads planes of 4 x 3 x 4 of '1', which makes planes of 3 x 4 x 4": lambda: chain(
        nn.Conv2d(2, 3, 3), leaky(), Reshaped(4, 3, 4), nn.Conv2d(4, 4, 1), outputs=48
    ),
    "reads planes of 2 x 4 x 4 of '2', which has no planes": lambda: chain(
        nn.Flatten(), nn.Linear(72, 32), leaky(), nn.Unflatten(1, (2, 4, 4)), nn.Conv2d(2, 3, 3), outputs=12
    ),
    "makes planes of 3 x 4 x 4; let a layer without a convolution read them": lambda: sequential(
        nn.Conv2d(2, 3, 3), leaky()
    ),
    "has 3 values of beta for 48 neurons; nearest: one for all of them": lambda: chain(
        nn.Conv2d(2, 3, 3), snn.Leaky(beta=torch.linspace(0.5, 0.9, 3)[:, None, None], init_hidden=True), leaky(),
        outputs=48,
    ),
    "'3.weight' is multiplied by what 'add' made; a layer reads spikes of others, side by": block(
        lambda s, x: s / (x + 1)
    ),
    "reads a product that has '1@t' twice; each once can run": block(lambda s, x: x * x),
    "layer '2.cells' reads itself in a sum with others; nearest: by weights of its own": block(torch.add, again=True),
    "in network.unweighted: it is the last, and has planes of 3 x 4 x 4": block(torch.add, nn.Identity()),
    "layer 'cells.2' gets currents that differ by up to": lambda: Both(lambda *both: torch.cat(both, dim=-1)),
    "(Conv2d) reads planes that are side by side along another axis; nearest: that of channels": lambda: chain(
        nn.Conv2d(2, 3, 3), leaky(), UpAndDown(), outputs=96
    ),
    "reads its own planes by a convolution that is not one kernel with padding='same'; nearest: an odd": lambda: chain(
        ReadsItself(nn.Conv2d(3, 3, 3, padding=2, dilation=2)), outputs=48
    ),
}  # fmt: skip


def refusal(module: Any, example: Any, timesteps: int | None) -> str:
    with pytest.raises(MimdsimError) as refused:
        mimdsim.from_torch(module, example, timesteps=timesteps)
    return str(refused.value)


@pytest.mark.parametrize("said", REFUSED)
def test_what_no_convolution_can_be_is_refused_by_name(said: str) -> None:
    module = REFUSED[said]()
    linear = isinstance(module, nn.Sequential) and isinstance(module[0], nn.Linear)
    text = refusal(module, spikes(1, 6) if linear else spikes(), STEPS)
    assert said in text, text


CURRENTS: dict[str, tuple[Callable[[], Any], tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "convolutions in a row": (conv(nn.Conv2d(3, 3, 1)), ("current", "leaky", "leaky"), {}),
    "a pool between": (conv(nn.MaxPool2d(1), nn.Conv2d(3, 3, 1)), ("current", "leaky", "leaky"), {}),
    "a pool of spikes": (
        lambda: chain(nn.Conv2d(2, 3, 3), leaky(), nn.MaxPool2d(2), outputs=12),
        ("leaky", "leaky", "leaky"),
        {"hidden1": ("max_pool(hidden0, 2, 2, 0)",)},
    ),
    "a convolution and a linear layer": (
        Past,
        ("leaky", "current", "current", "leaky", "leaky"),
        {"hidden2": ("input",), "hidden3": ("hidden1 + hidden2",)},
    ),
}


@pytest.mark.filterwarnings("ignore:layer .* sends no spikes")
@pytest.mark.parametrize("name", CURRENTS)
def test_currents_that_no_neurons_read_at_once_are_those_of_layers(name: str) -> None:
    build, neurons, sources = CURRENTS[name]
    network = mimdsim.from_torch(build(), spikes(), timesteps=STEPS).network
    assert network.neuron == neurons
    assert network.sources == sources


BETWEEN: dict[str, dict[str, Any]] = {
    "'fc.weight' is multiplied by what 'lp_pool2d' made": {"sent": lambda x: functional.lp_pool2d(x, 2, 1)},
    "'fc.weight' is multiplied by what 'max_pool2d_with_indices' made": {
        "sent": lambda x: functional.max_pool2d(x, 1, return_indices=True)[0]
    },
    "'avg_pool2d' has divisor_override=2": {"sent": lambda x: functional.avg_pool2d(x, 1, divisor_override=2)},
    "layer 'one' gets currents that differ by up to": {"given": lambda x: x.transpose(2, 3)},
    "'fc.weight' reads planes in a row with channels innermost": {"sent": lambda x: x.permute(0, 2, 3, 1)},
    "of its weights and of what 'one' sends: axes are swapped, values reordered": {
        "sent": lambda x: x.index_select(1, torch.tensor([1, 0, 2]))
    },
    "'fc.weight' is multiplied by what 'matmul' made; nearest: attention of spikes": {
        "sent": lambda x: torch.matmul(x, x.transpose(2, 3))
    },
    "'fc.weight' is multiplied by what 'cat' made; nearest: spikes of the same timestep side by side": {
        "sent": lambda x: torch.cat([x, x], 1)[:, 1:4]
    },
    "layer 'one' reads what 'roll' made": {"current": lambda x: x.roll(1, -1)},
    "layer 'two' gets currents that differ": {"current": lambda x: x.transpose(2, 3)},
}


@pytest.mark.parametrize("said", BETWEEN)
def test_what_acts_between_layers_is_refused(said: str) -> None:
    text = refusal(Loop(**BETWEEN[said]), spikes(), None)
    assert said in text, text


def test_a_number_that_multiplies_a_norm_belongs_in_its_weight() -> None:
    module = Loop()
    module.norm = nn.BatchNorm2d(3)
    module.current = lambda x: 0.5 * module.norm(x)
    check_by_operations("what multiplies a norm belongs in its weight", module, spikes())


def test_spikes_behind_relu_have_no_gradient_where_there_are_none() -> None:
    said = "'fc.weight' is multiplied by what 'relu' made; nearest: spikes as they are"
    check_by_operations(said, Loop(sent=torch.relu), spikes())


def test_recurrent_planes_are_refused() -> None:
    text = refusal(Recurrent(), spikes(), None)
    assert "layer 'one' reads planes by a convolution or a pool, and more: one source alone can run" in text


def test_neurons_of_a_linear_layer_that_are_reordered_are_refused() -> None:
    """Not of convolutions only."""
    order = list(reversed(range(48)))
    text = refusal(Loop(sent=lambda x: x.flatten(1)[:, order]), spikes(), None)
    assert "layer 'two' gets currents that differ" in text


def test_a_pool_of_the_output_is_refused() -> None:
    class Voted(Loop):
        def forward(self, x: Any) -> Any:
            return functional.avg_pool1d(super().forward(x), 2)

    assert "the output goes through 'pool'; return what the last layer sent" in refusal(Voted(), spikes(), None)


def test_a_bias_that_only_some_timesteps_have_is_refused() -> None:
    class Late(zoo.HandRecurrent):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rec = nn.Linear(zoo.HIDDEN, zoo.HIDDEN)

        def forward(self, x: Any) -> Any:
            mem, mem_out, spk, out = self.hidden.reset_mem(), self.read.reset_mem(), None, []
            for t in range(x.shape[1]):
                spk, mem = self.hidden(self.inp(x[:, t]) + (0 if spk is None else self.rec(spk)), mem)
                found, mem_out = self.read(self.out(spk), mem_out)
                out.append(found)
            return torch.stack(out)

    torch.manual_seed(1)
    example = spikes(zoo.INPUTS).movedim(0, 1)
    assert "layer 'hidden' gets currents that differ by up to" in refusal(Late(), example, None)


def test_a_layer_that_never_spikes_is_told() -> None:
    module = chain(nn.Conv2d(2, 3, 3), outputs=48)
    with torch.no_grad():
        module[3].weight.zero_()
        module[3].bias.zero_()
    with pytest.warns(UserWarning, match="layer '4' sends no spikes on the example") as told:
        read(module)
    assert len(told) == 1
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("convolutions as functions", "w1"),
        ("snntorch in one dimension", "1.weight"),
        ("snntorch, depthwise and pointwise convolutions", "0.weight"),
    ],
)
def test_trained_weights_go_back_in_their_own_shape(name: str, kernel: str) -> None:
    network = zoo.ZOO[name]
    module, example, _ = zoo.example(network)
    steps = zoo.TIMESTEPS if network.single else None
    before = {name: each.detach().clone() for name, each in module.named_parameters()}
    workload = mimdsim.from_torch(module, example, timesteps=steps, changes={"training.max_training_steps": 2})
    assert (workload.network.spikes, workload.data.inputs) == ("dense", np.prod(network.sample))
    run = mimdsim.run(workload, "tiny", gpus=())
    mimdsim.to_torch(module, run)
    for name, each in module.named_parameters():
        assert not torch.equal(each, before[name]), name
        assert each.shape == before[name].shape
    values = dict(module.named_parameters())[kernel].detach().numpy()
    np.testing.assert_array_equal(run.weights["hidden0"].T.reshape(values.shape), values)
    again = mimdsim.from_torch(module, example, timesteps=steps)
    found = given_weights(again, network_of(again))
    assert found is not None
    for name, parameter in network_of(again).parameters.items():
        np.testing.assert_array_equal(found[name], run.weights[parameter.public].reshape(parameter.shape))


@pytest.mark.parametrize("name", ["convolutions as functions", "spikingjelly, gestures in time"])
def test_a_program_of_planes_is_trained_from_pytorch(name: str) -> None:
    module, example, labels = zoo.example(zoo.ZOO[name])
    workload = mimdsim.from_torch(module, example, loss="ce_count_loss")
    program = mimdsim.torch_function(workload, "bow")
    scores = program(example.flatten(2))
    loss = functional.multi_margin_loss(scores, labels)
    loss.backward()
    zoo.functional.reset_net(module)
    wanted = module(example).sum(0)
    assert torch.equal(scores, wanted)
    functional.multi_margin_loss(wanted, labels).backward()
    gradients = {each: getattr(program, each).grad for each in ("hidden0", "hidden1")}
    for mine, theirs in zip(gradients.values(), (each for each in module.parameters() if each.ndim == 4), strict=True):
        theirs = theirs.grad.flatten(1).T
        assert float((mine - theirs).abs().max()) < 2e-6 * float(theirs.abs().max())
    assert program.profile().cycles > 0


SCORES = "matmul_nt(hidden1, hidden2, 2)"
ATTENTION: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "by @": (lambda q, k, v: (q @ k.mT) @ v * 0.25, f"0.25 * matmul_nn({SCORES}, hidden3, 2)"),
    "channels with channels": (
        lambda q, k, v: q @ (k.transpose(-2, -1) @ v) / 4,
        "0.25 * matmul_nn(hidden1, matmul_tn(hidden2, hidden3, 2), 2)",
    ),
    "a factor of one": (
        lambda q, k, v: (q * 0.5 @ k.mT) @ v, "matmul_nn(matmul_nt(0.5 * hidden1, hidden2, 2), hidden3, 2)"
    ),
    "einsum": (
        lambda q, k, v: torch.einsum("...nm,...md->...nd", torch.einsum("tbhnd,tbhmd->tbhnm", q, k) * 0.25, v),
        f"matmul_nn(0.25 * {SCORES}, hidden3, 2)",
    ),
    "the other way round": (lambda q, k, v: (v.mT @ (q @ k.mT).mT).mT, f"matmul_nn({SCORES}, hidden3, 2)"),
    "bmm": (
        lambda q, k, v: torch.bmm(torch.bmm(q.flatten(0, 2), k.flatten(0, 2).mT), v.flatten(0, 2)).reshape(q.shape),
        f"matmul_nn({SCORES}, hidden3, 2)",
    ),
}  # fmt: skip


@pytest.mark.first(1)
@pytest.mark.parametrize("written", ATTENTION)
def test_attention_of_spikes_is_read_however_it_is_written(written: str) -> None:
    """That its gradients are PyTorch's is checked as it is read."""
    attend, source = ATTENTION[written]
    module, example, _ = zoo.example(zoo.ZOO["Spikformer"])
    module.attend = attend
    workload = mimdsim.from_torch(module, example)
    assert source in [each for every in workload.network.sources.values() for each in every]


@pytest.mark.parametrize("written", [lambda z: z.sum(3), lambda z: z.mT.sum(-1), lambda z: z.sum((3,))])
def test_what_adds_up_over_tokens_is_a_product_by_channel(written: Any) -> None:
    """That its gradients are PyTorch's is checked as it is read."""
    module, example, _ = zoo.example(zoo.ZOO["Spike-driven transformer"])
    module.attend = lambda q, k, v: q * module.kv_lif(written(k * v).unsqueeze(3))
    found = mimdsim.from_torch(module, example).network.sources
    assert ("matmul_tn(hidden2, hidden3, 6)",) in found.values()
    assert ("matmul_nn(hidden1, hidden4, 6)",) in found.values()


def test_planes_times_spikes_of_every_channel_are_a_product_by_channel() -> None:
    """A squeeze and excitation of spikes; the product with those of other channels is refused."""

    class Excited(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.fc, self.mix, self.head = (
                nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4, 4), nn.Conv2d(4, 3, 1), nn.Linear(3, 3),
            )  # fmt: skip
            self.lifs = nn.ModuleList(neuron.LIFNode(v_threshold=0.5, detach_reset=True) for _ in range(3))
            self.axes = lambda gate: gate[..., None, None]
            for each in (self.conv, self.fc, self.mix):
                each.weight.data.mul_(4)

        def forward(self, x: Any) -> Any:
            out = 0
            for each in x:
                sent = self.lifs[0](self.conv(each))
                gate = self.axes(self.lifs[1](self.fc(sent.mean((2, 3)))))
                out = out + self.head(self.lifs[2](self.mix(sent * gate)).mean((2, 3)))
            return out

    module, example = Excited(), (torch.rand(7, 2, 2, 4, 4) < 0.4).float()
    assert mimdsim.from_torch(module, example).network.sources["hidden2"] == ("matmul_nn(hidden0, hidden1, 4)",)
    module.axes = lambda gate: gate[:, None, :, None]
    assert "'mix.weight' is multiplied by what 'mul' made" in refusal(module, example, None)


@pytest.mark.parametrize(
    ("attend", "said"),
    [
        (lambda q, k, v: (q @ k.mT).softmax(-1) @ v, "reads what 'softmax' made; nearest: attention of spikes"),
        (functional.scaled_dot_product_attention, "what 'scaled_dot_product_attention' made; nearest: attention of"),
        (lambda q, k, v: ((q[:, :, :1] @ k[:, :, :1].mT) @ v[:, :, :1]).expand(q.shape), "what 'matmul' made; nearest"),
        (lambda q, k, v: (q @ q.mT) @ v, "reads a product by head that has 'lifs.q@t' twice"),
        (lambda q, k, v: ((q @ k.mT) @ v).mT.reshape(q.shape), "axes are swapped, values reordered or added"),
        (lambda q, k, v: (q.transpose(1, 2) @ k.transpose(1, 2).mT).transpose(1, 2) @ v, "what 'matmul' made; nearest"),
    ],
)  # fmt: skip
def test_attention_that_is_no_such_product_is_refused(attend: Any, said: str) -> None:
    module, example, _ = zoo.example(zoo.ZOO["Spikformer"])
    module.attend = attend
    text = refusal(module, example, None)
    assert said in text, text


class Tokens(nn.Module):  # type: ignore[misc]
    """A linear layer of tokens, which pixels are, between neurons; one timestep a call of `between`."""

    def __init__(self, between: Callable[[Any, Any], Any], pool: bool = False, step: bool = False):
        super().__init__()
        torch.manual_seed(1)
        self.mode: Any = {"step_mode": "s" if step else "m", "detach_reset": True}
        self.conv, self.first = nn.Conv2d(2, 4, 3, padding=1), neuron.LIFNode(tau=2.0, **self.mode)
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()
        self.fc, self.norm, self.rows = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.LayerNorm(6)
        self.last, self.head = neuron.LIFNode(tau=2.0, **self.mode), nn.Linear(6, 3)
        self.between = between
        for each in (self.conv, self.fc, self.head):
            each.weight.data.mul_(3)

    def forward(self, x: Any) -> Any:
        if self.mode["step_mode"] == "s":
            rows = [self.between(self, self.pool(self.first(self.conv(each)))) for each in x]
            return self.head(torch.stack(rows).mean(2)).mean(0)
        sent = self.first(self.conv(x.flatten(0, 1)).unflatten(0, x.shape[:2]))
        sent = self.pool(sent.flatten(0, 1)).unflatten(0, x.shape[:2])
        return self.head(self.between(self, sent).flatten(2, -2).mean(2)).mean(0)


TOKENS: dict[str, tuple[Callable[[Any, Any], Any], dict[str, bool]]] = {
    "in a row": (lambda net, y: net.last(net.fc(y.flatten(3).transpose(2, 3)).contiguous()), {}),
    "in rows and columns": (lambda net, y: net.last(net.fc(y.permute(0, 1, 3, 4, 2)).contiguous()), {}),
    "of all samples, below one another": (
        lambda net, y: net.last(net.norm(net.fc(y.flatten(3).transpose(2, 3).reshape(-1, 4))).reshape(7, 2, 16, 6)),
        {},
    ),
    "pooled": (lambda net, y: net.last(net.fc(y.flatten(3).transpose(2, 3)).contiguous()), {"pool": True}),
    "normalised one by one": (lambda net, y: net.last(net.rows(net.fc(y.flatten(3).mT)).contiguous()), {}),
    "a timestep a call": (lambda net, y: net.last(net.fc(y.flatten(2).transpose(1, 2))), {"step": True}),
    "by weights as a matrix": (lambda net, y: net.last((y.flatten(3).mT @ net.fc.weight.mT).contiguous()), {}),
}


@pytest.mark.first(2)
@pytest.mark.parametrize("written", TOKENS)
def test_linear_layers_of_tokens_are_convolutions_of_pixels(written: str) -> None:
    """That its gradients are PyTorch's is checked as it is read."""
    between, how = TOKENS[written]
    module = Tokens(between, **how)
    for name in ("norm", "rows"):
        if name not in between.__code__.co_names:
            delattr(module, name)
    if "weight" in between.__code__.co_names:
        module.fc.bias = None
    network = network_of(mimdsim.from_torch(module, (torch.rand(7, 2, 2, 4, 4) < 0.4).float()))
    found = network.layers[1].convolution
    assert found is not None
    assert (found.read, found.window, found.channels) == (
        Planes(channels=4, height=2, width=2) if how.get("pool") else Planes(channels=4, height=4, width=4),
        Window(kernel=(1, 1)),
        6,
    )
    norm = network.layers[1].norm
    assert (norm and norm.per) == {"norm": "sequence", "rows": "position"}.get(
        next((name for name in ("norm", "rows") if name in between.__code__.co_names), "")
    )


def test_neurons_of_tokens_that_are_written_out_have_a_constant_for_each_channel() -> None:
    class Written(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.conv, self.first = nn.Conv2d(2, 4, 3, padding=1), leaky()
            self.fc, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
            self.register_buffer("decay", torch.linspace(0.5, 0.9, 6))
            self.spike = surrogate.Sigmoid(4.0)
            for each in (self.conv, self.fc):
                each.weight.data.mul_(3)

        def forward(self, x: Any) -> Any:
            u, sent = torch.zeros(2, 16, 6), 0
            for each in x:
                u = self.decay * u + self.fc(self.first(self.conv(each)).flatten(2).transpose(1, 2))
                z = self.spike(u - 1.0)
                u, sent = u - z.detach(), sent + self.head(z.mean(1))
            return sent

    workload = mimdsim.from_torch(Written(), (torch.rand(7, 2, 2, 4, 4) < 0.4).float())
    assert network_of(workload).layers[1].convolution.result == Planes(channels=6, height=4, width=4)


def test_a_workload_of_planes_is_checked() -> None:
    assert mimdsim.check(mimdsim.from_torch(Loop(), spikes()), "tiny", strict=True).passed


def test_what_a_convolution_reads_is_the_same_in_every_timestep() -> None:
    turns = itertools.count()

    def grows(x: Any) -> Any:
        size = 1 + 2 * (next(turns) % 2)
        return functional.max_pool2d(x, size, stride=1, padding=size // 2)

    assert "layer 'one' reads other things in timestep 1 than in the last one" in refusal(
        Loop(given=grows), spikes(), None
    )
