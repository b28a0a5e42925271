"""Currents that several layers read, or that are added up as they are: which layers they become, and what is refused.

`from_torch` holds the gradients of all of them against PyTorch's; those of tests/support/torch_networks.py are trained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_from_torch import SPIKES, refusal
from torch_networks import CLASSES, HIDDEN, INPUTS, ZOO, example, neuron
from torch_training import check_by_operations

from mimdsim.workload import network_of

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
frameworks = pytest.importorskip("mimdsim.frameworks")
snn = pytest.importorskip("snntorch")
nn: Any = torch.nn


class Stream(nn.Module):  # type: ignore[misc]
    """Two layers of neurons, of which the second reads what `how` makes of currents, and the third what fc2 adds."""

    def __init__(self, how: str, **more: Any):
        super().__init__()
        self.fc0, self.fc1, self.fc2 = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.out, self.how = nn.Linear(HIDDEN, CLASSES), how
        self.lifs = nn.ModuleList(snn.Leaky(beta=0.8, spike_grad=snn.surrogate.fast_sigmoid(slope=2)) for _ in range(4))
        for name, each in more.items():
            setattr(self, name, each)

    def forward(self, x: Any) -> Any:
        mems, out = [each.reset_mem() for each in self.lifs], []
        before, own, state = None, torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype), None
        for step in x:
            first = self.fc0(step)
            spk, mems[0] = self.lifs[0](first, mems[0])
            made = self.fc1(spk)
            match self.how:
                case "spikes":
                    stream = made + spk
                case "norms":
                    stream = self.one(made) + self.two(self.next(spk))
                case "recurrent":
                    stream = made + first + self.rec(own)
                case "subtracted":
                    stream = first - made
                case "in a row":
                    stream = self.next(made) + first
                case "cells":
                    state = self.cell(made + first, state)
                    stream = state
                case "before":
                    stream, before = made if before is None else made + before, first
                case "scaled":
                    stream = 0.5 * (made + first)
                case "dropped":
                    stream = self.drop(made) + first
                case "normalised":
                    stream = self.norm(made + first)
            own, mems[1] = self.lifs[1](stream, mems[1])
            stream = self.fc2(own) + stream
            spk, mems[2] = self.lifs[2](stream, mems[2])
            spk, mems[3] = self.lifs[3](self.out(spk), mems[3])
            out.append(spk)
        return torch.stack(out)


OPENED: dict[str, tuple[Callable[[], dict[str, Any]], dict[str, tuple[str, ...]]]] = {  # what others than a chain read
    "spikes": (dict, {"hidden2": ("hidden1 + hidden0",), "hidden4": ("hidden1 + hidden3 + hidden0",)}),
    "norms": (
        lambda: {"one": nn.BatchNorm1d(HIDDEN), "two": nn.BatchNorm1d(HIDDEN), "next": nn.Linear(HIDDEN, HIDDEN)},
        {"hidden2": ("hidden0",), "hidden3": ("hidden1 + hidden2",), "hidden5": ("hidden1 + hidden2 + hidden4",)},
    ),
    "recurrent": (
        lambda: {"rec": nn.Linear(HIDDEN, HIDDEN)},
        {
            "hidden3": ("hidden4",),  # of the timestep before
            "hidden4": ("hidden0 + hidden2 + hidden3",),
            "hidden6": ("hidden0 + hidden2 + hidden3 + hidden5",),
        },
    ),
    "subtracted": (dict, {"hidden3": ("hidden0 + hidden2",), "hidden5": ("hidden0 + hidden2 + hidden4",)}),
    "in a row": (
        lambda: {"next": nn.Linear(HIDDEN, HIDDEN)},
        {"hidden4": ("hidden0 + hidden3",), "hidden6": ("hidden0 + hidden3 + hidden5",)},
    ),
    "cells": (
        lambda: {"cell": nn.GRUCell(HIDDEN, HIDDEN)},
        {"hidden3": ("hidden0 + hidden2",), "hidden6": ("hidden5 + hidden3",)},
    ),
    "before": (dict, {"hidden3": ("hidden0@t-1 + hidden2",), "hidden5": ("hidden0@t-1 + hidden2 + hidden4",)}),
}


def made(how: str, **more: Any) -> Any:
    torch.manual_seed(0)
    return Stream(how, **more)


@pytest.mark.parametrize("how", OPENED)
def test_currents_are_added_up_wherever_they_are_read(how: str) -> None:
    more, sources = OPENED[how]
    assert frameworks.from_torch(made(how, **more()), SPIKES).network.sources == sources


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "scaled": (dict, "layer 'lifs.1' adds up biases of products that are scaled; nearest: bias=False"),
    "dropped": (lambda: {"drop": nn.Dropout(0.5)}, "layer 'lifs.1' reads what dropout leaves of what 'fc1' sent"),
    "normalised": (lambda: {"norm": nn.BatchNorm1d(HIDDEN)}, "'norm' (BatchNorm1d) does not follow a convolution or"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_no_layer_adds_up_is_refused_by_name(how: str) -> None:
    more, said = REFUSED[how]
    text = refusal(made(how, **more()), SPIKES)
    assert said in text, text


def test_every_product_of_an_ms_resnet_runs_once() -> None:
    """The stem and the last convolution of each block send currents; neurons that read the stream have no weights."""
    module, spikes, _ = example(ZOO["a stream of currents: MS-ResNet, spikingjelly in time"])
    network = frameworks.from_torch(module, spikes).network
    sends = [f"hidden{at}" for at, neuron in enumerate(network.neuron) if neuron == "current"]
    assert sends == ["hidden0", "hidden3", "hidden4", "hidden7", "hidden10"]  # hidden4: the shortcut of its own
    assert network.unweighted == ("hidden1", "hidden5", "hidden8", "hidden11")
    assert network.sources == {
        "hidden4": ("hidden0 + hidden3",),
        "hidden5": ("hidden0 + hidden3",),
        "hidden8": ("hidden4 + hidden7",),
        "hidden11": ("hidden4 + hidden7 + hidden10",),
    }
    assert [*network.convolutions] == [f"hidden{at}" for at in (0, 2, 3, 4, 6, 7, 9, 10)] + ["output"]
    assert network.batch_norm == tuple(
        "none" if name in network.unweighted or name == "output" else "sequence" for name in network.layers
    )


def test_an_image_whose_current_is_computed_once_is_shared_by_equations() -> None:
    """Before a loop in which several neurons read it: it is no sequence."""

    class Shown(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.out = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
            self.one, self.two, self.last = (snn.Leaky(beta=0.9, init_hidden=True) for _ in "123")

        def forward(self, x: Any) -> Any:
            for each in (self.one, self.two, self.last):
                each.reset_mem()
            current = self.fc(x)
            return torch.stack([self.last(self.out(self.one(current) + self.two(current))) for _ in range(4)])

    torch.manual_seed(0)
    module = Shown()
    for each in (module.fc, module.out):
        each.weight.data.mul_(5.0)
    check_by_operations("'fc.weight' is shared by several layers", module, torch.rand(5, INPUTS))


def test_pixels_that_an_mlp_puts_in_a_row_are_those_of_the_stream() -> None:
    """As in Meta-SpikeFormer (Yao et al. 2024): convolutions of one token beside planes, whose mean is read."""

    class Tokens(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc1, self.fc2 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv1d(4, 8, 1), nn.Conv1d(8, 4, 1)
            self.one, self.two, self.last = (neuron.LIFNode(step_mode="m") for _ in "123")
            self.head = nn.Linear(4, CLASSES)

        def forward(self, x: Any) -> Any:
            planes = self.conv(x.flatten(0, 1)).reshape(*x.shape[:2], 4, *x.shape[3:])
            tokens = self.fc1(self.one(planes.flatten(3)).flatten(0, 1))
            tokens = self.fc2(self.two(tokens.reshape(*x.shape[:2], *tokens.shape[1:])).flatten(0, 1))
            return self.head(self.last((planes + tokens.reshape(planes.shape)).flatten(3).mean(3))).mean(0)

    torch.manual_seed(0)
    module = Tokens()
    for each in module.parameters():
        each.data.mul_(3.0)
    spikes = (torch.rand(5, 3, 2, 6, 4, generator=torch.Generator().manual_seed(1)) < 0.4).float()
    network = network_of(frameworks.from_torch(module, spikes))
    assert {str(each.sent_planes) for each in network.layers} >= {"4 x 6 x 4", "8 x 6 x 4"}


def test_trained_weights_go_back_where_they_were() -> None:
    module, spikes, _ = example(ZOO["a stream of currents: MS-ResNet, spikingjelly"])
    workload = frameworks.from_torch(module, spikes, timesteps=len(spikes), workload="")
    held = {name: each.clone() for name, each in module.state_dict().items()}
    program = frameworks.torch_function(workload, "bow")
    with torch.no_grad():
        for each in program.parameters():
            each.mul_(2.0)
    frameworks.to_torch(module, program)
    learned = dict(module.named_parameters())
    for name, each in learned.items():
        np.testing.assert_allclose(each.detach().numpy(), 2 * held[name].numpy(), rtol=1e-6)
