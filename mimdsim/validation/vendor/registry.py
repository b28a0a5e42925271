"""Cycles of a codelet by the vendor's name and parameters.

`vendor_cycles` answers in the unit the vendor uses for the codelet: tile cycles for 1-D and supervisor codelets, worker
cycles for 2-D ones. Where the vendor's own formula has a known slip, the registry repeats it (`as_vendor`), so that its
figures can be checked; the functions themselves are right by default.
"""

from __future__ import annotations

from collections.abc import Mapping

from mimdsim.base.errors import MimdsimError
from mimdsim.costs.library.arithmetic import NoCycleFormula
from mimdsim.validation.vendor.others import OTHER_LIBRARIES
from mimdsim.validation.vendor.params import Formula, VendorParams
from mimdsim.validation.vendor.popops import POPOPS

# By name without template arguments; those reach the formula as its first argument.
FORMULAS: dict[str, Formula] = {**POPOPS, **OTHER_LIBRARIES}


def vendor_cycles(codelet: str, dtype: str, params: Mapping[str, str]) -> int | None:
    """Cycles of a codelet named as the vendor does, e.g. "popops::BinaryOp1D<ADD>"; None if no formula is known.

    `dtype` is one format or two ("f16->f32", "f16/f32": data and partial sums). Raises MimdsimError that names the
    codelet and the parameter when one is missing or not an integer.
    """
    name, _, template = codelet.partition("<")
    formula = FORMULAS.get(name)
    if formula is None:
        return None
    try:
        return int(formula(template.removesuffix(">"), dtype, VendorParams(params)))
    except NoCycleFormula:
        return None
    except MimdsimError as problem:
        raise MimdsimError(f"codelet {codelet}: {problem}") from None
