"""Links between chips, and the link to the host: what each edge of a topology carries, and how long that takes."""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.machine.mimd import Links
from mimdsim.machine.topology import Edge, next_chips, route_lengths


def edge_bytes(traffic: np.ndarray, links: Links) -> dict[Edge, int]:
    """Bytes over every directed edge (from, to) that carries any, sorted by edge; a switch is numbered after the chips.

    traffic: int64[chips, chips], bytes from chip `row` to chip `column`; bytes that stay on a chip (the diagonal) use
    no link. Raises MappingError if the traffic is not a matrix of whole bytes for the machine's chips.
    """
    carried = _edge_traffic(traffic, links)
    return {(int(a), int(b)): int(carried[a, b]) for a, b in zip(*np.nonzero(carried), strict=True)}


def link_phase_seconds(traffic: np.ndarray, links: Links) -> float:
    """Seconds of one global exchange by the closed form; 0 when nothing moves. Traffic and errors as `edge_bytes`."""
    carried = _edge_traffic(traffic, links)
    if not carried.any():
        return 0.0
    return link_start_seconds(traffic, links) + float((carried / edge_bytes_per_second(links)).max())


def link_start_seconds(traffic: np.ndarray, links: Links) -> float:
    """Seconds of one global exchange without the transfer of its bytes: fixed part and hops; 0 when nothing moves."""
    moving = moving_bytes(traffic, links) > 0
    if not moving.any():
        return 0.0
    return links.fixed_seconds + links.hop_seconds * int(route_lengths(links)[moving].max())


def piece_seconds(pieces: np.ndarray, links: Links) -> float:
    """Seconds that a tile waits for its pieces of a global exchange: each goes there and back along all hops of its
    route before the next one to that chip does, while others are sent (assumed: packets of a tile wait for an answer
    each).

    pieces: int64[chips, chips], most that one tile of chip `row` sends to chip `column`.
    """
    return links.piece_seconds * int((pieces * _hops(links)).max(initial=0))


def _hops(links: Links) -> np.ndarray:
    """int64[chips, chips]: edges of routes; where they leave a group, one more, from the chip to the one that has the
    edge: as PopLibs counts them for chips on cards of two, of which every second one is wired to the next card
    (lib/poplibs_test/Util.cpp)."""
    group = np.arange(links.chips) // (links.group_chips or links.chips)
    return np.asarray(route_lengths(links) + (group[:, None] != group))


def edge_bytes_per_second(links: Links) -> np.ndarray:
    """float64[nodes, nodes]: bandwidth of the directed edge from node `row` to `column`, all its links together; nodes
    are the chips, and the switch if there is one."""
    group = np.arange(len(next_chips(links))) // (links.group_chips or 1)
    inside = (group[:, None] == group) & (links.group_chips > 0)
    if links.topology == "switch":
        inside[-1] = inside[:, -1] = False
    return np.where(inside, links.group_links_per_edge, links.links_per_edge) * links.bytes_per_second


def moving_bytes(traffic: np.ndarray, links: Links) -> np.ndarray:
    """int64[chips, chips]: the traffic that uses a link, so with an empty diagonal. Errors as `edge_bytes`."""
    given = np.asarray(traffic)
    if given.shape != (links.chips, links.chips):
        raise MappingError(
            f"global exchange: traffic has the shape {given.shape}, the machine has {links.chips} chips; "
            f"give bytes from each chip to each chip, shape ({links.chips}, {links.chips})"
        )
    if not np.issubdtype(given.dtype, np.integer):
        raise MappingError(f"global exchange: traffic is of type {given.dtype}; give whole bytes as int64")
    if given.min(initial=0) < 0:
        source, target = np.argwhere(given < 0)[0]
        raise MappingError(
            f"global exchange: {given[source, target]} bytes from chip {source} to chip {target}; give 0 or more"
        )
    moving = given.astype(np.int64)
    np.fill_diagonal(moving, 0)
    return moving


def _edge_traffic(traffic: np.ndarray, links: Links) -> np.ndarray:
    """int64[nodes, nodes]: bytes over the directed edge from node `row` to node `column`."""
    moving = moving_bytes(traffic, links)
    following = next_chips(links)
    carried = np.zeros((len(following),) * 2, np.int64)
    here, target = np.nonzero(moving)
    nbytes = moving[here, target]
    while here.size:  # all messages advance one edge at a time
        after = following[here, target]
        np.add.at(carried, (here, after), nbytes)
        onward = after != target
        here, target, nbytes = after[onward], target[onward], nbytes[onward]
    return carried


def host_exposed_seconds(stream_seconds: float, device_seconds: float, prefetch_depth: int) -> float:
    """Streaming that the device waits for: all of it without prefetch, else the part that exceeds the training step."""
    if prefetch_depth == 0:
        return stream_seconds
    return max(0.0, stream_seconds - device_seconds)
