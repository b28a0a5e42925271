"""What the page's section "Walk through" reads: a profile and its detail, packed into one text.

The packed form is a header in JSON and then the columns, each in the smallest integer format that holds it; the whole
is compressed and written in base64, so that no name in a profile can end the element that holds it. The page unpacks it
(`scripts/data.js`). numpy is imported when something is packed.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mimdsim.profile import RunProfile, Training
from mimdsim.report.formatting import category_colours, layer_colours, plain

if TYPE_CHECKING:
    import numpy as np

    from mimdsim.profile.detail import Detail
    from mimdsim.report.trace import Placed

LARGEST = 4_200_000  # characters of the packed text; with figures, tables and scripts the page stays under 6 MB
MOST_CELLS = 64_000_000  # tiles times supersteps: the page holds the bytes in use of each, 4 bytes a cell
ALIGNED = 8
# by superstep and tile, or by timestep: what is left out first, with what the page says of it
LEFT_OUT = (
    ("window", "busy cycles by timestep"),
    ("exchange", "exchange cycles of single tiles"),
    ("sent", "bytes sent by superstep"),
    ("contexts", "worker contexts of single tiles"),
    ("received", "bytes received by superstep"),
)
COLUMNS = (
    "busy", "exchange", "sent", "received", "contexts", "buffers", "bundles", "flops", "accessed", "window_timesteps",
    "window_supersteps", "window", "live", "holding", "holding_begins", "holding_tiles", "holding_bytes", "vertices",
    "code", "group_of", "traffic", "senders", "sender_bytes", "receivers", "receiver_bytes", "links",
)  # fmt: skip
# of the header: attributes of the machine's profile, of its training, and the detail's columns of texts
OF_THE_MACHINE = ("run_name", "clock_hz", "tiles", "chips", "worker_contexts", "cycles")
OF_LEARNING = ("loss", "loss_by_epoch", "batch", "best_epoch", "train_accuracy", "test_samples")
NAMES = ("supersteps", "codelets", "variables", "categories")
OF_LINKS = ("router_grid", "router_of", "link_number", "link_bytes", "link_cycles")  # where there are any
LINKS_LEFT_OUT = (("link_bytes", "bytes over links by superstep"), ("link_cycles", "cycles of links by superstep"))
ROWS = (
    "busy", "exchange", "sent", "received", "contexts", "buffers", "window", "busy_change", "memory_change",
    "link_bytes", "link_cycles",
)  # fmt: skip


def walk_of(profile: RunProfile, detail: Detail, other: tuple[RunProfile, Detail | None] | None = None) -> str:
    """What the section's scripts unpack, in base64; other: the run whose differences to this one are shown too."""
    return base64.b64encode(pack(profile, detail, other)).decode("ascii")


def pack(profile: RunProfile, detail: Detail, other: tuple[RunProfile, Detail | None] | None = None) -> bytes:
    """gzip of: length of the header (uint32, little-endian), header (JSON, padded), columns at multiples of 8 bytes.

    Columns by tile and superstep that would make the page too large are replaced by their sums over the supersteps, in
    the order of LEFT_OUT, and named in the header's `left_out`.
    """
    columns = {name: getattr(detail, name) for name in (*COLUMNS, *(OF_LINKS if detail.has_links else ()))}
    columns["window"] = columns["window"].reshape(-1, detail.tiles)
    if other is not None and other[1] is not None and other[1].tiles == detail.tiles:
        columns |= _differences(detail, other[1])
    header = _header(profile, detail)
    header["rows"] = [name for name in ROWS if name in columns]
    found = _pack_columns(header, columns)
    for name, words in (*LEFT_OUT, *(LINKS_LEFT_OUT if detail.has_links else ())):
        if len(found) * 4 / 3 <= LARGEST:
            break
        header["left_out"].append(words)
        if name == "window":
            columns |= {"window": columns["window"][:0], "window_supersteps": columns["window_supersteps"][:0]}
            header["path_by_timestep"] = []
        else:
            columns[name] = columns[name].sum(axis=0, keepdims=True)
        found = _pack_columns(header, columns)
    return found


def too_large(detail: Detail) -> str:
    """Why the page has no such section, in a sentence; empty if it can have one."""
    if detail.busy.size <= MOST_CELLS:
        return ""
    return (
        f"{len(detail.supersteps):,} supersteps of {detail.tiles:,} tiles are more than a page can hold in memory; "
        "detail.npz beside the profile has all of them."
    )


def match_names(names: Sequence[str], others: Sequence[str]) -> list[int]:
    """For each name its place among `others`, -1 where it has none; equal names are matched in order."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(others):
        places.setdefault(name, []).append(place)
    return [places[name].pop(0) if places.get(name) else -1 for name in names]


def _header(profile: RunProfile, detail: Detail) -> dict[str, Any]:
    from mimdsim.report.trace import critical_path, path_by_timestep

    tiled = profile.tiled
    assert tiled is not None
    layers = list(dict.fromkeys(tiled.tile_columns.layer))
    number = {layer: at for at, layer in enumerate(layers)}
    header = {
        "workload": profile.workload_title,
        "machine": tiled.title,
        **{name: getattr(tiled, name) for name in OF_THE_MACHINE},
        "grid_columns": tiled.tile_columns.grid_columns,
        "limit_bytes": tiled.memory.limit_bytes,
        "always_live_bytes": max(tiled.tile_columns.always_live_bytes, default=0),
        "layers": layers,
        "layer_colours": [layer_colours(profile).get(layer, "#c8c8c8") for layer in layers],
        "layer_of": [number[layer] for layer in tiled.tile_columns.layer],
        **{name: getattr(detail, name).tolist() for name in NAMES},
        "category_colours": category_colours(tiled.memory),
        "spans": [asdict(span) for span in tiled.spans],
        "path": list(map(_on_path, critical_path(tiled, len(detail.supersteps)))),
        "path_by_timestep": list(map(_on_path, path_by_timestep(tiled, detail))),
        "activity": [
            {"layer": one.layer, "neurons": one.neurons, "capacity": one.capacity, "sends": one.sends}
            | {"spikes": one.spikes_by_timestep, "listed": one.listed_by_timestep}
            for one in profile.activity
        ],
        "training": profile.training and _learning(profile.training),
        "left_out": [],
    }
    explained = ["\n".join(map(plain, str(text).splitlines())) for text in detail.explained]
    harmless_header: dict[str, Any] = harmless(header)
    return harmless_header | {"explained": explained}


def _on_path(placed: Placed) -> tuple[int, ...]:
    """As scripts/timeline.js reads it; -1 for what there is not."""
    superstep, timestep = (-1 if at is None else at for at in (placed.superstep, placed.timestep))
    when = placed.begin, placed.exchange, placed.compute, placed.end
    return superstep, placed.number, *when, int(placed.barrier), placed.slowest, timestep


def _learning(training: Training) -> dict[str, Any]:
    accuracy = {
        "test": training.test_accuracy_by_epoch,
        "as trained": training.train_accuracy_by_epoch,
        "validation": training.validation_accuracy_by_epoch,
    }
    return {name: getattr(training, name) for name in OF_LEARNING} | {"accuracy": accuracy}


def harmless(value: Any) -> Any:
    """Texts without control characters, and None for numbers that JSON cannot hold."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(name): harmless(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [harmless(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _differences(detail: Detail, other: Detail) -> dict[str, np.ndarray]:
    """Other minus this one. busy_change, memory_change int64[S, N] by superstep of the same name, with nothing in place
    of a superstep that the other lacks (its memory: no change); busy_change_all, memory_change_all int64[N]: of the
    whole run, and of the peak. matched_superstep int64[S]: the other's, -1 for none."""
    import numpy as np

    places = np.array(match_names(detail.supersteps.tolist(), other.supersteps.tolist()), np.int64)
    found = (places >= 0)[:, None]
    if not len(other.supersteps) or not len(places):
        return {}
    memory, others = detail.memory, other.memory
    return {
        "matched_superstep": places,
        "busy_change": np.where(found, other.busy[places], 0) - detail.busy,
        "busy_change_all": other.busy.sum(axis=0) - detail.busy.sum(axis=0),
        "memory_change": np.where(found, others[places] - memory, 0),
        "memory_change_all": others.max(axis=0) - memory.max(axis=0),
    }


def _pack_columns(header: dict[str, Any], columns: dict[str, np.ndarray]) -> bytes:
    """The header with the place of every column, and the columns; those in ROWS as `_trimmed` tells."""
    parts, places, at = [], {}, 0
    trimmed = {name: column for name, column in columns.items() if name not in ROWS}
    for name in header["rows"]:
        trimmed |= _trim_rows(name, columns[name])
    for name, column in trimmed.items():
        small = _narrowest(column)
        data = small.tobytes()
        places[name] = {"kind": str(small.dtype), "shape": list(small.shape), "at": at}
        parts += [data, b"\0" * (-len(data) % ALIGNED)]
        at += len(data) + -len(data) % ALIGNED
    told = json.dumps(header | {"columns": places}, separators=(",", ":")).encode("ascii")
    told += b" " * (-(len(told) + 4) % ALIGNED)
    return gzip.compress(b"".join([len(told).to_bytes(4, "little"), told, *parts]), 7, mtime=0)


def _trim_rows(name: str, column: np.ndarray) -> dict[str, np.ndarray]:
    """A column [rows, tiles], or [rows, links], without the zeros before and after the others of each row: in most
    supersteps few tiles have work. NAME: the rest, row after row; NAME_first int[rows]: the tile it begins with;
    NAME_begins int[rows + 1]: where it begins in NAME."""
    import numpy as np

    there = column != 0
    some = there.any(axis=1)
    first = np.where(some, there.argmax(axis=1), 0)
    after = np.where(some, column.shape[1] - there[:, ::-1].argmax(axis=1), 0)
    pieces = [row[begin:end] for row, begin, end in zip(column, first, after, strict=True)]
    begins = np.cumsum([0, *(after - first)])
    return {name: np.concatenate([column[:0, 0], *pieces]), f"{name}_first": first, f"{name}_begins": begins}


def _narrowest(column: np.ndarray) -> np.ndarray:
    """The column in the smallest format of little-endian numbers that holds it; above 32 bits as float64, which is
    exact for all integers that a profile has."""
    import numpy as np

    from mimdsim.base.compressed_columns import STORED, narrowed

    kept = narrowed(column, STORED) if column.size else column.astype(np.uint8)
    return np.ascontiguousarray(kept, dtype="<f8" if kept.itemsize > 4 else kept.dtype.newbyteorder("<"))
