"""Convolutions and pools of planes: what a window covers, patches of it, and their adjoints.

A convolution is a product: `unfold` makes a row of patches for every sample and position, a column for every channel
and place in the window (channels outermost, as PyTorch orders weights), and the weights are [columns, channels made].
With groups it is a product for each (`synapses.py`), and the weights are [columns of a group, channels made]. `fold`
adds such rows up again where they came from. Values of layers of planes have a row for every sample and position, and a
column for every channel; the network's input has a row for every sample, channels outermost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, shortened, suggest
from mimdsim.graph.records import Backward, OpDef, Operation, elements, no_flops, per_element, pulled_back_by, shaped

POOLS = ("max", "average", "sum")
NOWHERE = -1  # in a table of pixels: in the padding
Pair = tuple[int, int]  # along the height and the width


@dataclass(frozen=True, kw_only=True)
class Planes:
    """So many channels of height x width pixels; one dimension is a height of 1."""

    channels: int
    height: int
    width: int

    @property
    def positions(self) -> int:
        return self.height * self.width

    @property
    def neurons(self) -> int:
        return self.channels * self.positions

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    def __str__(self) -> str:
        return f"{self.channels} x {self.height} x {self.width}"


@dataclass(frozen=True, kw_only=True)
class Window:
    """What moves over planes, in pixels: its size, the way to the next place, rows and columns of zeros at every edge,
    and the distance between neighbours inside. Raises MappingError for one that covers nothing."""

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

    def __post_init__(self) -> None:
        for name, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            if min(getattr(self, name)) < least:
                raise MappingError(f"a window with {name} {getattr(self, name)}: at least {least} is needed")

    @classmethod
    def whole(cls, planes: Planes) -> Window:
        """All of the planes at once."""
        return cls(kernel=(planes.height, planes.width))

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def places(self, planes: Planes) -> Pair:
        """Where it fits, along the height and the width; raises MappingError for planes that are too small."""
        sizes = zip((planes.height, planes.width), self.kernel, self.stride, self.padding, self.dilation, strict=True)
        reach = [(size + 2 * pad - dilation * (kernel - 1) - 1, step) for size, kernel, step, pad, dilation in sizes]
        if min(rest for rest, _ in reach) < 0:
            raise MappingError(
                f"a window of {self.kernel[0]} x {self.kernel[1]} (dilation {self.dilation}) is larger than planes of "
                f"{planes.height} x {planes.width} with padding {self.padding}"
            )
        high, wide = (rest // step + 1 for rest, step in reach)
        return high, wide

    def over(self, planes: Planes, channels: int) -> Planes:
        """The planes with a pixel for every place."""
        height, width = self.places(planes)
        return Planes(channels=channels, height=height, width=width)


def same_size(kernel: Pair) -> Window:
    """One with padding with which planes keep their size, where the kernel is odd."""
    return Window(kernel=kernel, padding=(kernel[0] // 2, kernel[1] // 2))


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The largest, the mean (zeros of the padding count) or the sum of what a window covers, channel by channel."""

    kind: str
    window: Window

    def __post_init__(self) -> None:
        if self.kind not in POOLS:
            raise MappingError(f"pool {self.kind!r} is not a valid choice{suggest(self.kind, POOLS)}")
        if self.window.dilation != (1, 1):
            raise MappingError(
                f"a pool with dilation {self.window.dilation}: neighbours in a pool are next to each other"
            )
        if any(2 * pad > kernel for pad, kernel in zip(self.window.padding, self.window.kernel, strict=True)):
            raise MappingError(
                f"a pool of {self.window.kernel} with padding {self.window.padding}: at most half of it is padding"
            )

    def over(self, planes: Planes) -> Planes:
        return self.window.over(planes, planes.channels)


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """How a layer reads planes: spikes pooled `before`, weights over a window for each of `channels`, and the currents
    pooled `after`. groups: channels made read those of their own group alone, in order. own: a window over what its
    neurons sent in the timestep before, by weights of its own. Raises MappingError for windows that do not fit, and
    groups that are not equal."""

    planes: Planes
    window: Window
    channels: int
    before: Pool | None = None
    after: Pool | None = None
    groups: int = 1
    own: Window | None = None

    def __post_init__(self) -> None:
        result = self.result
        if self.own and (back := self.own.over(result, self.channels)) != result:
            raise MappingError(f"the kernel over its own spikes makes planes of {back}, and it has {result}")
        for what, channels in (("reads", self.read.channels), ("makes", self.channels)):
            if self.groups < 1 or channels % self.groups:
                raise MappingError(
                    f"groups = {self.groups} do not divide the {channels} channels that a convolution {what} evenly"
                )

    @property
    def read(self) -> Planes:
        """What the weights see."""
        return self.before.over(self.planes) if self.before else self.planes

    @property
    def made(self) -> Planes:
        """The currents before a pool of them."""
        return self.window.over(self.read, self.channels)

    @property
    def result(self) -> Planes:
        """The layer's neurons."""
        return self.after.over(self.made) if self.after else self.made

    @property
    def parted(self) -> bool:
        """Whether what it makes is pooled, or made of some of the planes each."""
        return self.after is not None or self.groups > 1

    @property
    def fan_in(self) -> int:
        return self.read.channels // self.groups * self.window.taps

    def with_planes(self, channels: int) -> Convolution:
        """The same of so many planes."""
        return replace(self, planes=replace(self.planes, channels=channels))

    @property
    def of_itself(self) -> Patches | None:
        """What the weights onto itself see."""
        return Patches(planes=self.result, window=self.own) if self.own else None


@dataclass(frozen=True, kw_only=True)
class Patches:
    """A window over planes; by_channel: these have a row for every sample, channels outermost."""

    planes: Planes
    window: Window
    by_channel: bool = False

    @property
    def shape(self) -> Pair:
        """Of one sample of the planes."""
        return (1, self.planes.neurons) if self.by_channel else (self.planes.positions, self.planes.channels)

    @property
    def made(self) -> Planes:
        return self.window.over(self.planes, self.planes.channels)


@dataclass(frozen=True, kw_only=True)
class Pooling(Patches):
    """A pool over planes."""

    kind: str


@cache
def pixels_of(patches: Patches) -> np.ndarray:
    """int64[places, taps]: the pixel that each place of the window has at each of its taps, or NOWHERE."""
    planes, window = patches.planes, patches.window
    along = []
    for axis, (size, places) in enumerate(zip((planes.height, planes.width), window.places(planes), strict=True)):
        begin = np.arange(places) * window.stride[axis] - window.padding[axis]
        at = begin[:, None] + np.arange(window.kernel[axis]) * window.dilation[axis]
        along.append(np.where((at >= 0) & (at < size), at, NOWHERE))
    y, x = along[0][:, None, :, None], along[1][None, :, None, :]
    found: np.ndarray = np.where((y < 0) | (x < 0), NOWHERE, y * planes.width + x).reshape(-1, window.taps)
    found.setflags(write=False)
    return found


def in_positions(patches: Patches, values: np.ndarray) -> np.ndarray:
    """[samples, positions, channels] of values of the planes as they lie."""
    planes = patches.planes
    if patches.by_channel:
        return values.reshape(-1, planes.channels, planes.positions).transpose(0, 2, 1)
    return values.reshape(-1, planes.positions, planes.channels)


def _covered(patches: Patches, values: np.ndarray, padding: float) -> np.ndarray:
    """[samples, places, taps, channels]: what the window covers."""
    found = in_positions(patches, values)
    edge = np.full((len(found), 1, found.shape[2]), padding, values.dtype)
    covered: np.ndarray = np.concatenate([found, edge], axis=1)[:, pixels_of(patches)]
    return covered


def _spread(patches: Patches, covered: np.ndarray) -> np.ndarray:
    """The adjoint of `_covered`."""
    planes, pixels = patches.planes, pixels_of(patches)
    total = np.zeros((len(covered), planes.positions, planes.channels), covered.dtype)
    for tap, at in enumerate(pixels.T):  # no pixel is twice at the same tap
        total[:, at[at != NOWHERE]] += covered[:, at != NOWHERE, tap]
    ordered = total.transpose(0, 2, 1) if patches.by_channel else total
    return np.ascontiguousarray(ordered).reshape(-1, patches.shape[1])


def _unfold(patches: Patches, values: np.ndarray) -> tuple[np.ndarray]:
    covered = _covered(patches, values, 0.0)
    samples, places, taps, channels = covered.shape
    return (np.ascontiguousarray(covered.transpose(0, 1, 3, 2)).reshape(samples * places, channels * taps),)


def _fold(patches: Patches, rows: np.ndarray) -> tuple[np.ndarray]:
    made, taps = patches.made, patches.window.taps
    by_channel = rows.reshape(-1, made.positions, made.channels, taps)
    return (_spread(patches, by_channel.transpose(0, 1, 3, 2)),)


def _pool(pooling: Pooling, values: np.ndarray) -> tuple[np.ndarray]:
    covered = _covered(pooling, values, -np.inf if pooling.kind == "max" else 0.0)
    made = covered.max(axis=2) if pooling.kind == "max" else covered.sum(axis=2)
    if pooling.kind == "average":
        made = made * values.dtype.type(1 / pooling.window.taps)
    return (made.reshape(-1, pooling.planes.channels),)


def pool_planes(pool: Pool, planes: Planes, values: np.ndarray) -> np.ndarray:
    """[..., neurons] of a pool, from values of planes [..., neurons], channels outermost in both."""
    pooling = Pooling(planes=planes, window=pool.window, kind=pool.kind, by_channel=True)
    (made,) = _pool(pooling, values.reshape(-1, planes.neurons))
    by_channel = made.reshape(-1, pooling.made.positions, planes.channels).transpose(0, 2, 1)
    return by_channel.reshape(*values.shape[:-1], -1)


def _pool_gradient(pooling: Pooling, gradient: np.ndarray, *values: np.ndarray) -> tuple[np.ndarray]:
    """A largest value that comes several times in a window gets all of it where it comes first."""
    made = pooling.made
    q = gradient.reshape(-1, made.positions, 1, made.channels)
    if pooling.kind == "max":
        covered = _covered(pooling, values[0], -np.inf)
        share = np.arange(pooling.window.taps)[:, None] == covered.argmax(axis=2)[:, :, None]
        return (_spread(pooling, np.where(share, q, 0).astype(gradient.dtype)),)
    factor = gradient.dtype.type(1 / pooling.window.taps if pooling.kind == "average" else 1)
    return (_spread(pooling, np.broadcast_to(q * factor, (*q.shape[:2], pooling.window.taps, q.shape[3]))),)


def _pool_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    pooling: Pooling = op.attributes
    inputs = (gradient, build.saved(op.inputs[0])) if pooling.kind == "max" else (gradient,)
    return (build.one("pool_gradient", inputs, f"{op.layer}.d_pool", layer=op.layer, attributes=pooling),)


def samples_in(patches: Patches, rows: int) -> int:
    """Of a value of the planes with so many rows."""
    return rows // patches.shape[0]


def _of_planes(values: Any, patches: Patches) -> Pair:
    """The shape of a gradient of the planes, from that of something with a row for every place."""
    rows, columns = patches.shape
    return values[0].shape[0] // patches.made.positions * rows, columns


CONVOLUTION = (
    OpDef(
        name="unfold",
        shapes=shaped(
            lambda values, patches: (
                samples_in(patches, values[0].shape[0]) * patches.made.positions,
                patches.planes.channels * patches.window.taps,
            )
        ),
        evaluate=_unfold,
        vjp=pulled_back_by("fold", "{layer}.d_planes"),
        flops=no_flops,
        recomputed=True,
    ),
    OpDef(name="fold", shapes=shaped(_of_planes), evaluate=_fold, flops=per_element(1)),
    OpDef(
        name="pool",
        shapes=shaped(
            lambda values, pooling: (
                samples_in(pooling, values[0].shape[0]) * pooling.made.positions,
                pooling.planes.channels,
            )
        ),
        evaluate=_pool,
        vjp=_pool_vjp,
        flops=lambda values, pooling: (
            samples_in(pooling, values[0].shape[0]) * pooling.made.neurons * pooling.window.taps
        ),
    ),
    OpDef(
        name="pool_gradient",
        shapes=shaped(_of_planes),
        evaluate=_pool_gradient,
        flops=lambda values, pooling: elements(values[0]) * pooling.window.taps,
    ),
)


# ---- networks with convolutions as the literature writes them: '2x34x34-12c5-sum2-64c5-sum2-10'.
#
# Input planes (channels x height x width), then '-' between layers: '12c5' is 12 channels over a window of 5 x 5, 'p2'
# after it rows and columns of zeros at every edge, 's2' the way to the next place; '10' reads all there is. 'max2',
# 'avg2' and 'sum2' are pools of spikes; after ':' ('12c5:max2') of a convolution's currents.


KINDS = {"max": "max", "avg": "average", "sum": "sum"}
NUMBER = r"[1-9]\d{0,6}"
PLANES = re.compile(rf"({NUMBER})x({NUMBER})x({NUMBER})")
POOL = re.compile(rf"(max|avg|sum)({NUMBER})")
WINDOW = re.compile(rf"({NUMBER})c({NUMBER})(?:p({NUMBER}))?(?:s({NUMBER}))?(?::(\w+))?")


def convolutions_of(text: str) -> tuple[Convolution, ...]:
    """The layers; those that read all there is have a window over all planes. Raises MappingError for other text."""
    first, *rest = text.split("-")
    given = PLANES.fullmatch(first)
    if not given:
        raise _wrong(text, first)
    channels, height, width = map(int, given.groups())
    planes, before, found = Planes(channels=channels, height=height, width=width), None, []
    for part in rest:
        if POOL.fullmatch(part) and before is None:
            before = _pool_of(text, part)
            continue
        window = WINDOW.fullmatch(part)
        if window:
            kernel, pad, stride = int(window[2]), int(window[3] or 0), int(window[4] or 1)
            of = Window(kernel=(kernel, kernel), padding=(pad, pad), stride=(stride, stride))
            after = _pool_of(text, window[5]) if window[5] else None
        elif re.fullmatch(NUMBER, part):
            of, after = Window.whole(before.over(planes) if before else planes), None
        else:
            raise _wrong(text, part)
        made = int(window[1] if window else part)
        found.append(Convolution(planes=planes, window=of, channels=made, before=before, after=after))
        planes, before = found[-1].result, None
    if before is not None or not found:
        raise _wrong(text, rest[-1] if rest else first)
    return tuple(found)


def _pool_of(text: str, part: str) -> Pool:
    found = POOL.fullmatch(part)
    if not found:
        raise _wrong(text, part)
    size = int(found[2])
    return Pool(kind=KINDS[found[1]], window=Window(kernel=(size, size), stride=(size, size)))


def _wrong(text: str, part: str) -> MappingError:
    return MappingError(
        f"network '{shortened(text)}': '{shortened(part)}' is not expected there; an example is "
        "'2x34x34-12c5p2s1:max2-sum2-64c5-10'"
    )
