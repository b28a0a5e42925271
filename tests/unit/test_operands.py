"""Every operand of every codelet of the library matters: another value changes what a vertex leaves or counts, in some
configuration; and a kernel's author is told of one that does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from codelet_families import CODELETS

from mimdsim.checking import check_kernel
from mimdsim.checking.coverage import Operands
from mimdsim.checking.test_inputs import DRAWS, drawn_inputs
from mimdsim.execution import Executor
from mimdsim.graph.derived import FUNCTIONS as OF_WEIGHTS
from mimdsim.graph.surrogates import SURROGATES
from mimdsim.kernels import Kernel
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.pipeline import compile_workload
from mimdsim.pipeline.overrides import split_changes
from mimdsim.program import Codelet, Field, Program, Term, WorkerBundles
from mimdsim.workload import load_workload

SMALL: dict[str, Any] = {
    "data.inputs": 9, "data.classes": 4, "data.timesteps": 4, "data.input_capacity": 6, "training.batch": 4,
    "network.hidden": (12,), "network.activity": 0.0, "network.capacity": (5, 4), "network.output_capacity": 0,
    "mapping.neurons_per_tile": 4,
}  # fmt: skip
LEAVE_OUT = {"network.decay": None, "network.current_gain": None}
SQUARED = {"training.loss": "mean_squared_error"}
SGD = {"training.optimiser": "sgd", "training.schedule": "constant"}
COPIES = {f"mapping.split.{layer}": {"batch": 2, "neurons": 2} for layer in ("hidden0", "output")} | {
    "mapping.neurons_per_tile": 0, "chip.tiles": 24,
}  # fmt: skip
DENSE = {"network.spikes": "dense"}
FIRST, SECOND, LAST = (f"network.convolutions.{layer}" for layer in ("hidden0", "hidden1", "output"))
PLANES = {
    **DENSE, "data.inputs": 64, "data.input_capacity": 40, "mapping.neurons_per_tile": 0, "network.bias": True,
    "network.capacity": None, f"{FIRST}.planes": [1, 8, 8], f"{FIRST}.channels": 2,
}  # fmt: skip
CELLS = {
    **LEAVE_OUT, **DENSE, "network.reset_gradient": ["", ""],
    "network.output": "membrane", "training.reading": "last", "network.bias": True,
    "mapping.neurons_per_tile": 0,
}  # fmt: skip
EQUATIONS = ["v = 0.5 * v[t-1] + relu(I) / sqrt(1 + v[t-1] * v[t-1]) + log(2 + v[t-1] * v[t-1])", "output = tanh(v)"]
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "published": {"network.hidden": (12, 10), "network.capacity": (5, 5, 4)},
    "recurrent": {"network.recurrence": "all_to_all", "network.bias": True, "training.largest_gradient_norm": 0.05},
    "onto itself, random": {"network.recurrence": "one_to_one", "network.truncation": "random", "network.delay": 0},
    "segments": {"mapping.stash": "every:2"},
    "carry": {"mapping.stash": "carry", "network.recurrence": "all_to_all"},
    "best": {"mapping.program": "best", **COPIES},
    "copies": {**COPIES, "network.bias": True},
    "parts of the fan-in": {"mapping.split.hidden0": {"inputs": 2, "neurons": 4}},
    "rows of bytes": {"mapping.spike_exchange": "dense", "network.recurrence": "one_to_one"},
    "per batch": {"mapping.state_gradient": "per_batch"},
    "dense": DENSE,
    "dense, recurrent": {**DENSE, "network.recurrence": "all_to_all", "network.bias": True},
    "dense, onto itself": {**DENSE, "network.recurrence": "one_to_one"},
    "onto itself by one weight": {"network.recurrence": "one_weight", "network.delay": 0},
    "dense, onto itself by one weight": {**DENSE, "network.recurrence": "one_weight"},
    "dense, traced": {**DENSE, "mapping.dense_neurons": "traced"},
    "dense, fused": {**DENSE, "mapping.dense_neurons": "fused"},
    "leaky": {**LEAVE_OUT, "network.neuron": "leaky", "network.reset_by": "emission", "network.reset_gradient": "full"},
    "synaptic": {**LEAVE_OUT, "network.neuron": "synaptic", "network.truncation": "random", **COPIES},
    "synaptic, carry": {**LEAVE_OUT, "network.neuron": "synaptic", "mapping.stash": "carry"},
    "synaptic, dense": {**LEAVE_OUT, **DENSE, "network.neuron": "synaptic", "network.reset_gradient": "full"},
    "synaptic, traced": {
        **LEAVE_OUT, **DENSE, "network.neuron": "synaptic", "mapping.dense_neurons": "traced",
        "network.reset_gradient": "full",
    },
    "lif, by emission": {"network.reset_by": "emission", "network.reset_gradient": "mask"},
    "squared": {**SQUARED, **SGD},
    "scheduled": {"training.optimiser": "sgd", "training.momentum": 0.5},
    "rest": {**LEAVE_OUT, "network.neuron": "leaky", "network.reset": "zero", "network.reset_gradient": "full"},
    "every timestep": {"training.reading": "every", "training.optimiser": "sgd", "training.momentum": 0.5},
    "mean over timesteps": {"training.reading": "every", "training.over_timesteps": "mean"},
    "membrane of spiking neurons": {
        "network.output": "membrane_of_spiking", "network.reset": "zero", "training.reading": "every",
    },
    "last": {"training.reading": "last", "training.optimiser": "sgd"},
    "late": {"training.burn_in": 2},
    "late, every timestep": {"training.reading": "every", "training.burn_in": 1},
    "dense, late": {**DENSE, "training.burn_in": 1},
    "dense, late, every timestep": {**DENSE, "training.reading": "every", "training.burn_in": 1},
    "membrane, late": {"network.output": "membrane", "training.reading": "max", "training.burn_in": 1},
    "membrane": {"network.output": "membrane", "training.reading": "max"},
    "membrane, last": {"network.output": "membrane", "training.reading": "last"},
    "membrane, every": {"network.output": "membrane", "training.reading": "every"},
    "membrane, squares of every timestep": {"network.output": "membrane", "training.reading": "every", **SQUARED},
    "mean, in groups": {"network.output": "membrane", "training.reading": "mean", "network.neurons_per_class": 2},
    "groups, every": {"training.reading": "every", "network.neurons_per_class": 2},
    "penalty": {"training.firing_strength": 0.5, "training.firing_target": 0.2},
    "second threshold": {
        "training.second_threshold_share": 0.5, "training.optimiser": "adamw", "training.weight_decay": 0.1,
    },
    "per batch, second threshold": {"training.second_threshold_share": 0.5, "mapping.state_gradient": "per_batch"},
    "decaying": {**SGD, "training.momentum": 0.5, "training.weight_decay": 0.1},
    "plain, decaying": {**SGD, "training.weight_decay": 0.1},
    "adam": {"training.optimiser": "adam", "training.schedule": "constant"},
    "adam, decaying": {"training.optimiser": "adamw", "training.schedule": "constant", "training.weight_decay": 0.1},
    "torch adam": {"training.optimiser": "torch_adam"},
    "torch adam, decaying": {"training.optimiser": "torch_adamw", "training.weight_decay": 0.1},
    "rows, second threshold": {"mapping.spike_exchange": "dense", "training.second_threshold_share": 0.5},
    "membrane, groups, every": {
        "network.output": "membrane", "training.reading": "every", "network.neurons_per_class": 2,
    },
    "membrane, sum": {"network.output": "membrane", "training.reading": "sum"},
    "membrane, softmax": {"network.output": "membrane", "training.reading": "softmax"},
    "dense, lif mask": {**DENSE, "network.reset_gradient": "mask"},
    "dense, synaptic, segments": {**LEAVE_OUT, **COPIES, "network.neuron": "synaptic", "mapping.stash": "every:2"},
    "dense, last": {**DENSE, "training.reading": "last"},
    "dense, every": {**DENSE, "training.reading": "every"},
    "dense, groups": {**DENSE, "network.neurons_per_class": 2},
    "dense, penalty": {**DENSE, "training.firing_strength": 0.5, "training.firing_target": 0.2},
    "dense, dropout": {**DENSE, "network.dropout": 0.5, "mapping.neurons_per_tile": 0},
    "dropout of a sequence": {
        **DENSE, "network.dropout": 0.5, "network.dropout_per": "sequence", "mapping.neurons_per_tile": 0,
    },
    **{
        f"dropout of planes, {per}": {
            **PLANES, "network.hidden": (72, 8), f"{FIRST}.kernel": 3, "network.dropout": [0.0, 0.5, 0.0],
            "network.dropout_of": ["neuron", "plane", "neuron"], "network.dropout_per": per,
        }
        for per in ("timestep", "sequence")
    },
    "batch norm": {**DENSE, "network.batch_norm": "timestep", "mapping.neurons_per_tile": 0},
    "batch norm of each timestep": {**DENSE, "network.batch_norm": "each_timestep", "mapping.neurons_per_tile": 0},
    "batch norm of a sequence": {
        **DENSE, "network.batch_norm": "sequence", "network.delay": 0, "mapping.neurons_per_tile": 0,
    },
    "pruned": {"training.pruned.hidden0": 0.5},
    **{
        f"cells, {name}, {form}": {**CELLS, "network.neuron": name, "mapping.dense_neurons": form}
        for name in ("gru", "lstm", "egru", "slstm_subtract", "exponential_lif")
        for form in ("calls", "traced", "fused")
    },
    "equations": {**CELLS, "network.neuron": "mine", "network.cells": {"mine": {"equations": EQUATIONS}}},
    **{
        f"learned, {neuron}, {of}, {spikes}": {
            **LEAVE_OUT, "network.spikes": spikes, "network.hidden": (4,), "network.neuron": neuron,
            "network.reset_gradient": "full", "network.learned.hidden0": [constant],
            "network.neuron_parameters": {constant: value},
        }
        for of, neuron, constant, value in (
            ("of a layer", "leaky", "beta", 0.75), ("of a neuron", "leaky", "beta", [0.75, 0.5, 0.25, 0.125]),
            ("of a layer", "spikingjelly_plif", "share", 0.5),
        )
        for spikes in ("sparse", "dense")
    },
    **{
        f"delays, {spikes}": {
            **LEAVE_OUT, "network.spikes": spikes, "network.hidden": (4,),
            "network.delays.hidden0": {"ages": 2, "width": 1.0, "final_width": 0.5},
        }
        for spikes in ("sparse", "dense")
    },
    **{
        f"weights that are {function}": {
            **LEAVE_OUT, "network.hidden": (16,), "network.bias": 2,
            "network.weight_functions.output": {"function": function, "signs": [12, -4]},
        }
        for function in OF_WEIGHTS
    },
    **{
        f"norm of samples, {where}": {
            **(PLANES if where == "planes" else DENSE), "network.batch_norm": "sample", "mapping.neurons_per_tile": 0,
            **({"network.hidden": (72,), f"{FIRST}.kernel": 3} if where == "planes" else {}),
        }
        for where in ("neurons", "planes")
    },
    "root mean square": {**DENSE, "network.batch_norm": "root_mean_square", "mapping.neurons_per_tile": 0},
    "product of spikes": {
        **DENSE, "network.hidden": (8, 8), "network.sources.output": ["hidden0 * (1 - hidden1)"],
        "network.capacity": None, "mapping.neurons_per_tile": 0,
    },
    "planes": {
        **PLANES, "network.hidden": (72, 8), f"{FIRST}.kernel": 3, f"{SECOND}.channels": 2, f"{SECOND}.kernel": 5,
    },
    **{
        f"planes, {kind}": {
            **PLANES, "network.hidden": (32,), f"{FIRST}.kernel": 5,
            f"{LAST}.channels": 4, f"{LAST}.kernel": 2, f"{LAST}.pool_before": {"kind": kind, "size": 2},
        }
        for kind in ("max", "average", "sum")
    },
    **{
        f"{surrogate}, {spikes}": {"network.surrogate": surrogate, "network.spikes": spikes,
                                   "network.reset_gradient": "full", "network.neuron": "leaky", **LEAVE_OUT}
        for surrogate in SURROGATES
        for spikes in ("sparse", "dense")
    },
}  # fmt: skip


# what a derivative that is 1 everywhere is not a function of: its vertices are those of all others
UNREAD = {
    *((f"WeightFunctionGradient({function},12,-4)", "w") for function in ("identity", *FORMATS)),
    ("StateGradient(straight_through)", "v"),
    ("NeuronGradientFull(leaky, straight_through)", "fired"),
    ("AddSurrogate(straight_through)", "v"),
    ("NeuronGradientFullCalls(leaky, straight_through)", "fired"),
    ("SharedConstantGradient", "constant"),  # of a number that is learned as it is, as one weight for a layer
}
# codelets of the library in no configuration here: of splits and products of many tiles, surrogates without a sum, and
# what cells do that are not these, or whose operands end where they began (tests/laws/test_cells.py)
ELSEWHERE = {
    *("AddReplicas", "AdjointRows", "CopyStatesFrom+0", "CopyStatesFrom-1", "CopyStatesTo+0", "DecayBoxes"),
    *("FlagRowsAbove", "InputGradientPart", "MaskedAdjointRows", "SumSomeReplicas", "SynapseCurrentDense"),
    *("TorchAdamDecaying", *(f"Surrogate({name})" for name in SURROGATES if name != "superspike")),
    *("Affine(times scalar)InPlace", "DifferenceInPlace", "DifferenceInPlace1"),
    "Function(tanh)InPlace",
    *("ProductInPlace", "ProductInPlace1", "SumInPlace1"),
    "SpreadLate",  # of dense spikes, which are always in boxes
}  # fmt: skip


def program_of(name: str) -> tuple[Program, list[dict[str, np.ndarray]]]:
    """A small training step, and inputs for it."""
    changes = SMALL | CONFIGURATIONS[name]
    changes, of_machine = split_changes({key: value for key, value in changes.items() if value is not None})
    workload, machine = load_workload("randman-1d", changes), load_machine("tiny", of_machine)
    assert isinstance(machine, MimdMachine)
    compiled = compile_workload(workload, machine, must_fit=False)
    return compiled.program, [drawn_inputs(compiled.network, draw) for draw in DRAWS]


@cache
def tried(name: str) -> Operands:
    """All operands of a configuration."""
    operands = Operands(lambda _: True)
    program, draws = program_of(name)
    for inputs in draws:
        executor = Executor(program)
        executor.write({key: value for key, value in inputs.items() if key in program.inputs})
        executor.run(observe=operands.for_next_run())
    return operands


@pytest.mark.first(2)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_operand_of_a_training_step_matters(name: str) -> None:
    assert set(tried(name).idle) <= UNREAD


@pytest.mark.slow
def test_every_codelet_of_the_library_was_tried() -> None:
    met = {codelet for name in CONFIGURATIONS for codelet, _ in {*tried(name).matters, *tried(name).idle}}
    readers = {name for name, codelet in CODELETS.items() if any(item.reads for item in codelet.fields)}
    assert readers - met == ELSEWHERE


# ---- a kernel of one's own

COST = WorkerBundles(fixed=1000, terms=(), kind="assumed", source="a test")
ADVICE = "leave out what is not used"


def checked(compute: Callable[..., None], *, access: str = "write", dtype: str = "float32", **more: Any) -> str:
    """What is said of y <- f(x, z), on four tiles."""

    def build(on: MimdMachine) -> Program:
        k = Kernel("own", on)
        x, z, y = k.input(k.variable("x", 16)), k.input(k.variable("z", 16, dtype)), k.output(k.variable("y", 16))
        fields = (("y", access), ("x", "read"), ("z", "read"))
        own = Codelet(
            name="Own",
            fields=tuple(Field(name=name, access=each, box=("start:stop",)) for name, each in fields),
            **({"columns": (), "form": "vertex", "compute": compute, "cost": COST} | more),
        )
        if access == "update":
            k.fill(y, 1.0)
        columns = {"start": np.arange(4) * 4, "stop": np.arange(4) * 4 + 4}
        k.vertices(own, tiles=np.arange(4), operands={"y": y, "x": x, "z": z}, columns=columns)
        return k.program()

    machine = load_machine("tiny", {"chip.tiles": 4})
    assert isinstance(machine, MimdMachine)
    result = check_kernel(
        build, machine, reference=lambda x, z: reference(compute, x, z), strict=False,
        inputs=lambda rng: {"z": rng.integers(0, 2 if dtype == "bool" else 100, 16)},
    )  # fmt: skip
    assert result.passed, result
    return "\n".join(line for line in str(result).splitlines() if "operands" in line)


def reference(compute: Callable[..., None], x: np.ndarray, z: np.ndarray) -> np.ndarray:
    y = np.ones(16, np.float32)
    for start in range(0, 16, 4):
        compute(y[start : start + 4], x[start : start + 4], z[start : start + 4])
    return y


def copied(y: np.ndarray, x: np.ndarray, _z: np.ndarray) -> None:
    y[:] = x


def added(y: np.ndarray, x: np.ndarray, z: np.ndarray) -> None:
    y[:] = x + z


def above(y: np.ndarray, x: np.ndarray, z: np.ndarray) -> None:
    y[:] = np.where(z > 40, x, -x)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
def test_a_field_that_is_read_for_nothing_is_said_and_passes(dtype: str) -> None:
    said = checked(copied, dtype=dtype)
    assert said.startswith("note  operands: no value changes what vertices leave or count: 'z' of codelet 'Own'")
    assert ADVICE in said
    assert "'x'" not in said
    assert not checked(added, dtype=dtype)


def test_a_field_that_is_only_compared_matters() -> None:
    assert not checked(above)


def test_what_is_overwritten_whole_is_no_update() -> None:
    said = checked(added, access="update")
    assert "'y' of codelet 'Own'" in said
    assert 'declare "write" for what is only written' in said


def test_a_field_that_only_counts_matters() -> None:
    cost = WorkerBundles(fixed=1000, terms=(Term(bundles=1, extents=("turns",)),), kind="assumed", source="a test")
    assert checked(copied, cost=cost, count=lambda *_: {"turns": 1})
    counted = {"cost": cost, "count": lambda _y, _x, z: {"turns": int(np.count_nonzero(z > 0))}}
    assert not checked(copied, **counted)
