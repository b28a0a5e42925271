"""Wrong lines of codelets of gradients, sums, optimisers and products: (defect, the right text, the wrong text)."""

from __future__ import annotations

from mutations.defects_forward import Defects

GRADIENTS: Defects = {
    "StateGradient": (
        ("slope not squared", "one / (scaled * scaled)", "one / scaled"),
        ("no slope", "slope * abs", "abs"),
        ("slope twice", "slope * abs", "2 * slope * abs"),
        ("distance with its sign", "slope * abs(x)", "slope * x"),
        ("distance from zero", "v[b, n] - threshold", "v[b, n]"),
        ("replaced, not added", "dv[b, n] +=", "dv[b, n] ="),
        ("wrong sign", "dv[b, n] +=", "dv[b, n] -="),
        ("true spikes only", "range(counts[b, 1])", "range(counts[b, 0])"),
        ("first entry only", "range(counts[b, 1])", "range(min(1, counts[b, 1]))"),
        ("last neuron ignored", "first <= n < last", "first <= n < last - 1"),
        ("gradient by neuron", "g[b, k]", "g[b, n % g.shape[1]]"),
        ("without surrogate", "return one / (scaled * scaled)", "return one"),
    ),
    "CurrentGradient": (
        ("factor of the first neuron", "by[n]", "by[0]"),
        ("not scaled", " * by[n]", ""),
        ("last sample ignored", "range(target.shape[0])", "range(target.shape[0] - 1)"),
    ),
    "MaskedDecayGradient": (
        ("mask forgotten", "zero if v_previous > threshold else value", "value"),
        ("masked at the threshold", "if v_previous > threshold else", "if v_previous >= threshold else"),
        ("mask inverted", "zero if v_previous > threshold else value", "value if v_previous > threshold else zero"),
        ("no decay", "into[n] * by[n]", "into[n]"),
    ),
    "WeightGradient": (
        ("last sample ignored", "range(sample_start[i], sample_stop[i])", "range(sample_start[i], sample_stop[i] - 1)"),
        ("only the last spike of an id", "dw[r, row, n] +=", "dw[r, row, n] ="),
        ("gradient entries too", "range(counts[b, 0])", "range(counts[b, 1])"),
        ("last spike ignored", "range(counts[b, 0])", "range(counts[b, 0] - 1)"),
        ("first replica", "dw[r, row, n]", "dw[0, row, n]"),
        ("wrong sign", "+= q", "-= q"),
        ("first sample's gradient", "q[b, n]", "q[sample_start[i], n]"),
    ),
    "InputGradient": (
        ("last neuron ignored", "range(start[i], stop[i])", "range(start[i], stop[i] - 1)"),
        ("true spikes only", "range(counts[b, 1])", "range(counts[b, 0])"),
        (
            "sum carried on",
            "            total = partial.dtype.type(0)",
            "            total = total if k else partial.dtype.type(0)",
        ),
        ("weights by place", "w[row, n]", "w[k, n]"),
    ),
    "ListCountGradient": (
        ("first timestep's gradient only", "k < counts[t, b, 1]", "k < counts[t, b, 1] and t == 0"),
        ("true spikes only", "counts[t, b, 1]", "counts[t, b, 0]"),
        ("first class", "ids[t, b, k]]", "ids[t, b, 0]]"),
    ),
    "CrossEntropy": (
        ("label ignored", "probability -= 1.0", "pass"),
        ("not divided by the batch", " / samples", ""),
        (
            "last class ignored in the sum",
            "for c in range(classes):\n                shifted",
            "for c in range(classes - 1):\n                shifted",
        ),
        ("highest not taken off", "- highest", ""),
        ("loss without logarithm", "math.log(mass)", "mass"),
    ),
    "BiasGradient": (("last sample ignored", "sample_stop[i])", "sample_stop[i] - 1)"),),
    "SelfWeightGradient": (("of gradient entries too", "range(counts[b, 0])", "range(counts[b, 1])"),),
    "SelfInputGradient": (("zero forgotten", "else zero", "else partial[p, b, k]"),),
}

REDUCTION: Defects = {
    "ReduceParts": (
        ("last part ignored", "range(part_start[i], part_stop[i])", "range(part_start[i], part_stop[i] - 1)"),
        ("first part ignored", "range(part_start[i], part_stop[i])", "range(part_start[i] + 1, part_stop[i])"),
        ("true spikes only", "counts[b, 1]", "counts[b, 0]"),
        ("last part only", "total +=", "total ="),
        ("added to what is there", "stage[group[i], b, k] = total", "stage[group[i], b, k] += total"),
        ("first sample", "partial[p, b, k]", "partial[p, 0, k]"),
        ("listed off by one", "k < counts", "k + 1 < counts"),
    ),
    "ReduceGroups": (
        ("last group ignored", "range(stage.shape[0])", "range(stage.shape[0] - 1)"),
        ("mean for sum", "g[b, k] = total", "g[b, k] = total / 2"),
        ("last slot ignored", "slot_stop[i])", "slot_stop[i] - 1)"),
        ("added to what is there", "g[b, k] = total", "g[b, k] += total"),
        ("wrong sign", "total +=", "total -="),
    ),
    "SumReplicas": (
        ("last replica ignored", "range(1, replicas.shape[0])", "range(1, replicas.shape[0] - 1)"),
        ("first replica only", "range(1, replicas.shape[0])", "range(0)"),
        ("first replica twice", "replicas[r, row, n]", "replicas[0, row, n]"),
        ("first replica counted twice", "range(1, replicas.shape[0])", "range(0, replicas.shape[0])"),
        ("last row ignored", "range(total.shape[0])", "range(total.shape[0] - 1)"),
        ("last column ignored", "range(start[i], stop[i])", "range(start[i], stop[i] - 1)"),
        ("whole numbers", "total[row, n] = value", "total[row, n] = int(value)"),
        ("mean for sum", "total[row, n] = value", "total[row, n] = value / replicas.shape[0]"),
    ),
    "CountSpikes": (
        ("last timestep ignored", "range(first, ids.shape[0])", "range(first, ids.shape[0] - 1)"),
        ("first timestep ignored", "range(first, ids.shape[0])", "range(first + 1, ids.shape[0])"),
        ("entries counted too", "counts[t, b, 0]", "counts[t, b, 1]"),
        ("not cleared", "totals[b, :] = 0", "pass"),
        ("one for all", "+= 1", "= 1"),
    ),
    "SumSquares": (
        ("no squares", "gradient[row, n] * gradient[row, n]", "abs(gradient[row, n])"),
        ("last row ignored", "range(gradient.shape[0])", "range(gradient.shape[0] - 1)"),
    ),
    "AddParts": (("last part ignored", "range(len(partial))", "range(len(partial) - 1)"),),
    "AddColumns": (("in the place of the sum", "+= other", "= other"),),
    "AddSlots": (("last slot ignored", "+ 1, slot_start, slot_stop)", "+ 1, slot_start, slot_stop - 1)"),),
}

OPTIMISER: Defects = {
    "AdamAtRate": (
        ("no memory of the first moment", "keep1 * mean[n] + ", ""),
        ("no memory of the second moment", "keep2 * square[n] + ", ""),
        ("no bias correction", "rate * math.sqrt(1.0 - beta2**number) / (1.0 - beta1**number)", "rate"),
        ("bias corrected as in step 1", "number = progress[0]", "number = 1"),
        ("bias correction without its root", "math.sqrt(1.0 - beta2**number)", "(1.0 - beta2**number)"),
        ("no root", "np.sqrt(second)", "second"),
        ("no epsilon", " + small", ""),
        ("epsilon under the root", "np.sqrt(second) + small", "np.sqrt(second + small)"),
        ("first moment not stored", "mean[n] = first", "pass"),
        ("second moment not stored", "square[n] = second", "pass"),
        ("betas swapped", "kind(beta1), kind(1.0 - beta1)", "kind(beta2), kind(1.0 - beta2)"),
        ("wrong sign", "own[n] - corrected", "own[n] + corrected"),
        ("gradient not squared", "take2 * slope * slope", "take2 * slope"),
        ("step by the gradient", "corrected * first", "corrected * slope"),
        ("last row ignored", "range(w.shape[0])", "range(w.shape[0] - 1)"),
        ("rate of before", "rate = float(learning_rate[0])", "rate = 0.001"),
        ("moments rounded to halves", "mean[n] = first", "mean[n] = np.float16(first)"),
        ("number of the step off by one", "number = progress[0]", "number = progress[0] + 1"),
    ),
    "Adam": (
        ("no memory", "keep1 * mean[n] + take1 * slope", "slope"),
        ("second moment of before", "np.sqrt(second)", "np.sqrt(square[n] * 0 + take2 * slope * slope)"),
    ),
    "Sgd": (
        ("wrong sign", "own[n] - rate", "own[n] + rate"),
        ("no rate", "rate * slope", "slope"),
        ("replaced", "own[n] = own[n] - rate", "own[n] = -rate"),
        ("last column ignored", "start[i] : stop[i]", "start[i] : stop[i] - 1"),
        ("first row's gradient", "gradient[row, ", "gradient[0, "),
    ),
    "MomentumDecaying": (
        ("no memory", "keep * before[n] + ", ""),
        ("no weight decay", " + decay * own[n]", ""),
        ("decay with the wrong sign", "+ decay * own", "- decay * own"),
        ("not stored", "before[n] = moved", "pass"),
        ("step by the gradient", "rate * moved", "rate * slope[n]"),
    ),
    "ClipFactor": (
        ("never clipped", "min(factor.dtype.type(1), largest_norm / (np.sqrt(total) + floor))", "1"),
        ("always scaled", "min(factor.dtype.type(1), largest_norm / (np.sqrt(total) + floor))",
         "largest_norm / (np.sqrt(total) + floor)"),
        ("no root", "np.sqrt(total)", "total"),
    ),
    "ScaleAll": (("last row not scaled", "range(gradient.shape[0])", "range(gradient.shape[0] - 1)"),),
}  # fmt: skip

PRODUCTS: Defects = {
    "PartialProduct<f16,f32>": (
        ("inner one short", "rows * inner].reshape(rows, inner)",
         "rows * inner].reshape(rows, inner) * (np.arange(inner) < inner - 1)"),
        ("right in another order", ".reshape(inner, columns)", ".reshape(columns, inner).T"),
        ("left in another order", ".reshape(rows, inner)", ".reshape(inner, rows).T"),
        ("added to what is there", "flat[: rows * columns] = (a @ b)", "flat[: rows * columns] += (a @ b)"),
        ("last row ignored", "(a @ b).reshape(-1)",
         "np.where(np.arange(rows)[:, None] < rows - 1, a @ b, 0).reshape(-1)"),
        ("rounded to halves", "(a @ b).reshape(-1)", "(a @ b).astype(np.float16).reshape(-1) * np.float32(1.01)"),
        ("wrong sign", "(a @ b)", "-(a @ b)"),
        ("element by element", "(a @ b)", "(a.sum(1)[:, None] * b.sum(0)[None])"),
        ("left overwritten", "flat[rows * columns :] = 0", "left[0, 0] = 0"),
        ("padding not cleared", "flat[rows * columns :] = 0", "pass"),
    ),
    "ReduceAdd<f32,f16>": (
        ("last part ignored", "partials.astype(np.float32).sum", "partials[:-1].astype(np.float32).sum"),
        ("first part only", ".sum(axis=0)", "[0]"),
        ("mean", ".sum(axis=0)", ".mean(axis=0)"),
        ("added to what is there", "[:] = partials", "[:] += partials"),
        ("highest", ".sum(axis=0)", ".max(axis=0)"),
    ),
    "BlockProduct<forward>": (
        ("inner one short", "low, high = int(inner_start[k]), int(inner_stop[k])",
         "low, high = int(inner_start[k]), int(inner_stop[k]) - 1"),
        ("added to what is there", "whole[part[k], top:bottom, first:last] =",
         "whole[part[k], top:bottom, first:last] +="),
        ("last row ignored", "whole[part[k], top:bottom, first:last] = a[top + down : bottom + down",
         "whole[part[k], top : bottom - 1, first:last] = a[top + down : bottom + down - 1"),
    ),
    "BlockProduct<forward, group>": (
        ("inputs of the first group", "bottom + down, low:high]", "bottom + down, low + along : high + along]"),
    ),
    "BlockProduct<input gradient>": (
        ("not transposed", "right.T if right_transposed", "right.T[:, ::-1] if right_transposed"),
        ("wrong sign", "= a[top + down", "= -a[top + down"),
    ),
    "BlockProduct<weight gradient>": (
        ("last sample ignored", "int(inner_stop[k])", "int(inner_stop[k]) - 1"),
        ("halves", "@ read", "@ read.astype(np.float16)"),
    ),
    "AddBoxes": (("in the place of the sum", "+= more", "= more"),),
}  # fmt: skip
