"""Which modules of PyTorch and the spiking frameworks are layers here, and what comes nearest to those that are not."""

from __future__ import annotations

from enum import Enum

import torch

from mimdsim.frameworks.neurons import NEURONS, neuron_key

_DROPOUT = "train without it (p = 0): dropout is not built"
_CONVOLUTION = "torch.nn.Flatten and torch.nn.Linear, with weights of its size at most"
_NORM = "fold it into the linear layer before it and train that"
_POOLING = "reduce the input beforehand (data.grid, data.crop)"
_CELL = "a recurrent spiking layer, such as snntorch.RLeaky"
NEAREST = {
    **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"), _DROPOUT),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), _CONVOLUTION),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LayerNorm", "GroupNorm"), _NORM),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d", "AdaptiveAvgPool2d"), _POOLING),
    **dict.fromkeys(("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell", "SLSTM"), _CELL),
    "ParametricLIFNode": "spikingjelly LIFNode with a fixed tau",
    "SpikingNeuron": "snntorch Leaky",
    **dict.fromkeys(("SNNCell", "SNN", "SNNRecurrentCell", "SNNRecurrent", "LILinearCell"), "norse LIFCell or LICell"),
    **dict.fromkeys(("BaseNode", "SimpleBaseNode", "PSN"), "spikingjelly LIFNode"),
    "ReLU": "a spiking layer",
    "Softmax": "leave it to the loss",
    "LogSoftmax": "leave it to the loss",
}


FRAMEWORKS = ("snntorch", "norse", "spikingjelly")
# modules of the frameworks that only call others
CONTAINERS = {"SequentialState", "Lift", "SeqToANNContainer", "MultiStepContainer", "StepModeContainer"}


class Kind(Enum):
    """What a module is to the recorder."""

    LINEAR = "weights and a bias"
    NEURON = "neurons"
    SAME = "hands its values on"
    CONTAINER = "its own calls are recorded instead"
    UNKNOWN = "refused"


def kind_of(module: torch.nn.Module) -> Kind:
    """Containers are modules of the user's own and of the frameworks that are no layers themselves."""
    key = neuron_key(module)
    if key in NEURONS:
        return Kind.NEURON
    if isinstance(module, torch.nn.Linear):
        return Kind.LINEAR
    parents = [kind for kind in type(module).__mro__ if kind is not torch.nn.Module]
    if isinstance(module, (torch.nn.Flatten, torch.nn.Identity, torch.nn.Unflatten)):
        return Kind.SAME
    if any(kind.__name__.startswith("Dropout") for kind in parents):
        return Kind.SAME
    if isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)):
        return Kind.CONTAINER
    of_torch = any(kind.__module__.startswith("torch.nn.modules.") for kind in parents)
    of_framework = key.partition(".")[0] in FRAMEWORKS and type(module).__name__ not in CONTAINERS
    return Kind.UNKNOWN if of_torch or of_framework else Kind.CONTAINER
