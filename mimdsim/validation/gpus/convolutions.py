"""Single convolutions and their gradients on a GPU: rows of `references/gpu_convolutions.csv`.

benchmarks/gpu/measure_convolutions.py timed cuDNN between operands that are on the device.
"""

from __future__ import annotations

from typing import get_args

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.gpu.convolution import ConvolutionPass, Pass, convolution_seconds
from mimdsim.graph.convolution import Patches, Planes, Window
from mimdsim.validation.gpus.products import LARGEST_EXTENT, device_of, precision_of
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, around, whole_numbers

SHAPE = ("samples", "channels", "height", "width", "channels_made", "kernel", "stride", "padding")
LARGEST_SIDE = 4096  # of planes, in tables


def convolution_row(row: Cells, _asked: Asked) -> Fields:
    """Fields of the microseconds of one pass."""
    samples, channels, height, width, made, kernel, stride, padding = whole_numbers(row, *SHAPE, default=0)
    if max(samples, channels, made) > LARGEST_EXTENT or max(height, width) > LARGEST_SIDE:
        raise MimdsimError(
            f"over {LARGEST_EXTENT:,} samples or channels, or planes of over {LARGEST_SIDE:,} pixels a side"
        )
    if min(samples, channels, height, width, made) < 1:
        raise MimdsimError("samples, channels, height and width must be at least 1")
    what = next((each for each in get_args(Pass) if each == row["pass"]), None)
    if what is None:
        raise MimdsimError(f"column 'pass': '{shortened(row['pass'])}' is none of {', '.join(get_args(Pass))}")
    window = Window(kernel=(kernel, kernel), stride=(stride, stride), padding=(padding, padding))
    patches = Patches(planes=Planes(channels=channels, height=height, width=width), window=window)
    each = ConvolutionPass(what=what, patches=patches, channels=made, samples=samples)
    (gpu, remark), precision = device_of(row["gpu"]), precision_of(row["dtype"])
    shape = f"{samples} x {patches.planes} to {window.over(patches.planes, made)}, kernel {kernel}, stride {stride}"
    return {
        "name": f"{row['gpu']} {row['dtype']} {shape}, {what}",
        "unit": "us",
        "published": row.number("time_us", above=0),
        "tolerance": 0.30,
        "kind": f"{row['gpu']} {row['dtype']}, {what}",
        "note": remark,
        "predict": lambda: around(1e6 * convolution_seconds(gpu, each, precision=precision).seconds, 0.3),
    }


CONVOLUTIONS = ReferenceTable(
    needed={"gpu", "dtype", "pass", *SHAPE, "time_us", "source"},
    ignored={"layout"},
    read_row=convolution_row,
    on="",
)
