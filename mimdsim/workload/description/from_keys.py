"""A workload whose network is written down in Python, key by key, as files have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mimdsim.base.schema import dotted_changes, given_keys
from mimdsim.base.search_path import Named
from mimdsim.workload.description.workload import Workload, build_workload, load_workload


def Network(
    base: Named | Workload | None = None,
    changes: Mapping[str, Any] | None = None,
    /,
    *,
    name: str = "",
    title: str = "",
    data: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    mapping: Mapping[str, Any] | None = None,
    **network: Any,
) -> Workload:
    """A workload with the network of these keys, as its file would have them, for `run`, `compare`, `place`, `check`.

    base: a workload, itself or by name or file, from which all else is; None: everything is given here. changes: by
    dotted key, "data.timesteps". name, title: those of the new workload. data, training, mapping: keys of these
    sections. network: keys of the section `network`, by keyword (docs/reference-workload.md lists them with their
    units).

    Checked as files are; raises DescriptionError with every problem.

        >>> narrow = mimdsim.Network("digits", hidden=[64], capacity=[12, 10])
        >>> narrow.network.hidden, narrow.data.timesteps
        ((64,), 30)
        >>> mine = mimdsim.Network(
        ...     hidden=[32], activity=0.2,
        ...     data={"source": "random", "inputs": 100, "classes": 4, "timesteps": 10, "input_capacity": 20,
        ...           "activity": 0.1},
        ...     training={"batch": 16, "epochs": 1, "learning_rate": 0.01},
        ... )
        >>> mine.name
        'network'
    """
    given = {"data": data, "network": network, "training": training, "mapping": mapping}
    sections = {key: dict(section) for key, section in given.items() if section}
    original = base if base is None or isinstance(base, Workload) else load_workload(base)
    where = "Network()" if original is None else f"Network({original.name!r})"
    if original is None:
        named = {"name": name or "network", "title": title or "a network written in Python"}
        return build_workload(named | sections, dotted_changes(changes, where), where)
    named = {"name": name or original.name, "title": title or f"{original.title} (changed)"}
    return build_workload(given_keys(original) | named, dotted_changes({**(changes or {}), **sections}, where), where)
