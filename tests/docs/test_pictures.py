"""The pictures of the documentation show what their script draws today."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pandapower", reason="the documents need the extra 'grid'")

from matplotlib.figure import Figure

from tests.support import pictures, screenshots
from tests.support.pages import ROOT

#: bytes of all pictures together, besides screenshots
LARGEST = 500_000


def test_each_picture_is_there_is_shown_and_is_small() -> None:
    drawn = {f"{name}.png" for name in pictures.NAMES}
    taken = {f"{name}.png" for name in screenshots.SHOTS}
    files = [
        file
        for file in pictures.FOLDER.iterdir()
        if file.suffix in (".png", ".svg") and file.name not in taken
    ]
    assert {file.name for file in files if file.suffix == ".png"} == drawn
    assert sum(file.stat().st_size for file in files) < LARGEST
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    assert [file.name for file in files if f"(_static/{file.name})" not in pages] == []


def test_the_first_picture_shows_what_its_run_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pictures.main(["duel-voltages", "--output", str(tmp_path)]) == 0
    (file,) = tmp_path.iterdir()
    assert capsys.readouterr().out == f"{file}\n"
    mark = pictures.fingerprint_of(file)
    assert mark is not None
    assert mark == pictures.fingerprint_of(pictures.FOLDER / file.name), "make docs draws it; then commit it"


def test_pictures_of_single_runs_show_what_these_give(tmp_path: Path) -> None:
    # pictures of whole designs take minutes, so only `make docs` draws them
    assert pictures.main([*pictures.PICTURES, "--output", str(tmp_path)]) == 0
    for name in pictures.PICTURES:
        found, kept = (
            pictures.fingerprint_of(folder / f"{name}.png") for folder in (tmp_path, pictures.FOLDER)
        )
        assert found == kept is not None, f"{name}: make docs draws it; then commit it"


def _figure(*values: float, title: str = "a") -> Figure:
    figure = Figure()
    figure.suptitle(title)
    figure.subplots().plot(values)
    return figure


def test_a_picture_that_shows_the_same_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "a.png"
    assert pictures.save(_figure(1, 2), file)
    before = file.read_bytes()
    assert not pictures.save(_figure(1, 2.00001), file)
    assert pictures.save(_figure(1, 2), file, redraw=True)
    assert file.read_bytes() == before, "the same figure gives other bytes"
    for other in (_figure(1, 3), _figure(1, 3, title="b")):
        assert pictures.save(other, file)
        assert file.read_bytes() != before


def test_an_unknown_picture_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pictures.main(["duet"])
    assert "no picture 'duet'; there are duel-voltages" in capsys.readouterr().err
