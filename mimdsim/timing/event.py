"""The event path: host and chip as simpy processes over a bounded queue of prefetched batches.

One process a chip, never a process a tile. Where nothing contends it agrees with the closed form of the fast path.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy


def stream_training_steps(
    training_steps: int, device_seconds: float, stream_seconds: float, prefetch_depth: int
) -> tuple[float, ...]:
    """When each training step ends, in seconds, with the host streaming up to `prefetch_depth` batches ahead.

    prefetch_depth 0: the host sends a batch only when the chip asks for it.
    """
    env = simpy.Environment()
    ends: list[float] = []
    ready = simpy.Store(env, capacity=max(1, prefetch_depth))
    asked = simpy.Store(env)

    def host() -> Generator[Any, Any, None]:
        for number in range(training_steps):
            if prefetch_depth == 0:
                yield asked.get()
            yield env.timeout(stream_seconds)
            yield ready.put(number)

    def chip() -> Generator[Any, Any, None]:
        for number in range(training_steps):
            if prefetch_depth == 0:
                yield asked.put(number)
            yield ready.get()
            yield env.timeout(device_seconds)
            ends.append(env.now)

    env.process(host())
    env.process(chip())
    env.run()
    return tuple(ends)


def global_exchange_seconds(traffic: Any, links: Any) -> float:
    """Replaced when the links land."""
    raise NotImplementedError
