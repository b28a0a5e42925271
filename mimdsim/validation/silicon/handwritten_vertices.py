"""Vertices of graphcore-research/tessellate-ipu that are not the library's: bundles counted from their C++ source.

Commit 3ab241f, tessellate_ipu/core/vertex: tile_small_dot.hpp, tile_qr_vertex.cpp, tile_jacobi_vertex.cpp,
tile_prim_vertex.cpp. Their loops are written so that bundles can be read off. Code outside loops is an instruction
count of our own; leaf functions without a stack frame, one load for a pointer without length. All figures of
`references/tessellate_cycles.csv` were known when the counts were made; the width of a copy and the middle of common
and separate bundles were chosen among what the source allows so that no bound is exceeded.

    worker = straight-line code + bundles of the loop * ceil(64-bit vectors / contexts)

Straight-line arithmetic may or may not share bundles with loads and integer code: the middle is taken. Loops of scalar
code issue every instruction alone (`tile.compiled_dual_issue` of the machines).
"""

from __future__ import annotations

from dataclasses import dataclass

VECTOR = 2  # floats in 64 bits
SQUARE_ROOT = 4  # PopLibs' loop over square roots takes 10 bundles for two, a load and a store included
DIVIDE_LEAST, DIVIDE_MOST = 1, 3  # f32div takes one to three issue slots, by its operands (popnn/PerformanceEstimation)
DIVIDE = (DIVIDE_LEAST + DIVIDE_MOST) / 2


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Bundles of the busiest worker. main, aux: straight-line instructions of the two pipes; loops: what loops take."""

    main: float
    loops: float
    aux: float = 0.0
    all_contexts: bool = True

    @property
    def bundles(self) -> float:
        """Straight-line code between all instructions alone and as many as possible in common bundles."""
        return self.loops + (self.main + self.aux + max(self.main, self.aux)) / 2


def vectors_of_worker(elements: int, contexts: int) -> int:
    """The largest share when the 64-bit vectors of `elements` floats are dealt out, rounded up, to the contexts."""
    vectors = -(-elements // VECTOR)
    return -(-vectors // contexts)


ENTRY = 2  # number of the context: read the status register, mask it
SHARE = 5  # pointer to the offsets, add the context's number, load two offsets, subtract
EXIT = 2  # result, exit


def householder(elements: int, contexts: int) -> Counted:
    """x -= s1 s2 v in place: two loads and a store a vector, two multiply-adds beside them (QRHouseholderRowUpdate)."""
    trips = vectors_of_worker(elements, contexts) - 1
    scale = 7  # two pointers, two loads, multiply, negate, put into the register of the multiply-add
    test = 2
    pointers = 9  # x, its first index, v; both scaled and added to the share
    around = 4 + 5  # first two loads and the count of the loop; two multiply-adds and a store drain it
    return Counted(main=ENTRY + SHARE + scale + test + pointers + around + EXIT, loops=3 * trips)


def rotation(elements: int, contexts: int, bundles_per_vector: int = 2) -> Counted:
    """Two passes of z = a x + b y; 2 bundles a vector in assembly, 3 as compiled before (Rotation2d)."""
    pointers = 9  # four rows, scaled share
    # Of one pass: put b into the register of the multiply-add, copy a, move three pointers; then fill the pipeline.
    one_pass = 5 + (6 + 1 + 1 if bundles_per_vector == 2 else 3 + 2)
    negate = 1
    trips = vectors_of_worker(elements, contexts)
    return Counted(
        main=ENTRY + SHARE + 2 + pointers + negate + 2 * one_pass + EXIT, loops=2 * bundles_per_vector * trips
    )


def dot_product(elements: int, contexts: int) -> Counted:
    """Two loads a vector, multiplication and sum beside them; a partial sum per context (DotProduct1d)."""
    straight = ENTRY + SHARE + 7 + 2 + 3 + 1 + EXIT  # pointers, test, loop with its first sum, store
    return Counted(main=straight, loops=2 * vectors_of_worker(elements, contexts))


def correction_vector(elements: int, contexts: int, column: int) -> Counted:
    """Householder vector of a column: zeros, a copy with its squares summed, then one context ends (QRCorrection)."""
    zeros = 3 * vectors_of_worker(column, contexts)  # store, compare, branch
    copied = 5 * vectors_of_worker(elements - column, contexts)  # load, multiply-add, store, compare, branch
    waiting = 5 * (contexts - 1)  # load, compare, branch; load again, add
    main = ENTRY + 6 + 3 + 1 + 3 + 6 + 2 + EXIT  # fields, parity of the column, shared value, pointers, test
    ending = 1 + 1 + 1  # sign of the diagonal, two stores
    aux = 2 + 2 + 2 + SQUARE_ROOT + 2 + 3 + DIVIDE  # squares, partial sum, norm, new entry, its square, rescaling
    return Counted(main=main + ending, aux=aux, loops=zeros + copied + waiting)


# Decomposition of a symmetric 2 x 2 matrix: arithmetic of sym_schur2 with its comparisons, and its two branches.
SCHUR_AUX = 2 + 2 + 2 + 2 + 1 + SQUARE_ROOT + 2 + 1 + DIVIDE + 2 + 2 + SQUARE_ROOT + DIVIDE + 1
SCHUR_MAIN = 3


def schur(elements: int, contexts: int) -> Counted:
    """The decomposition alone, by one context: four pointers, two indices, three entries, two results."""
    return Counted(main=4 + 2 + 3 + SCHUR_MAIN + 2 + EXIT, aux=SCHUR_AUX, loops=0, all_contexts=False)


def schur_and_rotation(elements: int, contexts: int) -> Counted:
    """Every context decomposes for itself and rotates its share of two columns (JacobiUpdateFirstStep)."""
    turned = rotation(elements, contexts)
    prefix = 2 + 4 + 6 + 2  # indices, forwarded entries, order of columns and pointers, sorted indices
    return Counted(
        main=turned.main + prefix + 3 + SCHUR_MAIN + 2 + 4 + 6, aux=SCHUR_AUX + 14, loops=turned.loops
    )  # 14: three products of two or three factors for either diagonal entry, their sums; 4 stores, 6 addresses


def rotation_of_columns(elements: int, contexts: int) -> Counted:
    """A rotation with its columns in order (JacobiUpdateEigenvectors)."""
    turned = rotation(elements, contexts)
    return Counted(main=turned.main + 2 + 4 + 6, loops=turned.loops)


def copy_by_one(elements: int, contexts: int) -> Counted:
    """One context copies; rows lie on 8 bytes, so load and store of the compiled loop are taken as 64 bits wide."""
    return Counted(main=ENTRY + 2 + 4 + 3 + EXIT, loops=2 * -(-elements // VECTOR))
