"""`memtui estimate` as it is called: the table at every width, JSON, and one line for what cannot be."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from memtui.analysis.estimate.build import estimate
from memtui.analysis.estimate.device import Device
from memtui.analysis.estimate.levers import levers
from memtui.analysis.estimate.named import CONFIGS, find_named
from memtui.analysis.estimate.optimizers import RECIPES
from memtui.analysis.estimate.precision import PRECISIONS
from memtui.analysis.estimate.request import Request
from memtui.analysis.estimate.table import lines
from memtui.cli import main

CASES = [
    ["--params", "7B", "--optimizer", "adamw", "--precision", "bf16-mixed", "--gpu", "80GiB"],
    [
        "gpt2-medium",
        "--batch",
        "8",
        "--seq",
        "1024",
        "--flash",
        "--checkpointing",
        "full",
        "--zero",
        "2",
        "--gpus",
        "8",
    ],
    ["mixtral-8x7b", "--batch", "1", "--seq", "4096", "--precision", "amp-bf16", "--fsdp", "64", "--gpu", "80GiB"],
    ["llama-3-8b", "--lora", "16", "--lora-targets", "q,k,v,o", "--batch", "4", "--seq", "2048", "--precision", "bf16"],
    ["resnet-50", "--batch", "256", "--optimizer", "momentum", "--context", "500MiB", "--gpu", "16GiB"],
    ["bert-large", "--batch", "4", "--seq", "512", "--eager", "--optimizer", "adafactor", "--accumulation", "2"],
    ["vit-l-16", "--batch", "64", "--freeze", "blocks=12", "--no-dropout", "--implementation", "fused"],
]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["estimate", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status, out, err = run(capsys, *words, "--json")
    assert (status in (0, 3, 4), err) == (True, "")
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("words", CASES)
def test_a_table_says_what_it_is_and_where_its_figures_are_from(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """An estimate with its known error, one phase marked as the peak, a source for every term, no colours."""
    status, out, err = run(capsys, *words)

    assert (status in (0, 3, 4), err) == (True, "")
    assert out.startswith("estimate  ")
    assert re.search(r"On \d+ published peaks the error of such estimates was \d+ %", re.sub(r"\s+", " ", out))
    assert len(re.findall(r"^> (end|backward|optimizer)", out, re.MULTILINE)) == 1
    assert re.search(r"^peak +(≥ )?[\d.]+ GiB \(estimate\)", out, re.MULTILINE)
    assert "\x1b" not in out
    assert all(len(line) <= 120 for line in out.splitlines())


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("name", ["gpt2", "llama-3.1-405b", "mixtral-8x7b"])
@pytest.mark.parametrize("recipe", ["adamw", "shampoo"])
def test_no_line_is_wider_than_the_terminal(width: int, name: str, recipe: str) -> None:
    """And the narrow table numbers its sources, the wide one writes them out."""
    precision = PRECISIONS["amp-bf16"]
    model = find_named(name)
    request = Request(model, 0, 8, 1024, precision, optimizer=RECIPES[recipe], zero=2, gpus=8)
    device = Device("a-card", 24 * 2**30, 2**29, "cited: a long sentence of where somebody has read this figure once")

    table = list(lines(estimate(request), width, device, levers(request)))

    assert max(map(len, table)) <= width
    assert any(line.startswith("sources  [1]") for line in table) is (width < 120)
    assert table == [line.rstrip() for line in table]


def test_json_says_the_same_in_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """Terms add up to phases; the peak is one of them; what is unknown is null."""
    found = document(capsys, "gpt2-medium", "--batch", "8", "--seq", "1024", "--gpu", "80GiB")

    assert found["kind"] == "estimate"
    assert found["parameters"] == found["trained_parameters"] == 354_823_168
    assert found["known_error"]["rows"] > 30
    for phase in found["phases"]:
        alive = [term["bytes"] for term in found["terms"] if phase["name"] in term["phases"]]
        assert sum(alive) == phase["bytes"] == sum(phase["bytes_by_category"].values())
    assert found["peak"]["bytes"] == max(phase["bytes"] for phase in found["phases"])
    assert found["fit"]["spare_bytes"] == 80 * 2**30 - found["fit"]["needed_bytes"]
    assert found["outside_pytorch_bytes"] is None
    assert document(capsys, "gpt2")["peak"]["lower_bound"] is True
    assert document(capsys, "gpt2")["fit"] is None
    assert document(capsys, "gpt2", "--context", "1GiB")["outside_pytorch_bytes"] == 2**30


def test_a_config_is_read_from_its_file_or_its_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    """With the name of the folder; a file goes before an architecture of the same name."""
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS["llama-3.2-1b"]))

    by_file = document(capsys, str(folder / "config.json"))
    by_folder = document(capsys, str(folder))

    assert by_file["parameters"] == by_folder["parameters"] == 1_235_814_400
    assert by_file["title"] == "my-llama: 1,235,814,400 parameters"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["gpt2", "--batch", "1", "--seq", "64"], 0),
        (["gpt2", "--batch", "1", "--seq", "64", "--gpu", "80GiB"], 0),
        (["--params", "7B", "--gpu", "24GiB"], 3),
        (["gpt2", "--gpu", "80GiB"], 4),
    ],
)
def test_the_status_says_whether_it_fits(capsys: pytest.CaptureFixture[str], words: list[str], status: int) -> None:
    """As `memtui plan` has it: 0, 3 where it does not, 4 where it cannot be told; 0 where nobody asked."""
    assert run(capsys, *words)[0] == status


def test_a_card_brings_its_memory_and_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    """By the table of cards; a context that is given goes before the card's own."""
    card = document(capsys, "gpt2", "--gpu", "a100-80g")
    given = document(capsys, "gpt2", "--gpu", "a100-80g", "--context", "1GiB")

    assert 78 * 2**30 < card["device_bytes"] <= 80 * 2**30
    assert 0 < card["outside_pytorch_bytes"] != 2**30
    assert given["outside_pytorch_bytes"] == 2**30
    assert document(capsys, "gpt2", "--gpu", "4090")["device_bytes"] > 20 * 2**30


def test_sharing_by_fsdp_is_zero_3(capsys: pytest.CaptureFixture[str]) -> None:
    """The same figures by both names."""
    words = ("gpt2", "--batch", "1", "--seq", "8")
    one = document(capsys, *words, "--fsdp", "4")

    assert one == document(capsys, *words, "--zero", "3", "--gpus", "4")


def test_the_architectures_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Every one of the list can be asked for."""
    status, out, _ = run(capsys, "--list")

    assert status == 0
    assert {"gpt2", "llama-3-8b", "resnet-50"} <= set(out.split())
    assert all(run(capsys, name)[0] == 0 for name in out.split())


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "name a model"),
        (["gpt2", "--params", "7B"], "name a model"),
        (["no-such-model"], "no architecture or file 'no-such-model'"),
        (["a\x1b[31mb"], "'ab'"),
        (["gpt2", "--gpu", "much"], "--gpu"),
        (["gpt2", "--gpu", "no-such-card"], "there is no GPU 'no-such-card'"),
        (["gpt2", "--gpu", "1.2.3GiB"], "--gpu"),
        (["gpt2", "--zero", "2"], "--gpus"),
        (["gpt2", "--fsdp", "4", "--gpus", "2"], "leave --gpus out"),
        (["gpt2", "--seq", "1025", "--batch", "1"], "1,024 positions"),
    ],
)
def test_what_cannot_be_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], words: list[str], part: str
) -> None:
    """Without a table in front."""
    status, out, err = run(capsys, *words)

    assert (status, out) == (2, "")
    assert err.startswith("memtui: ")
    assert err.count("\n") == 1
    assert part in err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--params", "seven"], "'seven' is no number of parameters"),
        (["--params", "0"], "no number of parameters"),
        (["--params", "9e99"], "no number of parameters"),
        (["gpt2", "--batch", "-1"], "--batch"),
        (["gpt2", "--batch", "99999999999999"], "whole number"),
        (["gpt2", "--precision", "fp7"], "no precision 'fp7'"),
        (["gpt2", "--optimizer", "adan"], "no optimizer 'adan'"),
        (["gpt2", "--freeze", "blocks=x"], "whole number"),
        (["gpt2", "--flash", "--eager"], "not allowed with"),
        (["gpt2", "--lora", "8", "--lora-targets", ","], "at least one layer"),
        (["gpt2", "--depth", "3"], "--depth is not known here"),
    ],
)
def test_options_that_cannot_be_read(capsys: pytest.CaptureFixture[str], words: list[str], part: str) -> None:
    """As everywhere in memtui: one line, status 2."""
    with pytest.raises(SystemExit) as ended:
        main(["estimate", *words])
    captured = capsys.readouterr()

    assert ended.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert part in captured.err


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "one JSON object"),
        ('{"model_type": "t5"}', "give --params instead"),
        ('{"model_type": "llama", "hidden_size": -1}', "hidden_size"),
        ("\x00\xff", "no JSON"),
        (" " * 4_000_001, "too large"),
    ],
)
def test_files_that_are_no_configuration(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, content: str, part: str
) -> None:
    """One line that names the file, and status 1."""
    path = tmp_path / "config.json"
    path.write_text(content, encoding="latin-1")

    status, out, err = run(capsys, str(path))

    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "config.json" in err
    assert part in err


def test_the_estimate_needs_neither_torch_nor_the_interface() -> None:
    """Nor does memtui's own help load it."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "from memtui.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not any('estimate' in name for name in sys.modules), 'loaded for a help text'\n"
        "assert main(['estimate', 'gpt2']) == 0\n"
        "assert 'textual' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
