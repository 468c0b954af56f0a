"""Folders that are links in the place of folders of a design or a store: the names in their targets stay unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submissions
from palaestrai_mosaik.arsenai.execution.status import load_run_states
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core import files
from palaestrai_mosaik.store.store import StoreLocation
from tests.support.documents import walks

DESIGN = walks(2, 1, outcomes="")
SECRET = "walks-secret-r7"


@pytest.fixture
def design(tmp_path: Path) -> Path:
    (tmp_path / "design.yml").write_text(DESIGN)
    folder = tmp_path / "walks"
    assert main(["generate", str(tmp_path / "design.yml"), "-o", str(folder), "--quiet"]) == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for ending in ("yml", "json", "running", "log"):
        (elsewhere / f"{SECRET}.{ending}").write_text(json.dumps({}))
    (elsewhere / "7.json").write_text(json.dumps({}))
    return folder


def linked(design: Path, name: str) -> Path:
    """Put a link to the folder ``elsewhere`` in the place of a folder of the design."""
    place = design / name
    if place.exists():
        place.rename(design.parent / f"former-{name}")
    place.symlink_to(design.parent / "elsewhere")
    return place


def test_names_are_not_listed_through_a_link_below_a_root(tmp_path: Path) -> None:
    root = files.add_root(tmp_path / "root")
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "a").touch()
    assert files.list_names(root / "folder") == ["a"]
    assert sorted(files.list_names(root)) == ["folder"]
    (root / "link").symlink_to(tmp_path)
    for path in (root / "link", root / "link" / "root"):
        with pytest.raises(OSError, match="link is a link, and links below") as refused:
            files.list_names(path)
        assert refused.value.filename == str(path)


def test_documents_of_another_folder_are_not_named(design: Path, capsys: pytest.CaptureFixture[str]) -> None:
    linked(design, "runs")
    assert main(["run", str(design), "--executor", "inline"]) != 0
    printed = "".join(capsys.readouterr())
    assert "runs is a link" in printed and SECRET not in printed


def test_jobs_of_another_folder_are_not_looked_for(design: Path) -> None:
    linked(design, "jobs")
    with pytest.raises(OSError, match="jobs is a link") as refused:
        load_run_states(DesignFolder.open(design), StoreLocation(str(design / "results")), ask=False)
    assert SECRET not in str(refused.value)


def test_submissions_of_another_folder_are_not_counted(design: Path) -> None:
    linked(design, "submissions")
    for ask in (Submissions(design).numbers, Submissions(design).next_number):
        with pytest.raises(OSError, match="submissions is a link"):
            ask()
