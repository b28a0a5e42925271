"""Functions of all timesteps at once, or of the last alone, recorded as what they do in each of them."""

from __future__ import annotations

from typing import Any

import torch

from mimdsim.frameworks.arithmetic import BINARY, REVERSED, UNARY, plain_name
from mimdsim.frameworks.origins import FunctionResult, LayerOutput, Made, Origin, Product, timestep_of
from mimdsim.frameworks.recording import ADDS, SUBTRACTS, Recorder
from mimdsim.frameworks.recording_arithmetic import is_in_place

ACTIVATIONS = {
    *UNARY, "leaky_relu", "prelu", "elu", "silu", "softplus", "softsign", "hardsigmoid", "hardtanh", "relu6", "clamp",
    "clip", "pow", "__pow__", "square", "abs", "__abs__", "neg", "__neg__",
}  # fmt: skip


class SequenceRecorder(Recorder):
    """Calls functions element by element of all timesteps in each of these, along `by_timestep`; None: as they are."""

    def __init__(self, module: torch.nn.Module, zero_states: bool, by_timestep: int | None):
        """zero_states: as of `Recorder`."""
        super().__init__(module, zero_states)
        self.by_timestep = by_timestep

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        name = plain_name(name)
        if self.by_timestep is not None and self.example is not None and not self._inside and args:
            if self._is_over_time(name, args):
                return self._in_each_timestep(func, types, args, kwargs or {})
            timesteps = self._timesteps(self.origin(args[0])) if name in ACTIVATIONS else []
            if len(timesteps) > 1 and _is_alike(timesteps[-1][1], args[0]):
                return self._in_those_before(func, types, timesteps, args, kwargs or {})
        return super().__torch_function__(func, types, args, kwargs)

    def _is_over_time(self, name: str, args: Any) -> bool:
        """Whether a function is called with all timesteps of what it is to be called with in each."""
        over_time = [origin for arg in args if self._has_time(arg) and (origin := self.origin(arg)) is not None]
        if name in ADDS | SUBTRACTS:  # what layers sent, and currents, are added up as they are
            made = (
                isinstance(of, FunctionResult) and any(isinstance(each, Made) for each in of.of) for of in over_time
            )
            return bool(over_time) and all(made)
        known = any(isinstance(each, (Product, LayerOutput, FunctionResult)) for each in over_time)
        return known and name in ACTIVATIONS | BINARY.keys() | REVERSED.keys()

    def _has_time(self, arg: Any) -> bool:
        axis, example = self.by_timestep, self.example
        return isinstance(arg, torch.Tensor) and arg.ndim > 2 and arg.shape[axis] == example.shape[axis]  # type: ignore

    def _in_each_timestep(self, func: Any, types: Any, args: Any, kwargs: Any) -> torch.Tensor:
        axis, select = self.by_timestep, torch.Tensor.select
        in_place = is_in_place(getattr(func, "__name__", "")) or kwargs.get("inplace", False)
        kwargs = {key: given for key, given in kwargs.items() if key != "inplace"}
        parts = []
        for t in range(self.example.shape[axis]):  # type: ignore[union-attr]
            of_t = (
                self.__torch_function__(select, types, (arg, axis, t)) if self._has_time(arg) else arg for arg in args
            )
            parts.append(super().__torch_function__(func, types, tuple(of_t), kwargs))
        made: torch.Tensor = self.__torch_function__(torch.stack, types, (parts, axis))
        self.seen.at_once.append(self.origin(made))
        if in_place:  # which this is not: what it was called with is as it was, and read no more
            self.mark(args[0], self._unread(f"{func.__name__} in place", self.origin(args[0])))
        return made

    def _timesteps(self, origin: Origin | None) -> list[tuple[Origin, torch.Tensor]]:
        """What may be of the last timestep as it would be of each, without gradients; of anything else nothing."""
        found: list[tuple[Origin, torch.Tensor]] = []
        if isinstance(origin, LayerOutput) and (calls := self.seen.layers[origin.layer]).in_time:
            sent = calls.outputs[0] if origin.spikes and not origin.in_time else torch.empty(0)
            whole = LayerOutput(layer=origin.layer, call=0, spikes=True, in_time=True)
            found = [(timestep_of(whole, t, len(sent)), each) for t, each in enumerate(sent)]
        elif isinstance(origin, Made):
            stacks = (each for each in self.seen.at_once if isinstance(each, FunctionResult) and each.of)
            made: Any = next((each.of for each in stacks if each.of[-1] is origin), ())
            found = [(each, each.values) for each in made] if all(isinstance(each, Made) for each in made) else []
        elif isinstance(origin, Product) and origin == _plain(origin):
            weight = self.parameters[origin.weight].detach()
            bias = sum(self.parameters[each].detach() for each in origin.biases)
            for t, (of, given) in enumerate(self._timesteps(origin.of)):
                made = given @ (weight.T if origin.transposed else weight) + bias
                found.append((_plain(origin, of, t), made))
        return found

    def _in_those_before(self, func: Any, types: Any, timesteps: Any, args: Any, kwargs: Any) -> Any:
        """What a function makes of the last timestep, recorded with what it would make of those before."""
        parts = []
        for origin, given in [*timesteps[:-1], (timesteps[-1][0], args[0])]:
            self.mark(given, origin)
            parts.append(super().__torch_function__(func, types, (given, *args[1:]), kwargs))
        self.seen.at_once.append(FunctionResult(by="stack", of=tuple(map(self.origin, parts))))
        return parts[-1]


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(torch.allclose(one, other, rtol=1e-4, atol=1e-6))


def _plain(product: Product, of: Any = None, call: int = 0) -> Product:
    """A product with weights and biases alone."""
    return Product(
        of=of or product.of, inputs=product.inputs, weight=product.weight, biases=product.biases,
        transposed=product.transposed, call=call,
    )  # fmt: skip
