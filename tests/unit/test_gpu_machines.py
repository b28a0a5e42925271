"""The GPU descriptions that ship: they load, their peaks are the published ones, and mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mimdsim.base.errors import DescriptionError
from mimdsim.machine import GpuMachine, find_machine, load_machine

# fp32, TF32, fp16 in TFLOP/s; multiprocessors; DRAM GB/s (vendors' data sheets; V100 has no TF32 unit)
PUBLISHED = {
    "v100-pcie": (14.0, 14.0, 112, 80, 900),
    "a100-pcie": (19.5, 156, 312, 108, 1555),
    "a100-80-pcie": (19.5, 156, 312, 108, 1935),
    "rtx2070": (7.5, 7.5, 29.9, 36, 448),
    "rtx2080ti": (13.45, 13.45, 53.8, 68, 616),
    "t4": (8.1, 8.1, 65, 40, 320),
    "v100": (15.7, 15.7, 125, 80, 900),
    "a100": (19.5, 156, 312, 108, 1555),
    "a100-80": (19.5, 156, 312, 108, 2039),
    "h100": (66.9, 494, 989, 132, 3350),
    "h200": (66.9, 494, 989, 132, 4800),
    "rtx3090": (35.6, 35.6, 71, 82, 936),
    "rtx4090": (82.6, 82.6, 165, 128, 1008),
}
SECTIONS = ("chip", "compute", "memory", "launch", "host", "systolic")
# bf16 TFLOP/s, arrays, DRAM GB/s
TPUS = {"tpu-v3": (123, 4, 900), "tpu-v4": (275, 8, 1200)}


def gpu(name: str, changes: dict[str, object] | None = None) -> GpuMachine:
    machine = load_machine(name, changes)
    assert isinstance(machine, GpuMachine)
    return machine


@pytest.mark.parametrize("name", PUBLISHED)
def test_peaks_are_the_published_ones(name: str) -> None:
    machine = gpu(name)
    fp32, tf32, fp16, multiprocessors, gb_per_second = PUBLISHED[name]
    assert machine.name == name
    assert machine.peak_flops_per_second("fp32") == pytest.approx(fp32 * 1e12, rel=0.01)
    assert machine.peak_flops_per_second("tf32") == pytest.approx(tf32 * 1e12, rel=0.01)
    assert machine.peak_flops_per_second("fp16") == pytest.approx(fp16 * 1e12, rel=0.01)
    assert machine.chip.streaming_multiprocessors == multiprocessors
    assert machine.memory.dram_bytes_per_second == gb_per_second * 1e9


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_must_be_larger_is(name: str) -> None:
    machine = gpu(name)
    assert machine.memory.l2_bytes_per_second >= machine.memory.l2_streaming_bytes_per_second
    assert machine.memory.l2_streaming_bytes_per_second > machine.memory.dram_bytes_per_second
    assert machine.memory.capacity_bytes > machine.memory.l2_bytes
    assert machine.launch.stream_period_seconds > machine.launch.graph_period_seconds
    assert machine.host.bytes_per_second >= machine.host.framework_bytes_per_second


@pytest.mark.parametrize("name", TPUS)
def test_arrays_of_a_tpu_make_its_published_peak(name: str) -> None:
    machine = gpu(name)
    bf16, arrays, gb_per_second = TPUS[name]
    assert machine.systolic is not None
    assert machine.systolic.arrays == arrays
    assert machine.peak_flops_per_second("fp16") == pytest.approx(bf16 * 1e12, rel=0.01)
    assert machine.peak_flops_per_second("tf32") == machine.peak_flops_per_second("fp16") / 3
    assert machine.memory.dram_bytes_per_second == gb_per_second * 1e9


@pytest.mark.parametrize("name", [*PUBLISHED, *TPUS])
def test_every_number_names_its_source(name: str) -> None:
    machine = gpu(name)
    for section in SECTIONS:
        part = getattr(machine, section)
        if part is None:
            continue
        numbers = part.model_fields_set - {"sources"}
        assert numbers == set(part.sources), section


def test_the_v100_runs_tf32_without_tensor_unit() -> None:
    assert not gpu("v100").uses_tensor_unit("tf32")
    assert gpu("v100").uses_tensor_unit("fp16")
    assert gpu("a100").uses_tensor_unit("tf32")
    assert not gpu("a100").uses_tensor_unit("fp32")


def test_a_faster_clock_is_a_higher_peak() -> None:
    doubled = gpu("a100", {"chip.clock_hz": "2.82 GHz"})
    assert doubled.peak_flops_per_second("tf32") == 2 * gpu("a100").peak_flops_per_second("tf32")
    assert doubled.chip.sources["clock_hz"].startswith("assumed: what-if")


def test_mistakes_in_a_description_are_named_together(tmp_path: Path) -> None:
    right = find_machine("a100").read_text()
    wrong = tmp_path / "mine.toml"

    def complaint(*changes: tuple[str, str]) -> str:
        text = right
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        wrong.write_text(text)
        with pytest.raises(DescriptionError) as caught:
            load_machine(str(wrong))
        return str(caught.value)

    both = complaint(
        ('l2_bytes = "40 MiB"', 'l2_bytes = "40 MB"'), ("fp16_flops_per_cycle = 2", "fp16_flop_per_cycle = 2")
    )
    assert "'MB' is ambiguous" in both
    assert "did you mean 'fp16_flops_per_cycle'?" in both
    assert "'l2_bytes' has no entry in 'sources'" in complaint(('l2_bytes = "published', 'l2_byte = "published'))
    none = complaint(("streaming_multiprocessors = 108", "streaming_multiprocessors = 0"))
    assert "'chip.streaming_multiprocessors' (line 6)" in none
    assert "greater than 0" in none
