"""Products, convolutions and pools in a forward pass, as functions of parameters."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mimdsim.frameworks.arithmetic import (
    TIMES,
)
from mimdsim.frameworks.made_weights import function_of_weights, is_diagonal, parameter_in
from mimdsim.frameworks.neurons import numbers_of, refusal
from mimdsim.frameworks.origins import (
    Combined,
    FunctionResult,
    Input,
    Joined,
    Made,
    Origin,
    Padded,
    Parameter,
    Pooled,
    Product,
    Sum,
    added_up,
    is_sent,
    parts_of,
    undropped,
    unscaled,
)
from mimdsim.frameworks.planes import FUNCTIONS, LayerFunction, convolution_of, is_of_pixels, planes_of, pool_of
from mimdsim.frameworks.recording_arithmetic import ArithmeticRecorder
from mimdsim.graph.convolution import Convolution, Pair, Planes, Pool, Window
from mimdsim.graph.derived import WeightFunction
from mimdsim.graph.synapses import HeadProduct

# of einsum: a product with [in, out], or [out, in], and one of two matrices for each entry of the axes before
LAST_AXIS = re.compile(r"(\w+)(\w),(?:\2(\w)|(\w)\2)->\1(?:\3|\4)")
BY_HEAD = re.compile(r"([\w.]+)(\w)(\w),\1(\w)(\w)->\1(\w)(\w)")


class ProductRecorder(ArithmeticRecorder):
    """Follows products of parameters, and pools, too."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.parameters = dict(module.named_parameters())
        self._unmasked: set[str] = set()
        self._multiplied: Counter[str] = Counter()
        self._alone: dict[str, Any] = {}  # by weight, sums of one part, which may not be sums, and what they are then

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
        product = self._counted(self._dense(of, args[0], args[1], *names, turned), args[0])
        return unscaled(replace(product, function=function))

    def _embedded(
        self,
        given: torch.Tensor,
        weight: torch.Tensor,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Product | None:
        """Rows of a parameter that words of the input name, as the product with one spike for each word."""
        of, parameter = self.origin(given), self.origin(weight)
        if not isinstance(of, Input) or not isinstance(parameter, Parameter):
            return None
        options = {"max_norm": max_norm is not None, "scale_grad_by_freq": scale_grad_by_freq}
        if found := [name for name, on in options.items() if on]:
            raise refusal(f"'{parameter.name}' is an embedding with {found[0]}; nearest: one without, all rows trained")
        if padding_idx is not None:  # whose row no gradient changes
            if weight[padding_idx].any():
                raise refusal(
                    f"'{parameter.name}' has a row for padding_idx that is not zeros; nearest: zeros, as it begins with"
                )
            trained = np.ones(weight.shape)
            trained[padding_idx] = 0
            parameter = self._mask(parameter.name, trained)
        made = Product(of=of, inputs=len(weight), weight=self._used(parameter), transposed=False)
        return self._counted(made, given)

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
        first, alone = self._alone.pop(product.weight, None), isinstance(product.of, Sum) and len(product.of.parts) == 1
        if alone:  # spikes and zeros, as a sum with what there is not yet begins, and a filter of spikes
            self._alone[product.weight] = product.of, self.origin(given)
        elif first and isinstance(product.of, Made):
            object.__setattr__(first[0], "parts", (first[1],))
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

    def _heads_of(self, tensor: torch.Tensor) -> tuple[int, bool] | None:
        """How many heads the channels of planes were cut into, and whether these lie before the positions; None where
        values lie otherwise."""
        planes = self.planes_of(self.origin(tensor))
        order = self.layouts.order(tensor, planes.neurons) if planes else None
        for turned in (False, True):
            positions, wide = tensor.shape[-1:-3:-1] if turned else tensor.shape[-2:]
            if planes is None or order is None or positions != planes.positions or not wide or planes.channels % wide:
                continue
            if torch.equal(order, _by_head(planes, planes.channels // wide, turned).reshape(-1).argsort()):
                return planes.channels // wide, turned
        return None

    def _product_by_head(self, args: Any, made: torch.Tensor) -> Combined | None:
        """A product of what layers sent, for each sample and head."""
        turns, tensors = (False, False), [each for each in args if isinstance(each, torch.Tensor) and each.ndim > 2]
        if isinstance(args[0], str):  # of einsum
            turns, tensors = _turns(args[0], tensors)
        if len(tensors) != 2 or not all(is_sent(self.origin(each)) for each in tensors):
            return None
        (one, first), (other, second) = (self._heads_of(each) or (0, False) for each in tensors)
        if not one or one != other:
            return None
        first, second = first ^ turns[0], second ^ turns[1]
        turned = first and second  # the product of both the other way round, transposed
        kind = "nn" if first == second else "tn" if first else "nt"
        parts = tuple(self.origin(each) for each in (tensors[::-1] if turned else tensors))
        combined = Combined(by=HeadProduct(kind=f"matmul_{kind}", heads=one), parts=parts)  # type: ignore[arg-type]
        if planes := self.planes_of(combined):
            self.layouts.lay(made, _by_head(planes, one, turned))
        return combined

    def _dense(
        self, of: Origin, given: torch.Tensor, values: torch.Tensor, weight: str, bias: str, transposed: bool
    ) -> Product:
        """A product of all that is given; of the channels of every position, or of pooled planes with one position, as
        the convolution that it is."""
        of, dropout = undropped(of)
        inputs = given.shape[-1]
        biases = (bias,) * bool(bias)
        plain = Product(of=of, inputs=inputs, weight=weight, biases=biases, transposed=transposed, dropout=dropout)
        if (planes := self._by_position(of, given)) is None:
            self._check_flat(weight, of, given)
            return over_pooled(plain, values.numel() // inputs)
        read, before = (of.planes, of.pool) if isinstance(of, Pooled) else (planes, None)
        window, channels = Window(kernel=(1, 1)), values.numel() // inputs
        convolution = Convolution(planes=read, window=window, channels=channels, before=before)
        return replace(plain, of=of.of if isinstance(of, Pooled) else of, convolution=convolution)

    def _by_position(self, of: Origin | None, given: torch.Tensor) -> Planes | None:
        """The planes, of several positions, whose channels lie along the last axis; None where others do."""
        planes = self.planes_of(of)
        if planes is None or planes.positions == 1 or given.shape[-1] != planes.channels:
            return None
        order = self.layouts.order(given, planes.neurons)
        return planes if order is not None and _is_channels_last(order, planes) else None

    def _check_flat(self, weight: str, of: Origin | None, given: torch.Tensor) -> None:
        """Raise DescriptionError where planes are put in a row whose channels do not lie outermost."""
        planes = self.planes_of(of) if self.layouts.is_turned(given) else None
        if planes is None or given.shape[-1] != planes.neurons or min(planes.channels, planes.positions) == 1:
            return
        order = self.layouts.order(given, planes.neurons)
        if order is not None and _is_channels_last(order, planes):
            raise refusal(
                f"'{weight}' reads planes in a row with channels innermost, as tokens have them; nearest: channels "
                "outermost, as x.transpose(-1, -2).flatten(...)"
            )

    def _lay_channels_last(self, made: torch.Tensor, of: Origin) -> None:
        """Remember that a product makes channels along the last axis, of every position."""
        convolution = of.convolution if isinstance(of, Product) else None
        if convolution and made.shape[-1] == convolution.channels:
            self.layouts.lay(made, _by_head(convolution.result, 1, False))

    def _by_channel(self, name: str, args: Any, kwargs: Any, made: torch.Tensor) -> Combined | None:
        """What a product of spikes adds up to over the positions of every channel, or spikes times those of a layer
        that has one for each channel: products by head, with as many heads as channels."""
        given, of = args[0], self.origin(args[0])
        planes = self.planes_of(of) if isinstance(given, torch.Tensor) and is_sent(of) else None
        if of is None or planes is None or self._is_cut([args, kwargs], made):
            return None
        other: Any = args[1] if len(args) > 1 else None
        if name == "sum":
            product = isinstance(of, Combined) and of.by == TIMES
            if not product or not self._positions_along(of, given, kwargs.get("dim", other)):
                return None
            return Combined(by=HeadProduct(kind="matmul_tn", heads=planes.channels), parts=parts_of(of))
        read = self.origin(other)
        if read is None or not is_sent(read) or other.ndim != given.ndim:
            return None
        axes = [axis for axis in range(given.ndim) if other.shape[axis] != given.shape[axis]]
        if any(other.shape[axis] > 1 for axis in axes) or not self._positions_along(of, given, axes):
            return None
        return Combined(by=HeadProduct(kind="matmul_nn", heads=planes.channels), parts=(of, read))

    def _positions_along(self, of: Origin | None, given: torch.Tensor, axes: Any) -> bool:
        """Whether all positions of planes, and nothing else of a sample, lie along these axes."""
        planes, every = self.planes_of(of), [axes] if isinstance(axes, int) else list(axes or ())
        return planes is not None and self.layouts.runs_along(given, planes.neurons, planes.positions, every)

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
            dense = self._dense(of, given, options["weight"], weight, bias, transposed=True)
            return unscaled(replace(self._counted(dense, given), function=made_by))
        of, edges = _unpadded(of) if function.kind == "convolution" else (of, (0, 0))
        of, dropout = undropped(of)
        if dropout and function.kind != "convolution":
            raise refusal(f"{where} pools what dropout leaves; nearest: dropout after the pool")
        planes = planes_of(where, function, given)
        if is_of_pixels(function, options) and (sent := self._planes_sent(of)):
            same = (sent.channels, sent.positions) == (planes.channels, planes.positions)
            planes = sent if same else planes
        joined = of.of if isinstance(of, Pooled) else of
        if isinstance(joined, Joined) and sum(joined.widths) != planes.channels:
            raise refusal(f"{where} reads planes that are side by side along another axis; nearest: that of channels")
        planes = replace(planes, height=planes.height - 2 * edges[0], width=planes.width - 2 * edges[1])
        if function.kind == "convolution":
            read, before = (of.planes, of.pool) if isinstance(of, Pooled) else (planes, None)
            made = convolution_of(where, function, options, read, before, edges)
            _check_same(where, made.read, planes)
            source, inputs = of.of if isinstance(of, Pooled) else of, made.fan_in
            product = Product(of=source, inputs=inputs, weight=weight, transposed=True, convolution=made)
            product = replace(product, biases=(bias,) * bool(bias), dropout=dropout, function=made_by)
            return unscaled(self._counted(product, given))
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


def _turns(text: str, tensors: list[torch.Tensor]) -> tuple[tuple[bool, bool], list[torch.Tensor]]:
    """Of a product of matrices as einsum writes it: which of both are transposed, and both in order; none of others."""
    axes = BY_HEAD.fullmatch(text.replace(" ", ""))
    if axes is None or len(tensors) != 2:
        return (False, False), []
    one, other, made = ((axes[k], axes[k + 1]) for k in (2, 4, 6))
    if made[0] in other:
        (one, other), tensors = (other, one), tensors[::-1]
    summed = {*one} & {*other}
    if len(summed) != 1 or made != (*({*one} - summed), *({*other} - summed)):
        return (False, False), []
    return (one[0] in summed, other[1] in summed), tensors


def _by_head(planes: Planes, heads: int, turned: bool) -> torch.Tensor:
    """int64[heads, positions, channels of a head], or turned the last two: places in planes of a sample."""
    places = torch.arange(planes.neurons).reshape(heads, -1, planes.positions)
    return places if turned else places.transpose(1, 2)


def _is_channels_last(order: torch.Tensor, planes: Planes) -> bool:
    return bool(torch.equal(order, _by_head(planes, 1, False).reshape(-1).argsort()))


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


def _unpadded(of: Origin) -> tuple[Origin, Pair]:
    """What zeros were added to, as many at every edge, and how many along the height and the width."""
    if not isinstance(of, Padded):
        return of, (0, 0)
    left, right, top, bottom, *beyond = (*of.zeros, 0, 0)
    alike = (left, top) == (right, bottom) and not any(beyond)
    inner = added_up(of.of[0]) if alike else None
    return (of, (0, 0)) if inner is None else (inner, (top, left))


def _check_same(where: str, made: Planes, read: Planes) -> None:
    if made != read:
        raise refusal(f"{where} reads planes of {read}, which were made as {made}: leave out what reshapes them")
