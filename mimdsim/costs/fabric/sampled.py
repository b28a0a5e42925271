"""What links carry of a phase of which only some readers are known: each stands for the readers around it.

A link sees what many tiles hear, so messages to a few of them, counted several times, would fill the links to these and
leave all others empty. Here the readers that one stands for hear the same from the same senders, and where a sender has
a single reader in the sample it is taken to lie as far from its own.
"""

from __future__ import annotations

import numpy as np

from mimdsim.costs.fabric.network import Listed
from mimdsim.program.mapping import repeat_each
from mimdsim.program.messages import Messages

MOST_PLACES = 8  # of the tiles that one stands for; enough that links of a line carry about the same


def spread(messages: Messages, stand_ins: np.ndarray, tiles_per_chip: int) -> tuple[Listed, Listed]:
    """(the messages with the readers that they stand for, the same at places of those readers, as links see them).

    stand_ins int64[2, tiles]: tiles, and the one that stands for each, as of `Exchange`.
    """
    tiles, of = stand_ins[:, np.lexsort(stand_ins)]
    begin, end = (np.searchsorted(of, messages.reader, side=side) for side in ("left", "right"))
    stood_for = np.maximum(end - begin, 1)
    fanout = np.diff(messages.first)
    readers = np.add.reduceat(np.append(stood_for, 0), messages.first[:-1]) if len(fanout) else fanout
    single = fanout == 1
    readers = np.where(single, 1, readers)
    which, number = repeat_each(np.minimum(stood_for, MOST_PLACES))
    places = np.minimum(stood_for, MOST_PLACES)[which]
    # not all of one reader's messages at the same places of those that it stands for
    turn = (number * stood_for[which] // places + which) % stood_for[which]
    known = (end > begin)[which]
    reader = np.where(known, tiles[np.minimum(begin[which] + turn, len(tiles) - 1)], messages.reader[which])
    message = np.repeat(np.arange(len(fanout)), fanout)[which]
    own = np.bincount(messages.sender[single], minlength=int(messages.sender.max(initial=0)) + 1)[messages.sender] == 1
    moved = messages.sender[message] + np.where((own & single)[message], reader - messages.reader[which], 0)
    first_of_chip = messages.sender[message] // tiles_per_chip * tiles_per_chip
    sender = np.clip(moved, first_of_chip, first_of_chip + tiles_per_chip - 1)
    alone = single[message]
    begins = np.flatnonzero(alone | (np.diff(message, prepend=-1) > 0))
    of_message = message[begins]
    carried = Messages(
        sender=sender[begins],
        size_bytes=messages.size_bytes[of_message],
        first=np.append(begins, len(message)),
        reader=reader,
    )
    amount = np.where(alone, stood_for[which] / places, 1.0)[begins]
    return Listed(messages, readers, np.ones(len(fanout))), Listed(carried, readers[of_message], amount)
