"""The strategies for mapping a training graph to a GPU, as one table: those of published programs and stronger ones.

Sources of the two published forms: the Keras program of Finkbeiner et al. 2024 (arXiv 2311.04386, repository
jrfinkbeiner/graphcore_snn, keras_train_util.py) and how XLA runs loops on GPUs (TensorFlow, while_thunk.cc).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from mimdsim.base.errors import DescriptionError, suggest
from mimdsim.gpu.elementwise import Launching
from mimdsim.gpu.kernels import LISTS_SOURCE, ListMode
from mimdsim.machine.gpu import Precision

# Step seconds may lie between these multiples of the estimate. Measured on an H100: a dozen networks each, of which the
# slowest and fastest give the ends (references/gpu_training_steps.csv); for other devices assumed.
Band = dict[Precision, tuple[float, float]]
LOOPED: Band = {"fp32": (0.5, 1.3), "tf32": (0.55, 1.5), "fp16": (0.55, 1.5)}
REPLAYED: Band = {"fp32": (0.85, 1.25), "tf32": (1.0, 1.7), "fp16": (0.75, 1.8)}
HOISTED: Band = {"fp32": (0.9, 1.2), "tf32": (1.0, 1.4), "fp16": (0.9, 1.9)}
LISTS_HOISTED: Band = {"fp32": (0.75, 1.4), "tf32": (0.75, 1.4), "fp16": (0.75, 1.4)}
# The same of networks with convolutions
LOOPED_PLANES: Band = {"fp32": (1.0, 2.0), "tf32": (1.0, 3.0), "fp16": (1.0, 3.0)}
REPLAYED_PLANES: Band = {"fp32": (0.85, 1.25), "tf32": (1.0, 1.6), "fp16": (1.0, 1.7)}
HOISTED_PLANES: Band = {"fp32": (0.9, 1.4), "tf32": (1.0, 1.5), "fp16": (1.0, 1.5)}
PLANES_SOURCE = (
    "measured: 7 to 12 networks with convolutions on an H100, benchmarks/gpu/measure_convolutions.py; on other devices "
    "assumed"
)
NEVER_TIMED: Band = {"fp32": (0.6, 1.6), "tf32": (0.6, 1.6), "fp16": (0.6, 1.6)}
NEVER_BUILT: Band = {"fp32": (1.0, 1.2), "tf32": (1.0, 1.4), "fp16": (1.0, 2.0)}


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """How kernels are formed and launched.

    hoisted: products of all timesteps become one, neuron kernels walk the timesteps themselves. The three counts hold
    for loops over timesteps: at most so many elementwise kernels per layer, and bookkeeping kernels per timestep.
    host_rate: which rate of the host link input copies reach. lists: how products follow lists of spikes, None where
    they are dense. persistent: products that feed themselves stay in a kernel that keeps their weights. scans: what
    feeds itself linearly is an associative scan over timesteps. never_built: a bound, which "auto" leaves out. band:
    lowest and highest multiple of the estimate; planes_band: of networks with convolutions, which have no lists. needs:
    the GPU feature it depends on that a machine with systolic arrays lacks.
    copies_dense_input: as the program it describes does; runs send the others what the tiles get. pads_widths: to rows
    of multiples of 16 bytes, as a careful program does for tensor units.
    """

    name: str
    description: str
    band: Band
    band_source: str
    source: str
    planes_band: Band | None = None
    hoisted: bool = False
    launching: Launching = "stream"
    forward_kernels_per_layer: int = 1
    backward_kernels_per_layer: int = 1
    bookkeeping_kernels: int = 0
    host_waits: bool = False
    host_rate: Literal["framework", "pinned"] = "pinned"
    lists: ListMode | None = None
    persistent: bool = False
    scans: bool = False
    never_built: bool = False
    needs: str = ""
    copies_dense_input: bool = False
    pads_widths: bool = True

    def interval(self, precision: Precision, *, convolutions: bool) -> tuple[float, float]:
        """The band of a network with or without convolutions."""
        band = self.planes_band if convolutions and self.planes_band is not None else self.band
        return band[precision]


# one turn of the loop per timestep as XLA runs it
_AS_PUBLISHED = Strategy(
    name="as_published",
    description="dense, one loop turn per timestep launched by the host, trip count known (XLA ForThunk)",
    forward_kernels_per_layer=2,
    backward_kernels_per_layer=3,
    bookkeeping_kernels=3,
    host_rate="framework",
    copies_dense_input=True,
    pads_widths=False,
    band=LOOPED,
    planes_band=LOOPED_PLANES,
    band_source="measured: 14 networks as JAX programs on an H100, benchmarks/gpu/measure_steps.py, the narrow ones "
    "faster and the wide ones slower than here; on other devices assumed",
    source="Keras program of arXiv 2311.04386 under XLA: 2 forward and 3 backward fusions a layer, 3 bookkeeping "
    "kernels a timestep, dW added up by the product itself every timestep; read from the program, not traced on a GPU",
)

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        _AS_PUBLISHED,
        replace(
            _AS_PUBLISHED,
            name="as_published_synchronised",
            description="as published, but the host waits for the loop condition every timestep (XLA WhileThunk)",
            host_waits=True,
            band_source="assumed: as without the wait, and host wait 10 to 15 us",
            needs="a host that runs the loop and waits for its condition; a TPU runs loops by itself",
        ),
        Strategy(
            name="graph_replay",
            description="dense, all timesteps captured as one CUDA graph, one fused neuron kernel per layer and pass",
            launching="graph",
            band=REPLAYED,
            planes_band=REPLAYED_PLANES,
            band_source="measured: 14 networks on an H100, benchmarks/gpu/measure_steps.py; on other devices assumed",
            source="benchmarks/gpu/programs.py, looped: Triton kernels for neurons, products by cuBLAS",
        ),
        Strategy(
            name="hoisted",
            description="dense, each layer's products of all timesteps in one kernel, neuron kernels fused over time",
            hoisted=True,
            band=HOISTED,
            planes_band=HOISTED_PLANES,
            band_source="measured: 10 networks on an H100, benchmarks/gpu/measure_steps.py; on other devices assumed",
            source="layer by layer over all timesteps, as SpikingJelly, EXODUS and Lava DL do",
        ),
        Strategy(
            name="scan",
            description="as hoisted; gradients, and neurons that never reset, by associative scans over the timesteps",
            hoisted=True,
            scans=True,
            never_built=True,
            band=NEVER_TIMED,
            band_source="assumed: never timed by this project",
            source="scans of one pass (decoupled look-back, Merrill and Garland 2016): every value is read and written "
            "once, as by a kernel that walks the timesteps, but started as an elementwise kernel; what blocks hand on "
            "is left out. Neurons that reset walk the timesteps as in 'hoisted': their map depends on their own "
            "spikes, for which arXiv 2603.13283 scans again after every spike",
        ),
        Strategy(
            name="persistent",
            description="as hoisted; a layer that recurs walks the timesteps in one kernel, its weights on the chip",
            hoisted=True,
            persistent=True,
            band=NEVER_BUILT,
            band_source="assumed: never built; persistent kernels of LSTMs come out 22 % too slow to 23 % too fast",
            source="persistent recurrent kernels as in FlashRNN and cuDNN, one grid-wide wait a timestep",
            needs="blocks of threads that keep weights in registers and wait for each other",
        ),
        replace(
            _AS_PUBLISHED,
            name="lists_as_written",
            description="the authors' CUDA kernels on lists of spikes, one block per sample, inside an XLA loop",
            copies_dense_input=False,
            band=NEVER_TIMED,
            band_source="assumed: cycles per list entry estimated, kernels counted from the source and never timed",
            source=LISTS_SOURCE["as_written"],
            lists="as_written",
            needs="CUDA threads that follow ids and atomics in the L2",
        ),
        Strategy(
            name="lists_hoisted",
            description="each layer's lists of all timesteps in one kernel; a layer that recurs: one block a sample",
            hoisted=True,
            persistent=True,
            launching="graph",
            band=LISTS_HOISTED,
            band_source="measured: 14 networks on an H100, benchmarks/gpu/measure_steps.py; on other devices assumed",
            source=LISTS_SOURCE["hoisted"],
            lists="hoisted",
            needs="CUDA threads that follow ids and atomics in the L2",
        ),
    )
}


def check_choice(what: str, name: str, known: Collection[str]) -> None:
    """Raises DescriptionError, with the nearest known name, for a choice that there is not."""
    if name not in known:
        raise DescriptionError(f"GPU {what} '{name}'", [f"no such {what}{suggest(name, known)}"])


RENAMED = {"lists_ideal": "lists_hoisted"}  # a bound that a built and measured strategy now stays below


def find_strategy(name: str | Strategy) -> Strategy:
    """The strategy `name`, or one of the caller's own as it is; raises DescriptionError with the nearest known name."""
    if isinstance(name, Strategy):
        return name
    if name in RENAMED:
        warnings.warn(f"GPU strategy '{name}' is now '{RENAMED[name]}'", DeprecationWarning, stacklevel=2)
        name = RENAMED[name]
    check_choice("strategy", name, STRATEGIES)
    return STRATEGIES[name]
