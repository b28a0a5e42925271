"""Layers of planes: on tiles as the interpreter means them, their patches and halos, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from networks import ADAM, compiled, executed, given_values, interpreted, small_network
from test_array_lowering import assert_agree

from mimdsim.graph import SpikingNetwork
from mimdsim.graph.convolution import POOLS, Convolution, Planes, Pool, Window

INPUT = Planes(channels=2, height=6, width=6)
PLAIN = Convolution(planes=INPUT, window=Window(kernel=(3, 3)), channels=3)


def after(convolution: Convolution, kernel: int, channels: int, **more: Any) -> Convolution:
    """One that reads what another makes."""
    return Convolution(
        planes=convolution.result,
        window=Window(kernel=(kernel, kernel), **more.pop("window", {})),
        channels=channels,
        **more,
    )


def network_of_planes(*convolutions: Convolution, classes: int = 3, **changes: Any) -> SpikingNetwork:
    """The convolutions in a row, and a layer that reads all of what they make."""
    widths = (convolutions[0].planes.neurons, *(each.result.neurons for each in convolutions), classes)
    shape = {"timesteps": 4, "batch": 3, "spikes": "dense", "gain": 6.0} | changes
    network = small_network(widths, **shape)
    layers = [replace(layer, convolution=each) for layer, each in zip(network.layers, convolutions, strict=False)]
    return replace(network, layers=(*layers, *network.layers[len(layers) :]))


def pooled(kind: str, size: int = 2, **more: Any) -> Pool:
    return Pool(kind=kind, window=Window(kernel=(size, size), **{"stride": (size, size)} | more))


CHAINS = {
    "plain": (PLAIN,),
    "two": (PLAIN, after(PLAIN, 2, 4)),
    "strided": (replace(PLAIN, window=Window(kernel=(3, 2), stride=(2, 1), padding=(1, 1))),),
    "dilated": (replace(PLAIN, window=Window(kernel=(2, 3), dilation=(2, 2), padding=(0, 2))),),
    **{f"{kind} after": (replace(PLAIN, after=pooled(kind)),) for kind in POOLS},
    **{f"{kind} before": (PLAIN, after(PLAIN, 2, 4, before=pooled(kind))) for kind in POOLS},
    "of the input": (replace(PLAIN, before=pooled("max"), window=Window(kernel=(2, 2))),),
    "overlapping": (replace(PLAIN, after=pooled("max", 3, stride=(1, 1), padding=(1, 1))),),
    "whole": (PLAIN, after(PLAIN, 3, 5, before=pooled("sum", 2, stride=(1, 1)))),
}


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_convolutions_run_on_tiles_as_they_are_meant(chain: tuple[Convolution, ...], delay: int) -> None:
    network = network_of_planes(*chain, delay=delay, optimiser=ADAM, bias=True)
    values = given_values(network, 3)
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-5
    assert len(np.unique(expected.counts)) > 1
    made = compiled(network)
    found = executed(made, values)
    assert_agree(found, expected)
    if not delay:
        assert_agree(executed(made, values, strict=True), expected)
