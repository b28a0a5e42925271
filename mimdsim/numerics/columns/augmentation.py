"""Changes to lists of events, in place, sample by sample."""

from __future__ import annotations

from mimdsim.numerics.compiled import compiled


@compiled
def move(ids, counts, across, down, columns, lines):  # type: ignore[no-untyped-def]
    """Move the events of sample b by across[b] columns and down[b] lines; events that leave the sensor are dropped.

    ids int32[timesteps, batch, capacity] (x + columns * (y + lines * polarity), ascending) valid up to counts
    int32[timesteps, batch]; the remaining events ascend, and zeros follow them.
    """
    timesteps, batch, _ = ids.shape
    for t in range(timesteps):
        for b in range(batch):
            left = 0
            for slot in range(counts[t, b]):
                found = ids[t, b, slot]
                row = found // columns
                x = found - row * columns + across[b]
                y = row % lines + down[b]
                if 0 <= x < columns and 0 <= y < lines:
                    ids[t, b, left] = found + across[b] + columns * down[b]
                    left += 1
            ids[t, b, left : counts[t, b]] = 0
            counts[t, b] = left
