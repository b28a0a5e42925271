"""Wrong lines of codelets of the forward pass and of stencils: (defect, the right text, the wrong text)."""

from __future__ import annotations

Defects = dict[str, tuple[tuple[str, str, str], ...]]

SELECTION: Defects = {
    "FlagSpikes": (
        ("at the threshold too", "fires[n] = state[n] > threshold", "fires[n] = state[n] >= threshold"),
        ("at the second threshold too", "state[n] > second_threshold", "state[n] >= second_threshold"),
        ("spikes inverted", "fires[n] = state[n] > threshold", "fires[n] = not (state[n] > threshold)"),
        ("entries include spikes", " & (not (state[n] > threshold))", ""),
        ("entries are all that do not fire", "(state[n] > second_threshold) & (not", "(not"),
        ("no entries", "(state[n] > second_threshold) & (not (state[n] > threshold))", "False"),
        ("of the absolute value", "state = v[b, start[i] : stop[i]]", "state = np.abs(v[b, start[i] : stop[i]])"),
        ("of the neuron before", "state = v[b, start[i] : stop[i]]", "state = np.roll(v[b], 1)[start[i] : stop[i]]"),
        ("of the first sample", "state = v[b, start", "state = v[0, start"),
        (
            "rounded to whole numbers",
            "state = v[b, start[i] : stop[i]]",
            "state = np.floor(v[b, start[i] : stop[i]] + np.float32(0.5))",
        ),
        ("second threshold for both", "fires[n] = state[n] > threshold", "fires[n] = state[n] > second_threshold"),
        (
            "only flags that are set",
            "fires[n] = state[n] > threshold",
            "fires[n] = fires[n] or state[n] > threshold",
        ),
    ),
    "ScanFlags": (
        ("last state ignored", "(middle, stop[i])", "(middle, stop[i] - 1)"),
        ("first state ignored", "(middle, stop[i])", "(middle + 1, stop[i])"),
        ("ids counted from the slice", "worker_ids[s, found] = n", "worker_ids[s, found] = n - start[i]"),
        ("ids off by one", "worker_ids[s, found] = n", "worker_ids[s, found] = n + 1"),
        ("one too many", "worker_counts[s] = found", "worker_counts[s] = found + 1"),
        ("one at most", "slots = min(capacity, worker_ids.shape[1])", "slots = 1"),
        ("descending", "range(first, last)", "range(last - 1, first - 1, -1)"),
        ("first sample's flags", "flags[r, b, n]", "flags[r, 0, n]"),
        ("always true spikes", "flags[r, b, n]", "flags[0, b, n]"),
        ("no end of the list", "if found == slots:", "if found == slots + 1:"),
        (
            "count not written when nothing is found",
            "worker_counts[s] = found",
            "worker_counts[s] = found or worker_counts[s]",
        ),
    ),
    "CombineWorkers": (
        ("last worker ignored", "range(first[i], last[i])", "range(first[i], last[i] - 1)"),
        ("first worker ignored", "range(first[i], last[i])", "range(first[i] + 1, last[i])"),
        ("first worker's ids", "worker_ids[worker, k]", "worker_ids[first[i], k]"),
        ("one slot unused", "found == slots", "found == slots - 1"),
        ("whole lists", "range(worker_counts[worker])", "range(worker_ids.shape[1])"),
    ),
    "CombineTiles": (
        ("entries counted as spikes", "counts[b, kind] = found", "counts[b, kind] = found if kind else capacity"),
        ("no entries", "(middle[i], last[i])", "(middle[i], middle[i])"),
        ("one slot unused", "found == capacity", "found == capacity - 1"),
        ("spikes counted from one tile too many", "(first[i], middle[i])", "(first[i], min(middle[i] + 1, last[i]))"),
        ("all counted as listed", "counts[b, kind] = found", "counts[b, kind] = capacity if kind else found"),
    ),
    "CombineTilesFrom": (
        ("start ignored", "begin = starts[b]", "begin = 0"),
        ("start included in the second lap", "tile_ids[part, k] < begin", "tile_ids[part, k] <= begin"),
    ),
    "DrawStarts": (("state not kept", "random[b] = (random[b] * 1664525 + 1013904223) & 0xFFFFFFFF", "pass"),),
}

NEURON: Defects = {
    "LifUpdate": (
        ("reset at the threshold", "if v > threshold:", "if v >= threshold:"),
        ("no reset", "if v > threshold:", "if False:"),
        ("reset by subtraction", "kept = zero", "kept = kept - threshold"),
        ("no decay", "v * decay", "v"),
        ("decay twice", "v * decay", "v * decay * decay"),
        ("old state forgotten", "return kept + scale", "return scale"),
        ("no scale", "return kept + scale * current", "return kept + current"),
        ("wrong sign", "return kept + scale", "return kept - scale"),
        (
            "last neuron ignored",
            "for n in range(first, last):\n        v[b, n] = integrated",
            "for n in range(first, last - 1):\n        v[b, n] = integrated",
        ),
        ("current of the neuron before", "current[n - first], decay", "current[n - first - 1], decay"),
        ("whole numbers", "return kept + scale * current", "return kept + int(scale * current)"),
        ("last id ignored", "range(counts[b, 0])", "range(counts[b, 0] - 1)"),
        ("first id only", "range(counts[b, 0])", "range(min(1, counts[b, 0]))"),
        ("whole lists", "range(counts[b, 0])", "range(ids.shape[1])"),
        ("gradient entries too", "range(counts[b, 0])", "range(counts[b, 1])"),
        ("first sample's ids", "row = ids[b, k]", "row = ids[0, k]"),
        ("weights by place in the list", "w[row, n]", "w[k, n]"),
        ("one spike replaces another", "current[n - first] += w[row, n]", "current[n - first] = w[row, n]"),
        ("weights counted from the slice", "w[row, n]", "w[row, n - first]"),
        ("reset below the threshold", "if v > threshold:", "if v < threshold:"),
        ("last timestep's input decays too", "return kept + scale * current", "return kept + decay * current"),
    ),
    "LifIntegrate": (
        ("first sample's current", "current[b, first:last]", "current[0, first:last]"),
        ("reset at the threshold, of a current", "if v > threshold:", "if v >= threshold:"),
    ),
    "SynapseCurrent": (
        ("not cleared", "current[b, first:last] = 0", "pass"),
        ("last spike ignored", "range(counts[b, 0])", "range(counts[b, 0] - 1)"),
    ),
    "BiasAdd": (
        ("bias of the first neuron", "other[row, n]", "other[row, start[i]]"),
        ("bias in the place of the current", "+= other", "= other"),
        ("last sample ignored", "range(total.shape[0])", "range(total.shape[0] - 1)"),
    ),
    "SelfSynapse": (
        ("of gradient entries too", "range(counts[b, 0])", "range(counts[b, 1])"),
        ("last neuron's left out", "first <= n < last", "first <= n < last - 1"),
        ("currents kept", "current[b, first:last] = 0", "pass"),
    ),
    "LifBoxes": (
        ("reset at the threshold, dense", "if v > threshold:", "if v >= threshold:"),
        ("no decay, dense", "v * decay", "v"),
    ),
    "SpikeBoxes": (("at the threshold too, dense", "> threshold", ">= threshold"),),
}

STENCIL: Defects = {
    "Smooth": (
        ("own cell twice", "cells[:-2] + cells[1:-1]", "cells[1:-1] + cells[1:-1]"),
        ("no right neighbour", " + cells[2:])", " + cells[1:-1])"),
        ("sum of four", "/ 3", "/ 4"),
        ("added to what is there", "out[:] =", "out[:] +="),
        ("first cell ignored", "out[:] = (cells[:-2] + cells[1:-1] + cells[2:]) / 3",
         "out[1:] = ((cells[:-2] + cells[1:-1] + cells[2:]) / 3)[1:]"),
        ("last cell ignored", "out[:] = (cells[:-2] + cells[1:-1] + cells[2:]) / 3",
         "out[:-1] = ((cells[:-2] + cells[1:-1] + cells[2:]) / 3)[:-1]"),
        ("one cell beyond the slice", "cells[2:])", "np.append(cells, cells[len(cells):][:1])[2:])"),
        ("rounded", "/ 3", "// 3"),
        ("half precision", "out[:] = (cells", "out[:] = np.float16(1) * (cells.astype(np.float16)"),
        ("wrong sign", "cells[:-2] +", "cells[:-2] -"),
        ("input overwritten", "out[:] = ", "cells[0] = out[:] = "),
    ),
    "GaussianBlur float": (
        ("corners as sides", "sixteenth * corners", "eighth * corners"),
        ("no corners", "sixteenth * corners + ", ""),
        ("middle as sides", "quarter * here", "eighth * here"),
        ("one corner twice", "above[:, :-2] + above[:, 2:]", "above[:, :-2] + above[:, :-2]"),
        ("no side above", " + above[:, 1:-1]", ""),
        ("west and east swapped", "(west, old, east)", "(east, old, west)"),
        ("north and south swapped", "(northwest, north, northeast), (west, old, east), (southwest, south, southeast)",
         "(southwest, south, southeast), (west, old, east), (northwest, north, northeast)"),
        ("north twice", "(southwest, south, southeast)", "(northwest, north, northeast)"),
        ("first channel for all", "new[...] = ", "new[...] = np.array([1, 0, 0, 0], np.float32) *"),
        ("added to what is there", "new[...] =", "new[...] +="),
        ("last row ignored", "new[...] = sixteenth * corners + quarter * here[:, 1:-1] + eighth * sides",
         "new[:-1] = (sixteenth * corners + quarter * here[:, 1:-1] + eighth * sides)[:-1]"),
        ("last column ignored", "new[...] = sixteenth * corners + quarter * here[:, 1:-1] + eighth * sides",
         "new[:, :-1] = (sixteenth * corners + quarter * here[:, 1:-1] + eighth * sides)[:, :-1]"),
        ("old image overwritten", "new[...] =", "old[...] = new[...] ="),
        ("wrong weights in all", "weight / 16", "weight / 15"),
    ),
    "strided copy, rows": (
        ("first row only", "target[...] = source", "target[:1] = source[:1]"),
        ("shifted by a pixel", "target[...] = source", "target[:, 1:] = source[:, :-1]"),
    ),
    "strided copy, column": (("zeros", "target[...] = source", "target[:] = 0"),),
}  # fmt: skip
