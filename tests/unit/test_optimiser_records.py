"""What is wrong with the record of an optimiser is told when it is collected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from networks import small_network

from mimdsim.base.errors import DescriptionError
from mimdsim.checking.test_inputs import DRAWS, drawn_inputs
from mimdsim.numerics.optimiser_record import check_records
from mimdsim.numerics.optimisers import FORMS, OPTIMISERS, SGD, Optimiser, Sgd

KEPT = replace(SGD, kind="kept", state={"square": "square"})


def record(**given: Any) -> type[Optimiser]:
    """An optimiser without state, with some of its record changed."""

    def equation(self: Any, w: Any, gradient: Any, *state: Any, rate: float, number: int) -> tuple[Any, ...]:
        return (w - rate * gradient, *state)

    fields = {"names": ("invented",), "decays": (), "forms": (replace(SGD, kind="invented"),), "equation": equation}
    made = {name: value for name, value in (fields | given).items() if value is not ...}
    constants = {name: float for name in given if name not in (*fields, "bounds", "form")}
    # not a subclass of Optimiser that is found, which would stay for other tests
    return dataclass(frozen=True, kw_only=True)(type("Invented", (Unfound,), {**made, "__annotations__": constants}))


class Unfound(Optimiser):
    names, decays, forms = (), (), ()


def test_records_that_are_right_are_taken() -> None:
    check_records(
        [
            *dict.fromkeys(OPTIMISERS.values()),
            record(),
        ]
    )
    check_records([record(forms=(KEPT,), factor=0.5)])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"names": ...}, "names: missing or no tuple; write one in the class itself"),
        ({"names": "invented"}, "names: missing or no tuple"),
        ({"names": ()}, "names: must not be empty"),
        ({"forms": ()}, "forms: must not be empty"),
        ({"names": ("sgd",)}, "names: 'sgd' is already a name of Sgd; choose another"),
        ({"forms": (replace(SGD),)}, "forms: kind 'sgd' is already one of Sgd; choose another"),
        ({"decays": ("other",)}, "decays: 'other' is not among names; list it there too"),
        ({"factor": "half"}, "factor: needs a number as its default"),
        ({"bounds": {"factr": (0, 2)}, "factor": 1.0}, "bounds: 'factr' is not a constant of the optimiser, which has"),
        ({"forms": (replace(KEPT, constants={"factr": "factor"}),)}, "constants: 'factr' is not a field of Invented"),
        ({"forms": (replace(KEPT, constants={}),), "decays": ("invented",)}, "constants: lacks weight_decay"),
        ({"forms": (replace(KEPT, state={"square": "w"}),)}, "'w' names two arguments of the kernel; rename it"),
        ({"forms": (replace(KEPT, never_negative=("v",)),)}, "never_negative: 'v' is not a state, of which there are"),
        (
            {"equation": lambda _self, w, *_, **_named: (w, w)},
            "equation: returns 2 values for form 'invented', must return a tuple of 1: w, then every state",
        ),
        ({"equation": lambda _self, w, *_, **_named: w}, "must return a tuple of 1"),
        ({"equation": lambda _self: ()}, "equation: fails with TypeError"),
        ({"form": property(lambda _self: SGD)}, "form: 'sgd' is not among forms; list it there"),
    ],
)
def test_records_that_are_wrong_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=r"^optimiser Invented \(.*\): \d+ problem") as raised:
        check_records([Sgd, record(**given)])
    assert message in str(raised.value)


def test_the_records_of_this_package_are_all_there() -> None:
    assert set(OPTIMISERS) >= {"sgd", "adam", "adamw", "torch_adam", "torch_adamw"}
    assert set(FORMS) >= {"sgd", "momentum", "adam", "torch_adam"}


@pytest.mark.parametrize("positive", [True, False])
def test_states_are_drawn_as_their_record_says(positive: bool) -> None:
    form = replace(KEPT, never_negative=("square",) if positive else ())
    network = small_network((9, 8, 4), optimiser=record(forms=(form,))(learning_rate=0.1))
    drawn = drawn_inputs(network, DRAWS[0])["square.hidden0"]
    assert bool((drawn < 0).any()) is not positive
    assert np.isfinite(drawn).all()
