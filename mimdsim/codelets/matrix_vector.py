"""The vertices of Graphcore's matrix-vector tutorial, each written twice: compiled from C++, and in assembler."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.program import Codelet, Field, Length, Vectors, WorkerBundles, fields_of, terms_of
from mimdsim.program.loops import Mix


def _dot(row: np.ndarray, vector: np.ndarray, partial: np.ndarray) -> None:
    partial[:] = np.dot(row, vector)


def _total(partials: np.ndarray, out: np.ndarray) -> None:
    out[:] = partials.sum(dtype=np.float32)


def _place(stream: np.ndarray, matrix: np.ndarray) -> None:
    matrix[:] = stream


PLACE = Codelet(
    name="PlaceStream",
    fields=fields_of("read stream[row, begin:end]; write matrix[row, begin:end]"),
    columns=(),
    compute=_place,
    form="vertex",
    cost=WorkerBundles(
        fixed=0, terms=(), kind="derived", source="no vertex on the machine: the exchange writes pieces into place"
    ),
    code_bytes=0,
)

# C++: 4 loads (pointers of a, b and out, length), sum = 0, test for an empty loop, start of the loop, then store,
# result and exit. Assembler: 5 bundles, the tutorial's own assumption.
_CPP_FIXED, _ASSEMBLER_FIXED = 10, 5
_CPP_SOURCE = (
    "compiled loop of graphcore/examples tut6 matrix-mul-codelets.cpp, every instruction alone: load, load, multiply, "
    "add for a product and load, add for a sum"
)
_ASSEMBLER_SOURCE = "setPerfEstimate of graphcore/examples tut6.cpp: 5 cycles and one for two floats"


def _variant(name: str, fields: tuple[Field, ...], compute: Any, extent: str, compiled: Mix | None) -> Codelet:
    """compiled: bundles per element in C++; None: one bundle per two floats in assembler."""
    per_turn, fixed = (compiled, _CPP_FIXED) if compiled is not None else (1.0, _ASSEMBLER_FIXED)
    turns = extent if compiled is not None else f"{extent}_pairs"
    return Codelet(
        name=f"{name}<{'c++' if compiled is not None else 'assembler'}>",
        fields=fields,
        compute=compute,
        form="vertex",
        cost=WorkerBundles(
            fixed=fixed,
            terms=terms_of({turns: per_turn}),
            kind="derived" if compiled is not None else "published",
            source=_CPP_SOURCE if compiled is not None else _ASSEMBLER_SOURCE,
        ),
        flops=terms_of({extent: 2 if name == "DotProduct" else 1}),
        code_bytes=128,
        extents={extent: Length(fields[0].name, 1), f"{extent}_pairs": Vectors(fields[0].name, 1, per=2)},
    )


_DOT_FIELDS = fields_of("read row[row, begin:end]; read vector[begin:end]; write partial[row, segment]")
_SUM_FIELDS = fields_of("read partials[row, :]; write out[row]")
DOT_PRODUCT = {
    how: _variant("DotProduct", _DOT_FIELDS, _dot, "elements", bundles)
    for how, bundles in (("c++", Mix(load=2.0, multiply=1, add=1)), ("assembler", None))
}
ROW_SUM = {
    how: _variant("RowSum", _SUM_FIELDS, _total, "partials", bundles)
    for how, bundles in (("c++", Mix(load=1.0, add=1)), ("assembler", None))
}
