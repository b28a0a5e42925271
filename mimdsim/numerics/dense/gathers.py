"""Patches of planes and pools of them, gathered by what a window covers.

geometry: height and width of the planes, then by height and width the kernel, stride, padding, dilation and places of
the window, and whether planes have a row for every sample (channels outermost) instead of one for every position.
"""

from __future__ import annotations

from mimdsim.numerics.compiled import compiled


@compiled
def unfold(source, target, from_row, to_row, begin, end, row_start, row_stop, start, stop, geometry):  # type: ignore[no-untyped-def]
    """target[place, (channel, tap)] = what the tap of the window covers there, zero in the padding."""
    height, width, kernel, across, by_channel = geometry[0], geometry[1], geometry[2], geometry[3], geometry[12]
    places, pixels, taps, step = geometry[10] * geometry[11], height * width, kernel * across, geometry[9]
    for i in range(len(start)):
        for row in range(row_start[i], row_stop[i]):
            sample, place = row // places, row % places
            top = (place // geometry[11]) * geometry[4] - geometry[6]
            left = (place % geometry[11]) * geometry[5] - geometry[7]
            column = start[i]
            channel, tap = column // taps, column % taps
            down, over = tap // across, tap % across
            while column < stop[i]:
                y, x = top + down * geometry[8], left + over * step
                last = min(stop[i], column + across - over)
                inside, ends = column, column  # columns of pixels; those before and after are of the padding
                if 0 <= y < height:
                    inside = min(last, column + max(0, -(x // step)))
                    ends = max(inside, min(last, column + (width - x + step - 1) // step))
                x += (inside - column) * step
                for at in range(column, inside):
                    target[row, at] = 0
                if by_channel:
                    pixel = channel * pixels + y * width + x
                    for at in range(inside, ends):
                        target[row, at] = source[sample, pixel + (at - inside) * step]
                else:
                    pixel = sample * pixels + y * width + x
                    for at in range(inside, ends):
                        target[row, at] = source[pixel + (at - inside) * step, channel]
                for at in range(ends, last):
                    target[row, at] = 0
                column, over = last, 0
                down += 1
                if down == kernel:
                    down = 0
                    channel += 1


@compiled
def _place(at, tap, geometry, axis):  # type: ignore[no-untyped-def]
    """Along the height (axis 0) or the width (1): the place whose tap lies on a pixel, or -1."""
    begin, step = at + geometry[6 + axis] - tap * geometry[8 + axis], geometry[4 + axis]
    return begin // step if begin >= 0 and begin % step == 0 and begin // step < geometry[10 + axis] else -1


@compiled
def spread(source, target, from_row, to_row, begin, end, row_start, row_stop, start, stop, geometry, factor, taps):  # type: ignore[no-untyped-def]
    """target[pixel, channel] = factor * the sum of source[place, (channel, tap)] over the places whose tap lies on the
    pixel; with `taps` 1, of source[place, channel]."""
    height, width, kernel, across = geometry[0], geometry[1], geometry[2], geometry[3]
    places, pixels = geometry[10] * geometry[11], height * width
    for i in range(len(start)):
        for row in range(row_start[i], row_stop[i]):
            sample, y, x = row // pixels, row % pixels // width, row % pixels % width
            for channel in range(start[i], stop[i]):
                target[row, channel] = 0
            for down in range(kernel):
                top = _place(y, down, geometry, 0)
                if top < 0:
                    continue
                for over in range(across):
                    left = _place(x, over, geometry, 1)
                    if left < 0:
                        continue
                    place = sample * places + top * geometry[11] + left
                    tap = down * across + over if taps > 1 else 0
                    for channel in range(start[i], stop[i]):
                        target[row, channel] += factor * source[place, channel * taps + tap]


@compiled
def pool(source, target, from_row, to_row, begin, end, row_start, row_stop, start, stop, geometry, factor, largest):  # type: ignore[no-untyped-def]
    """target[place, channel] = factor * the sum, or with `largest` the largest, of what the window covers."""
    height, width = geometry[0], geometry[1]
    places, pixels = geometry[10] * geometry[11], height * width
    for i in range(len(start)):
        for row in range(row_start[i], row_stop[i]):
            sample, place = row // places, row % places
            top = (place // geometry[11]) * geometry[4] - geometry[6]
            left = (place % geometry[11]) * geometry[5] - geometry[7]
            for channel in range(start[i], stop[i]):
                found, value = False, source.dtype.type(0)
                for down in range(geometry[2]):
                    y = top + down
                    if y < 0 or y >= height:
                        continue
                    for over in range(geometry[3]):
                        x = left + over
                        if x < 0 or x >= width:
                            continue
                        if geometry[12]:
                            covered = source[sample, channel * pixels + y * width + x]
                        else:
                            covered = source[sample * pixels + y * width + x, channel]
                        if not largest:
                            value += covered
                        elif not found or covered > value:
                            found, value = True, covered
                target[row, channel] = value * factor


@compiled
def _is_first_largest(values, channel, first_row, width, height, geometry, y, x, down, over):  # type: ignore[no-untyped-def]
    """Whether the pixel, which lies so far from the corner of a window, holds its largest value, and none before it."""
    own, top, left = values[first_row + y * width + x, channel], y - down, x - over
    for at_y in range(max(0, top), min(height, top + geometry[2])):
        for at_x in range(max(0, left), min(width, left + geometry[3])):
            other = values[first_row + at_y * width + at_x, channel]
            if other > own or (other == own and (at_y < y or (at_y == y and at_x < x))):
                return False
    return True


@compiled
def spread_to_largest(  # type: ignore[no-untyped-def]
    source,
    values,
    target,
    from_row,
    to_row,
    value_from,
    value_to,
    begin,
    end,
    row_start,
    row_stop,
    start,
    stop,
    geometry,
):
    """target[pixel, channel] = sum of source[place, channel] over the places of which the pixel is the largest."""
    height, width = geometry[0], geometry[1]
    places, pixels = geometry[10] * geometry[11], height * width
    for i in range(len(start)):
        for row in range(row_start[i], row_stop[i]):
            sample, y, x = row // pixels, row % pixels // width, row % pixels % width
            for channel in range(start[i], stop[i]):
                target[row, channel] = 0
            for down in range(geometry[2]):
                top = _place(y, down, geometry, 0)
                if top < 0:
                    continue
                for over in range(geometry[3]):
                    left = _place(x, over, geometry, 1)
                    if left < 0:
                        continue
                    place = sample * places + top * geometry[11] + left
                    for channel in range(start[i], stop[i]):
                        if _is_first_largest(
                            values, channel, sample * pixels, width, height, geometry, y, x, down, over
                        ):
                            target[row, channel] += source[place, channel]
