"""The training steps of programs.py and planes.py in JAX, time outermost: what XLA makes of a loop.

`jax.lax.scan` is a loop whose trip count XLA knows, as in the published Keras program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.gpu.bptt import DECAY, SCALE, SECOND_THRESHOLD, SLOPE, THRESHOLD
from mimdsim.graph.convolution import Convolution, Pool

INNERMOST = ("NHWC", "HWIO", "NHWC")
MATMUL = {"fp32": "highest", "tf32": "tensorfloat32"}


def training_step(
    inputs: Any, weights: list[Any], recurrent: list[Any], labels: Any, precision: str
) -> Callable[[], Any]:
    """A function that runs one step and waits for nothing; call `.block_until_ready()` on what it returns.

    inputs: [T, B, n0] of 0 and 1; arrays of numpy.
    """
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", MATMUL[precision])

    spikes = [fire(SECOND_THRESHOLD) for _ in weights[:-1]] + [fire(-100.0)]

    def loss(parameters: Any, x: Any, target: Any) -> Any:
        feed, back = parameters
        zeros = [jnp.zeros((x.shape[1], w.shape[1])) for w in feed]

        def turn(carried: Any, now: Any) -> Any:
            v, fired = carried
            sources = [now, *fired[:-1]]
            currents = [s @ w for s, w in zip(sources, feed, strict=True)]
            currents = [c if r is None else c + f @ r for c, r, f in zip(currents, back, fired, strict=True)]
            # the gradient passes the reset as if there were none
            v = [each - jax.lax.stop_gradient(jnp.where(each > THRESHOLD, each, 0.0)) for each in v]
            v = [DECAY * each + SCALE * current for each, current in zip(v, currents, strict=True)]
            fired = [one(each) for one, each in zip(spikes, v, strict=True)]
            return (v, fired), fired[-1]

        _, out = jax.lax.scan(turn, (zeros, zeros), x)
        scores = out.sum(0)
        return cross_entropy(scores, target)

    parameters = ([jnp.asarray(w) for w in weights], [None if w is None else jnp.asarray(w) for w in recurrent])
    return trained(loss, parameters, jnp.asarray(inputs), jnp.asarray(labels))


def planes_step(
    layers: tuple[Convolution, ...], inputs: Any, weights: list[Any], biases: list[Any], labels: Any, precision: str
) -> Callable[[], Any]:
    """The same of layers with convolutions, without a delay between them; inputs: [T, B, channels, height, width].
    Channels are innermost, as Keras and Flax have them."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", MATMUL[precision])
    spike = fire(-100.0)

    def pooled(pool: Pool | None, x: Any) -> Any:
        if pool is None:
            return x
        sizes = (1, *pool.window.kernel, 1)
        if pool.kind == "max":
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, sizes, sizes, "VALID")
        total = jax.lax.reduce_window(x, 0.0, jax.lax.add, sizes, sizes, "VALID")
        return total / pool.window.taps if pool.kind == "average" else total

    def loss(parameters: Any, x: Any, target: Any) -> Any:
        made = [of.result for of in layers]
        zeros = [jnp.zeros((x.shape[1], planes.height, planes.width, planes.channels)) for planes in made]

        def turn(v: Any, now: Any) -> Any:
            left, fired = [], now
            for of, held, w, b in zip(layers, v, *parameters, strict=True):
                edges = [(pad, pad) for pad in of.window.padding]
                seen = pooled(of.before, fired)
                made = jax.lax.conv_general_dilated(seen, w, of.window.stride, edges, dimension_numbers=INNERMOST)
                current = pooled(of.after, made + b)
                held = held - jax.lax.stop_gradient(jnp.where(held > THRESHOLD, held, 0.0))
                left.append(DECAY * held + SCALE * current)
                fired = spike(left[-1])
            return left, fired

        _, out = jax.lax.scan(turn, zeros, x)
        return cross_entropy(out.sum(0)[:, 0, 0], target)

    parameters = ([jnp.asarray(w.transpose(2, 3, 1, 0)) for w in weights], [jnp.asarray(b) for b in biases])
    return trained(loss, parameters, jnp.asarray(inputs.transpose(0, 1, 3, 4, 2)), jnp.asarray(labels))


def fire(second: float) -> Any:
    """Spikes with the programs' surrogate."""
    import jax
    import jax.numpy as jnp

    @jax.custom_jvp
    def spike(v: Any) -> Any:
        return (v > THRESHOLD).astype(v.dtype)

    @spike.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (v,), (dv,) = primals, tangents
        near = (v > second) / (SLOPE * jnp.abs(v - THRESHOLD) + 1.0) ** 2
        return spike(v), near * dv

    return spike


def cross_entropy(scores: Any, target: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return -jnp.take_along_axis(jax.nn.log_softmax(scores), target[:, None], 1).mean()


def trained(loss: Callable[..., Any], parameters: Any, x: Any, target: Any) -> Callable[[], Any]:
    """Gradients and Adam, compiled."""
    import jax
    import jax.numpy as jnp

    def update(state: Any, x: Any, target: Any) -> Any:
        parameters, first, second, count = state
        gradients = jax.grad(loss)(parameters, x, target)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda m, g: 0.999 * m + 0.001 * g * g, second, gradients)
        rate = 0.0 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        parameters = jax.tree.map(lambda w, m, s: w - rate * m / (jnp.sqrt(s) + 1e-7), parameters, first, second)
        return parameters, first, second, count

    nothing = jax.tree.map(jnp.zeros_like, parameters)
    state = [(parameters, nothing, jax.tree.map(jnp.zeros_like, parameters), jnp.zeros(()))]
    compiled = jax.jit(update, donate_argnums=0)

    def step() -> Any:
        state[0] = compiled(state[0], x, target)
        return state[0][3]

    return step
