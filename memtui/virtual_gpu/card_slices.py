"""MIG slices of data-centre cards, and the Jetson modules: what is no whole card of its own memory.

A slice's memory is what `nvidia-smi mig -lgip` lists, in eighths of a GiB; CUDA's total was the
same where both were found (1g.10gb of an A100 80 GB, 2g.20gb of an H100).  It varies with the
driver by an eighth or two.
"""

from __future__ import annotations

from memtui.virtual_gpu.card import GIB, Card, Figure


def _listed(gibibytes: float, where: str) -> Figure:
    return Figure(int(gibibytes * GIB), "cited", f"nvidia-smi mig -lgip, in eighths of a GiB{where}")


def _slices(
    parent: str,
    parent_full_name: str,
    compute_capability: tuple[int, int],
    where: str,
    profiles: tuple[tuple[str, float, int], ...],
) -> tuple[Card, ...]:
    """One card for each profile: its name, its GiB, its multiprocessors."""
    return tuple(
        Card(
            name=f"{parent}-{profile}",
            full_name=f"{parent_full_name} MIG {profile}",
            group="MIG slice",
            box_bytes=int(profile.partition(".")[2].removesuffix("gb")) * GIB,
            compute_capability=compute_capability,
            multiprocessors=multiprocessors,
            total=_listed(gibibytes, where),
            nvml_total_bytes=int(gibibytes * GIB),
        )
        for profile, gibibytes, multiprocessors in profiles
    )


MIG_SLICES = (
    *_slices(
        "a100-40g",
        "NVIDIA A100-SXM4-40GB",
        (8, 0),
        "",
        (
            ("1g.5gb", 4.75, 14),
            ("1g.10gb", 9.75, 14),
            ("2g.10gb", 9.75, 28),
            ("3g.20gb", 19.625, 42),
            ("4g.20gb", 19.625, 56),
            ("7g.40gb", 39.375, 98),
        ),
    ),
    *_slices(
        "a100-80g",
        "NVIDIA A100-SXM4-80GB",
        (8, 0),
        "",
        (
            ("1g.10gb", 9.5, 14),
            ("1g.20gb", 19.5, 14),
            ("2g.20gb", 19.5, 28),
            ("3g.40gb", 39.25, 42),
            ("4g.40gb", 39.25, 56),
            ("7g.80gb", 79.0, 98),
        ),
    ),
    *_slices(
        "h100-80g",
        "NVIDIA H100 80GB HBM3",
        (9, 0),
        "",
        (
            ("1g.10gb", 9.75, 16),
            ("1g.20gb", 19.625, 26),
            ("2g.20gb", 19.625, 32),
            ("3g.40gb", 39.5, 60),
            ("4g.40gb", 39.5, 64),
            ("7g.80gb", 79.25, 132),
        ),
    ),
    *_slices(
        "h200",
        "NVIDIA H200",
        (9, 0),
        ": NVIDIA/mig-parted#120",
        (
            ("1g.18gb", 16.0, 16),
            ("1g.35gb", 32.25, 26),
            ("2g.35gb", 32.25, 32),
            ("3g.71gb", 69.5, 60),
            ("4g.71gb", 69.5, 64),
            ("7g.141gb", 139.75, 132),
        ),
    ),
)


def _jetson(name: str, box_gib: int, multiprocessors: int, value_bytes: int, program: str) -> Card:
    return Card(
        name=name,
        full_name="Orin",
        group="Jetson",
        box_bytes=box_gib * GIB,
        compute_capability=(8, 7),
        multiprocessors=multiprocessors,
        total=Figure(value_bytes, "cited", program),
        unified_memory=True,
    )


_QUERY = "deviceQuery of the CUDA samples under a driver for CUDA"

#: Modules; the multiprocessors are those of the full power mode, smaller modes switch some off.
JETSONS = (
    _jetson("jetson-orin-nano-8g", 8, 8, 7_987_728_384, f"{_QUERY} 12.6"),
    _jetson("jetson-orin-nx-16g", 16, 8, 16_417_153_024, f"{_QUERY} 12.2"),
    _jetson("jetson-agx-orin-32g", 32, 14, 30_697 << 20, "torch, in whole MiB by Ultralytics YOLO 8.3.78"),
    _jetson("jetson-agx-orin-64g", 64, 16, 65_893_089_280, f"{_QUERY} 12.6"),
)
