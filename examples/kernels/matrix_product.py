"""C = A B on the matrix units, split over tiles as the vendor's library plans it.

Operands are declared with the plan's mappings, so nothing has to be arranged first. For published sizes see
tests/unit/test_kernels_examples.py: products of 4096 x 4096 by 4096 x n on a Bow chip agree
with references/tiled_products.csv within its 15 %.

    mimdsim check examples/kernels/matrix_product.py bow --strict
"""

import numpy as np

from mimdsim.kernels import Kernel, MimdMachine, Program

M, K, N = 96, 64, 80
DTYPE = "float32"  # or float16


def build(machine: MimdMachine, m: int = M, k: int = K, n: int = N, dtype: str = DTYPE) -> Program:
    kernel = Kernel("matrix product", machine)
    plan = kernel.plan_matmul(m, k, n, dtype)
    a = kernel.input(kernel.variable("a", (m, k), dtype, mapping=plan.left))
    b = kernel.input(kernel.variable("b", (k, n), dtype, mapping=plan.right))
    c = kernel.output(kernel.variable("c", (m, n), dtype, mapping=plan.result))
    kernel.matmul(a, b, out=c)
    return kernel.program()


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b
