"""The adaptive sampler: a planted box is found with half of the runs, and the same results make the same folder."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from arsenai.search.growing import box_design, contents, executed, written

from palaestrai_mosaik.arsenai.analysis import Results, discover_design
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.search.rounds import advance, decide
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.store.store import StoreLocation

pytest.importorskip("sklearn", reason="the extra discovery is not installed")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("box"))
        yield executed(box_design()).absolute()


def runs_in(store):
    with StoreLocation(str(store)).open() as opened:
        return len(opened.runs())


def test_a_planted_box_is_found(found):
    # a Latin hypercube of these five factors needs 140 rows (tests/benchmarks/adaptive.py)
    results = Results(found)
    (discovery,) = discover_design(results)
    assert discovery.condition == "y1 > 0.6 and y2 < 0.5 and y3 > 0.5"
    box = next(one for one in discovery.boxes if one.method == "PRIM")
    assert {results.spec.axes[place].name for place in box.box.limits} == {"f1", "f2", "f3"}
    points = np.random.default_rng(0).random((20_000, 5))
    names = [axis.name for axis in results.spec.axes]
    x = {name: points[:, names.index(name)] for name in ("f1", "f2", "f3")}
    true = (x["f1"] > 0.6) & (x["f2"] < 0.5) & (x["f3"] > 0.5)
    inside = np.ones(len(points), bool)
    for place, (low, high) in box.box.limits.items():
        inside &= (points[:, place] >= low) & (points[:, place] <= high)
    assert inside[true].mean() >= 0.9 and true[inside].mean() >= 0.9
    # what is said of the box holds at points of the design's distribution, and is rather too little than too much
    for name, value in (("coverage", inside[true].mean()), ("density", true[inside].mean())):
        assert box.figures[f"{name}_low"] <= value <= box.figures[f"{name}_high"]
        assert (
            box.figures[f"{name}_low"] <= box.figures[name] <= min(value + 0.1, box.figures[f"{name}_high"])
        )
    assert box.figures["mass"] == pytest.approx(inside.mean(), abs=0.03)
    assert any("points of the design's distribution" in note for note in discovery.notes)


def test_rows_lie_where_it_is_uncertain(found):
    folder = DesignFolder.open(found)
    assert folder.rounds is not None and folder.rounds.number >= 3
    unit = folder.sample.unit
    names = [axis.name for axis in folder.spec.axes]
    limits = {"f1": 0.6, "f2": 0.5, "f3": 0.5}
    near = np.min([np.abs(unit[:, names.index(name)] - limit) for name, limit in limits.items()], axis=0)
    assert np.median(near[20:]) < np.median(near[:20])
    assert len(np.unique(unit, axis=0)) == len(unit)


def test_the_same_results_make_the_same_folder(found):
    # into an empty folder, with the store of the first: nothing is executed
    before = runs_in(found / "results")
    again = executed(box_design(), "again", "--store", str(found / "results"))
    assert contents(again) == contents(found)
    assert runs_in(found / "results") == before


def test_the_order_in_which_runs_end_makes_no_difference(found):
    other = executed(box_design(), "other", "--jobs", "2", "--executor", "local")
    assert contents(other) == contents(found)


def test_generating_again_keeps_the_rounds(found, capsys):
    copy = Path(shutil.copytree(found, "copy"))
    before = contents(copy)
    assert main(["generate", written(box_design()), "-o", "copy", "--check", "none"]) == 0
    assert "unchanged" in capsys.readouterr().out
    assert contents(copy) == before
    # a document that was lost comes back
    next((copy / "runs").glob("*-99-r0.yml"), next((copy / "runs").iterdir())).unlink()
    assert main(["generate", "d.yml", "-o", "copy", "--check", "none", "--force"]) == 0
    assert contents(copy) == before


def test_a_larger_limit_goes_on(capsys):
    design = box_design()
    design["sampler"]["until"] = {"max_n": 40}
    folder = executed(design)
    rounds = DesignFolder.open(folder).rounds
    assert [one["rows"] for one in rounds.measured] == [20, 40]
    assert rounds.ended == "the design has 40 rows (max_n)"
    first = (folder / "unit_sample.csv").read_text().splitlines()
    design["sampler"]["until"] = {"max_n": 60}
    assert main(["generate", written(design), "-o", "f", "--check", "none"]) == 0
    assert "updated" in capsys.readouterr().out
    assert DesignFolder.open(folder).rounds.ended == ""
    assert main(["run", "f", "--executor", "inline"]) == 0
    out = capsys.readouterr().out
    assert "round 2: 40 rows, the condition holds in" in out and "20 rows more" in out
    assert "no more rows: the design has 60 rows (max_n)" in out
    assert (folder / "unit_sample.csv").read_text().splitlines()[: len(first)] == first


def test_rows_are_added_only_when_all_runs_have_ended():
    assert main(["generate", written(box_design()), "-o", "f", "--check", "none", "--quiet"]) == 0
    folder = DesignFolder.open("f")
    assert advance(folder) is folder
    assert main(["run", "f", "--rows", "0-9", "--executor", "inline", "--quiet"]) == 0
    assert advance(folder) is folder and len(DesignFolder.open("f").runs) == 20
    assert main(["run", "f", "--rows", "10-19", "--executor", "inline", "--quiet"]) == 0
    assert len(DesignFolder.open("f").runs) == 20
    assert len(advance(folder).runs) == 40


def test_runs_that_fail_are_lost_to_the_decision(capsys):
    design = box_design(failures=0.2)
    design["seeds"] = {"policy": "independent"}
    design["sampler"]["until"] = {"max_n": 40}
    folder = executed(design, code=1)
    measured = DesignFolder.open(folder).rounds.measured
    assert [one["rows"] for one in measured] == [20, 40]
    frame = Results(folder).outcomes()
    failed = int((frame["status"] == "failed").sum())
    assert failed and measured[-1]["runs"] == 40 - failed and measured[-1]["lost"] == failed
    capsys.readouterr()
    assert main(["status", str(folder)]) == 0
    holds = measured[-1]["holds"]
    line = f"40 rows, the condition holds in {holds} of {40 - failed} runs ({failed} more have no value)"
    assert line in capsys.readouterr().out


def test_conditions_on_the_status_count_failed_runs():
    design = box_design(failures=0.3)
    design["seeds"] = {"policy": "independent"}
    design["sampler"] |= {"condition": "status == 'failed'", "until": {"max_n": 40}}
    folder = executed(design, code=1)
    assert DesignFolder.open(folder).rounds.measured[-1]["runs"] == 40


def test_where_every_combination_is_a_row_it_ends():
    design = box_design(extra=0)
    design["factors"] = {
        "f1": {"path": design["factors"]["f1"]["path"], "levels": [0.1, 0.5, 0.9]},
        "f2": {"path": design["factors"]["f2"]["path"], "type": "int", "low": 0, "high": 4},
    }
    design["sampler"] = {"name": "adaptive", "n": 10, "batch": 10, "condition": "y1 > 0.6 and y2 > 1"}
    folder = DesignFolder.open(executed(design))
    assert folder.rounds.ended == "no other combination of the factors is left"
    values = {tuple(row.values()) for row in folder.values()}
    assert len(values) == 15


def test_constraints_and_inactive_factors():
    design = box_design()
    design["constraints"] = ["f1 + f2 <= 1.4"]
    design["factors"]["x2_extra"]["when"] = "f3 > 0.5"
    design["sampler"]["until"] = {"max_n": 40}
    folder = DesignFolder.open(executed(design))
    assert len(folder.runs) == 38 or len(folder.runs) == 40
    assert all(row["f1"] + row["f2"] <= 1.4 for row in folder.values())
    assert decide(Results(folder)).ended.endswith("(max_n)")


def test_the_condition_of_the_analysis_is_the_default():
    design = box_design()
    del design["sampler"]["condition"]
    design["analysis"]["discover"] = "y1 > 0.6"
    design["sampler"]["until"] = {"max_n": 40}
    folder = DesignFolder.open(executed(design))
    with open(folder.path / "design.csv", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 40


def test_rows_that_were_edited_are_refused(found, capsys):
    copy = Path(shutil.copytree(found, "copy"))
    lines = (copy / "unit_sample.csv").read_text().splitlines()
    (copy / "unit_sample.csv").write_text("\n".join([*lines[:-1], lines[-1].replace("0.", "0.0")]) + "\n")
    before = contents(copy)
    assert main(["generate", written(box_design()), "-o", "copy", "--force", "--check", "none"]) == 2
    assert "was edited" in capsys.readouterr().err
    with pytest.raises(DocumentError, match="edited since it was generated"):
        advance(DesignFolder.open(copy))
    assert contents(copy) == before


def test_rounds_that_were_edited_count_for_nothing(found):
    copy = Path(shutil.copytree(found, "copy"))
    manifest = json.loads((copy / "manifest.json").read_text())
    assert DesignFolder.open(copy).rounds.lines()
    for strange in ({"rows": "5"}, {"rows": 5, "holds": "x"}, [], 3):
        (copy / "manifest.json").write_text(json.dumps(manifest | {"rounds": [strange]}))
        assert DesignFolder.open(copy).rounds is None


def test_commands_tell_of_rounds(found, capsys):
    assert main(["plan", written(box_design()), "--check", "none"]) == 0
    out = capsys.readouterr().out
    assert "20 rows more near the boundary of y1 > 0.6" in out and "at most 100 rows (100 runs)" in out
    assert main(["status", str(found)]) == 0
    out = capsys.readouterr().out
    assert "round 1: 20 rows, the condition holds in" in out and "no more rows: " in out
    assert main(["status", str(found), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["rounds"][0]["rows"] == 20 and data["rounds_ended"]
    assert main(["run", str(found), "--executor", "inline"]) == 0
    assert "no more rows: " in capsys.readouterr().out
    assert main(["report", str(found), "-o", "report"]) == 0
    assert "the rows were added in" in Path("report/index.html").read_text()


def test_a_missing_extra_is_reported_before_anything_runs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn.tree", None)
    assert main(["generate", written(box_design()), "-o", "f", "--check", "none", "--quiet"]) == 0
    assert main(["run", "f", "--executor", "inline"]) == 2
    assert "[discovery]" in capsys.readouterr().err
    assert not Path("f/results").exists()
