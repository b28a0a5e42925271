"""The kernels a graph is lowered to: matrix products, streaming kernels and waits; what they move, not how long they
take."""

from __future__ import annotations

from dataclasses import dataclass

from mimdsim.gpu.sparse_kernels import ListKernel


@dataclass(frozen=True, kw_only=True)
class Product:
    """`times` launches of `batch` products C[m, n] = A[m, k] B[k, n].

    accumulate: added to what C held. repeated: the same weights come back every timestep.
    """

    name: str
    op: str
    phase: str
    times: int
    m: int
    n: int
    k: int
    batch: int = 1
    accumulate: bool = False
    repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class Stream:
    """`times` launches of an elementwise or fused kernel; bytes and flops are those of one launch.

    walks_timesteps: one launch covers all timesteps and keeps what it carries in registers.
    """

    name: str
    op: str
    phase: str
    times: int
    bytes_moved: int
    flops: int = 0
    walks_timesteps: bool = False


@dataclass(frozen=True, kw_only=True)
class HostWait:
    """`times` waits of the host for the device, between two launches."""

    name: str
    phase: str
    times: int


@dataclass(frozen=True, kw_only=True)
class Recurrent:
    """One persistent kernel that runs through the timesteps of a recurrent layer: its product, and the work in between.

    bytes_moved: of all timesteps, without the weights, which stay on the chip. times is 1.
    """

    name: str
    op: str
    phase: str
    times: int
    neurons: int
    batch: int
    timesteps: int
    bytes_moved: int
    flops: int


Kernel = Recurrent | Product | Stream | HostWait | ListKernel


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A training graph as kernels, in order.

    working_set_bytes: weights and summed gradients, which every timestep of a loop touches. bytes_needed: everything
    the device holds, no buffer reused. input_bytes: one batch as the host sends it.
    """

    kernels: tuple[Kernel, ...]
    working_set_bytes: int
    bytes_needed: int
    input_bytes: int
