"""The functions that a PyTorch module calls in a forward pass, recorded one by one (calls of modules: module_calls.py).

Every tensor has an origin, which says where its values come from; what is not understood keeps its name until it
reaches a layer, where it is refused.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from mimdsim.frameworks.arithmetic import BINARY, COMPARES, TIMES, plain_name
from mimdsim.frameworks.neurons import refusal, tell
from mimdsim.frameworks.origins import (
    THROUGH,
    VOTE,
    Combined,
    Currents,
    Dropout,
    Dropped,
    FunctionResult,
    Gate,
    Input,
    Joined,
    Late,
    LayerOutput,
    Made,
    Origin,
    Padded,
    Parameter,
    Part,
    Pooled,
    Product,
    Scaled,
    Sum,
    added_up,
    each_in,
    feeds_of,
    is_in_time,
    minus,
    of_all,
    parts_of,
    sliced,
    sources_in,
    timestep_of,
    undropped,
    votes_in,
    with_parts,
)
from mimdsim.frameworks.planes import FUNCTIONS
from mimdsim.frameworks.recording_arithmetic import PLANES, is_in_place, share_of
from mimdsim.frameworks.recording_products import ProductRecorder
from mimdsim.frameworks.tensors import (
    entry_of,
    first_column,
    first_timestep,
    is_cut_out,
    is_number_zero,
    is_zero,
    row_of,
    tensors_in,
    zeros_beside,
)
from mimdsim.graph.convolution import Pool, Window
from mimdsim.graph.sources import COMPLEMENT

LATE = "late timesteps"
OF_TIMESTEPS = {"stack", LATE}  # what is each of them
GATHERS = {*OF_TIMESTEPS, "cat", "sum", "mean", "max", "amax", "add", "div", VOTE}  # what is read of them

LEAVES = {"__bool__", "__float__", "__int__", "__index__", "__array__", "item", "numpy", "tolist"}  # tensors

HIGHEST = {"maximum", "max"}  # of two, as of all timesteps

KEEPS_VALUES = {
    "__getitem__", "__pos__", "chunk", "clone", "contiguous", "double", "expand", "flatten", "float", "index_select",
    "movedim", "narrow", "permute", "positive", "repeat", "reshape", "select", "split", "squeeze", "swapaxes", "t",
    "to", "transpose", "type", "type_as", "unbind", "unflatten", "unsqueeze", "view", "T", "mT",
}  # fmt: skip

TURNS_IN_PLACE = {"unsqueeze_", "squeeze_", "transpose_", "swapaxes_", "t_"}

# whose values are not read
OF_SHAPES = {"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"}

BEGINS = {"rand", "rand_like", "randn", "randn_like", "normal", "uniform_", "normal_"}  # as states do, in a draw

ADDS = {"__add__", "__iadd__", "__radd__", "add", "add_"}

SUBTRACTS = {"__sub__", "__isub__", "sub", "sub_", "subtract"}

JOINS = {"cat", "concat", "concatenate"}

MULTIPLIES = {"linear", "matmul", "mm", "bmm", "__matmul__", "einsum"}

DIVIDES = {"__truediv__", "__itruediv__", "div", "div_", "true_divide"}

_F = torch.nn.functional

DROPOUTS = {_F.dropout: "neuron", _F.dropout1d: "plane", _F.dropout2d: "plane"}  # and what is left out

MASKS = {"__mul__", "__rmul__", "mul", "multiply"}

COMPLEMENTS = {"__rsub__", "rsub"}


class Recorder(ProductRecorder):
    """Follows tensors through a module: `run` is called inside `with`."""

    def __init__(self, module: torch.nn.Module, zero_states: bool):
        """zero_states: numbers that the module draws are 0."""
        super().__init__(module)
        self.zero_states = zero_states
        self.example: torch.Tensor | None = None  # of all timesteps
        self.names = {id(each): name for name, each in module.named_modules()}
        self._inside = 0
        self._chosen: dict[Made, Made] = {}  # of some neurons, and where that is
        self._draws = False  # whether the last function drew random numbers
        self._drawn: set[int] = set()  # ids of tensors that hold such, or are made of them
        self._begun: set[int] = set()  # of those with which states begin at 0 instead
        _check_tied(module)
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

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "_set_grad_enabled" and not self._inside:
            self._gradients = args[0]
        if name == "register_hook" and self.origin(args[0]) is not None:
            raise refusal("a hook acts on a gradient (register_hook), which nothing here would call: remove it")
        if name in ("detach", "detach_") and not self._inside and args[0].grad_fn and self.origin(args[0]) is None:
            raise refusal("a state that neurons keep is detached, which nothing here would do: leave that out")
        if func is torch.addmm and not kwargs and not self._inside:
            product = self.__torch_function__(torch.mm, types, args[1:])
            return self.__torch_function__(torch.add, types, (product, args[0]))
        before = args if self._inside else self._before(name, args)
        drops = func in DROPOUTS  # which is recorded, and leaves nothing out here
        generator = None if self._inside else torch.get_rng_state()
        made = args[0].clone() if drops else func(*args, **kwargs)
        self._draws = generator is not None and not torch.equal(generator, torch.get_rng_state())
        self._draws |= kwargs.get("generator") is not None
        if self.zero_states and not self._inside and self._begins(name, [args, kwargs], made):
            made.detach().zero_()
            return made
        if not self._inside:
            self._follow(func, args, before, kwargs, made)
        return made

    def _before(self, name: str, args: Any) -> Any:
        """The arguments of a function that changes the first in place, with that as it was."""
        changes = name == "__setitem__" or is_in_place(name)
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
        options: dict[str, Any] = {"p": 0.5, "training": True, "inplace": False} | kwargs
        options |= zip(("p", "training", "inplace"), args[1:] if func in DROPOUTS else (), strict=False)
        leaves_out = func in DROPOUTS and options["training"] and options["p"] > 0
        masks = leaves_out and not known and bool(made.any())
        of_drawn = not self._drawn.isdisjoint(map(id, tensors_in([args, kwargs])))
        if masks or self._draws:
            return self._draw(name, known, made)
        if of_drawn:
            by_zero = BINARY.get(plain_name(name)) == TIMES and any(
                is_zero(arg) for arg in args if id(arg) not in self._drawn
            )
            return None if name in OF_SHAPES or by_zero else self._draw(name, known, made)
        if name in LEAVES and any(not isinstance(each, (Parameter, Part)) for each in known):
            tell(
                "the module decides by values of tensors ('if', 'while', 'assert'): what it did on the example is done "
                "on every other here"
                if name == "__bool__"
                else f"the module takes numbers out of tensors ('{name.strip('_')}'): what it makes of those of the "
                "example stays as it is on every other here"
            )
        if known and name == "__setitem__":
            return self._place(given[0], *args)
        if not known or not any(True for _ in tensors_in(made)):
            return
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", name)
        if name not in MULTIPLIES and name not in FUNCTIONS:
            self.layouts.alike(made, *tensors_in(args))
        if func in DROPOUTS:
            self._with_gradients(f"'{name}' runs", args[0])
            if DROPOUTS[func] == "plane" and args[0].ndim not in (3, 4):
                raise refusal(f"'{name}' reads {list(args[0].shape)}; nearest: [samples, channels, height, width]")
            left = dropped(known[0], options["p"] if leaves_out else 0.0, "timestep", DROPOUTS[func])
            return self.mark([made, given[0]] if options["inplace"] else made, left)
        if name in OF_SHAPES and len(known) == 1:
            return
        if name == "log_softmax" and made.ndim == 2 and (kwargs.get("dim", None) or [*args, None][1]) in (1, -1):
            self.logits[id(made)] = args[0]
        if name == "__getitem__" and (chosen := self._taken_where(*args)) is not None:
            return self.mark(made, chosen)
        if name in KEEPS_VALUES and len(known) == 1 and not self._loses(known[0], args[0], made):
            self.layouts.moved(made, func, *args, **kwargs)
            return self._keep(args[0], made, known[0])
        if name in TURNS_IN_PLACE:
            return self.mark(made, known[0])
        if name == "embedding" and (rows := self._embedded(*args, **kwargs)) is not None:
            return self.mark(made, rows)
        later = name in MULTIPLIES or name in FUNCTIONS  # which say it themselves
        if not later and isinstance(made, torch.Tensor) and self._is_cut([args, kwargs], made):
            found = self._element_by_element(name, args, kwargs, made)
            unread = name if torch.is_grad_enabled() else f"{name} without gradients"
            return self.mark(made, self._hold(found, made) if found else self._unread(unread, *dict.fromkeys(known)))
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
        if name in {*MASKS, "sum"} and (by_channel := self._by_channel(name, args, kwargs, made)) is not None:
            return self.mark(made, by_channel)
        if name in MASKS | COMPLEMENTS and (spikes := self._combined(name, args, kwargs, made)) is not None:
            return self.mark(made, spikes)
        if name in JOINS and (joined := self._joined(args, kwargs)) is not None:
            return self.mark(made, joined)
        if name == "stack":
            self.layouts.moved(made, func, *args, **kwargs)
        if name in {"stack", *JOINS} and args and (same := self._in_time(args, kwargs)) is not None:
            return self.mark(made, same)
        if name == "fill_diagonal_" and args[1:] == (0,) and isinstance(known[0], Parameter):
            return self.mark(made, self._mask(known[0].name, 1 - np.eye(*made.shape)))
        if name in MASKS and len(args) == 2 and (masked := self._masked(*args)) is not None:
            return self.mark(made, masked)
        if name in MULTIPLIES and (scaled := self._scaled_weights(name, args)) is not None:
            return self.mark(made, self._hold(scaled, made))
        if name in MULTIPLIES and (product := self._product(name, args, kwargs)) is not None:
            self._lay_channels_last(made, product)
            return self.mark(made, product)
        if name in MULTIPLIES and not kwargs and (by_head := self._product_by_head(args, made)) is not None:
            return self.mark(made, by_head)
        if name in FUNCTIONS and (planes := self._function_of_planes(name, args, kwargs)) is not None:
            return self.mark(made, planes)
        if isinstance(made, torch.Tensor) and (found := self._element_by_element(name, args, kwargs, made)) is not None:
            return self.mark(made, self._hold(found, made))
        if name == "pad" and (zeros := zeros_beside(*args, **kwargs)) and len(known) == 1:
            return self.mark(made, Padded(by=name, of=(known[0],), zeros=zeros))
        if (pooled := self._mean_of_planes(name, args, kwargs, made)) is not None:
            return self.mark(made, pooled)
        if name in ("mean", "sum") and (voted := self._voted(name, args, kwargs, known)) is not None:
            return self.mark(made, voted)
        number = args[1] if name in DIVIDES | MASKS and len(args) == 2 and isinstance(args[1], (int, float)) else 0
        by = "div" if number and name in DIVIDES else name
        given = [*tensors_in([args, kwargs])]
        if name in HIGHEST and len(given) == 2:
            known_all = all(self.origin(each) is not None or bool((each == -np.inf).all()) for each in given)
            by = "max" if known_all else "maximum"
        divisor = (1 / number if name in MASKS else number) if number > 0 else 1.0
        times = self._times(by, args, made, divisor) if by in MASKS | DIVIDES and not kwargs else None
        if times is None and (same := self._same_spikes(name, known, args, made)) is not None:
            return self.mark(made, same)
        several = {(each, getattr(each, "entry", None)): each for each in known}  # entries of one are others
        self.mark(made, times or self._unread(by, *several.values(), divisor=divisor))

    def _same_spikes(self, name: str, known: list[Origin], args: Any, made: Any) -> Input | None:
        """What a function makes of the example alone, if that is the example, of zeros and ones, again."""
        ends = [each for each in each_in((FunctionResult,), *known) if not isinstance(each, FunctionResult)]
        if not isinstance(made, torch.Tensor) or not ends or not all(isinstance(each, Input) for each in ends):
            return None
        given = next((each for each in tensors_in(args) if isinstance(self.origin(each), Input)), None)
        if given is None or given.shape != made.shape or not torch.isin(given, torch.tensor([0, 1]).to(given)).all():
            return None
        if not torch.equal(given.double(), made.double()):
            return None
        if self.example is not None and given.numel() == self.example.numel():
            self.example = made
        tell(
            f"the module makes of the example what its layers read ('{name.strip('_')}'), which leaves these spikes as "
            "they are: the network begins behind that"
        )
        return self.origin(given)  # type: ignore[return-value]

    def _begins(self, name: str, given: Any, made: Any) -> bool:
        """Whether a function drew numbers with which states may begin; raises DescriptionError where what is made of
        such numbers alone is compared, made whole or taken out, as for masks."""
        draws = name in BEGINS and made.is_floating_point()
        of = [*tensors_in(given)]
        if not draws and self._begun.isdisjoint(map(id, of)):
            return False
        if name.strip("_") in (*COMPARES, "floor", "ceil", "round", "trunc", "sign") or name in LEAVES:
            self._draw(name, [Input()], made)
        if draws or all(self.origin(each) is None for each in of):
            for each in tensors_in(made):
                self._begun.add(id(each))
                self._held.append(each)
        return draws

    def _draw(self, name: str, known: list[Origin], made: Any) -> None:
        """Random numbers, or what is made of them; raises DescriptionError where anything that is read is, too."""
        if (known and not name.endswith("_like")) or name in LEAVES:
            raise refusal(
                f"'{name}' reads random numbers that the module draws, others every time; nearest: encode the example "
                "before the module gets it, states that begin at 0 (zero_states=True), torch.nn.Dropout of spikes, "
                "branches that are never left out (DropPath)"
            )
        for each in tensors_in(made):
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
        planes = self.planes_of(of)
        if of is None or planes is None or isinstance(of, Pooled) or self._is_cut(args, made):
            return None
        one_each = (-2, -1) if tuple(made.shape[-3:]) == (planes.channels, 1, 1) else ()
        axes = kwargs.get("dim", [*args, None][1]) if by == "mean" else one_each
        if not self._positions_along(of, args[0], axes):
            return None
        return Pooled(of=of, planes=planes, pool=Pool(kind="average", window=Window.whole(planes)))

    def _biased(self, known: list[Origin]) -> Product | Sum | None:
        """A product, alone or the last of several that are added up, to which a bias is added by hand."""
        read, biases = known, [each.name for each in known if isinstance(each, Parameter)]
        before: tuple[Origin, ...] = ()
        if sums := [
            each for each in known if isinstance(each, Sum) and all(isinstance(of, Product) for of in each.parts)
        ]:
            before, read = sums[0].parts[:-1], [*sums[0].parts[-1:], *sums[1:]]
        products = [each for each in read if isinstance(each, Product)]
        if len(products) != 1 or len(biases) != 1 or products[0].norm or products[0].convolution:
            return None
        weight = self.parameters[products[0].weight]
        columns = weight.shape[0 if products[0].transposed else 1]
        if self.parameters[biases[0]].shape != (columns,) or products[0].negative:
            return None
        biased = replace(products[0], biases=(*products[0].biases, biases[0]))
        return Sum(parts=(*before, biased)) if before else biased

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
        if chosen and (not isinstance(part, torch.Tensor) or not part.ndim or self._is_chosen(origin, index)):
            found = self._element_by_element("where", (index, part, before), {}, into)
            return self.mark(into, self._hold(found, into) if found else self._unread("__setitem__", held))
        image = isinstance(origin, Input) and origin.entry is None
        if (image or isinstance(origin, (Made, LayerOutput, Product, *THROUGH))) and not isinstance(held, Made):
            others = list(held.of) if isinstance(held, FunctionResult) and held.by == "stack" else []
            at, count = entry_of(into[index], into, last=True) or (len(others), len(others) + 1)
            others += [None] * (count - len(others))  # which are not there yet
            others[at] = replace(origin, call=at) if isinstance(origin, Product) else origin
            shown = image and all(each == origin for each in others)  # in every timestep
            return self.mark(into, Input() if shown else _in_every_timestep(tuple(others)))
        where = [of for each in tensors_in([index]) if (of := self.origin(each)) is not None]
        if where or (held is not None and not isinstance(held, FunctionResult)):
            self.mark(into, self._unread("__setitem__", held, *where))

    def _taken_where(self, whole: Any, index: Any) -> Made | None:
        """Values of neurons where something is the case: all of them, until they are written there again."""
        at = self.origin(index)
        if not isinstance(at, Made) or index.dtype != torch.bool or index.shape != whole.shape:
            return None
        of = self._operand(whole)
        if not isinstance(of, (Made, float)):
            return None
        made = self._made("__getitem__", TIMES, 1.0, of)
        self._chosen[made] = at
        return made

    def _is_chosen(self, origin: Origin | None, index: Any) -> bool:
        """Whether it is made of values that were taken where the index says, and of numbers."""
        known: dict[Any, bool] = {}

        def chosen(each: Any) -> bool:
            if not isinstance(each, Made):
                return False
            if each not in known:
                of = [arg for arg in each.args if not isinstance(arg, float)]
                at = self._chosen.get(each)
                known[each] = at is self.origin(index) if at else bool(of) and all(map(chosen, of))
            return known[each]

        return chosen(origin)

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
            row = row_of(part, whole) if isinstance(of, Made) and part.numel() < whole.numel() else None
            if row is not None and (made_of := self._row_of(of, row, part)) is not None:
                self.mark(part, self._hold(made_of, part))
                continue
            stacked = (
                isinstance(of, FunctionResult) and of.by == "stack" and all(isinstance(each, Made) for each in of.of)
            )
            columns = part.shape[:-1] == whole.shape[:-1]
            if stacked and columns and (first := first_column(part, whole)) is not None:
                self.mark(part, with_parts(of, partial(sliced, first=first, neurons=whole.shape[-1])))
                continue
            if (_are_spikes(sent) or isinstance(sent, Made)) and (first := first_column(part, whole)) is not None:
                self.mark(part, sliced(of, first, whole.shape[-1]))
                continue
            entry = entry_of(part, whole) if isinstance(of, Late) and part.ndim < whole.ndim else None
            if entry and entry[1] == self._timesteps_of(of):
                self.mark(part, timestep_of(of, *entry))
                continue
            beside = [(*each.shape[:PLANES], *each.shape[PLANES + 1 :]) for each in (part, whole)]
            planes = part.ndim > 3 and part.numel() < whole.numel() and beside[0] == beside[1]
            if isinstance(of, (Currents, Gate)) and (planes or (columns and part.shape[-1:] < whole.shape[-1:])):
                self.mark(part, share_of(of, part, whole) or self._unread("a slice", of))
                continue
            over_time = isinstance(of, FunctionResult) or (is_in_time(of) and not isinstance(of, Input))
            over_time |= any(isinstance(each, Late) for each in each_in((Product, *THROUGH), of))
            if over_time and is_cut_out(part, whole):
                first = first_timestep(part, whole, self._timesteps_of(of))
                self.mark(part, late(of, first) if first else self._unread("a slice", of))
                continue
            if isinstance(of, Input):
                entry = entry_of(part, self.example)
                taken = Input(entry=entry) if entry else of
            elif is_in_time(of) and (entry := entry_of(part, whole, last=over_time)):
                taken = timestep_of(of, *entry)
            self.seen.timesteps = max(self.seen.timesteps, entry[1] if entry else 0)
            self.mark(part, taken)

    def _timesteps_of(self, of: Any) -> int:
        """Of how many timesteps something is, 0 where that is not known."""
        if isinstance(of, LayerOutput):
            return len(self.seen.layers[of.layer].outputs[0]) if of.in_time else 0
        if isinstance(of, Late):
            return self._timesteps_of(of.of[0]) - of.first
        if isinstance(of, FunctionResult):
            return len(of.of) if of.by == "stack" else 0
        return self._timesteps_of(parts_of(of)[0]) if isinstance(of, (Product, *THROUGH)) else 0

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
        """Tensors side by side along their last axis, that of neurons, or along that of planes, behind samples."""
        tensors, axis = args[0], kwargs.get("dim", args[1] if len(args) > 1 else 0)
        axis -= tensors[0].ndim if axis >= 0 else 0
        of_planes = axis in (-2, -3) and tensors[0].ndim + axis > 0 and any(each.shape[axis] > 1 for each in tensors)
        if axis != -1 and not of_planes:
            return None
        tensors = [each for each in tensors if each.numel()]  # padding may be none
        if len(tensors) == 1:
            return self.origin(tensors[0])
        if axis != -1 and len({*map(self.origin, tensors)}) == 1:  # the timesteps of one
            return None
        parts: list[Origin | None] = []
        widths: list[int] = []
        for each in tensors:
            of, wide = self.origin(each), each.shape[axis]
            inner = of if isinstance(of, Joined) and wide % sum(of.widths) == 0 else Joined(parts=(of,), widths=(1,))
            parts += inner.parts
            widths += (wide // sum(inner.widths) * width for width in inner.widths)  # planes may lie flat
        return Joined(parts=tuple(parts), widths=tuple(widths))

    def _in_time(self, args: Any, kwargs: Any) -> Origin | None:
        """The timesteps of one product or pool, one after another, or of what layers and equations sent."""
        every, axis = [*map(self.origin, args[0])], kwargs.get("dim", args[1] if len(args) > 1 else 0)
        only, *others = dict.fromkeys(every)
        first = axis == 0 or (axis == 1 and isinstance(only, Input))
        if not others and first and isinstance(only, (Product, Pooled, Input, LayerOutput)):
            whole: Origin = of_all(only, lambda layer: self.seen.layers[layer].in_time)
            return whole
        if axis == 0 and isinstance(product := _in_every_timestep(tuple(every)), Product):
            return product
        sent = [each for each in every if isinstance(each, (Made, LayerOutput))]
        if axis in (0, 1) and any(isinstance(each, Made) for each in sent) and len(sent) >= len(every) - 2:
            return FunctionResult(by="stack", of=tuple(every))
        return None


def _check_tied(module: torch.nn.Module) -> None:
    """Raise DescriptionError for a parameter that several modules have, of which each would be trained by itself."""
    first: dict[int, tuple[str, str]] = {}
    for path, each in module.named_modules():
        for role, parameter in each.named_parameters(recurse=False):
            owner, name = first.setdefault(id(parameter), (path, f"{path}.{role}".lstrip(".")))
            if not f"{path}.".startswith(f"{owner}."):  # as a part of it, which snnTorch's V is
                raise refusal(f"'{path}.{role}' is '{name}' as well; nearest: weights of its own for each layer")


def late(of: Any, first: int) -> Late:
    return replace(of, first=of.first + first) if isinstance(of, Late) else Late(by=LATE, of=(of,), first=first)


def dropped(of: Origin, share: float, per: str, leaves_out: str) -> Origin:
    if share >= 1:
        raise refusal(f"dropout with p = {share:g} leaves nothing; nearest: below 1")
    return Dropped(of=added_up(of) or of, dropout=Dropout(share=share, per=per, of=leaves_out)) if share else of


def _in_every_timestep(made: tuple[Origin | None, ...]) -> Origin:
    """The timesteps, one after another, as a product of all where one makes each."""
    products = [each for each in made if isinstance(each, Product)]
    alike = len({replace(each, of=Input(), call=0) for each in products}) == 1
    if not alike or [each.call for each in products] != [*range(len(made))]:
        return FunctionResult(by="stack", of=made)
    return replace(products[0], of=FunctionResult(by="stack", of=tuple(each.of for each in products)), call=0)


def _are_spikes(origin: Origin | None) -> bool:
    """Whether layers sent it, or it is the input, alone or in sums and products."""
    if isinstance(origin, (*THROUGH, FunctionResult)) and not isinstance(origin, Dropped):
        stacked = not isinstance(origin, FunctionResult) or origin.by == "stack"
        return stacked and all(map(_are_spikes, parts_of(origin)))
    return isinstance(origin, Input) or (isinstance(origin, LayerOutput) and origin.spikes)
