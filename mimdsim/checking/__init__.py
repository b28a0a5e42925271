"""Is it right? Checks programs against the rules and the graph's semantics, and kernels against a reference."""

from mimdsim.checking.kernel import KernelResult, check_kernel

__all__ = ["KernelResult", "check_kernel"]
