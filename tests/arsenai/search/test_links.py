"""Links in the folder of a design or search: nothing behind them is read, written or deleted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from arsenai.search.growing import ishigami_design
from arsenai.search.searches import search_design, told, tuned, written

from palaestrai_mosaik.arsenai.design.folder import DesignFolder, Rounds
from palaestrai_mosaik.arsenai.design.rows import SampledRows
from palaestrai_mosaik.arsenai.design.writer import grow_folder
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import DocumentError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links are POSIX's")

INLINE = ("--executor", "inline", "--quiet")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def confirmed(runs):
    return search_design(search={"sampler": "random", "budget": {"runs": runs}, "confirm": 2})


def test_a_search_confirms_in_its_own_folder_only(capsys):
    """Another design was replaced through a link in the place of ``confirm``, and its runs were deleted."""
    tuned(confirmed(2))
    Path("f/confirm").rename("theirs")
    assert main(["run", "theirs", *INLINE]) == 0
    Path("f/confirm").symlink_to(Path("theirs").absolute())
    before = contents("theirs")
    name = written(confirmed(4))
    capsys.readouterr()
    for command in (
        ("tune", name, "-o", "f", *INLINE),
        ("resume", "f", *INLINE),
        ("run", "f/confirm", *INLINE),
        ("status", "f"),
        ("status", "f/confirm"),
        ("analyse", "f"),
        ("report", "f"),
    ):
        assert main(list(command)) in (1, 2), command
        said = capsys.readouterr().err
        assert "confirm is a link, and links below" in said, (command, said)
        assert "Traceback" not in said
        assert contents("theirs") == before, command
    # a folder that the user names may be a link
    Path("f/confirm").unlink()
    Path("f").rename("elsewhere")
    Path("f").symlink_to("elsewhere")
    assert len(tuned(confirmed(4))) == 4
    assert told("elsewhere") == told()
    assert Path("elsewhere/confirm/manifest.json").is_file()


def test_a_design_grows_in_its_own_folder_only():
    assert main(["generate", written(ishigami_design()), "-o", "s/f", "--quiet"]) == 0
    files.add_root("s")
    folder = DesignFolder.open("s/f")
    rows = SampledRows(folder.sample, folder.manifest["counts"]["drawn"])
    shutil.move("s/f", "theirs")
    Path("s/f").symlink_to(Path("theirs").absolute())
    before = contents("theirs")
    assert folder.rounds is not None
    for noted in (Rounds(folder.rounds.measured, "enough"), folder.rounds):
        with pytest.raises(DocumentError, match=r"f is a link, and links below .* are not followed"):
            grow_folder(folder, rows, noted)
    assert contents("theirs") == before
    with pytest.raises(DocumentError, match="f is a link"):
        DesignFolder.open("s/f")
