"""The arithmetic of vertices, compiled by numba (no fastmath; kept by `compiled.py`), over columns of vertices.

Every function takes whole arrays and int64 columns, one entry per vertex, and writes in place. float32 sums run in
the order of the listed ids, as one worker context would do them.
"""

import importlib
import os
import sys

from mimdsim.base.errors import MimdsimError


def _begin_numba() -> None:
    """Import what numba needs for its first kernel, without scipy: numba imports that too, for a seventh of a second,
    just to see whether it is there. Kernels that multiply matrices still find it."""
    looked_for = "scipy.linalg.cython_blas"
    if looked_for not in sys.modules:
        sys.modules[looked_for] = None  # type: ignore[assignment]  # Python then says that there is none
        try:
            importlib.import_module("numba.np.arraymath")
        except ImportError:  # a numba that has none looks for scipy as it likes
            pass
        except ValueError as problem:  # it reads its variables when it is imported
            given = ", ".join(sorted(name for name in os.environ if name.startswith("NUMBA_")))
            raise MimdsimError(f"numba refuses the environment ({problem}); correct or unset {given}") from None
        finally:
            del sys.modules[looked_for]


_begin_numba()
importlib.import_module("mimdsim.numerics.compiled").check_folder()
