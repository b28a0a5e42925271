"""Optimisers: constants, meaning, kernels, cost; subclasses of `Optimiser` in this module are found. And clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.optimiser_record import LEARNING_RATE, TRAINING_STEP, Form, Optimiser, check_records, float32


@compiled(error_model="numpy")
def adam(w, gradient, m, v, progress, start, stop, *constants):  # type: ignore[no-untyped-def]
    """Adam of Kingma & Ba; progress[0] counts training steps from 1. Constants are float64."""
    rate, beta1, beta2, epsilon = constants
    number = progress[0]
    kind = w.dtype.type
    corrected = kind(rate * math.sqrt(1.0 - beta2**number) / (1.0 - beta1**number))
    keep1, take1, keep2, take2, small = kind(beta1), kind(1.0 - beta1), kind(beta2), kind(1.0 - beta2), kind(epsilon)
    for row in range(w.shape[0]):
        for i in range(len(start)):
            own, slopes = w[row, start[i] : stop[i]], gradient[row, start[i] : stop[i]]
            mean, square = m[row, start[i] : stop[i]], v[row, start[i] : stop[i]]
            for n in range(len(own)):
                slope = slopes[n]
                first = keep1 * mean[n] + take1 * slope
                second = keep2 * square[n] + take2 * slope * slope
                mean[n] = first
                square[n] = second
                own[n] = own[n] - corrected * first / (np.sqrt(second) + small)


@compiled
def adam_decaying(w, gradient, m, v, progress, start, stop, *constants):  # type: ignore[no-untyped-def]
    """w *= 1 - rate * decay, then `adam`."""
    rate, beta1, beta2, epsilon, decay = constants
    kept = w.dtype.type(1.0 - rate * decay)
    for row in range(w.shape[0]):
        for i in range(len(start)):
            own = w[row, start[i] : stop[i]]
            for n in range(len(own)):
                own[n] = own[n] * kept
    adam(w, gradient, m, v, progress, start, stop, rate, beta1, beta2, epsilon)


@compiled
def adam_at_rate(w, gradient, m, v, progress, learning_rate, start, stop, *constants):  # type: ignore[no-untyped-def]
    """`adam_decaying` with the rate in memory."""
    rate = float(learning_rate[0])
    adam_decaying(w, gradient, m, v, progress, start, stop, rate, *constants)


@compiled
def torch_adam(w, gradient, m, v, progress, start, stop, *constants):  # type: ignore[no-untyped-def]
    """`adam_decaying` with epsilon added to the corrected root, so epsilon times the correction to the other."""
    rate, beta1, beta2, epsilon, decay = constants
    small = epsilon * math.sqrt(1.0 - beta2 ** progress[0])
    adam_decaying(w, gradient, m, v, progress, start, stop, rate, beta1, beta2, small, decay)


@compiled
def torch_adam_at_rate(w, gradient, m, v, progress, learning_rate, start, stop, *constants):  # type: ignore[no-untyped-def]
    """`torch_adam` with the rate in memory."""
    rate = float(learning_rate[0])
    torch_adam(w, gradient, m, v, progress, start, stop, rate, *constants)


def _bundles(item_bytes: int) -> int:
    elements = 8 // item_bytes
    return 4 + 3 + 11 + elements * 5 + elements * 3 + (elements if item_bytes == 2 else 0)


def _form(kind: str, compute: Any, at_rate: Any) -> Form:
    return Form(
        kind=kind,
        state={"moment1": "m", "moment2": "v"},
        never_negative=("moment2",),
        counts=True,
        constants={"beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon", "weight_decay": "decay"},
        number=float,
        compute=compute,
        at_rate=at_rate,
        bundles=_bundles,
        counted="4 loads, 3 stores, 11 vector operations, square root 5 and division 3 per element, halves converted",
        flops=13,
        plain_flops=12,
        code_bytes=704,
    )


@dataclass(frozen=True, kw_only=True)
class Adam(Optimiser):
    """Kingma & Ba 2015; weight decay is decoupled (AdamW, Loshchilov & Hutter 2019): w <- (1 - rate * weight_decay) * w
    before the update. epsilon is added to the root of the second moment before its correction, as Keras does."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-7  # Keras' default, which the published code uses

    names: ClassVar[tuple[str, ...]] = ("adam", "adamw")
    decays: ClassVar[tuple[str, ...]] = ("adamw",)
    forms: ClassVar[tuple[Form, ...]] = (_form("adam", adam_decaying, adam_at_rate),)

    def equation(self, w: Any, gradient: Any, *state: Any, rate: float, number: int) -> tuple[Any, ...]:
        return self._moved(w, gradient, *state, rate=rate, number=number, epsilon=self.epsilon)

    def _moved(
        self, w: Any, gradient: Any, m: Any, v: Any, *, rate: float, number: int, epsilon: float
    ) -> tuple[Any, ...]:
        kind = w.dtype.type
        if self.weight_decay:
            w = w * kind(1 - rate * self.weight_decay)
        m = kind(self.beta1) * m + kind(1 - self.beta1) * gradient
        v = kind(self.beta2) * v + kind(1 - self.beta2) * gradient * gradient
        corrected = rate * (1 - self.beta2**number) ** 0.5 / (1 - self.beta1**number)
        return w - kind(corrected) * m / (np.sqrt(v) + kind(epsilon)), m, v


@dataclass(frozen=True, kw_only=True)
class TorchAdam(Adam):
    """`Adam` with epsilon added to the corrected root, as torch.optim.Adam and AdamW do."""

    epsilon: float = 1e-8

    names: ClassVar[tuple[str, ...]] = ("torch_adam", "torch_adamw")
    decays: ClassVar[tuple[str, ...]] = ("torch_adamw",)
    forms: ClassVar[tuple[Form, ...]] = (_form("torch_adam", torch_adam, torch_adam_at_rate),)

    def equation(self, w: Any, gradient: Any, *state: Any, rate: float, number: int) -> tuple[Any, ...]:
        epsilon = self.epsilon * (1 - self.beta2**number) ** 0.5
        return self._moved(w, gradient, *state, rate=rate, number=number, epsilon=epsilon)


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


# ---- clipping on tiles: the norm of all gradients, and its factor; the largest of all weights


@compiled
def sum_squares(gradient, partial, start, stop, part):  # type: ignore[no-untyped-def]
    """partial[part] = sum of the squares of gradient[:, start:stop]."""
    for i in range(len(part)):
        total = partial.dtype.type(0)
        for row in range(gradient.shape[0]):
            for n in range(start[i], stop[i]):
                total += gradient[row, n] * gradient[row, n]
        partial[part[i]] = total


@compiled
def add_parts(partial, totals, which):  # type: ignore[no-untyped-def]
    """totals[which] = sum of partial."""
    for i in range(len(which)):
        total = totals.dtype.type(0)
        for k in range(len(partial)):
            total += partial[k]
        totals[which[i]] = total


@compiled
def clip_factor(totals, factor, place, largest_norm, floor):  # type: ignore[no-untyped-def]
    """factor = min(1, largest_norm / (sqrt of the sum of totals + floor))."""
    for i in range(len(place)):
        total = totals.dtype.type(0)
        for k in range(len(totals)):
            total += totals[k]
        factor[place[i]] = min(factor.dtype.type(1), largest_norm / (np.sqrt(total) + floor))


@compiled
def prune_gradient(gradient, w, start, stop):  # type: ignore[no-untyped-def]
    """gradient[:, start:stop] = 0 where w is."""
    for row in range(gradient.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                if w[row, n] == 0:
                    gradient[row, n] = 0


@compiled
def scale_all(gradient, factor, start, stop):  # type: ignore[no-untyped-def]
    """gradient[:, start:stop] *= factor[0]."""
    for row in range(gradient.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                gradient[row, n] = gradient[row, n] * factor[0]


@compiled
def largest(w, partial, start, stop, part):  # type: ignore[no-untyped-def]
    """partial[part] = the largest of w[:, start:stop], in size."""
    for i in range(len(part)):
        found = partial.dtype.type(0)
        for row in range(w.shape[0]):
            for n in range(start[i], stop[i]):
                found = max(found, abs(w[row, n]))
        partial[part[i]] = found


@compiled
def largest_of(partial, largest, which):  # type: ignore[no-untyped-def]
    """largest[which] = the largest of partial."""
    for i in range(len(which)):
        largest[which[i]] = partial.max()


def _all(of: type[Optimiser]) -> list[type[Optimiser]]:
    return [each for one in of.__subclasses__() for each in (one, *_all(one))]


check_records(_all(Optimiser))
OPTIMISERS: dict[str, type[Optimiser]] = {name: one for one in _all(Optimiser) for name in one.names}
FORMS: dict[str, Form] = {form.kind: form for one in _all(Optimiser) for form in one.forms}

__all__ = ["FORMS", "LEARNING_RATE", "OPTIMISERS", "TRAINING_STEP", "Form", "Optimiser"]
