"""Is it right? Checks programs against the rules and the graph's semantics, kernels against a reference, and
predictions against published figures."""

from mimdsim.checking.kernel import KernelResult, check_kernel

__all__ = ["KernelResult", "check_kernel"]
