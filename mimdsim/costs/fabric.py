"""Exchange and sync: the endpoint model.

    phase = fixed + max over tiles of max( max(bytes sent, bytes received) / bytes_per_cycle,
                                           control instructions for the fragments sent and received )

Source: C600 stack measurements (osmarks/ipu-stack, within 3 % of two measured phases) and the profile-derived fixed
part of an exchange on Mk1 (thorbenlouw/lbm-graphcore); send and receive overlap (full duplex).
"""

from __future__ import annotations

import numpy as np

from mimdsim.machine.mimd import Exchange as Fabric


def endpoint_cycles(
    bytes_sent: np.ndarray,
    bytes_received: np.ndarray,
    fragments_sent: np.ndarray,
    fragments_received: np.ndarray,
    fabric: Fabric,
) -> np.ndarray:
    """int64[tiles]: cycles in which each tile takes part in one exchange phase, without the fixed part."""
    wire = np.maximum(bytes_sent, bytes_received) / fabric.bytes_per_cycle
    control = fragments_sent * fabric.send_fragment_cycles + fragments_received * fabric.receive_fragment_cycles
    return np.ceil(np.maximum(wire, control)).astype(np.int64)


def exchange_phase_cycles(tile_cycles: np.ndarray, fabric: Fabric) -> int:
    """Cycles of the whole phase: nobody goes on before the busiest tile is done. 0 when nothing moves."""
    busiest = int(tile_cycles.max(initial=0))
    return fabric.fixed_cycles + busiest if busiest else 0


def host_exposed_seconds(stream_seconds: float, device_seconds: float, prefetch_depth: int) -> float:
    """Streaming that the device waits for: all of it without prefetch, else what is longer than the training step."""
    if prefetch_depth == 0:
        return stream_seconds
    return max(0.0, stream_seconds - device_seconds)
