"""Stochastic gradient descent, with and without momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.optimisers.record import Form, Optimiser, float32


@compiled
def sgd(w, gradient, start, stop, rate):  # type: ignore[no-untyped-def]
    """w -= rate * gradient."""
    for row in range(w.shape[0]):
        for i in range(len(start)):
            own, slope = w[row, start[i] : stop[i]], gradient[row, start[i] : stop[i]]
            for n in range(len(own)):
                own[n] = own[n] - rate * slope[n]


@compiled
def sgd_decaying(w, gradient, start, stop, rate, decay):  # type: ignore[no-untyped-def]
    """w -= rate * (gradient + decay * w)."""
    for row in range(w.shape[0]):
        for i in range(len(start)):
            own, slope = w[row, start[i] : stop[i]], gradient[row, start[i] : stop[i]]
            for n in range(len(own)):
                own[n] = own[n] - rate * (slope[n] + decay * own[n])


@compiled
def sgd_at_rate(w, gradient, learning_rate, start, stop, decay):  # type: ignore[no-untyped-def]
    """`sgd_decaying` with the rate in memory."""
    sgd_decaying(w, gradient, start, stop, learning_rate[0], decay)


@compiled
def momentum(w, gradient, buffer, start, stop, rate, keep, decay):  # type: ignore[no-untyped-def]
    """buffer = keep * buffer + gradient + decay * w; w -= rate * buffer."""
    for row in range(w.shape[0]):
        for i in range(len(start)):
            own, slope = w[row, start[i] : stop[i]], gradient[row, start[i] : stop[i]]
            before = buffer[row, start[i] : stop[i]]
            for n in range(len(own)):
                moved = keep * before[n] + (slope[n] + decay * own[n])
                before[n] = moved
                own[n] = own[n] - rate * moved


@compiled
def momentum_at_rate(w, gradient, buffer, learning_rate, start, stop, keep, decay):  # type: ignore[no-untyped-def]
    """`momentum` with the rate in memory."""
    momentum(w, gradient, buffer, start, stop, learning_rate[0], keep, decay)


SGD = Form(
    kind="sgd",
    state={},
    constants={"weight_decay": "decay"},
    number=float32,
    compute=sgd_decaying,
    at_rate=sgd_at_rate,
    bundles=lambda _: 2 + 1 + 4,
    counted="2 loads, 1 store, 4 vector operations per 64 bits",
    flops=4,
    plain_flops=2,
    code_bytes=384,
)
MOMENTUM = Form(
    kind="momentum",
    state={"momentum": "momentum"},
    constants={"momentum": "keep", "weight_decay": "decay"},
    number=float32,
    compute=momentum,
    at_rate=momentum_at_rate,
    bundles=lambda _: 3 + 2 + 6,
    counted="3 loads, 2 stores, 6 vector operations per 64 bits",
    flops=6,
    plain_flops=4,
    code_bytes=448,
)


@dataclass(frozen=True, kw_only=True)
class Sgd(Optimiser):
    """w <- w - learning_rate * b with b <- momentum * b + gradient + weight_decay * w (PyTorch's convention)."""

    momentum: float = 0.0

    names: ClassVar[tuple[str, ...]] = ("sgd",)
    decays: ClassVar[tuple[str, ...]] = ("sgd",)
    forms: ClassVar[tuple[Form, ...]] = (SGD, MOMENTUM)

    @property
    def form(self) -> Form:
        return MOMENTUM if self.momentum else SGD

    def equation(self, w: Any, gradient: Any, *state: Any, rate: float, number: int) -> tuple[Any, ...]:
        kind = w.dtype.type
        if self.weight_decay:
            gradient = gradient + kind(self.weight_decay) * w
        if not self.momentum:
            return (w - kind(rate) * gradient,)
        buffer = kind(self.momentum) * state[0] + gradient
        return w - kind(rate) * buffer, buffer
