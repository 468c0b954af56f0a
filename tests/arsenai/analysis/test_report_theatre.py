"""``arsenai report --theatre``: single runs as files beside the report, and the links that lead there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.cli.arsenai import main
from tests.support.documents import walks

DESIGN = walks(2, 1, 3)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("walks")
    (place / "design.yml").write_text(DESIGN)
    folder = place / "walks"
    assert main(["generate", str(place / "design.yml"), "-o", str(folder), "--quiet"]) == 0
    assert main(["run", str(folder), "--rows", "0-1", "--executor", "inline", "--quiet"]) == 0
    shutil.copytree(folder, place / "half")
    assert main(["run", str(folder), "--executor", "inline", "--quiet"]) == 0
    return folder


def test_the_best_and_the_worst_run_are_linked(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report"
    assert main(["report", str(done), "-o", str(report), "--theatre", "best,worst,best", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    outcomes = Results(done).outcomes().set_index("run")["length"]
    best, worst = outcomes.idxmin(), outcomes.idxmax()
    assert [Path(one).stem for one in told["theatre"]] == [best, worst]
    page = (report / "index.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="(theatre/[^"]+)">theatre</a>', page)
    assert set(links) == {f"theatre/{best}.html", f"theatre/{worst}.html"}
    for link in links:
        assert (report / link).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    # once more, with a run by its name: the others stay
    (other,) = set(outcomes.index) - {best, worst}
    assert main(["report", str(done), "-o", str(report), "--theatre", str(other)]) == 0
    assert f"{other}.html" in capsys.readouterr().out
    assert len(list((report / "theatre").iterdir())) == 3


def test_runs_that_cannot_be_shown(done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(folder: Path, wanted: str, *more: str) -> str:
        assert main(["report", str(folder), "--theatre", wanted, *more]) == 2
        return capsys.readouterr().err

    assert "the design has no run 'bst' (did you mean 'best'?)" in said(done, "bst")
    half = done.parent / "half"
    assert "the run 'walks-2-r0' has not finished: it is missing" in said(half, "walks-2-r0")
    (tmp_path / "mine.txt").write_text("not a report")
    assert "holds no report" in said(done, "best", "-o", str(tmp_path))
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


def test_without_a_direction_nothing_is_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "design.yml").write_text(DESIGN.replace(", better: lower", ""))
    folder = tmp_path / "walks"
    assert main(["generate", str(tmp_path / "design.yml"), "-o", str(folder), "--quiet"]) == 0
    assert main(["run", str(folder), "--executor", "inline", "--quiet"]) == 0
    assert main(["report", str(folder), "--theatre", "best"]) == 2
    assert "says which direction is better" in capsys.readouterr().err
    assert main(["report", str(folder), "--theatre", "best,"]) == 2
    assert "has an empty name" in capsys.readouterr().err
