"""Is it right? Checks programs against the rules and the graph's semantics, kernels against a reference, and
predictions against published figures."""

from mimdsim.base.called import make_called
from mimdsim.check.kernel import KernelResult, check_kernel

__all__ = ["KernelResult", "check_kernel"]

make_called(__name__)
