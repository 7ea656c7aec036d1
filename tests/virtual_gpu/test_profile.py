"""Sizes, profiles and the environment they become."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.virtual_gpu import Profile, VirtualGpuError, profile_of
from memtui.virtual_gpu.launch import without_virtual_gpus
from memtui.virtual_gpu.profile import parse_compute_capability, parse_size, parse_sizes

_UNITS = {"": 0, "B": 0, "K": 10, "KiB": 10, "M": 20, "MiB": 20, "G": 30, "GiB": 30, "T": 40, "TiB": 40}

_units = st.sampled_from(sorted(_UNITS))
_counts = st.integers(min_value=0, max_value=1024)


@given(_counts, _units, st.sampled_from(["", " "]))
def test_a_whole_number_of_units_is_exact(count: int, unit: str, space: str) -> None:
    assert parse_size(f"{space}{count}{space}{unit}{space}") == count << _UNITS[unit]
    assert parse_size(f"{count}{unit.lower()}") == count << _UNITS[unit]


@given(st.integers(min_value=0, max_value=1 << 50))
def test_plain_bytes_are_themselves(size: int) -> None:
    assert parse_size(str(size)) == size


@given(st.lists(st.tuples(_counts, _units), min_size=1, max_size=16))
def test_sizes_with_commas_are_each_size(sizes: list[tuple[int, str]]) -> None:
    texts = [f"{count}{unit}" for count, unit in sizes]
    assert parse_sizes(",".join(texts)) == tuple(map(parse_size, texts))


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_is_refused(text: str) -> None:
    with suppress(VirtualGpuError):
        assert 0 <= parse_size(text) <= 1 << 50


@pytest.mark.parametrize("text", ["", "GiB", "24GB", "24 gigabytes", "-1GiB", "1e3", "0x10", "2000TiB", "١GiB"])
def test_what_is_not_a_size(text: str) -> None:
    # "24GB" as well: whether it means 10^9 bytes is for its writer to say
    with pytest.raises(VirtualGpuError):
        parse_size(text)


def test_fractions() -> None:
    assert parse_size("1.5GiB") == 3 << 29
    assert parse_size("0.5K") == 512


def test_compute_capability() -> None:
    assert parse_compute_capability("8.6") == (8, 6)
    assert parse_compute_capability("12.0") == (12, 0)
    for text in ("", "9", "sm_90", "8.6.1"):
        with pytest.raises(VirtualGpuError):
            parse_compute_capability(text)


def test_the_default_is_one_a6000() -> None:
    assert Profile().environment() == {
        "VGPU_COUNT": "1",
        "VGPU_MEMORY": str(48 << 30),
        "VGPU_NAME": "NVIDIA RTX A6000",
        "VGPU_CC": "8.6",
        "VGPU_SMS": "84",
        "VGPU_CONTEXT": "0",
        "VGPU_DRIVER_RESERVED": "0",
        "VGPU_UTIL": "0",
        "VGPU_NVML_PID_OFFSET": "0",
    }


def test_texts_become_bytes() -> None:
    profile = profile_of(
        memory="24GiB,80GiB", count=2, context="400MiB", driver_reserved=1 << 20, cc="9.0", cudnn_load="1MiB"
    )
    assert profile == Profile(
        count=2,
        memory_bytes=(24 << 30, 80 << 30),
        context_bytes=400 << 20,
        driver_reserved_bytes=1 << 20,
        cudnn_load_bytes=1 << 20,
        compute_capability=(9, 0),
    )


def test_switches_are_absent_until_they_are_set() -> None:
    switches = Profile(
        cudnn_workspace_bytes=0,
        cudnn_load_bytes=5,
        nvml_memory_failure="lost",
        process_memory_unavailable=True,
        pid_offset=100_000,
        report=True,
        trace=True,
        report_file="reports/run",
        selected=0.25,
        nccl_buffers_bytes=0,
    ).environment()
    assert (switches["VGPU_CUDNN_WORKSPACE"], switches["VGPU_CUDNN_LOAD"]) == ("0", "5")
    assert switches["VGPU_NVML_MEMORY"] == "lost"
    assert switches["VGPU_NVML_PROCESS_MEMORY"] == "unavailable"
    assert switches["VGPU_NVML_PID_OFFSET"] == "100000"
    assert switches["VGPU_REPORT"] == switches["VGPU_TRACE"] == "1"
    # a child may run in another folder
    assert switches["VGPU_REPORT_FILE"] == os.path.abspath("reports/run")
    assert switches["VGPU_SELECTED"] == "0.25"
    assert switches["VGPU_NCCL_BUFFERS"] == "0"


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 17},
        {"count": -1},
        {"memory_bytes": ()},
        {"memory_bytes": (0,)},
        {"nvml_memory_failure": "tired"},
        {"selected": 1.5},
        {"selected": float("nan")},
        {"nccl_buffers_bytes": -1},
    ],
)
def test_a_profile_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(VirtualGpuError):
        Profile(**wrong)  # type: ignore[arg-type]


def test_taking_virtual_gpus_out_of_an_environment() -> None:
    plain = {"PATH": "/bin", "LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}
    ours = {
        **plain,
        "LD_PRELOAD": "/cache/libvgpu_preload.so:/usr/lib/libjemalloc.so.2",
        "VGPU_SHM": "/run/x",
        "VGPU_COUNT": "1",
        "TRITON_LIBCUDA_PATH": "/cache",
        "TORCH_CUDNN_V8_API_DISABLED": "1",
    }
    assert without_virtual_gpus(ours) == plain
    assert without_virtual_gpus(plain) == plain
    # what the user set stays where we were never
    assert without_virtual_gpus({"TRITON_LIBCUDA_PATH": "/theirs"}) == {"TRITON_LIBCUDA_PATH": "/theirs"}
