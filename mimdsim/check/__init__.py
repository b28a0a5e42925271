"""Floor 8: is it right? Programs against the rules and the graph's meaning, kernels against a reference; predictions
against published figures."""

from mimdsim.base.called import make_called
from mimdsim.check.kernel import KernelResult, check_kernel

__all__ = ["KernelResult", "check_kernel"]

make_called(__name__)
