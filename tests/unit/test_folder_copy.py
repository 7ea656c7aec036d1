"""What a copy of a working folder holds, and what not."""

from __future__ import annotations

import os
import pathlib

import pytest

from memtui.planning import folder_copy
from memtui.planning.folder_copy import copy_folder


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    made = tmp_path / "project"
    (made / "pkg").mkdir(parents=True)
    (made / "train.py").write_text("train", encoding="ascii")
    (made / "pkg" / "model.py").write_text("model", encoding="ascii")
    os.utime(made / "train.py", (5, 5))
    return made


def test_sources_with_their_times(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "copy"
    done = copy_folder(str(folder), str(copy))
    assert (done.files, done.total_bytes, done.left_out) == (2, 10, [])
    assert (copy / "pkg" / "model.py").read_text(encoding="ascii") == "model"
    assert (copy / "train.py").stat().st_mtime == 5


def test_the_history_is_left_and_an_environment_is_linked(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".venv").mkdir()
    (folder / ".venv" / "pyvenv.cfg").touch()
    copy = tmp_path / "copy"
    done = copy_folder(str(folder), str(copy))
    assert not (copy / ".git").exists()
    assert os.readlink(copy / ".venv") == str(folder / ".venv")
    assert done.linked == [".venv"]


def test_what_is_too_big_is_left_out_and_not_linked(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A checkpoint that is written again would be written through the link."""
    with open(folder / "last.pt", "wb") as file:
        file.truncate(folder_copy.MAX_FILE_BYTES + 1)
    done = copy_folder(str(folder), str(tmp_path / "copy"))
    assert done.left_out == [("last.pt", folder_copy.MAX_FILE_BYTES + 1)]
    assert not os.path.lexists(tmp_path / "copy" / "last.pt")


def test_near_files_come_before_far_ones(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_copy, "MAX_FILES", 1)
    done = copy_folder(str(folder), str(tmp_path / "copy"))
    assert os.listdir(tmp_path / "copy" / "pkg") == []
    assert done.left_out == [("pkg/model.py", 5)]


def test_links_stay_inside_where_they_lead_inside(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (folder / "near").symlink_to("pkg/model.py")
    (folder / "absolute").symlink_to(folder / "train.py")
    (folder / "outward").symlink_to(tmp_path)
    copy = tmp_path / "copy"
    done = copy_folder(str(folder), str(copy))
    assert (copy / "near").resolve() == copy / "pkg" / "model.py"
    assert (copy / "absolute").resolve() == copy / "train.py"
    assert (copy / "outward").resolve() == tmp_path
    assert done.outward == ["outward"]


def test_what_is_named_is_linked(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = copy_folder(str(folder), str(tmp_path / "copy"), linked=["pkg"])
    assert os.readlink(tmp_path / "copy" / "pkg") == str(folder / "pkg")
    assert done.linked == ["pkg"]
