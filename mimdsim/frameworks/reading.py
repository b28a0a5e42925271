"""A network as its author wrote it in PyTorch becomes a workload.

The module runs once on its example input (module_calls.py) and its neurons are compared with the models of
docs/neurons.md in float64 (neurons.py). The layers are then put together from what ran on what, and run again from what
was recorded: currents must be those of the weights and of what a layer reads, and spikes those that the module sent.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.base.files import folder_to_make, write_atomically
from mimdsim.base.schema import toml_text
from mimdsim.frameworks.agreement import check_gradients
from mimdsim.frameworks.delays import at_every_age, delay_of
from mimdsim.frameworks.module_calls import (
    RAISES,
    as_it_is,
    axes_of_time,
    constants_as_fixed,
    count_on,
    matrices_as_parameters,
    neurons_of_models,
    record,
    steps_of,
)
from mimdsim.frameworks.network_table import (
    needs_own_operations,
    network_table,
    objective,
    output_read,
    random_workload,
    read_over_time,
    reading_of,
)
from mimdsim.frameworks.neurons import (
    ONE_TIMESTEP,
    REFUSED_BY,
    TOLD,
    Reading,
    ReadingRefused,
    numbers_of,
    refusal,
    run_neuron,
    tell,
)
from mimdsim.frameworks.origins import (
    Currents,
    Dropout,
    Dropped,
    FunctionResult,
    Input,
    LayerOutput,
    Made,
    Origin,
    Pooled,
    Product,
    Read,
    Slice,
    Sum,
    burn_in_of,
    each_in,
    feeds_of,
    parts_of,
    sources_in,
)
from mimdsim.frameworks.own_neurons import with_own_neurons
from mimdsim.frameworks.planes import SAME_CURRENT, currents_of, largest_of_norm, one_to_one
from mimdsim.frameworks.recorded import NeuronCalls, Recorded
from mimdsim.frameworks.recording import GATHERS, OF_TIMESTEPS
from mimdsim.frameworks.recording_products import over_pooled
from mimdsim.frameworks.streams import with_currents, with_late_currents
from mimdsim.frameworks.tensors import copy_of
from mimdsim.frameworks.torch_layers import (
    TorchLayer,
    check_reads,
    combination,
    divisor_of,
    functions_in,
    layers_of,
    named,
    read_by,
    senders_in,
    sums_apart,
    widths_of,
)
from mimdsim.frameworks.torch_weights import (
    NOTE,
    bias_arrays,
    frozen_arrays,
    links_of,
    parameters_of,
    pruned_arrays,
    weights_of,
)
from mimdsim.graph.convolution import Convolution
from mimdsim.graph.derived import WeightFunction, weights_of_function
from mimdsim.graph.names import INPUT
from mimdsim.graph.sources import Source
from mimdsim.workload import Workload, load_workload, network_of
from mimdsim.workload.description.workload import build_workload, change_description
from mimdsim.workload.interchange.importing import base_table
from mimdsim.workload.interchange.model_file import weights_named
from mimdsim.workload.interchange.weights_file import write_safetensors

NEAR = 1e-4  # of the threshold: float32 sums in another order may fall on either side
READ_OUT: dict[str, float] = {"tau": 1.0, "dt": 1.0}  # of "li": what comes in is read
SAME_NUMBER = 1e-5
AGAIN = "called again, with other weights and input"
OF_WEIGHTS = ("w.", "r.", "b.")  # arrays that other numbers leave the same network
WEIGHTS, DESCRIPTION = "weights.safetensors", "network.toml"


MADE_BY = "Made by mimdsim.from_torch; edit freely."


def read_workload(
    module: torch.nn.Module, example_input: torch.Tensor, timesteps: int | None, asked: Mapping[str, Any]
) -> Workload:
    """See `mimdsim.from_torch`: neurons of frameworks by their models, or else by their own operations, as neurons that
    are written out; buffers as constants, or else as weights. Warnings are those of the way that was taken."""
    told: list[str] = []

    def read(written: tuple[str, ...] = (), by_timestep: int | None = None) -> Workload:
        told.clear()
        before = TOLD.set(told)
        how: Any = {**asked, "written": written, "by_timestep": by_timestep}
        try:
            return _read_as_called(partial(workload_of, module, example_input, **how), *called)
        finally:
            TOLD.reset(before)

    called = example_input, timesteps
    try:
        made = read()
    except (DescriptionError, MappingError) as problem:
        if isinstance(problem, ReadingRefused) or not isinstance(module, torch.nn.Module):
            raise
        neurons: tuple[str, ...] = ()
        with suppress(Exception):  # of neurons without values
            neurons = tuple(neurons_of_models(module))
        as_it_stands, matrices = partial(nullcontext, True), partial(matrices_as_parameters, module)
        ways: list[tuple[Any, tuple[str, ...], int | None]] = [(matrices, (), None)]
        ways += [(values, neurons, None) for values in (as_it_stands, matrices) if neurons]
        ways += [(as_it_stands, (), axis) for axis in axes_of_time(module) if timesteps is None]
        without = partial(constants_as_fixed, module, example_input, timesteps)
        ways += [(without, (), None)]
        for values, written, by_timestep in ways:
            # of what can be read in no way the first refusal tells most
            with suppress(Exception), values() as some:
                if some:
                    made = read(written, by_timestep)
                    fixed = some if values is without else ()
                    told += [f"'{each}' gets no gradient, and stays as it is" for each in fixed]
                    break
        else:
            raise
        if written:
            why = problem.problems[0] if isinstance(problem, DescriptionError) else problem
            told.append(f"neurons are read by their own operations, as equations, since {why}")
    for each in dict.fromkeys(told):
        warnings.warn(each, UserWarning, stacklevel=3)
    return made


def _read_as_called(read: Callable[[int | None], Workload], example_input: Any, timesteps: int | None) -> Workload:
    """What reading a module makes that is called once in each of the timesteps, or else of one that takes them all,
    where timesteps only say how many the example has."""
    try:
        return read(timesteps)
    except DescriptionError as by_step:
        if by_step.where != REFUSED_BY or timesteps not in getattr(example_input, "shape", ())[:2]:
            raise
        try:
            return read(None)
        except DescriptionError as at_once:
            if at_once.where != REFUSED_BY or any(said in at_once.problems[0] for said in (RAISES, ONE_TIMESTEP)):
                raise by_step from None
            told, other = at_once.problems[0], by_step.problems[0]
            also = "" if other == told or RAISES in other else f"; called once a timestep: {other}"
            raise type(at_once)(REFUSED_BY, [f"{told}{also}"]) from None


def workload_of(
    module: torch.nn.Module,
    example_input: torch.Tensor,
    timesteps: int | None,
    *,
    loss: str | Mapping[str, Any],
    output: str,
    workload: str = "",
    changes: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    zero_states: bool = False,
    written: tuple[str, ...] = (),
    by_timestep: int | None = None,
) -> Workload:
    """See `mimdsim.from_torch`. timesteps: of a module called once in each; None: of one that takes them all. written,
    by_timestep: as of `record`."""
    _check_arguments(module, example_input, timesteps)
    wanted = output or ("membrane" if "membrane" in str(loss) else "")

    def read(module: torch.nn.Module, example: torch.Tensor) -> tuple[Recorded, list[TorchLayer]]:
        recorded = with_currents(
            record(module, example, timesteps, written, zero_states, by_timestep, tried=example is example_input)
        )
        acting = partial(_acting_weights, parameters_of(module), recorded.masks)
        recorded = _with_read_out(module, with_late_currents(with_own_neurons(recorded, wanted), acting))
        return recorded, layers_of(module, recorded)

    recorded, layers = read(module, example_input)
    _tell_of_others(recorded)
    weights = weights_of(module, layers, recorded.masks)
    values = _find_input(layers, weights, example_input, timesteps)
    _check_spikes(layers, weights)
    last, stepwise = layers[-1], timesteps is not None
    reads = output_read(wanted, recorded, last)
    if needs_own_operations(last, reads) and not written:
        if last.calls.name not in dict(module.named_modules()):
            raise refusal(f"'{last.calls.name}' is no part of the module: keep it as an attribute or in a ModuleList")
        TOLD.get().clear()
        tell(f"'{last.calls.name}' is read by its own operations, as equations: no model is read by its potential so")
        asked: Any = {"loss": loss, "output": output, "workload": workload, "changes": changes, "out": out}
        asked |= {"zero_states": zero_states, "by_timestep": by_timestep}
        return workload_of(module, example_input, timesteps, **asked, written=(last.calls.name,))
    recorded = _with_burn_in(recorded, last, reads)
    reading, returned = read_over_time(recorded, last, reads, stepwise, not loss)
    shown, seen, known = reads, reading, recorded
    if returned is None:  # another output than what the module returns, of which the gradients are known
        shown = output_read("", recorded, last)
        known = _with_burn_in(recorded, last, shown)
        seen, returned = read_over_time(known, last, shown, stepwise, False)
    described = partial(_described, module, layers)
    each = (changes or {}).get("network.neurons_per_class", recorded.votes)
    classes = widths_of(layers)[-1] // (each if type(each) is int and each > 0 else 1)
    if returned is not None:
        example = random_workload(values, widths_of(layers)[-1] // recorded.votes)
        example = described(known, values.shape, example, shown, "", seen)
        network = network_of(build_workload({"name": "example", **example}, {}, "example"))
        try:
            check_gradients(module, recorded, layers, network, weights, values, seen, returned)
        except DescriptionError as problem:
            precise = example_input.dtype == torch.float64
            how: Any = {"loss": loss, "output": output, "zero_states": zero_states, "written": written}
            how["by_timestep"] = by_timestep
            if precise or not _runs_in_float64(module, example_input, timesteps, how):
                raise problem from None
    _check_other_numbers(read, module, example_input, timesteps, recorded, layers)
    base = base_table(workload, Path(out or ".")) if workload else random_workload(values, classes)
    table = described(recorded, values.shape, base, reads, loss, reading)
    folder = folder_to_make(out, "from-torch")
    table["training"]["initial_weights"] = WEIGHTS
    write_safetensors(folder / WEIGHTS, weights, {NOTE: json.dumps(links_of(layers))})
    path = folder / DESCRIPTION
    write_atomically(path, toml_text(table, comment=MADE_BY))
    made = load_workload(path, dict(changes or {}))
    given = network_of(made).inputs  # raises where the layers make no network
    if given != values.shape[-1]:
        raise refusal(f"the module reads {values.shape[-1]} inputs, and the data of '{workload}' have {given}")
    if changes and out is not None:  # commands that take the file have them, too
        change_description(table, changes, str(path))
        write_atomically(path, toml_text(table, comment=MADE_BY))
    return made


def _tell_of_others(recorded: Recorded) -> None:
    """Tell of single numbers that the module returns beside what its last layer sent, such as a penalty."""
    made = recorded.made_by_call[-1]
    if len(made) > 1 and any(each.numel() == 1 and each.requires_grad for each in made):
        tell(
            "the module also returns a number that is learned from, such as a penalty, which is left out here; "
            "nearest: training.firing_strength, of how often hidden layers spike",
        )


def _check_other_numbers(
    read: Callable[[torch.nn.Module, torch.Tensor], tuple[Recorded, list[TorchLayer]]],
    module: torch.nn.Module,
    example: torch.Tensor,
    timesteps: int | None,
    recorded: Recorded,
    layers: list[TorchLayer],
) -> None:
    """Raise DescriptionError where a copy that was called before, with other weights, on another example, is another
    network: masks and numbers that are worked out of these, or of a count of calls, stay as they are here. Of one that
    cannot be copied, or read, that is told."""
    of_weights = {name for name, array, *_ in links_of(layers) if array.startswith(OF_WEIGHTS)}
    feeds = [feed.product for layer in layers for origin in layer.calls.origins for feed in feeds_of(origin)]
    signed = {product.weight for product in feeds if product.function}  # which may make zeros of the other sign
    drawn, told, binary = torch.get_rng_state(), TOLD.set([]), torch.tensor([0.0, 1.0], device=example.device)
    restore = as_it_is(module)  # which functions that the copy holds may call

    def again(called: bool) -> tuple[Recorded, list[TorchLayer]]:
        other: torch.nn.Module = copy_of(module)
        if called:
            count_on(other, steps_of(example, timesteps))
        generator = torch.Generator().manual_seed(1)
        for name, each in other.named_parameters():
            if name in of_weights:
                share, more, sign = torch.rand(3, *each.shape, generator=generator).to(each)
                turned = 1.0 if name in signed else (sign - 0.2).sign()
                each.data.mul_((0.7 + share) * turned).add_(1e-3 * (more - 0.5))
        with warnings.catch_warnings(action="ignore"):
            left = torch.rand(example.shape, generator=generator).to(example.device) < 0.8
            if example.dtype == torch.bool or torch.isin(example, binary).all():
                return read(other, example * left)
            whole = not example.is_floating_point()  # words, as an embedding reads them
            return read(other, torch.where(left, example, example.roll(1, 0)) if whole else example * 0.9 * left)

    def tried(called: bool) -> tuple[Recorded, list[TorchLayer]] | Exception:
        try:
            return again(called)
        except Exception as problem:
            return problem

    try:
        second = tried(called=True)
        of_module = isinstance(second, DescriptionError) and RAISES not in str(second)
        alone = tried(called=False) if of_module else second
    finally:
        restore()
        torch.set_rng_state(drawn)
        TOLD.reset(told)
    if isinstance(second, Exception):
        why = getattr(second, "problems", [f"{type(second).__name__}: {second}".splitlines()[0]])[0]
        if not isinstance(alone, Exception):
            raise refusal(
                f"{AGAIN}, the module is read no more ({why}): numbers that a call leaves in it would be made anew "
                "here in every step; nearest: such numbers as attributes"
            )
        tell(
            f"with other weights on another example, the module is not read ({why}): were numbers worked out of these, "
            "they would stay as they are here"
        )
        return
    found, others = second
    for name, mask in recorded.masks.items():
        if name not in found.masks or not np.array_equal(mask, found.masks[name]):
            raise refusal(
                f"'{name}' is multiplied by a mask that is worked out of weights, which would stay as it is here; "
                "nearest: the same mask as a buffer, made anew by torch.nn.utils.prune before the module is read"
            )
    mine, theirs = (_numbers_of(*each) for each in ((recorded, layers), (found, others)))
    if differ := sorted(key for key in {*mine, *theirs} if not _alike(mine.get(key), theirs.get(key))):
        raise refusal(
            f"{AGAIN}, the module is another network ({', '.join(differ)}): numbers that it works out of these would "
            "stay as they are here; nearest: such numbers as attributes, or norms"
        )


def _numbers_of(recorded: Recorded, layers: list[TorchLayer]) -> dict[str, Any]:
    """All numbers of a network but its weights, by what they are. Those of biases, of which a read-out that gets no
    spikes does not tell, are left out."""
    made = {f"{key} of [network]": each for key, each in network_table(layers, {}).items()}
    functions = made.get("weight_functions of [network]", {})
    for name in [each for each in functions if each.endswith(".bias")]:
        del functions[name]
    made = {key: each for key, each in made.items() if each != {}}
    made |= {
        f"'{row}' of layer '{layer.calls.name}'": tuple(values.ravel().tolist())
        for layer in layers
        if layer.calls.reading.written
        for row, (of, values, _) in layer.calls.reading.written.rows.items()
        if not of
    }
    return made | {"what divides the output": tuple(map(divisor_of, recorded.returned)), "votes": recorded.votes}


def _alike(one: object, other: object) -> bool:
    """Whether two values of a table are equal, but for what rounding leaves of numbers that are found in weights."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=SAME_NUMBER)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one == other


def _described(
    module: torch.nn.Module,
    layers: list[TorchLayer],
    recorded: Recorded,
    shape: tuple[int, ...],
    table: dict[str, Any],
    reads: str,
    loss: str | Mapping[str, Any],
    reading: str,
) -> dict[str, Any]:
    """The description of a workload, with the module as its network. shape: of the example, [timesteps, batch, inputs];
    reads: what of the last layer the loss reads."""
    table["title"] = f"{type(module).__name__}: {'-'.join(map(str, [shape[-1], *widths_of(layers)]))}"
    table["network"] = network_table(layers, table.get("network", {})) | {"output": reads}
    table["network"] |= {"neurons_per_class": recorded.votes} if recorded.votes > 1 else {}
    training = table.setdefault("training", {})
    training |= objective(loss, recorded, layers[-1], reads != "spikes", shape[0], reading)
    if frozen := frozen_arrays(module, layers):
        training["frozen"] = frozen
    if pruned := pruned_arrays(layers, recorded.masks):
        training["pruned"] = {name: 0.0 for name in pruned if name not in frozen}
    return table


def _check_arguments(module: torch.nn.Module, example_input: torch.Tensor, timesteps: int | None) -> None:
    for name, each, kind in (("module", module, torch.nn.Module), ("example_input", example_input, torch.Tensor)):
        if not isinstance(each, kind):
            raise refusal(
                f"{name} is {type(each).__name__}; give a torch.{'nn.Module' if name == 'module' else 'Tensor'}"
            )
    if timesteps is not None and (type(timesteps) is not int or timesteps < 1):
        raise refusal(f"timesteps is {timesteps!r}; give a whole number, 1 or more")
    if example_input.ndim < (2 if timesteps is None else 1) or not example_input.numel():
        shape = list(example_input.shape)
        raise refusal(f"example_input has the shape {shape}; time, samples and inputs are needed")
    if example_input.layout != torch.strided:
        raise refusal(f"example_input has the layout {example_input.layout}; give example_input.to_dense()")
    if any(each.is_meta for each in (example_input, *module.parameters())):
        raise refusal("the module, or example_input, is on the device 'meta' and has no values; give it with values")
    if not torch.isfinite(example_input).all():
        raise refusal("example_input holds numbers that are not finite")
    if compiled := getattr(module, "_orig_mod", None):
        raise refusal(f"module is a {type(compiled).__name__} that torch.compile made; give module._orig_mod")
    if scripted := [name for name, each in module.named_modules() if isinstance(each, torch.jit.ScriptModule)]:
        raise refusal(f"'{scripted[0]}' is TorchScript, whose operations are not seen; give the module that it is of")
    for name, each in module.named_parameters():
        if not isinstance(each, torch.nn.parameter.UninitializedParameter) and not torch.isfinite(each).all():
            raise refusal(f"'{name}' of the module holds numbers that are not finite; give weights that are")


def _runs_in_float64(
    module: torch.nn.Module, example: torch.Tensor, timesteps: int | None, how: Mapping[str, Any]
) -> bool:
    """Whether a copy of it is read without a complaint where PyTorch rounds next to nothing."""
    rounded, default, told = torch.Tensor.float, torch.get_default_dtype(), TOLD.set([])
    torch.Tensor.float = torch.Tensor.double  # as snnTorch makes spikes
    torch.set_default_dtype(torch.float64)  # and states of SLSTM
    try:
        with warnings.catch_warnings(action="ignore"):
            precise = copy_of(module).double()
            workload_of(precise, example.double() if example.is_floating_point() else example, timesteps, **how)
    except Exception:
        return False
    finally:
        torch.Tensor.float = rounded
        torch.set_default_dtype(default)
        TOLD.reset(told)
    return True


def _earlier(values: np.ndarray, age: int = 1) -> np.ndarray:
    """Those of `age` timesteps before, zeros in the first."""
    return np.concatenate([np.zeros_like(values[:age]), values[: len(values) - age]])


def _spikes_read(read: Source, layers: Mapping[str, NeuronCalls], values: np.ndarray) -> np.ndarray:
    """float64[timesteps, samples, inputs]: what weights read of the input, '', and of what layers sent; raises
    MappingError for widths, or planes, that differ."""
    sent = {name: each.sequence(each.outputs) for name, each in layers.items()} | {"": values}
    planes = {name: each.planes for name, each in layers.items()}
    return read.values(lambda each: _earlier(sent[each.name], each.lag or 0), planes.get)


def _find_input(
    layers: list[TorchLayer], weights: Mapping[str, np.ndarray], example: torch.Tensor, timesteps: int | None
) -> np.ndarray:
    """float64[timesteps, samples, inputs]: the example with its axes as the layers read it, so that all currents are
    those of their weights."""
    calls = layers[0].calls
    shape = list(calls.currents[0].shape)
    if len(shape) < 2 + calls.in_time:
        raise refusal(
            f"layer '{calls.name}' gets currents {shape}, which have no axis of samples: give the example with one, as "
            "example.unsqueeze(1), and an image for all timesteps as image.expand(timesteps, *image.shape)"
        )
    steps, samples = calls.sequence(calls.currents).shape[:2]
    if steps == 1 and timesteps is None:
        raise refusal(ONE_TIMESTEP)
    inputs = layers[0].sources[0].inputs
    array = numbers_of(example)
    if array.size == steps * samples and not example.is_floating_point():  # words, which an embedding reads
        words, array = array.astype(np.int64)[..., np.newaxis], np.zeros((*array.shape, inputs))
        np.put_along_axis(array, words, 1.0, axis=-1)
    by_axis = [np.moveaxis(array, axis, 0) for axis in (1, 0, -1) if axis < array.ndim]
    problem = (
        f"the first layer reads {[steps, samples, inputs]} [timesteps, samples, inputs], which is not the example "
        f"{list(example.shape)} with its first, second or last axis as time: give spikes as the first layer reads them"
    )
    for given in (np.broadcast_to(array, (steps, *array.shape)), *by_axis):
        if len(given) == steps and given.size == steps * samples * inputs:
            values: np.ndarray = given.reshape(steps, samples, inputs)
            problem = _wrong_currents(layers, weights, values)
            if not problem:
                return values
    raise refusal(problem)


def _wrong_currents(layers: list[TorchLayer], weights: Mapping[str, np.ndarray], values: np.ndarray) -> str:
    """What is wrong with a layer whose recorded currents are not those of its weights and of what it reads; else ''."""
    every = {layer.calls.name: layer.calls for layer in layers}
    for name, layer in named(layers):
        calls, reading = layer.calls, layer.calls.reading
        recorded = calls.sequence(calls.currents)
        bias = sum(weights.get(array, 0.0) for array in bias_arrays(name, layer))
        bias = bias * layer.bias_function.factor if layer.bias_function else bias
        bias -= _own_bias(layer) if reading.recurrent_bias and not reading.of_cells else 0.0
        currents: np.ndarray | float = 0.0
        largest = np.abs(recorded).max()
        together: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # what one product reads side by side, and its weights
        for source, array in zip(layer.sources, weights_named(name, read_by(layers, layer)), strict=True):
            text = source.read.text(lambda each: each.name or INPUT)
            what = f"what '{text}' sends" if any(source.layers) else "the input"
            try:
                spikes = _spikes_read(source.read, every, values)
            except MappingError as problem:
                return f"layer '{calls.name}' reads {problem}; one can run"
            if spikes.shape[-1] != source.inputs:
                return f"layer '{calls.name}' reads {source.inputs} of {spikes.shape[-1]} values of {what}; all can run"
            if reading.weights or (layer.unweighted and not layer.trained_norm):
                currents += spikes
                continue
            matrix = np.ones((1, layer.gains)) if layer.unweighted else _acting(source.function, weights[array])
            if source.product.delays:
                spikes, matrix = at_every_age(source.product.delays, spikes, matrix, weights[f"delay.{name}"])
            alike = array if len(source.feeds) > 1 else source.product.weight
            before = together.setdefault(alike, (spikes[..., :0], matrix[:0]))
            together[alike] = np.concatenate([before[0], spikes], axis=-1), np.concatenate([before[1], matrix])
        norm, rows = layer.trained_norm, tuple[np.ndarray, ...]()
        if norm:
            rows = weights[f"gain.{name}"], weights[f"{'b' if norm.averages else 'shift'}.{name}"]
            bias = 0.0 if norm.averages else bias
        for spikes, matrix in together.values():
            convolution = layer.sources[0].product.convolution
            convolution = convolution and convolution.with_planes(spikes.shape[-1] // convolution.planes.positions)
            if layer.unweighted:
                convolution = one_to_one(layer.gains, spikes.shape[-1])
            if norm:
                largest = np.maximum(largest, largest_of_norm(convolution, spikes, matrix, bias, norm, rows[0]))
            currents += currents_of(convolution, spikes, matrix, bias, norm, rows)
            bias = 0.0
        if layer.recurrent and not reading.recurrent and not sums_apart(layer):
            matrix = _acting(layer.recurrent_function, weights[f"r.{name}"])
            currents += _of_itself(layer, _earlier(calls.sequence(calls.outputs)), matrix)
        if np.shape(currents) != recorded.shape:
            return (
                f"layer '{calls.name}' gets currents {list(recorded.shape)} [timesteps, samples, neurons], and its "
                f"weights make {list(np.shape(currents))} of {what}: time may lie along another axis"
            )
        off = np.abs(currents - recorded)
        if not (off <= SAME_CURRENT * np.maximum(largest, SAME_CURRENT)).all():
            return (
                f"layer '{calls.name}' gets currents that differ by up to {off.max():.2g}, of "
                f"{np.abs(recorded).max():.2g} at most, from "
                f"those of its weights and of {what}: axes are swapped, values reordered or added on the way"
            )
    return ""


def _check_spikes(layers: list[TorchLayer], weights: Mapping[str, np.ndarray]) -> None:
    for name, layer in named(layers):
        calls, reading = layer.calls, layer.calls.reading
        sent = calls.sequence(calls.outputs)
        written = reading.written is not None and not reading.written.model(name).spiking
        if reading.spiking and not written and not sent.any():
            tell(
                f"layer '{calls.name}' sends no spikes on the example, so that little of it and of what reads it is "
                "compared: give an example, or weights, with which it fires",
            )
        if not reading.spiking or reading.of_cells:
            continue
        currents = calls.sequence(calls.currents)
        if reading.weights:
            currents = currents @ weights[f"w.{name}"]
        if reading.recurrent:
            currents = currents + _of_itself(layer, _earlier(sent), weights[f"r.{name}"])
        if reading.recurrent_bias:
            bias = _own_bias(layer)
            currents = currents + np.repeat(bias, calls.neurons // bias.size)
        spikes, potentials, _ = run_neuron(reading.neuron, currents)
        differs = spikes != sent
        differs &= np.cumsum(differs, axis=0) == 1  # where a neuron does so first: then it was reset at another time
        first = np.argwhere(differs & (np.abs(potentials - reading.neuron.threshold) > NEAR * reading.neuron.threshold))
        if len(first):
            t, sample, neuron = first[0]
            raise refusal(
                f"layer '{calls.name}' sent {sent[t, sample, neuron]:g} from neuron {neuron} in timestep {t} of sample "
                f"{sample}, where model '{reading.model}' sends {spikes[t, sample, neuron]:g} of the same currents: "
                "something acts on it that is not known here (a state handed in, an option)"
            )


def _acting_weights(held: Mapping[str, np.ndarray], masks: Mapping[str, np.ndarray], product: Product) -> np.ndarray:
    """float64[inputs, outputs], or of a convolution: the weights of a product, as they act."""
    values = held[product.weight] * masks.get(product.weight, 1.0)
    return _acting(product.function, values.reshape(len(values), -1).T if product.transposed else values)


def _with_read_out(module: torch.nn.Module, recorded: Recorded) -> Recorded:
    """What was recorded, with the linear layer that reads spikes or cells at its end as a layer whose potentials are
    read."""
    every = (feed for calls in recorded.layers.values() for origin in calls.origins for feed in feeds_of(origin))
    known = {feed.product.weight for feed in every}  # by neurons that may send their current, as it is, at first
    found = [(_product_in(each), at) for at, each in enumerate(recorded.returned)]
    ends = [(origin, at) for origin, at in found if origin is not None and origin.weight not in known]
    if not ends:
        return recorded
    product, at = ends[0]
    of: Origin | None = product.of
    summed, held = False, parameters_of(module)
    before: Dropout | None = None
    while (parts := _of_one_layer(whole := of.of if isinstance(of, Slice) else of)) or isinstance(of, Pooled):
        if isinstance(of, Pooled):
            product = over_pooled(replace(product, of=of), held[product.weight].size // product.inputs)
            of = product.of
            continue
        summed |= isinstance(whole, Sum) or (isinstance(whole, FunctionResult) and whole.by in ("sum", "add"))
        now: Any = parts[-1]  # of every timestep, where there are several
        of = replace(of, of=now) if isinstance(of, Slice) else now
        alone = isinstance(product.of, FunctionResult) and product.of.by in OF_TIMESTEPS
        if product.dropout and not alone:  # of a sum over time: the same in every timestep
            product = replace(product, dropout=replace(product.dropout, per="sequence"))
        if isinstance(of, Dropped):  # before they were added up
            if product.dropout or before:
                return recorded
            before, of = of.dropout, of.of
    product = replace(product, dropout=before or product.dropout)
    cut = of if isinstance(of, Slice) else None
    of = cut.of if cut else of
    senders = senders_in(of)
    if of is None or not senders or not all(isinstance(each, LayerOutput) and each.spikes for each in senders):
        return recorded
    name = product.weight.rpartition(".")[0] or product.weight
    read = combination(name, product.weight, of, 0)
    values = _acting_weights(held, recorded.masks, product)
    functions = functions_in(recorded.returned[at]) | functions_in(product.of)
    bias, sent = sum(held[each] for each in product.biases), _spikes_read(read, recorded.layers, np.zeros(0))
    sent = sent[..., cut.first : cut.first + len(values)] if cut else sent
    if product.delays:
        sent, values = at_every_age(
            product.delays, sent, values, delay_of(product.delays.ages, held[product.positions])
        )
    if not product.convolution and sent.shape[-1] != len(values):
        check_reads(recorded)  # what is wrong before says more
        raise refusal(f"'{product.weight}' reads {len(values)} of {sent.shape[-1]} values of each sample; all can run")
    names = [each.layer for each in senders if isinstance(each, LayerOutput)]
    burn_in = max(_burn_in(recorded, [recorded.returned[at]], each, len(sent)) for each in names)
    # the bias counts once in the product with a sum over time, where that is no mean
    for share in (1 / (len(sent) - burn_in), 1.0) if summed else (1.0,):
        outputs = currents_of(product.convolution, sent, values, bias * product.bias_factor * share)
        reading = reading_of(numbers_of(recorded.made_by_call[-1][at]), outputs[burn_in:], functions)
        if reading and (not summed or (reading == "sum") == (share < 1)):
            break
    else:
        raise refusal(
            f"the output is neither the product with '{product.weight}' of what "
            f"'{read.text(lambda each: each.name)}' sent nor its last, mean, highest or summed value over time; return "
            "one of these"
        )
    tensor = torch.as_tensor(outputs)
    if recorded.stepwise:  # of which the last timestep is the one that was seen
        reading = reading.replace("last", "")
    made = NeuronCalls(
        name=name,
        module=module,
        reading=Reading(model="li", parameters=dict(READ_OUT), reset="none", spiking=False, in_time=True),
        currents=[tensor],
        origins=[replace(product, of=cut or of, bias_factor=product.bias_factor * share)],
        outputs=[tensor],
    )
    returned: list[Origin | None] = [LayerOutput(layer=name, call=0, spikes=False)]
    layers, calls = {**recorded.layers, name: made}, [[each[at]] for each in recorded.made_by_call]
    return replace(recorded, layers=layers, returned=returned, reading=reading, made_by_call=calls, burn_in=burn_in)


def _with_burn_in(recorded: Recorded, last: TorchLayer, reads: str) -> Recorded:
    """What was recorded, with the number of timesteps at the start that are in nothing that the module returned of the
    last layer: in the first of several outputs, or in all where each is a timestep."""
    if recorded.reading:  # found with it
        return recorded
    name, timesteps = last.calls.name, len(last.calls.sequence(last.calls.outputs))
    spikes = reads == "spikes" or not last.calls.reading.has_potential
    found = [each for each in recorded.returned if (name, spikes) in sources_in(each)]
    alone = all(isinstance(each, LayerOutput) and not each.in_time for each in found)
    burn_in = _burn_in(recorded, found if alone else found[:1], name, timesteps)
    return replace(recorded, burn_in=burn_in)


def _burn_in(recorded: Recorded, origins: list[Origin | None], layer: str, timesteps: int) -> int:
    """How many timesteps at the start are in nothing that is made of what a layer sent."""
    written, end = recorded.layers[layer].reading.written, origins[0] if origins else None
    # a list of fewer has nothing in it of what was there before neurons sent anything
    fewer = isinstance(end, FunctionResult) and end.by == "stack" and len(end.of) < timesteps
    begins = written.first if written and not fewer else 0
    return 0 if recorded.stepwise else burn_in_of(origins, layer, timesteps, begins)


def _acting(function: WeightFunction | None, values: np.ndarray) -> np.ndarray:
    return weights_of_function(function, values) if function else values


def _of_one_layer(of: Origin | None) -> tuple[Origin | None, ...]:
    """What a function over time is of, if that is one layer's, or the same layers' in every timestep, such as a sum
    that grew by a timestep after another."""
    parts: tuple[Origin | None, ...] = ()
    if isinstance(of, FunctionResult) and of.by in GATHERS:
        # after what neurons send before they get anything, which is compared by its values
        parts = tuple(itertools.dropwhile(_is_begun, of.of))
    if isinstance(of, Sum):
        by_call: dict[int, list[Any]] = {}
        for part in (part for each in of.parts for part in (_of_one_layer(each) or (each,))):
            if not isinstance(part, LayerOutput):
                return ()
            by_call.setdefault(part.call, []).append(part)
        if len(by_call) == 1:  # of layers in one timestep, or of all of them
            return of.parts if len(set(map(_layers_of, of.parts))) == 1 else ()
        parts = tuple(Sum(parts=tuple(each)) if len(each) > 1 else each[0] for each in by_call.values())
    return parts if len(set(map(_layers_of, parts))) == 1 else ()


def _is_begun(origin: Origin | None) -> bool:
    """Whether it is of no known origin, or made of parameters and numbers alone."""
    if isinstance(origin, Made):
        every = each_in((Made, Read), origin)
        return not any(isinstance(each, (LayerOutput, Input, Currents)) for each in every)
    return not parts_of(origin) and not senders_in(origin)


def _layers_of(origin: Origin | None) -> object:
    """What is alike of a layer's outputs, or of sums of several layers', in every timestep."""
    if isinstance(origin, Sum):
        return tuple(map(_layers_of, origin.parts))
    if isinstance(origin, (Slice, Dropped)):
        return replace(origin, of=Input()), _layers_of(origin.of)
    return origin.layer if isinstance(origin, LayerOutput) else origin


def _product_in(origin: Origin | None) -> Product | None:
    """The last product in what a module returns, alone or of all timesteps."""
    if isinstance(origin, FunctionResult) and origin.by in (*GATHERS, "softmax"):
        return _product_in(origin.of[-1]) if origin.of else None
    if isinstance(origin, Sum):  # of a timestep and those before it
        return _product_in(origin.parts[-1])
    return origin if isinstance(origin, Product) else None


def _of_itself(layer: TorchLayer, before: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Currents of what it sent in the timestep before."""
    if (planes := layer.calls.planes) and (window := layer.own_window):
        return currents_of(Convolution(planes=planes, window=window, channels=planes.channels), before, own, 0.0)
    made: np.ndarray = before @ own if own.ndim == 2 else before * own
    return made


def _own_bias(layer: TorchLayer) -> np.ndarray:
    module: Any = layer.calls.module
    return numbers_of(module.recurrent.bias)
