"""``arsenai analyse --discover`` and the report, on a design that was executed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from support.factors import function_design

from palaestrai_mosaik.arsenai.design import from_mapping, loads
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import DocumentError

FACTORS = {f"x{i}": {"low": 0.0, "high": 1.0} for i in (1, 2)}
OUTCOMES = {"y": {"of": "reward.f.y", "better": "lower"}}
TABLES = {"discovery-boxes.csv", "discovery-limits.csv", "discovery-trajectory.csv", "discovery-settings.csv"}


def document(**analysis: Any) -> dict[str, Any]:
    """The sum of two numbers from 0 to 1."""
    told = {"params": {"x3": 0.0}, "outcomes": OUTCOMES}
    return function_design(
        "linear", FACTORS, {"name": "lhs", "n": 80}, **told, analysis={"resamples": 4, **analysis}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("discovery")
    made = Design.from_mapping(document(discover=["y > 1.3"])).generate(place / "folder")
    run_folder(made, settings=Settings(executor="inline"))
    return made.path


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="the extra discovery is not installed")
    asked = ["analyse", str(folder), "--discover", "y > 1.3", "-o", str(tmp_path)]
    assert main(asked) == 0
    told = capsys.readouterr().out
    assert "y > 1.3 holds in " in told and "PRIM box 1: " in told and "CART box 1: " in told
    # nothing else, unless methods are named
    assert "by pawn" not in told
    assert {path.name for path in tmp_path.iterdir()} == {*TABLES, "outcomes.csv", "discovery-1.png"}
    boxes = pd.read_csv(tmp_path / "discovery-boxes.csv")
    assert set(boxes["method"]) == {"PRIM", "CART"} and (boxes["density"] > 0.3).all()
    settings = pd.read_csv(tmp_path / "discovery-settings.csv")
    assert len(settings) == 80 and set(settings["share"]) == {0, 1}
    first = {name: (tmp_path / name).read_bytes() for name in TABLES}
    assert main(asked) == 0
    assert {name: (tmp_path / name).read_bytes() for name in TABLES} == first
    capsys.readouterr()
    assert main([*asked, "--discover", "y > 0.9", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [one["condition"] for one in data["discoveries"]] == ["y > 1.3", "y > 0.9"]
    assert data["discoveries"][0]["boxes"][0]["limits"][0]["quasi_p"] <= 0.05
    assert data["methods"] == []
    # no picture is left of a condition that nobody asks for any more
    assert (tmp_path / "discovery-2.png").exists()
    assert main(asked) == 0 and not (tmp_path / "discovery-2.png").exists()


def test_the_design_asks_and_the_report_shows_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="the extra discovery is not installed")
    assert main(["analyse", str(folder), "-o", str(tmp_path / "analysis")]) == 0
    told = capsys.readouterr().out
    assert "y by pawn" in told and "PRIM box 1: " in told
    assert main(["report", str(folder), "-o", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "Where conditions hold" in page and "y &gt; 1.3" in page
    facts = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert {f"discovery-0-{name}" for name in ("boxes", "limits", "trajectory", "settings")} <= set(
        facts["tables"]
    )
    files = {path.name for path in (tmp_path / "report").iterdir()}
    assert "discovery-0-boxes.csv" in files


def test_nothing_found_is_an_answer(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="the extra discovery is not installed")
    # the third decimal depends on no factor
    noise = "1000 * y % 10 > 6"
    assert main(["analyse", str(folder), "-o", str(tmp_path), "--discover", noise]) == 0
    told = capsys.readouterr().out
    assert (
        "nothing found: no box in which " in told and "CART finds no box" in told and " box 1: " not in told
    )
    assert not (tmp_path / "discovery-1.png").exists()
    assert main(["analyse", str(folder), "-o", str(tmp_path), "--discover", noise, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["discoveries"]
    assert one["boxes"] == [] and one["nothing_found"].startswith("nothing found")


def test_what_tells_nothing_fails(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["analyse", str(folder), "-o", str(tmp_path), "--discover"]
    assert main([*asked, "y > 3"]) == 1
    told = capsys.readouterr()
    assert "warning: y > 3: the condition holds in no run of 80 (y goes from " in told.err
    assert len(pd.read_csv(tmp_path / "discovery-boxes.csv")) == 0
    assert main([*asked, "z > 3"]) == 2
    assert "names 'z', which is no outcome; outcomes: y, status" in capsys.readouterr().err


def test_without_the_extra_the_message_names_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.tree", None)
    assert main(["analyse", str(folder), "--discover", "y > 1.3", "-o", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "CART needs scikit-learn" in told and "[discovery]" in told
    # the report says so and has all else
    assert main(["report", str(folder), "-o", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "no boxes: CART needs scikit-learn" in page and "Outcome y" in page


def test_the_design_checks_its_conditions() -> None:
    assert from_mapping(document(discover="y > 1")).analysis.discover == ("y > 1",)
    for wrong, message in (
        ("yy > 1", "did you mean 'y'?"),
        ("1 > 0", "names no outcome"),
        (["y >"], "is not understood"),
        (3, "discover (conditions over outcomes) must be a list, found the number 3"),
    ):
        with pytest.raises(DocumentError) as caught:
            from_mapping(document(discover=wrong))
        assert message in str(caught.value)
    # without outcomes of its own, a design has those of its runs
    spec = from_mapping({**document(discover=["objective < 0"]), "outcomes": None})
    assert spec.analysis.discover == ("objective < 0",)


def test_the_hash_of_a_design_without_conditions_is_what_it_was() -> None:
    spec = from_mapping(document())
    assert "discover" not in spec.resolved["analysis"]
    asks = from_mapping(document(discover=["y > 1"]))
    assert asks.resolved["analysis"]["discover"] == ["y > 1"] and asks.hash != spec.hash
    again = loads(yaml.safe_dump(dict(asks.resolved)))
    assert again.hash == asks.hash
