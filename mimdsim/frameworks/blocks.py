"""Weights of several products that are one array here: those of slices of a layer's neurons, or of some columns of the
currents that a layer gets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.frameworks.neurons import refusal
from mimdsim.frameworks.origins import Feed
from mimdsim.graph.derived import WeightFunction, run_lengths

ROW = "@"  # of a link: what is a part of an array here: row '@3', or rows and columns '@0-18,0-24'

Feeds = tuple[Feed, ...]


def index_of(feed: Feed) -> tuple[slice, slice]:
    """Where its weights are in the array."""
    return slice(feed.row, feed.row + feed.last - feed.first), slice(*(feed.columns or (None,))[:2])


def uses_of(feeds: Feeds) -> np.ndarray:
    """int64[rows, columns]: how many products have weights there; one column stands for all where none are told apart.
    Raises DescriptionError for slices of layers that differ in width."""
    found = np.zeros((feeds[0].rows, next((each.columns[2] for each in feeds if each.columns), 1)), np.int64)
    for each in feeds:
        if each.rows != len(found) or each.row + each.last - each.first > len(found):
            raise refusal(f"'{each.product.weight}' reads some of what is not neurons; nearest: [samples, neurons]")
        found[index_of(each)] += 1
    return found


def has_gaps(feeds: Feeds) -> bool:
    """Whether there are no weights in some places, which hold zeros."""
    return not uses_of(feeds).all()


def place_of(feed: Feed, feeds: Feeds) -> str:
    """The place of its weights as `index_in` reads it, '' if they are all of the array."""
    if len(feeds) == 1 and not has_gaps(feeds):
        return ""
    rows = f"{ROW}{feed.row}-{feed.row + feed.last - feed.first}"
    return f"{rows},{feed.columns[0]}-{feed.columns[1]}" if feed.columns else rows


def index_in(link: str) -> tuple[slice, ...]:
    """What `link` is of an array here."""
    if not link.startswith(ROW):
        return (slice(None),)
    places = (each.split("-") for each in link[1:].partition(":")[0].split(","))
    return tuple(slice(int(each[0]), int(each[1]) if each[1:] else int(each[0]) + 1) for each in places)


def function_of(feeds: Feeds) -> WeightFunction | None:
    """What the weights of one array are of the parameters in it; raises DescriptionError where these differ."""
    if not any(each.product.function for each in feeds):
        return None
    plain, signs = WeightFunction(function="identity"), np.zeros(feeds[0].rows)
    every = [(each.product.function or plain).of_rows(each.first, each.last, each.product.negative) for each in feeds]
    made = every[0]
    for each, about in zip(feeds, every, strict=True):
        rows, own = index_of(each)[0], np.sign(about.sign(0, each.last - each.first)[:, 0] * about.factor)
        if (about.function, about.factor) != (made.function, made.factor) or (signs[rows] == -own).any():
            raise refusal(
                f"'{feeds[0].product.weight}' and '{each.product.weight}' read one layer, and are other functions of "
                "their parameters, or have other factors or signs; nearest: the same function and factor"
            )
        signs[rows] = own
    if has_gaps(feeds) and not made.about.keeps_zeros:
        raise refusal(
            f"'{feeds[0].product.weight}' reads some neurons of a layer by '{made.function}' of a parameter, which "
            "leaves no zeros for the others; nearest: abs or relu"
        )
    return replace(made, signs=run_lengths(np.where(signs < 0, -1, 1)))
