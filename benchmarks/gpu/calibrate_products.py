"""How well the parameters of GPU matrix products are determined: refitted with each device left out in turn.

    python benchmarks/gpu/calibrate_products.py PATH/gemm_measurements.csv

Prints the parameters and the mean error per device: as shipped, fitted to all, and for the device that a fit did not
see. The last is what to expect for an unmeasured device. Takes some minutes.
"""

from __future__ import annotations

import csv
import dataclasses
import re
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

from mimdsim.base.errors import MimdsimError
from mimdsim.gpu.gemm import CALIBRATED, ProductParameters, gemm_seconds
from mimdsim.machine import GpuMachine
from mimdsim.validation.gpus.products import EAGER_LINEAR_SECONDS, device_of, find_precision

STEPS = (0.7, 0.85, 1.18, 1.4)  # a parameter times these is tried in turn
ROUNDS = 4
SHORT_SECONDS = 0.5e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One measured product. free: the same device without power shares."""

    device: str
    gpu: GpuMachine
    free: GpuMachine
    shape: tuple[int, int, int]
    batch: int
    dtype: str
    transposed: bool
    stated_seconds: float
    eager: bool
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """The parameters and the host overhead of an eager linear layer."""

    products: ProductParameters
    eager_seconds: float


def read(path: Path) -> list[Point]:
    points = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            try:
                gpu, _ = device_of(row["gpu"])
            except MimdsimError:
                continue
            stated = re.match(r"~?\s*([\d.]+)", row["includes_host_overhead_us"])
            points.append(
                Point(
                    device=row["gpu"],
                    gpu=gpu,
                    free=gpu.model_copy(
                        update={"chip": gpu.chip.model_copy(update={"product_share": 1.0, "tensor_product_share": 1.0})}
                    ),
                    shape=(int(row["M"]), int(row["N"]), int(row["K"])),
                    batch=int(row["batch"]),
                    dtype=row["dtype"].lower(),
                    transposed=re.search(r"(^|_)tn\b", row["kernel"], re.IGNORECASE) is not None,
                    stated_seconds=float(stated.group(1)) * 1e-6 if stated else 0.0,
                    eager="eager" in row["includes_host_overhead_us"],
                    seconds=float(row["time_us"]) * 1e-6,
                )
            )
    return points


def error(point: Point, fit: Fit, *, known: bool = True) -> float:
    """Relative; `known`: with what the device's description took from these very measurements."""
    told = gemm_seconds(
        point.gpu if known else point.free,
        *point.shape,
        batch=point.batch,
        precision=find_precision(point.dtype) or point.dtype,
        transposed_weight=point.transposed,
        parameters=fit.products,
    ).seconds
    told += point.stated_seconds + point.eager * fit.eager_seconds
    return abs(told / point.seconds - 1)


def loss(points: Iterable[Point], fit: Fit) -> float:
    """Mean over devices of the mean error, and half as much again of the short products."""
    every: dict[str, list[float]] = {}
    short: dict[str, list[float]] = {}
    for point in points:
        off = error(point, fit)
        every.setdefault(point.device, []).append(off)
        if point.seconds < SHORT_SECONDS:
            short.setdefault(point.device, []).append(off)
    of_all = statistics.fmean(statistics.fmean(part) for part in every.values())
    return of_all + 0.5 * statistics.fmean(statistics.fmean(part) for part in short.values())


def varied(fit: Fit) -> Iterable[Fit]:
    for field in dataclasses.fields(fit.products):
        if field.name == "tensor_intensity_half":  # published
            continue
        for factor in STEPS:
            value = getattr(fit.products, field.name) * factor
            if field.name.endswith("share") and value > 1:
                continue
            yield dataclasses.replace(fit, products=dataclasses.replace(fit.products, **{field.name: value}))
    for factor in STEPS:
        yield dataclasses.replace(fit, eager_seconds=fit.eager_seconds * factor)


def fitted(points: list[Point], start: Fit) -> Fit:
    best, least = start, loss(points, start)
    for _ in range(ROUNDS):
        before = least
        for tried in varied(best):
            found = loss(points, tried)
            if found < least:
                best, least = tried, found
        if before - least < 1e-4:
            break
    return best


def show(title: str, points: list[Point], fit: Fit, *, known: bool = True) -> None:
    for device in dict.fromkeys(point.device for point in points):
        mine = [point for point in points if point.device == device]
        off = statistics.fmean(error(point, fit, known=known) for point in mine)
        short = [error(point, fit, known=known) for point in mine if point.seconds < SHORT_SECONDS]
        print(
            f"{title:<28} {device:<24} {len(mine):>4} rows {off:6.1%}   below 0.5 ms {len(short):>4} rows "
            f"{statistics.fmean(short):6.1%}",
            flush=True,
        )


def main(path: Path) -> None:
    points = read(path)
    # a start that no measurement informed: round numbers of the same order
    blind = ProductParameters(
        simt_intensity_half=10.0,
        tensor_intensity_half=CALIBRATED.tensor_intensity_half,
        lone_tile_share=0.7,
        wave_seconds=2e-6,
        split_seconds=8e-6,
        transposed_dram_share=0.7,
    )
    start = Fit(products=blind, eager_seconds=10e-6)
    shipped = Fit(products=CALIBRATED, eager_seconds=EAGER_LINEAR_SECONDS)
    show("as shipped", points, shipped)
    show("not fitted at all", points, start)
    everything = fitted(points, start)
    show("fitted to all", points, everything)
    print(everything)
    for device in dict.fromkeys(point.device for point in points):
        seen = [point for point in points if point.device != device]
        fit = fitted(seen, start)
        show("left out of the fit", [point for point in points if point.device == device], fit, known=False)
        print(fit)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
