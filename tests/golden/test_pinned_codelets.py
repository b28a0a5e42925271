"""Every codelet as it is, its boxes, extents and costs in every format: `pinned_codelets.csv`; as with figures,
`python tests/golden/test_pinned_codelets.py` writes it anew.

No law tells 4 bundles from 5. Some lines of the table are worked out by hand in `test_codelets.py`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import astuple
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codelet_families import FAMILIES
from linear_networks import PARAMETERS
from padded_products import cast_codelet, product_codelet, sum_codelet
from pins import assert_as_pinned

from mimdsim.base.errors import MappingError
from mimdsim.codelets import (
    dense,
    elementwise,
    library_linear_neurons,
    linear_neurons,
    matrix_vector,
    products,
    surrogates,
    training,
)
from mimdsim.codelets.formats import in_format
from mimdsim.codelets.linear_terms import Packed, pack_terms
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.surrogates import SURROGATES
from mimdsim.numerics.optimisers import FORMS
from mimdsim.program import Codelet, TileFormula
from mimdsim.program.codelet import Term

TABLE = Path(__file__).resolve().parent / "pinned_codelets.csv"
COLUMNS = ("of", "codelet", "what", "figures")
SIZES = np.array([1, 6, 13, 64, 1031])
MACHINES = ((6, 8), (4, 16))  # worker contexts, bytes of a vector
FORMATS: tuple[dict[str, Any], ...] = (
    {"value_bytes": 2, "moved_bytes": 2, "id_bytes": 4},
    {"value_bytes": 2, "moved_bytes": 2, "id_bytes": 4, "kept_bytes": 4},
    {"value_bytes": 4, "moved_bytes": 4, "id_bytes": 2},
    {"value_bytes": 4, "moved_bytes": 1, "id_bytes": 4},
)
OF_BYTES = (dense.slice_formula(4), dense.fill_formula(4), dense.copy_formula(4))  # what rows of bytes go through
SPLITS = ("rows", "columns", "states", "slots")
DTYPES = (("f16", "f16"), ("f16", "f32"), ("f32", "f32"))
UNITS = {"f16": (16, 16), "f32": (8, 8)}
KINDS = ("forward", "input gradient", "weight gradient")
# models whose vertices differ most: reset to rest, subtracting, with constants, in two states, own numbers per neuron
LINEAR: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lapicque": ("lapicque", "subtract", PARAMETERS["lapicque"]),
    "norse": ("norse_lif_box", "zero", PARAMETERS["norse_lif_box"]),
    "cuba": ("cuba_lif", "zero", PARAMETERS["cuba_lif"]),
    "alpha": ("alpha", "subtract", PARAMETERS["alpha"]),
    "own": ("leaky", "subtract", {"beta": [0.5, 0.75, 0.875]}),
    "own read-out": ("synaptic", "zero", {"alpha": [0.5, 0.5, 0.25], "beta": [0.25, 0.5, 0.75]}),
}  # fmt: skip


def structured(name: str, switched: bool = True) -> Packed:
    model, reset, parameters = LINEAR[name]
    given = {key: np.array(value) if isinstance(value, list) else value for key, value in parameters.items()}
    return pack_terms(neuron_of(model, given, reset=reset), 3, switched=switched)


def linear(name: str, module: Any) -> Iterator[Codelet]:
    structure = structured(name).structure
    for source in ("u", "flags", ""):
        yield module.update(structure, source)
    for source in ("fired", ""):
        yield module.gradient(structure, source)
    for reads, surrogate in ((("x",), ""), (("x", "current"), "arctan")):
        yield module.full_gradient(structure, reads, surrogate)
    yield module.readout_gradient(structure)
    for surrogate in ("superspike", "boxcar"):
        yield module.dense_state_gradient(structure, surrogate)
        if module is linear_neurons:
            yield module.state_gradient(structure, surrogate)


def families() -> dict[str, list[Codelet]]:
    found = {name: list(family) for name, family in FAMILIES.items()}
    found["neurons"] += [
        make(name) for make in (surrogates.state_gradient, surrogates.state_gradient_row) for name in SURROGATES
    ]
    found["neurons"] += [linear_neurons.EMITTED_FLAGS, linear_neurons.EMITTED_GRADIENT]
    makers = (dense.slice_codelet, dense.update_codelet)
    found["dense"] += [make(split, shift) for make in makers for split, shift in product(SPLITS, (0, -1))]
    found["training"] += [elementwise.on_boxes(codelet) for codelet in FAMILIES["training"]]
    found["products"] += [
        make
        for dtype, partials in DTYPES
        for make in (
            product_codelet(dtype, partials, *UNITS[dtype], 16),
            sum_codelet(dtype, partials),
            cast_codelet(dtype, partials),
        )
    ]
    found["products"] += [products.block_product(kind, direct, 16, 8, 16) for kind in KINDS for direct in (True, False)]
    found["products"] += [
        products.block_product(kind, False, 16, 8, 16, True, turned) for kind in KINDS for turned in (False, True)
    ]
    found["matrix and vector"] = [
        matrix_vector.PLACE, *matrix_vector.DOT_PRODUCT.values(), *matrix_vector.ROW_SUM.values(),
    ]  # fmt: skip
    for name in LINEAR:
        found[f"linear {name}"] = list(linear(name, linear_neurons))
        found[f"linear calls {name}"] = list(linear(name, library_linear_neurons))
    return found


def terms(found: tuple[Term, ...]) -> str:
    return " + ".join(
        f"{term.bundles:g}{f' ({term.pairable:g} pairable)' if term.pairable else ''} {' x '.join(term.extents)}"
        for term in found
    )


def cost(codelet: Codelet) -> Iterator[tuple[str, str]]:
    """Bundles, or tile cycles at some sizes, another one for every extent."""
    if not isinstance(codelet.cost, TileFormula):
        yield f"{codelet.cost.kind} bundles", f"{codelet.cost.fixed:g} + {terms(codelet.cost.terms)}"
        return
    for contexts, vector in MACHINES:
        extents = {name: np.roll(SIZES, 2 * number) for number, name in enumerate(codelet.extents)}
        cycles = np.broadcast_to(codelet.cost.cycles(extents, contexts, vector), SIZES.shape)
        yield f"{codelet.cost.kind} cycles, {contexts} {vector}", " ".join(map(str, cycles.tolist()))


def told(codelet: Codelet) -> Iterator[tuple[str, str]]:
    marks = {"one_row": "one row", "in_part": "in part"}
    fields = (
        " ".join([item.access, item.name, *item.box, *(text for name, text in marks.items() if getattr(item, name))])
        for item in codelet.fields
    )
    yield "fields", "; ".join(fields)
    along = " to ".join(codelet.along or ())
    yield "columns", " ".join([*codelet.columns, "/", *codelet.constants, "/", along, "/", codelet.form])
    yield "extents", "; ".join(extents(codelet))
    yield "code, state, flops", f"{codelet.code_bytes} {codelet.vertex_state_bytes} {terms(codelet.flops)}"
    yield from cost(codelet)


def extents(codelet: Codelet) -> Iterator[str]:
    for name, extent in codelet.extents.items():
        values = (part.__name__ if isinstance(part, type) else str(part) for part in astuple(extent))
        yield f"{name}: {type(extent).__name__} {' '.join(values)}"


def formats(codelet: Codelet) -> Iterator[tuple[str, str, str]]:
    """What other bytes change."""
    for given in FORMATS:
        if ("kept_bytes" in given and codelet not in FAMILIES["training"]) or (
            given["moved_bytes"] == 1 and codelet.cost not in OF_BYTES
        ):
            continue
        try:
            changed = in_format(codelet, **given)
        except MappingError:
            yield codelet.name, " ".join(map(str, given.values())), "refused"
            continue
        if changed is not codelet:
            if changed.extents != codelet.extents:
                yield changed.name, "extents", "; ".join(extents(changed))
            yield from ((changed.name, what, figures) for what, figures in cost(changed))


def coefficients(name: str) -> Iterator[tuple[str, str, str]]:
    for switched in (True, False):
        made = structured(name, switched)
        for what in ("terms", "uniform", "readout", "weights", "own"):
            array = getattr(made, what)
            numbers = "none" if array is None else f"{array.shape}: {' '.join(f'{n:.8g}' for n in array.ravel())}"
            yield "switched" if switched else "not switched", what, numbers
        for what in ("terms", "readout"):
            parts = ("".join(map(str, map(int, astuple(shape)))) for shape in getattr(made.structure, what))
            yield "shapes", what, " ".join(parts)


def lines(family: str) -> list[tuple[str, str, str, str]]:
    found = []
    for codelet in dict.fromkeys(families()[family]):
        if family.startswith("linear calls"):
            found.append(
                (family, codelet.name, "calls", f"{codelet.code_bytes} {codelet.cost.source.partition(': ')[2]}")
            )
            continue
        found += [(family, codelet.name, what, figures) for what, figures in told(codelet) if figures]
        found += [(family, *line) for line in formats(codelet) if not family.startswith("linear")]
    if family.partition(" ")[2] in LINEAR:
        found += [(family, *line) for line in coefficients(family.partition(" ")[2])]
    return found


@cache
def pinned() -> dict[str, list[tuple[str, ...]]]:
    table: dict[str, list[tuple[str, ...]]] = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            table.setdefault(row["of"], []).append(tuple(row.values()))
    return table


def of_new_optimisers(known: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Codelets of optimisers that are not in the table yet: their own records and tests say what they are."""
    names = {name for _, name, *_ in known}
    return tuple(
        codelet.name
        for kind, scheduled in product(FORMS, (False, True))
        if (codelet := training.update_codelet(kind, scheduled=scheduled)).name not in names
    )


@pytest.mark.parametrize("family", pinned() if TABLE.exists() else ())
def test_codelets_are_as_pinned(family: str) -> None:
    pins = pinned()[family]
    new = of_new_optimisers(pins) if family == "training" else ()
    assert_as_pinned([line for line in lines(family) if not line[1].startswith(new)], pins, __file__)


def test_every_family_is_pinned() -> None:
    assert list(pinned()) == list(families())


def main() -> None:
    every = [line for family in families() for line in lines(family)]  # all of them, before the old table goes
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *every])


if __name__ == "__main__":
    main()
