"""The cards, and where the figures of each come from.

CUDA's total depends on the driver, newer ones leaving up to 3 % less; the newest found is taken.
Outputs of Windows and WSL are left out: there it is the same as nvidia-smi's total.  nvidia-smi's
totals are those of drivers since 510, which count the driver's share in.  Multiprocessors are as
CUDA prints them, or NVIDIA's CUDA cores over the cores of one.
"""

from __future__ import annotations

from memtui.virtual_gpu.card import GIB, MIB, UNKNOWN, Card, Figure, Group

# How totals were read.  Where no other place is named, it was in the files of public repositories.


def _torch(version: str, mebibytes: int) -> Figure:
    """In whole MiB, from the line with which a run of Ultralytics YOLO starts."""
    return Figure(mebibytes * MIB, "cited", f"torch {version}, in whole MiB by Ultralytics YOLO")


def _properties(mebibytes: int) -> Figure:
    source = "torch.cuda.get_device_properties of a torch whose version is not told, in whole MiB"
    return Figure(mebibytes * MIB, "cited", source)


def _query(driver: str, value_bytes: int, where: str = "") -> Figure:
    source = f"deviceQuery of the CUDA samples under a driver for CUDA {driver}"
    return Figure(value_bytes, "cited", f"{source}: {where}" if where else source)


def _printed(program: str, value_bytes: int) -> Figure:
    return Figure(value_bytes, "cited", program)


def _like(other: str, figure: Figure) -> Figure:
    """The total of another card with the same total in nvidia-smi."""
    return Figure(figure.value_bytes, "derived", f"as {other}, whose chip and total in nvidia-smi are the same")


def _smi(mebibytes: int) -> Figure:
    source = "nvidia-smi's total, since CUDA's was not found: on the other cards that is 0.4 to 5 % less"
    return Figure(mebibytes * MIB, "derived", source)


# Contexts.

_GA100 = Figure(
    922 * MIB, "cited", "0.90 GiB on an A100 80 GB, torch 1.13.1, CUDA_MODULE_LOADING=LAZY: stas00/ml-engineering"
)
_AD102 = Figure(
    426 * MIB,
    "cited",
    "RTX 6000 Ada, torch 2.10.0+cu130, no kernel of torch loaded yet: unslothai/unsloth-zoo#1053",
)
_A100_EAGER = Figure(
    1823 * MIB, "cited", "1.78 GiB on an A100 80 GB, torch 1.10.2, CUDA_MODULE_LOADING=EAGER: stas00/ml-engineering"
)
_V100_EAGER = Figure(
    1343 * MIB, "cited", "V100 16 GB after one tiny tensor: the performance guide of Hugging Face transformers"
)
_TITAN_V_EAGER = Figure(1_005 * MIB + MIB // 4, "cited", "TITAN V, torch 1.3: pytorch/pytorch#28394, less its 2 MiB")
_GTX_1080_EAGER = Figure(719 * MIB, "cited", "GTX 1080, torch 1.8.2+cu101: pytorch/pytorch#55277, less its 2 MiB")
_RTX_2080_TI_EAGER = Figure(
    877 * MIB, "cited", "RTX 2080 Ti, torch 1.6.0+cu101: pytorch/pytorch#49877, less its tensor of 158 MiB"
)
_RTX_3090_EAGER = Figure(1685 * MIB, "cited", "RTX 3090, torch 1.8.2+cu111: pytorch/pytorch#55277, less its 2 MiB")


def _same_chip(figure: Figure) -> Figure:
    return Figure(figure.value_bytes, "derived", f"from a card of the same chip: {figure.source}")


def _card(
    group: Group,
    name: str,
    full_name: str,
    box_gib: int,
    compute_capability: str,
    multiprocessors: int,
    total: Figure,
    nvml_mib: int | None,
    context: Figure = UNKNOWN,
    eager_context: Figure = UNKNOWN,
) -> Card:
    major, minor = compute_capability.split(".")
    return Card(
        name=name,
        full_name=full_name,
        group=group,
        box_bytes=box_gib * GIB,
        compute_capability=(int(major), int(minor)),
        multiprocessors=multiprocessors,
        total=total,
        nvml_total_bytes=None if nvml_mib is None else nvml_mib * MIB,
        context=context,
        eager_context=eager_context,
    )


_DC: Group = "data centre"
_WS: Group = "workstation"
_HOME: Group = "consumer"

_V100S = {"eager_context": _same_chip(_V100_EAGER)}
_A100S = {"context": _same_chip(_GA100), "eager_context": _same_chip(_A100_EAGER)}
_AD102S = {"context": _same_chip(_AD102)}
_GA102S = {"eager_context": _same_chip(_RTX_3090_EAGER)}

_H100 = _query("13.0", 85_017_755_648)
_RTX_2080_SUPER = _torch("1.13.1+cu117", 7982)
_RTX_4070 = _torch("2.5.1+cu124", 12002)
_RTX_4080_SUPER = _torch("2.12.1+cu130", 15944)
_RTX_4000_SFF_ADA = _torch("2.8.0+cu128", 20055)
_RTX_PRO_6000 = _printed("torch 2.10.0+cu130, as 94.971 GiB by Unsloth", 97_250 * MIB)

DATA_CENTRE = (
    _card(_DC, "p40", "Tesla P40", 24, "6.1", 30, _query("10.0, ECC on", 24_032_378_880), 23040),
    _card(_DC, "p100-12g", "Tesla P100-PCIE-12GB", 12, "6.0", 56, _query("11.5", 12_790_923_264), None),
    _card(_DC, "p100-16g", "Tesla P100-PCIE-16GB", 16, "6.0", 56, _torch("2.11.0+cu128", 16269), 16384),
    _card(
        _DC,
        "v100-16g",
        "Tesla V100-SXM2-16GB",
        16,
        "7.0",
        80,
        _query("12.4", 16_928_342_016),
        16384,
        eager_context=_V100_EAGER,
    ),
    _card(_DC, "v100-pcie-16g", "Tesla V100-PCIE-16GB", 16, "7.0", 80, _query("9.0", 16_936_927_232), 16384, **_V100S),
    _card(_DC, "v100-32g", "Tesla V100-SXM2-32GB", 32, "7.0", 80, _torch("2.6.0+cu124", 32494), 32768, **_V100S),
    _card(_DC, "v100-pcie-32g", "Tesla V100-PCIE-32GB", 32, "7.0", 80, _query("10.1", 34_058_272_768), 32768, **_V100S),
    _card(_DC, "t4", "Tesla T4", 16, "7.5", 40, _query("12.5; others show up to 15,110 MiB", 15_642_329_088), 15360),
    _card(_DC, "a2", "NVIDIA A2", 16, "8.6", 10, _smi(15356), 15356),
    _card(_DC, "a10", "NVIDIA A10", 24, "8.6", 72, _query("12.8", 23_696_375_808), 23028, **_GA102S),
    _card(_DC, "a10g", "NVIDIA A10G", 24, "8.6", 80, _properties(22587), 23028, **_GA102S),
    _card(_DC, "a16", "NVIDIA A16", 16, "8.6", 10, _smi(15356), 15356),
    _card(_DC, "a30", "NVIDIA A30", 24, "8.0", 56, _torch("2.8.0+cu128", 24164), 24576, **_A100S),
    _card(_DC, "a40", "NVIDIA A40", 48, "8.6", 84, _query("12.4", 47_608_692_736), 46068, **_GA102S),
    _card(_DC, "a100-40g", "NVIDIA A100-SXM4-40GB", 40, "8.0", 108, _torch("2.11.0+cu130", 40441), 40960, **_A100S),
    _card(_DC, "a100-pcie-40g", "NVIDIA A100-PCIE-40GB", 40, "8.0", 108, _torch("2.3.0+cu121", 40377), 40960, **_A100S),
    _card(
        _DC,
        "a100-80g",
        "NVIDIA A100-SXM4-80GB",
        80,
        "8.0",
        108,
        _torch("2.7.0+cu126", 81153),
        81920,
        context=_GA100,
        eager_context=_A100_EAGER,
    ),
    _card(_DC, "a100-pcie-80g", "NVIDIA A100 80GB PCIe", 80, "8.0", 108, _torch("2.6.0+cu124", 81154), 81920, **_A100S),
    _card(_DC, "l4", "NVIDIA L4", 24, "8.9", 58, _torch("2.11.0+cu128", 22563), 23034),
    _card(
        _DC,
        "l40",
        "NVIDIA L40",
        48,
        "8.9",
        142,
        _printed("torch 2.9.1+cu130, in whole MB by ComfyUI", 45_458 * MIB),
        46068,
        **_AD102S,
    ),
    _card(_DC, "l40s", "NVIDIA L40S", 48, "8.9", 142, _query("12.4", 47_576_711_168), 46068, **_AD102S),
    _card(_DC, "h100-80g", "NVIDIA H100 80GB HBM3", 80, "9.0", 132, _H100, 81559),
    _card(_DC, "h100-pcie-80g", "NVIDIA H100 PCIe", 80, "9.0", 114, _like("H100 80GB HBM3", _H100), 81559),
    _card(_DC, "h100-nvl-94g", "NVIDIA H100 NVL", 94, "9.0", 132, _torch("2.13.0+cu130", 95320), 95830),
    _card(_DC, "h200", "NVIDIA H200", 141, "9.0", 132, _torch("2.11.0+cu128", 143156), 143771),
    _card(_DC, "h20", "NVIDIA H20", 96, "9.0", 78, _properties(97285), 97871),
    _card(
        _DC,
        "gh200",
        "NVIDIA GH200 480GB",
        96,
        "9.0",
        132,
        _like("GH200 120GB under a driver for CUDA 12.9", _query("12.9", 101_468_602_368)),
        97871,
    ),
    _card(_DC, "b200", "NVIDIA B200", 180, "10.0", 148, _properties(182631), 183359),
    _card(
        _DC,
        "gb200",
        "NVIDIA GB200",
        186,
        "10.0",
        152,
        _printed("torch's out-of-memory error, as 184.31 GiB", 188_733 * MIB),
        189471,
    ),
    _card(
        _DC,
        "b300",
        "NVIDIA B300 SXM6 AC",
        288,
        "10.3",
        148,
        _printed("torch's out-of-memory error, as 267.69 GiB", 274_115 * MIB),
        275040,
    ),
)

WORKSTATION = (
    _card(_WS, "quadro-rtx-4000", "Quadro RTX 4000", 8, "7.5", 36, _query("11.7", 8_370_192_384), 8192),
    _card(
        _WS,
        "quadro-rtx-5000",
        "Quadro RTX 5000",
        16,
        "7.5",
        48,
        _printed("nvidia-smi of drivers before 510, whose total was CUDA's; ECC off", 16_125 * MIB),
        16384,
    ),
    _card(
        _WS,
        "quadro-rtx-6000",
        "Quadro RTX 6000",
        24,
        "7.5",
        72,
        _printed("nvidia-smi of drivers before 510, whose total was CUDA's; ECC off", 24_220 * MIB),
        24576,
    ),
    _card(_WS, "quadro-rtx-8000", "Quadro RTX 8000", 48, "7.5", 72, _torch("2.1.1+cu121, ECC off", 48593), 49152),
    _card(_WS, "rtx-a2000-6g", "NVIDIA RTX A2000", 6, "8.6", 26, _smi(6138), 6138),
    _card(_WS, "rtx-a2000-12g", "NVIDIA RTX A2000 12GB", 12, "8.6", 26, _torch("2.1.0+cu118", 12017), 12282),
    _card(_WS, "rtx-a4000", "NVIDIA RTX A4000", 16, "8.6", 48, _torch("1.12.1+cu116", 16117), 16376),
    _card(_WS, "rtx-a4500", "NVIDIA RTX A4500", 20, "8.6", 56, _smi(20470), 20470, **_GA102S),
    _card(_WS, "rtx-a5000", "NVIDIA RTX A5000", 24, "8.6", 64, _torch("2.1.0, ECC off", 24248), 24564, **_GA102S),
    _card(_WS, "rtx-a5500", "NVIDIA RTX A5500", 24, "8.6", 80, _torch("2.7.1+cu126", 24090), 24564, **_GA102S),
    _card(
        _WS,
        "rtx-a6000",
        "NVIDIA RTX A6000",
        48,
        "8.6",
        84,
        _printed("torch 2.8.0, as 47.431 GiB by Unsloth, ECC off", 48_569 * MIB),
        49140,
        **_GA102S,
    ),
    _card(_WS, "rtx-2000-ada", "NVIDIA RTX 2000 Ada Generation", 16, "8.9", 22, _smi(16380), 16380),
    _card(_WS, "rtx-4000-sff-ada", "NVIDIA RTX 4000 SFF Ada Generation", 20, "8.9", 48, _RTX_4000_SFF_ADA, 20475),
    _card(
        _WS,
        "rtx-4000-ada",
        "NVIDIA RTX 4000 Ada Generation",
        20,
        "8.9",
        48,
        _like("RTX 4000 SFF Ada", _RTX_4000_SFF_ADA),
        20475,
    ),
    _card(_WS, "rtx-4500-ada", "NVIDIA RTX 4500 Ada Generation", 24, "8.9", 60, _smi(24570), 24570),
    _card(_WS, "rtx-5000-ada", "NVIDIA RTX 5000 Ada Generation", 32, "8.9", 100, _smi(32760), 32760, **_AD102S),
    _card(
        _WS,
        "rtx-6000-ada",
        "NVIDIA RTX 6000 Ada Generation",
        48,
        "8.9",
        142,
        _printed("torch 2.10.0+cu130: unslothai/unsloth-zoo#1053", 50_865_307_648),
        49140,
        context=_AD102,
    ),
    _card(
        _WS,
        "rtx-pro-6000",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        96,
        "12.0",
        188,
        _like("the Server Edition", _RTX_PRO_6000),
        97887,
    ),
    _card(
        _WS,
        "rtx-pro-6000-server",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        96,
        "12.0",
        188,
        _RTX_PRO_6000,
        97887,
    ),
)

CONSUMER = (
    _card(_HOME, "gtx-1060-6g", "NVIDIA GeForce GTX 1060 6GB", 6, "6.1", 10, _torch("2.6.0+cu124", 6063), 6144),
    _card(_HOME, "gtx-1070", "NVIDIA GeForce GTX 1070", 8, "6.1", 15, _query("10.1", 8_510_701_568), 8192),
    _card(
        _HOME,
        "gtx-1080",
        "NVIDIA GeForce GTX 1080",
        8,
        "6.1",
        20,
        _query("11.0", 8_505_524_224),
        8192,
        eager_context=_GTX_1080_EAGER,
    ),
    _card(_HOME, "gtx-1080-ti", "NVIDIA GeForce GTX 1080 Ti", 11, "6.1", 28, _torch("2.5.1+cu124", 11172), 11264),
    _card(
        _HOME,
        "titan-xp",
        "NVIDIA TITAN Xp",
        12,
        "6.1",
        30,
        _printed("torch 2.3.1+cu121, as 12186.875 MiB by YOLOR", 12_778_864_640),
        12288,
    ),
    _card(
        _HOME,
        "titan-v",
        "NVIDIA TITAN V",
        12,
        "7.0",
        80,
        _printed("torch 1.12.0+cu113, as 12064.375 MiB by YOLOR", 12_650_414_080),
        12288,
        eager_context=_TITAN_V_EAGER,
    ),
    _card(_HOME, "titan-rtx", "NVIDIA TITAN RTX", 24, "7.5", 72, _torch("1.13.1+cu117", 24212), 24576),
    _card(_HOME, "rtx-2060", "NVIDIA GeForce RTX 2060", 6, "7.5", 30, _query("12.4", 6_204_162_048), 6144),
    _card(_HOME, "rtx-2060-super", "NVIDIA GeForce RTX 2060 SUPER", 8, "7.5", 34, _query("13.0", 8_352_038_912), 8192),
    _card(_HOME, "rtx-2070", "NVIDIA GeForce RTX 2070", 8, "7.5", 36, _query("10.1", 8_370_061_312), 8192),
    _card(_HOME, "rtx-2070-super", "NVIDIA GeForce RTX 2070 SUPER", 8, "7.5", 40, _query("12.9", 8_164_081_664), 8192),
    _card(_HOME, "rtx-2080", "NVIDIA GeForce RTX 2080", 8, "7.5", 46, _like("RTX 2080 SUPER", _RTX_2080_SUPER), 8192),
    _card(_HOME, "rtx-2080-super", "NVIDIA GeForce RTX 2080 SUPER", 8, "7.5", 48, _RTX_2080_SUPER, 8192),
    _card(
        _HOME,
        "rtx-2080-ti",
        "NVIDIA GeForce RTX 2080 Ti",
        11,
        "7.5",
        68,
        _query("12.8", 11_348_672_512),
        11264,
        eager_context=_RTX_2080_TI_EAGER,
    ),
    _card(_HOME, "rtx-3060", "NVIDIA GeForce RTX 3060", 12, "8.6", 28, _torch("2.10.0+cu128", 11910), 12288),
    _card(_HOME, "rtx-3060-ti", "NVIDIA GeForce RTX 3060 Ti", 8, "8.6", 38, _torch("2.11.0+cu130", 7833), 8192),
    _card(_HOME, "rtx-3070", "NVIDIA GeForce RTX 3070", 8, "8.6", 46, _torch("2.10.0+cu128", 7842), 8192),
    _card(
        _HOME,
        "rtx-3070-ti",
        "NVIDIA GeForce RTX 3070 Ti",
        8,
        "8.6",
        48,
        _printed("ggml, in whole MiB", 7_833 * MIB),
        8192,
    ),
    _card(
        _HOME, "rtx-3080-10g", "NVIDIA GeForce RTX 3080", 10, "8.6", 68, _torch("2.6.0+cu124", 10002), 10240, **_GA102S
    ),
    _card(
        _HOME,
        "rtx-3080-12g",
        "NVIDIA GeForce RTX 3080",
        12,
        "8.6",
        70,
        _torch("(version not told)", 12117),
        12288,
        **_GA102S,
    ),
    _card(
        _HOME,
        "rtx-3080-ti",
        "NVIDIA GeForce RTX 3080 Ti",
        12,
        "8.6",
        80,
        _printed("torch, as 11910.625 MiB by YOLOv7", 12_489_195_520),
        12288,
        **_GA102S,
    ),
    _card(
        _HOME,
        "rtx-3090",
        "NVIDIA GeForce RTX 3090",
        24,
        "8.6",
        82,
        _torch("2.13.0+cu130", 24124),
        24576,
        eager_context=_RTX_3090_EAGER,
    ),
    _card(
        _HOME,
        "rtx-3090-ti",
        "NVIDIA GeForce RTX 3090 Ti",
        24,
        "8.6",
        84,
        _torch("2.9.1+cu128", 24110),
        24564,
        **_GA102S,
    ),
    _card(_HOME, "rtx-4060", "NVIDIA GeForce RTX 4060", 8, "8.9", 24, _torch("2.5.1+cu121", 7807), 8188),
    _card(_HOME, "rtx-4060-ti-8g", "NVIDIA GeForce RTX 4060 Ti", 8, "8.9", 34, _torch("2.12.1+cu130", 7806), 8188),
    _card(
        _HOME,
        "rtx-4060-ti-16g",
        "NVIDIA GeForce RTX 4060 Ti",
        16,
        "8.9",
        34,
        _printed("llama.cpp, in whole MiB", 15_944 * MIB),
        16380,
    ),
    _card(_HOME, "rtx-4070", "NVIDIA GeForce RTX 4070", 12, "8.9", 46, _RTX_4070, 12282),
    _card(_HOME, "rtx-4070-super", "NVIDIA GeForce RTX 4070 SUPER", 12, "8.9", 56, _like("RTX 4070", _RTX_4070), 12282),
    _card(_HOME, "rtx-4070-ti", "NVIDIA GeForce RTX 4070 Ti", 12, "8.9", 60, _torch("2.1.1+cu121", 12007), 12282),
    _card(
        _HOME,
        "rtx-4070-ti-super",
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        16,
        "8.9",
        66,
        _torch("2.0.0+cu117", 16069),
        16376,
    ),
    _card(_HOME, "rtx-4080", "NVIDIA GeForce RTX 4080", 16, "8.9", 76, _like("RTX 4080 SUPER", _RTX_4080_SUPER), 16376),
    _card(_HOME, "rtx-4080-super", "NVIDIA GeForce RTX 4080 SUPER", 16, "8.9", 80, _RTX_4080_SUPER, 16376),
    _card(
        _HOME, "rtx-4090", "NVIDIA GeForce RTX 4090", 24, "8.9", 128, _query("13.0", 25_250_627_584), 24564, **_AD102S
    ),
    _card(_HOME, "rtx-5060-ti-8g", "NVIDIA GeForce RTX 5060 Ti", 8, "12.0", 36, _smi(8151), 8151),
    _card(_HOME, "rtx-5060-ti-16g", "NVIDIA GeForce RTX 5060 Ti", 16, "12.0", 36, _torch("2.12.0+cu130", 15848), 16311),
    _card(_HOME, "rtx-5070", "NVIDIA GeForce RTX 5070", 12, "12.0", 48, _smi(12227), 12227),
    _card(
        _HOME,
        "rtx-5070-ti",
        "NVIDIA GeForce RTX 5070 Ti",
        16,
        "12.0",
        70,
        _printed("llama.cpp, in whole MiB", 15_842 * MIB),
        16303,
    ),
    _card(_HOME, "rtx-5080", "NVIDIA GeForce RTX 5080", 16, "12.0", 84, _torch("(version not told)", 15840), 16303),
    _card(_HOME, "rtx-5090", "NVIDIA GeForce RTX 5090", 32, "12.0", 170, _query("13.0", 33_660_534_784), 32607),
)
