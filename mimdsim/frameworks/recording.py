"""The functions that a PyTorch module calls in a forward pass, recorded one by one (calls of modules: module_calls.py).

Every tensor has an origin, which says where its values come from; what is not understood keeps its name until it
reaches a layer, where it is refused.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from mimdsim.frameworks.arithmetic import (
    ADD,
    BINARY,
    FAR,
    SUBTRACT,
    TIMES,
    arithmetic,
    constant_of,
    step_of,
    written_step,
)
from mimdsim.frameworks.made_weights import function_of_weights, is_diagonal, parameter_in
from mimdsim.frameworks.neurons import Reading, numbers_of, refusal
from mimdsim.frameworks.origins import (
    THROUGH,
    Combined,
    Currents,
    Dropout,
    Dropped,
    FunctionResult,
    Gate,
    Input,
    Joined,
    LayerOutput,
    Made,
    Origin,
    Padded,
    Parameter,
    Part,
    Pooled,
    Product,
    Read,
    Scaled,
    Slice,
    Step,
    Sum,
    added_up,
    feeds_of,
    is_in_time,
    minus,
    of_all,
    parts_of,
    sliced,
    sources_in,
    terms_of,
    timestep_of,
    undropped,
    unscaled,
    votes_in,
)
from mimdsim.frameworks.planes import FUNCTIONS, LayerFunction, convolution_of, is_mean_of, planes_of, pool_of
from mimdsim.frameworks.tensors import (
    entry_of,
    first_column,
    is_cut_out,
    is_number_zero,
    is_zero,
    row_of,
    tensors_in,
    zeros_at_ends,
)
from mimdsim.frameworks.written_equations import made_in
from mimdsim.graph.convolution import Convolution, Planes, Pool, Window
from mimdsim.graph.sources import COMPLEMENT
from mimdsim.graph.weight_functions import WeightFunction

FRAMEWORKS = ("snntorch", "norse", "spikingjelly", "DCLS")
NOT_OF_USERS = ("torch", "mimdsim", *FRAMEWORKS)
LEAST = 6e-8  # about half of what float32 tells apart near 1
VOTE = "vote"  # what a voting layer makes
GATHERS = {"stack", "cat", "sum", "mean", "max", "amax", "add", "div", VOTE}  # what is read of timesteps
KEEPS_VALUES = {
    "__getitem__", "chunk", "clone", "contiguous", "double", "expand", "flatten", "float", "index_select", "movedim",
    "narrow", "permute", "repeat", "reshape", "select", "split", "squeeze", "swapaxes", "t", "to", "transpose", "type",
    "type_as", "unbind", "unflatten", "unsqueeze", "view", "T", "mT",
}  # fmt: skip
TURNS_IN_PLACE = {"unsqueeze_", "squeeze_", "transpose_", "swapaxes_", "t_"}
# whose values are not read
OF_SHAPES = {"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"}
DRAWS = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "bernoulli", "normal", "poisson",
    "multinomial", "bernoulli_", "exponential_", "normal_", "random_", "uniform_",
}  # fmt: skip
ADDS = {"__add__", "__iadd__", "__radd__", "add", "add_"}
SUBTRACTS = {"__sub__", "__isub__", "sub", "sub_", "subtract"}
JOINS = {"cat", "concat", "concatenate"}
MULTIPLIES = {"linear", "matmul", "mm", "__matmul__", "einsum"}
LAST_AXIS = re.compile(r"(\w+)(\w),(?:\2(\w)|(\w)\2)->\1(?:\3|\4)")  # of einsum: a product with [in, out], or [out, in]
DIVIDES = {"__truediv__", "__itruediv__", "div", "div_", "true_divide"}
_F = torch.nn.functional
DROPOUTS = {_F.dropout: "neuron", _F.dropout1d: "plane", _F.dropout2d: "plane"}  # and what is left out
MASKS = {"__mul__", "__rmul__", "mul", "multiply"}
COMPLEMENTS = {"__rsub__", "rsub"}


@dataclass(kw_only=True)
class NeuronCalls:
    """The calls of one layer of neurons, in order. currents, outputs: [batch, neurons] a call, or with `in_time`
    [timesteps, batch, neurons] in the only one; neurons may be planes. states: alike, of neurons that hand them on.
    path: of the module, where that has several layers."""

    name: str
    module: torch.nn.Module
    reading: Reading
    path: str = ""
    currents: list[torch.Tensor] = field(default_factory=list)
    origins: list[Origin | None] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)
    states: list[torch.Tensor] = field(default_factory=list)

    @property
    def in_time(self) -> bool:
        return self.reading.in_time

    @property
    def neurons(self) -> int:
        return math.prod(self.outputs[0].shape[2 if self.in_time else 1 :])

    @property
    def planes(self) -> Planes | None:
        """Those that it sends; None: it has none."""
        shape = tuple(self.outputs[0].shape[2 if self.in_time else 1 :])
        if len(shape) not in (2, 3):
            return None
        return Planes(channels=shape[0], height=shape[1] if shape[2:] else 1, width=shape[-1])

    def sequence(self, tensors: list[torch.Tensor]) -> np.ndarray:
        """float64[timesteps, batch, neurons]"""
        together = tensors[0] if self.in_time else torch.stack(tensors)
        if together.dtype in (torch.float16, torch.bfloat16):
            raise refusal(
                f"layer '{self.name}' computes in {together.dtype}; nearest: float32, without autocast, and "
                "mapping.value_bytes for halves"
            )
        return numbers_of(together.reshape(*together.shape[:2], -1))


@dataclass(kw_only=True)
class Recorded:
    """What a forward pass showed. returned: the origins of what the module returned (in a single step: of the last);
    masks: zeros and ones by which parameters are multiplied, by their names; norms: how often each batch norm ran;
    made_by_call: what every call returned; reading: how what it returned reads a linear layer that ends it, '' where
    none does; log_softmax: whether that was one over the classes, which a cross-entropy undoes: what it returned is
    what it was made of; votes: how many outputs stand for a class, of which the module returned the mean; made: by
    operations element by element, in order; timesteps: of the sequence, 0 where it was not seen; stepwise: the module
    took one a call; unread: what functions made that are not understood, or gather timesteps, in order;
    returned_before: by the calls before the last, in a single step; currents: what products made, and its version."""

    layers: dict[str, NeuronCalls] = field(default_factory=dict)
    norms: Counter[str] = field(default_factory=Counter)
    returned: list[Origin | None] = field(default_factory=list)
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    made_by_call: list[list[torch.Tensor]] = field(default_factory=list)
    reading: str = ""
    log_softmax: bool = False
    votes: int = 1
    made: list[Made] = field(default_factory=list)
    timesteps: int = 0
    stepwise: bool = False
    unread: list[FunctionResult] = field(default_factory=list)
    returned_before: list[Origin | None] = field(default_factory=list)
    currents: list[tuple[Product, torch.Tensor, int]] = field(default_factory=list)


class Recorder(TorchFunctionMode):  # type: ignore[misc]
    """Follows tensors through a module: `run` is called inside `with`."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.example: torch.Tensor | None = None  # of all timesteps
        self.seen = Recorded()
        self.names = {id(each): name for name, each in module.named_modules()}
        self._inside = 0
        self._origins: dict[int, Origin] = {}
        self._held: list[torch.Tensor] = []  # an id is reused once its tensor is gone
        self._drawn: set[int] = set()  # ids of tensors that hold random numbers
        self.parameters = dict(module.named_parameters())
        _check_tied(module)
        self._unmasked: set[str] = set()
        self._gradients = True
        self._multiplied: Counter[str] = Counter()
        self._steps: dict[Any, Step | None] = {}
        self.logits: dict[int, torch.Tensor] = {}  # of samples, by id of the log_softmax made of them
        for path, each in module.named_modules():
            if not getattr(each, "autapses", True):  # norse: no neuron excites itself
                name = f"{path}.recurrent_weights".lstrip(".")
                self._mask(name, 1.0 - np.eye(len(self.parameters[name])))
        for name, parameter in self.parameters.items():
            hooked = parameter._post_accumulate_grad_hooks or (
                parameter._backward_hooks and name not in self.seen.masks
            )
            if hooked:
                raise refusal(f"'{name}' has a hook on its gradient, which nothing here would call: remove it")
            self.mark(parameter, Parameter(name=name, masked=name in self.seen.masks))

    def mark(self, made: Any, origin: Origin) -> None:
        for tensor in tensors_in(made):
            self._origins[id(tensor)] = origin
            self._held.append(tensor)
            if isinstance(origin, Product):
                self.seen.currents.append((origin, tensor, tensor._version))

    def origin(self, tensor: Any) -> Origin | None:
        return self._origins.get(id(tensor)) if isinstance(tensor, torch.Tensor) else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "_set_grad_enabled" and not self._inside:
            self._gradients = args[0]
        if name == "register_hook" and self.origin(args[0]) is not None:
            raise refusal("a hook acts on a gradient (register_hook), which nothing here would call: remove it")
        if name in ("detach", "detach_") and not self._inside and args[0].grad_fn and self.origin(args[0]) is None:
            raise refusal("a state that neurons keep is detached, which nothing here would do: leave that out")
        before = args if self._inside else self._before(name, args)
        drops = func in DROPOUTS  # which is recorded, and leaves nothing out here
        made = args[0].clone() if drops else func(*args, **kwargs)
        if not self._inside:
            self._follow(func, args, before, kwargs, made)
        return made

    def _before(self, name: str, args: Any) -> Any:
        """The arguments of a function that changes the first in place, with that as it was."""
        changes = name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and name[-2:] != "__")
        if not changes or not args or not isinstance(args[0], torch.Tensor) or name == "__invert__":
            return args
        if isinstance(origin := self.origin(args[0]), Made):  # which keeps what it was made of
            return args
        held = args[0].detach().clone()
        if origin is not None:
            self.mark(held, origin)
        return (held, *args[1:])

    def _follow(self, func: Any, given: Any, args: Any, kwargs: Any, made: Any) -> None:
        """given: the arguments; args: as they were, of functions in place."""
        known = [origin for tensor in tensors_in([args, kwargs]) if (origin := self.origin(tensor)) is not None]
        name = getattr(func, "__name__", str(func))
        if name in DRAWS or not self._drawn.isdisjoint(map(id, tensors_in([args, kwargs]))):
            return self._draw(name, known, made)
        if known and name == "__setitem__":
            return self._place(given[0], *args)
        if not known or not any(True for _ in tensors_in(made)):
            return
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", name)
        if func in DROPOUTS:
            self._with_gradients(f"'{name}' runs", args[0])
            options = {"p": 0.5, "training": True, "inplace": False} | kwargs
            options |= zip(("p", "training", "inplace"), args[1:], strict=False)
            if DROPOUTS[func] == "plane" and args[0].ndim not in (3, 4):
                raise refusal(f"'{name}' reads {list(args[0].shape)}; nearest: [samples, channels, height, width]")
            left = dropped(known[0], options["p"] if options["training"] else 0.0, "timestep", DROPOUTS[func])
            return self.mark([made, given[0]] if options["inplace"] else made, left)
        if name in OF_SHAPES and len(known) == 1:
            return
        if name == "log_softmax" and made.ndim == 2 and (kwargs.get("dim", None) or [*args, None][1]) in (1, -1):
            self.logits[id(made)] = args[0]
        if name in KEEPS_VALUES and len(known) == 1 and not self._loses(known[0], args[0], made):
            return self._keep(args[0], made, known[0])
        if name in TURNS_IN_PLACE:
            return self.mark(made, known[0])
        later = name in MULTIPLIES or name in FUNCTIONS  # which say it themselves
        if not later and isinstance(made, torch.Tensor) and self._is_cut([args, kwargs], made):
            found = self._element_by_element(name, args, kwargs, made)
            unread = name if torch.is_grad_enabled() else f"{name} without gradients"
            return self.mark(made, found.hold(made) if found else self._unread(unread, *dict.fromkeys(known)))
        if name in ADDS and not kwargs and (biased := self._biased(known)) is not None:
            return self.mark(made, biased)
        if name in ADDS and not kwargs:
            others = [arg for arg in args if self.origin(arg) is None]
            apart = self._is_cut(args, made) or any(isinstance(each, (Made, Gate)) for each in known)
            zero = is_zero if all(isinstance(each, LayerOutput) for each in known) else is_number_zero
            if not apart and all(map(zero, others)):
                parts = tuple(part for each in known for part in (each.parts if isinstance(each, Sum) else (each,)))
                return self.mark(made, Sum(parts=parts) if len(parts) > 1 else known[0])
        if name in SUBTRACTS and not kwargs and not self._is_cut(args, made):
            one, other = self.origin(args[0]), minus(self.origin(args[1]))
            if other is not None and isinstance(one, Currents) and feeds_of(one):
                both = [part for each in (one, other) for part in (each.parts if isinstance(each, Sum) else (each,))]
                return self.mark(made, Sum(parts=tuple(both)))
        if name in MASKS | COMPLEMENTS and (spikes := self._combined(name, args, kwargs, made)) is not None:
            return self.mark(made, spikes)
        if name in JOINS and (joined := self._joined(args, kwargs)) is not None:
            return self.mark(made, joined)
        if name in {"stack", *JOINS} and args and (same := self._in_time(args, kwargs)) is not None:
            return self.mark(made, same)
        if name == "fill_diagonal_" and args[1:] == (0,) and isinstance(known[0], Parameter):
            return self.mark(made, self._mask(known[0].name, 1 - np.eye(*made.shape)))
        if name in MASKS and len(args) == 2 and (masked := self._masked(*args)) is not None:
            return self.mark(made, masked)
        if name in MULTIPLIES and (scaled := self._scaled_weights(name, args)) is not None:
            return self.mark(made, scaled.hold(made))
        if name in MULTIPLIES and (product := self._product(name, args, kwargs)) is not None:
            return self.mark(made, product)
        if name == "softplus" and isinstance(known[0], Parameter) and _is_plain_softplus(*args[1:], **kwargs):
            return self.mark(made, self._made(name, name, self._operand(args[0])).hold(made))
        if name in FUNCTIONS and (planes := self._function_of_planes(name, args, kwargs)) is not None:
            return self.mark(made, planes)
        if isinstance(made, torch.Tensor) and (found := self._element_by_element(name, args, kwargs, made)) is not None:
            return self.mark(made, found.hold(made))
        if name == "pad" and (ends := zeros_at_ends(*args, **kwargs)) and len(known) == 1:
            return self.mark(made, Padded(by=name, of=(known[0],), before=ends[0], after=ends[1]))
        if (pooled := self._mean_of_planes(name, args, kwargs, made)) is not None:
            return self.mark(made, pooled)
        if name in ("mean", "sum") and (voted := self._voted(name, args, kwargs, known)) is not None:
            return self.mark(made, voted)
        number = args[1] if name in DIVIDES | MASKS and len(args) == 2 and isinstance(args[1], (int, float)) else 0
        by = "div" if number and name in DIVIDES else name
        divisor = (1 / number if name in MASKS else number) if number > 0 else 1.0
        times = self._times(by, args, made, divisor) if by in MASKS | DIVIDES and not kwargs else None
        self.mark(made, times or self._unread(by, *dict.fromkeys(known), divisor=divisor))

    def _draw(self, name: str, known: list[Origin], made: Any) -> None:
        """Random numbers, or what is made of them; raises DescriptionError where anything that is read is, too."""
        if known and not name.endswith("_like"):
            raise refusal(
                f"'{name}' reads random numbers that the module draws, others every time; nearest: encode the example "
                "before the module gets it, states that begin at 0, torch.nn.Dropout of spikes"
            )
        for each in tensors_in(made):
            if each.numel() > 1 and (each != each.flatten()[0]).any():  # else it was multiplied by 0
                self._drawn.add(id(each))
                self._held.append(each)

    def _voted(self, by: str, args: Any, kwargs: Any, known: list[Origin]) -> FunctionResult | None:
        """The mean or sum of adjacent outputs of a layer, which lie along an axis of their own."""
        given, axis = [*args, kwargs.get("dim", kwargs.get("axis")), None][:2]
        shape: tuple[int, ...] = tuple(getattr(given, "shape", ()))
        layers = {name for each in known for name, _ in sources_in(each)}
        if axis not in (-1, len(shape) - 1) or len(args) + len(kwargs) != 2 or len(shape) < 2 or len(layers) != 1:
            return None
        each, neurons = shape[-1], self.seen.layers[layers.pop()].neurons
        if min(shape[-2:]) < 2 or shape[-2] * each != neurons or max(map(votes_in, known)) > 1:
            return None
        return FunctionResult(by=VOTE, of=tuple(known), divisor=1 / each if by == "sum" else 1.0, votes=each)

    def _mean_of_planes(self, by: str, args: Any, kwargs: Any, made: Any) -> Pooled | None:
        """The mean of every plane of spikes, or of currents, written as such."""
        of = self.origin(args[0]) if by in ("mean", "adaptive_avg_pool3d") else None
        layers = {name for name, spikes in sources_in(of) if spikes}
        every = [self.seen.layers[name].outputs[0] for name in layers] or [each.tensor for each in made_in([of])]
        shapes = [tuple(each.shape[-3:]) for each in every if each.ndim > 3]
        made_of = (part.convolution for part, _ in terms_of(of) if isinstance(part, Product) and part.convolution)
        currents = [each.result for each in made_of if each]
        shapes += [(each.channels, each.height, each.width) for each in currents]
        if of is None or not shapes or isinstance(of, Pooled) or self._is_cut(args, made):
            return None
        planes = Planes(**dict(zip(("channels", "height", "width"), shapes[0], strict=True)))
        whole = Pool(kind="average", window=Window.whole(planes))
        return Pooled(of=of, planes=planes, pool=whole) if is_mean_of(planes, by, made, *args, **kwargs) else None

    def _biased(self, known: list[Origin]) -> Product | None:
        """A product to which a bias is added by hand."""
        products = [each for each in known if isinstance(each, Product)]
        biases = [each.name for each in known if isinstance(each, Parameter)]
        if len(products) != 1 or len(biases) != 1 or products[0].bias or products[0].norm or products[0].convolution:
            return None
        columns = self.parameters[products[0].weight].shape[0 if products[0].transposed else 1]
        return replace(products[0], bias=biases[0]) if self.parameters[biases[0]].shape == (columns,) else None

    def _is_cut(self, args: Any, made: torch.Tensor) -> bool:
        """Whether a function leaves gradients out, as without gradients (no_grad)."""
        on = torch.is_grad_enabled() and made.requires_grad  # views that no_grad makes seem to require one
        return not on and any(each.requires_grad for each in tensors_in(args))

    def _loses(self, of: Origin, whole: Any, made: Any) -> bool:
        """Whether values, or their gradients, get lost on the way to another type."""
        if not isinstance(made, torch.Tensor) or isinstance(of, (Input, Parameter)):
            return False
        cut = whole.is_floating_point() and not made.is_floating_point()
        return cut or made.dtype in (torch.float16, torch.bfloat16) or self._is_cut([whole], made)

    def _place(self, into: torch.Tensor, before: torch.Tensor, index: Any, part: Any) -> None:
        """A number that is written where something is the case, or a timestep into a tensor of all of them."""
        origin, held = self.origin(part), self.origin(before)
        chosen = isinstance(self.origin(index), Made) and index.shape == into.shape
        if chosen and (not isinstance(part, torch.Tensor) or not part.ndim):
            found = self._element_by_element("where", (index, part, before), {}, into)
            return self.mark(into, found.hold(into) if found else self._unread("__setitem__", held))
        image = isinstance(origin, Input) and origin.entry is None
        if (image or isinstance(origin, (Made, LayerOutput, Product, *THROUGH))) and not isinstance(held, Made):
            others = list(held.of) if isinstance(held, FunctionResult) and held.by == "stack" else []
            at, count = entry_of(into[index], into, last=True) or (len(others), len(others) + 1)
            others += [None] * (count - len(others))  # which are not there yet
            others[at] = replace(origin, call=at) if isinstance(origin, Product) else origin
            shown = image and all(each == origin for each in others)  # in every timestep
            return self.mark(into, Input() if shown else FunctionResult(by="stack", of=tuple(others)))
        if held is not None and not isinstance(held, FunctionResult):
            self.mark(into, self._unread("__setitem__", held))

    def _unread(self, by: str, *of: Origin | None, divisor: float = 1.0) -> FunctionResult:
        result = FunctionResult(by=by, of=tuple(each for each in of if each is not None), divisor=divisor)
        self.seen.unread.append(result)
        return result

    def _keep(self, whole: torch.Tensor, made: Any, of: Origin) -> None:
        """The same values, or a timestep or a share of the columns of them."""
        for part in tensors_in(made):
            if isinstance(of, (Parameter, Part)) and part.numel() < whole.numel():
                masked = isinstance(of, Parameter) and of.masked
                row = None if masked else row_of(part, self.parameters[of.name])
                unread = f"part of {of.name}"
                self.mark(part, self._unread(unread, of) if row is None else Part(name=of.name, row=row))
                continue
            if isinstance(of, Parameter) and whole.ndim > 1 < len(whole) and part.numel() > whole.numel():
                self.mark(part, self._unread(f"copies of {of.name}", of))
                continue
            taken: Origin = of
            entry = None
            sent = undropped(of)[0]
            if (_are_spikes(sent) or isinstance(sent, Made)) and (first := first_column(part, whole)) is not None:
                self.mark(part, sliced(of, first, whole.shape[-1]))
                continue
            over_time = isinstance(of, FunctionResult) or (is_in_time(of) and not isinstance(of, Input))
            if over_time and is_cut_out(part, whole):
                self.mark(part, self._unread("a slice", of))
                continue
            if isinstance(of, Input):
                entry = entry_of(part, self.example)
                taken = Input(entry=entry) if entry else of
            elif is_in_time(of) and (entry := entry_of(part, whole, last=over_time)):
                taken = timestep_of(of, *entry)
            elif isinstance(of, Currents) and part.shape[:-1] == whole.shape[:-1]:
                gates, left = divmod(whole.shape[-1], part.shape[-1] or 1)
                first = first_column(part, whole)
                if first is not None and not left and first % part.shape[-1] == 0:
                    taken = Gate(of=of, index=first // part.shape[-1], gates=gates)
            self.seen.timesteps = max(self.seen.timesteps, entry[1] if entry else 0)
            self.mark(part, taken)

    def _combined(self, name: str, args: Any, kwargs: Any, made: torch.Tensor) -> Combined | None:
        """The product of spikes, or 1 - spikes."""
        spikes = [origin for arg in args if (origin := self.origin(arg)) is not None and _are_spikes(origin)]
        if kwargs or self._is_cut(args, made) or any(each.shape != made.shape for each in tensors_in(args)):
            return None
        if len(spikes) == 2 == len(args):
            return Combined(by=TIMES, parts=tuple(spikes))
        one = name in COMPLEMENTS and len(spikes) == 1 and self._operand(args[1]) == 1.0
        return Combined(by=COMPLEMENT, parts=tuple(spikes)) if one else None

    def _times(self, by: str, args: Any, made: torch.Tensor, divisor: float) -> Scaled | None:
        """Spikes, or the input, times a number, or divided by one."""
        of, number = (self.origin(args[0]), self._operand(args[1])) if len(args) == 2 else (None, None)
        if of is None or not isinstance(number, float) or not number or self._is_cut(args, made):
            return None
        read = of.of if isinstance(of, Dropped) else of
        if not _are_spikes(read) or made.shape != args[0].shape:
            return None
        return Scaled(by=by, of=(of,), divisor=divisor, factor=number if by in MASKS else 1 / number)

    def _joined(self, args: Any, kwargs: Any) -> Origin | None:
        """Tensors side by side along their last axis, that of neurons."""
        tensors, axis = args[0], kwargs.get("dim", args[1] if len(args) > 1 else 0)
        if axis not in (-1, tensors[0].ndim - 1):
            return None
        tensors = [each for each in tensors if each.numel()]  # padding may be none
        if len(tensors) == 1:
            return self.origin(tensors[0])
        return Joined(parts=tuple(map(self.origin, tensors)), widths=tuple(each.shape[-1] for each in tensors))

    def _in_time(self, args: Any, kwargs: Any) -> Origin | None:
        """The timesteps of one product or pool, one after another, or of what layers and equations sent."""
        every, axis = [*map(self.origin, args[0])], kwargs.get("dim", args[1] if len(args) > 1 else 0)
        only, *others = dict.fromkeys(every)
        first = axis == 0 or (axis == 1 and isinstance(only, Input))
        if not others and first and isinstance(only, (Product, Pooled, Input, LayerOutput)):
            whole: Origin = of_all(only, lambda layer: self.seen.layers[layer].in_time)
            return whole
        sent = [each for each in every if isinstance(each, (Made, LayerOutput))]
        if axis in (0, 1) and any(isinstance(each, Made) for each in sent) and len(sent) >= len(every) - 2:
            return FunctionResult(by="stack", of=tuple(every))
        return None

    def _element_by_element(self, name: str, args: Any, kwargs: Any, result: torch.Tensor) -> Made | None:
        """An operation on currents, parameters, and what was made of them; None for any other."""
        operands = [self._operand(arg) for arg in args if not isinstance(arg, (torch.dtype, torch.device))]
        kwargs = {key: given for key, given in kwargs.items() if key != "inplace" or given}
        if kwargs.keys() - {"min", "max", "min_val", "max_val", "alpha", "value"} or any(
            operand is None for operand in operands
        ):
            return None
        if not any(isinstance(operand, (Made, Read)) for operand in operands):
            return None
        factor = kwargs.get("alpha", kwargs.get("value", 1))
        sign = BINARY.get(name.removesuffix("_") if name[-2:] != "__" else name, "")
        adds = factor == 1 and sign in (ADD, SUBTRACT)
        if adds and (together := self._together(sign, operands[0], operands[1])) is not None:
            self._name(args)
            return together
        limits = [
            self._operand(given) if (given := kwargs.get(key, kwargs.get(f"{key}_val"))) is not None else None
            for key in ("min", "max")
        ]

        make = partial(self._made, name)
        if factor != 1:
            operands[1] = make(TIMES, float(factor), operands[1])
        found = arithmetic(make, name, operands, limits)
        if found is None:
            return None
        self._name(args)
        cut = result.is_floating_point() and found.op != "detach" and self._is_cut(args, result)
        if not cut and found.op in (ADD, SUBTRACT) and (step := written_step(found, self._steps)) is not None:
            return self._made(name, "spike", self._just_below(step[0]) if step[1].at else step[0], step=step[1])
        return make("detach", found) if cut else found

    def _together(self, sign: str, made: Any, read: Any, left: int = FAR) -> Made | None:
        """(M + R) - S as M + (R - S), of two currents that are both of the layer's own spikes or both of others."""
        if not isinstance(made, Made) or made.op not in (ADD, SUBTRACT) or not isinstance(read, Read) or not left:
            return None
        for at, each in enumerate(made.args):
            own = made.op if at else ADD
            found: Made | Read | None = None
            if isinstance(each, Made):
                found = self._together(sign if own == ADD else _other(sign), each, read, left - 1)
            elif isinstance(each, Read) and each.tensor.shape == read.tensor.shape:
                alike = _calls_of(each) == _calls_of(read) and _is_own(each, made) is _is_own(read, made) is not None
                more = read.of if sign == own else minus(read.of)
                if alike and more is not None:
                    parts = [part for of in (each.of, more) for part in (of.parts if isinstance(of, Sum) else (of,))]
                    added = read.tensor if sign == own else -read.tensor
                    found = Read(of=Sum(parts=tuple(parts)), tensor=each.tensor + added)
            if found is not None:
                args = (*made.args[:at], found, *made.args[at + 1 :])
                return self._made(made.by, made.op, *args)
        return None

    def _made(self, by: str, op: str, *args: Any, step: Step | None = None) -> Made:
        made = Made(by=by, op=op, args=args, number=len(self.seen.made), tensor=None, step=step)
        self.seen.made.append(made)
        return made

    def _operand(self, arg: Any) -> Made | Read | float | np.ndarray | None:
        if isinstance(arg, (bool, int, float)):
            return float(arg)
        if not isinstance(arg, torch.Tensor):
            return None
        origin = self.origin(arg)
        if isinstance(origin, Made):
            whole = origin.tensor is None or arg.numel() >= origin.tensor.numel()
            return origin if whole else None
        if isinstance(origin, (Product, Gate, Parameter, Part)) or (isinstance(origin, Currents) and feeds_of(origin)):
            return Read(of=origin, tensor=arg)
        return constant_of(arg) if origin is None and not self._learns(arg) else None

    def _learns(self, tensor: torch.Tensor) -> bool:
        """Whether the gradient of a tensor gets to anything but states that a framework makes, which nobody reads."""
        if tensor.grad_fn is None:
            return tensor.requires_grad and isinstance(tensor, torch.nn.Parameter)
        seen: set[Any] = set()
        waiting = [tensor.grad_fn]
        for node in waiting:  # which grows
            if isinstance(getattr(node, "variable", None), torch.nn.Parameter):
                return True
            waiting += {each for each, _ in node.next_functions if each is not None} - seen
            seen.update(waiting)
        return False

    def _name(self, args: Any) -> None:
        """Name what an operation reads by the variables that hold it, where the function that is called has such."""
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in NOT_OF_USERS:
            frame = frame.f_back
        held = {} if frame is None else frame.f_locals
        for arg in args:
            origin = self.origin(arg)
            if isinstance(origin, Made) and not origin.name:
                places = (held, getattr(held.get("self"), "__dict__", {}))
                origin.name = next((key for place in places for key, value in place.items() if value is arg), "")

    def _spike(self, where: str, function: Any, given: Any, made: Any, key: Any) -> None:
        """A function with a gradient of its own, of one tensor, which steps from 0 to 1; key: what tells it apart."""
        if key not in self._steps:
            self._steps[key] = step_of(function)
        of, step = self._operand(given), self._steps[key]
        if isinstance(of, (Made, Read)) and step is not None:
            self._name([given])
            spike = self._made(where, "spike", self._just_below(of) if step.at else of, step=step)
            if not self._gradients:
                spike = self._made(where, "detach", spike)
            self.mark(made, spike.hold(made))
        elif (known := self.origin(given)) is not None:
            self.mark(made, self._unread(where, known))

    def _just_below(self, of: Made | Read) -> Made:
        """What is above a threshold where `of` reaches it: its distance from the float32 below that."""
        limit = of.args[1] if isinstance(of, Made) and of.op == SUBTRACT else None
        if isinstance(of, Made) and isinstance(limit, (float, np.ndarray)):
            below = np.nextafter(np.float32(limit), np.float32(-np.inf)).astype(np.float64)
            return self._made(of.by, SUBTRACT, of.args[0], below if below.ndim else float(below))
        return self._made("add", ADD, of, LEAST)

    def _masked(self, one: Any, other: Any) -> Parameter | None:
        """A parameter times zeros and ones that are none."""
        parameter, mask = (one, other) if isinstance(self.origin(one), Parameter) else (other, one)
        origin = self.origin(parameter)
        if not isinstance(origin, Parameter) or origin.masked or not isinstance(mask, torch.Tensor):
            return None
        held, values = self.parameters[origin.name], numbers_of(mask)
        if mask.shape != held.shape or parameter.stride() != held.stride() or not np.isin(values, (0, 1)).all():
            return None
        return self._mask(origin.name, values)

    def _mask(self, name: str, values: np.ndarray) -> Parameter:
        if not np.array_equal(self.seen.masks.setdefault(name, values), values):
            raise refusal(f"'{name}' is multiplied by masks that differ; one for all timesteps can run")
        return Parameter(name=name, masked=True)

    def _used(self, parameter: Parameter) -> str:
        """Its name; a parameter that has a mask has it wherever it is used."""
        if not parameter.masked:
            self._unmasked.add(parameter.name)
        if parameter.name in self._unmasked and parameter.name in self.seen.masks:
            raise refusal(f"'{parameter.name}' is used with a mask and without; nearest: a parameter for each")
        return parameter.name

    def _product(self, name: str, args: Any, kwargs: Any) -> Product | None:
        """A product with a parameter, as written by hand."""
        turned = name == "linear"
        if name == "einsum":
            axes = LAST_AXIS.fullmatch(args[0].replace(" ", "")) if isinstance(args[0], str) else None
            args = args[1] if len(args) == 2 else args[1:]
            if axes is None:
                return None
            turned = axes[3] is None
        if len(args) < 2 or (found := self._weights(f"'{name}'", args[1], turned)) is None:
            return None
        weight, function = found
        of = added_up(self.origin(args[0])) or FunctionResult(by="a tensor of unknown origin", of=())
        bias = self.origin(args[2] if len(args) > 2 else kwargs.get("bias"))
        if (
            (self.origin(args[0]) is None and self._learns(args[0]))
            or args[1].ndim != 2
            or not isinstance(bias, (Parameter, type(None)))
        ):
            return None
        turned ^= args[1].stride() != self.parameters[weight.name].stride()
        names = self._used(weight), self._used(bias) if bias else ""
        product = self._counted(_dense(of, args[0], args[1], *names, turned), args[0])
        return unscaled(replace(product, function=function))

    def _weights(self, where: str, tensor: Any, turned: bool) -> tuple[Parameter, WeightFunction | None] | None:
        """The parameter that weights are, or are made of, and by which function; None of other values. turned: whether
        they lie [outputs, inputs]."""
        parameter = parameter_in(origin := self.origin(tensor))
        if parameter is None or isinstance(origin, Parameter):
            return None if parameter is None else (parameter, None)
        made, mask = function_of_weights(where, origin, parameter, self.parameters[parameter.name], tensor, turned)
        return (parameter if mask is None else self._mask(parameter.name, mask)), made

    def _scaled_weights(self, name: str, args: Any) -> Made | None:
        """Weights times a diagonal matrix of signs, on either side."""
        for one, other in (args, args[::-1]) if len(args) == 2 else ():
            if self.origin(one) is None and is_diagonal(one) and parameter_in(self.origin(other)) is not None:
                return self._made(name, TIMES, self._operand(other), numbers_of(one))
        return None

    def _with_gradients(self, what: str, *read: torch.Tensor) -> None:
        """Raise DescriptionError where gradients of what is read get lost, which nothing here would lose."""
        if not torch.is_grad_enabled() and any(each.requires_grad for each in read):
            raise refusal(
                f"{what} without gradients (no_grad); nearest: requires_grad = False for what stays as it is, and "
                "gradients for what it reads"
            )

    def _counted(self, product: Product, given: torch.Tensor) -> Product:
        self._with_gradients(f"'{product.weight}' is multiplied", self.parameters[product.weight], given)
        self._multiplied[product.weight] += 1
        return replace(product, call=self._multiplied[product.weight] - 1)

    def _function_of_planes(self, name: str, args: Any, kwargs: Any) -> Origin | None:
        """A convolution with a parameter, or a pool, called as a function."""
        function = FUNCTIONS[name]
        options = dict(zip(("input", *function.arguments), args, strict=False)) | kwargs
        names: dict[str, Any] = {"weight": "", "bias": ""}
        for role in ("weight", "bias"):
            if (tensor := options.get(role)) is None:
                continue
            origin = self.origin(tensor)
            if role == "weight" and (found := self._weights(f"'{name}'", tensor, True)) is not None:
                origin, names["made_by"] = found
            if not isinstance(origin, Parameter) or tensor.stride() != self.parameters[origin.name].stride():
                return None
            names[role] = self._used(origin)
        return self._of_function(f"'{name}'", function, options.pop("input"), options, **names)

    def _of_function(
        self,
        where: str,
        function: LayerFunction,
        given: torch.Tensor,
        options: Any,
        weight: str,
        bias: str,
        made_by: WeightFunction | None = None,
    ) -> Origin:
        """What a linear layer, a convolution or a pool makes; made_by: the function of its weights."""
        of = added_up(self.origin(given)) or FunctionResult(by="a tensor of unknown origin", of=())
        if function.kind == "linear":
            dense = _dense(of, given, options["weight"], weight, bias, transposed=True)
            return unscaled(replace(self._counted(dense, given), function=made_by))
        of, dropout = undropped(of)
        if dropout and function.kind != "convolution":
            raise refusal(f"{where} pools what dropout leaves; nearest: dropout after the pool")
        planes = planes_of(where, function, given)
        if function.kind == "convolution":
            read, before = (of.planes, of.pool) if isinstance(of, Pooled) else (planes, None)
            made = convolution_of(where, function, options, read, before)
            _check_same(where, made.read, planes)
            source, inputs = of.of if isinstance(of, Pooled) else of, made.fan_in
            product = Product(of=source, inputs=inputs, weight=weight, bias=bias, transposed=True, convolution=made)
            return unscaled(self._counted(replace(product, dropout=dropout, function=made_by), given))
        self._with_gradients(f"{where} pools", given)
        pool = pool_of(where, function, options, planes)
        convolution = of.convolution if isinstance(of, Product) else None
        again = isinstance(of, Pooled) or (convolution and convolution.after)
        if again and pool == Pool(kind="average", window=Window(kernel=(1, 1))):  # which leaves all as it is
            return of
        if again:
            raise refusal(f"{where} pools what another pool made; nearest: one pool over the windows of both")
        if not isinstance(of, Product):
            return Pooled(of=of, planes=planes, pool=pool)
        if not convolution:
            raise refusal(f"{where} pools a product with '{of.weight}'; pools of convolutions, and of spikes, can run")
        _check_same(where, convolution.made, planes)
        return replace(of, convolution=replace(convolution, after=pool))


def _other(sign: str) -> str:
    return SUBTRACT if sign == ADD else ADD


def _calls_of(read: Read) -> set[int]:
    """In which timesteps a current is made."""
    return {feed.product.call for feed in feeds_of(read.of)} if isinstance(read.of, Currents) else set()


def _is_own(read: Read, made: Made) -> bool | None:
    """Whether a current is of spikes that come of the same states as `made`; None for what is no current, and of states
    before the first timestep."""
    bases: list[Any] = [feed.product.of for feed in feeds_of(read.of)] if isinstance(read.of, Currents) else []
    while any(isinstance(of, (Slice, Dropped, Scaled)) for of in bases):
        bases = [of.of if isinstance(of, (Slice, Dropped, Scaled)) else of for of in bases]
    if not bases or any(isinstance(of, FunctionResult) for of in bases):
        return None
    near = _made_of(made)
    return any(isinstance(of, Made) and not near.isdisjoint(_made_of(of)) for of in bases)


def _made_of(made: Made) -> set[int]:
    """The numbers of what it is made of, a few operations back."""
    found, last = {made.number}, [made]
    for _ in range(FAR):
        last = [each for one in last for each in one.args if isinstance(each, Made) and each.number not in found]
        found |= {each.number for each in last}
    return found


def _check_tied(module: torch.nn.Module) -> None:
    """Raise DescriptionError for a parameter that several modules have, of which each would be trained by itself."""
    first: dict[int, tuple[str, str]] = {}
    for path, each in module.named_modules():
        for role, parameter in each.named_parameters(recurse=False):
            owner, name = first.setdefault(id(parameter), (path, f"{path}.{role}".lstrip(".")))
            if not f"{path}.".startswith(f"{owner}."):  # as a part of it, which snnTorch's V is
                raise refusal(f"'{path}.{role}' is '{name}' as well; nearest: weights of its own for each layer")


def _is_plain_softplus(beta: float = 1.0, threshold: float = 20.0) -> bool:
    return (beta, threshold) == (1, 20)


def _dense(of: Origin, given: torch.Tensor, values: torch.Tensor, weight: str, bias: str, transposed: bool) -> Product:
    """A product of all that is given, which of pooled planes is a convolution with one position."""
    of, dropout = undropped(of)
    plain = Product(of=of, inputs=given.shape[-1], weight=weight, bias=bias, transposed=transposed, dropout=dropout)
    return over_pooled(plain, values.numel() // plain.inputs)


def over_pooled(product: Product, outputs: int) -> Product:
    """One that reads pooled planes as the convolution, with one position, that it is."""
    of = product.of
    if not isinstance(of, Pooled):
        return product
    pooled = of.pool.over(of.planes)
    if pooled.neurons != product.inputs:
        raise refusal(
            f"'{product.weight}' is multiplied by {product.inputs} of {pooled.neurons} pooled values; nearest: flatten "
            "them all"
        )
    convolution = Convolution(planes=of.planes, window=Window.whole(pooled), channels=outputs, before=of.pool)
    return replace(product, of=of.of, convolution=convolution)


def dropped(of: Origin, share: float, per: str, leaves_out: str) -> Origin:
    if share >= 1:
        raise refusal(f"dropout with p = {share:g} leaves nothing; nearest: below 1")
    return Dropped(of=added_up(of) or of, dropout=Dropout(share=share, per=per, of=leaves_out)) if share else of


def _check_same(where: str, made: Planes, read: Planes) -> None:
    if made != read:
        raise refusal(f"{where} reads planes of {read}, which were made as {made}: leave out what reshapes them")


def _are_spikes(origin: Origin | None) -> bool:
    """Whether layers sent it, or it is the input, alone or in sums and products."""
    if isinstance(origin, (*THROUGH, FunctionResult)) and not isinstance(origin, Dropped):
        stacked = not isinstance(origin, FunctionResult) or origin.by == "stack"
        return stacked and all(map(_are_spikes, parts_of(origin)))
    return isinstance(origin, Input) or (isinstance(origin, LayerOutput) and origin.spikes)
