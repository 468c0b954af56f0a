"""*Analyse* in the page of a design, and the commands ``analyse`` and ``compare``: the same figures for each kind of design."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from arsenai.search.searches import search_design, tuned
from support.factors import function_design

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.cli.output import _plain as plain
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import Source

CONTINUOUS = {name: {"low": -3.14, "high": 3.14} for name in ("x1", "x2", "x3")}
LEVELS = {
    "x1": {"levels": [0.5, 1.0, 1.5], "labels": ["a", "b", "c"]},
    "x2": {"levels": [i / 4 for i in range(8)], "ordered": True},
}
OUTCOME = {"y": {"of": "reward.y", "better": "lower"}}

#: kind of design -> sampler, number, factors and analysis
KINDS: dict[str, tuple[str, int | None, dict[str, Any], dict[str, Any]]] = {
    "factorial": ("factorial", None, LEVELS, {}),
    "morris": ("morris", 8, CONTINUOUS, {}),
    "sobol": ("sobol", 16, CONTINUOUS, {}),
    "lhs with PAWN": ("lhs", 60, CONTINUOUS, {"methods": ["pawn"]}),
    "comparison of two": (
        "factorial",
        None,
        {**LEVELS, "x1": {"levels": [0.5, 1.0]}},
        {"compare": ["x1"]},
    ),
    "robustness": (
        "factorial",
        None,
        LEVELS,
        {"robustness": {"by": "x1", "over": ["x2"], "satisfice": ["y <= 2"]}},
    ),
    "discovery": ("lhs", 80, CONTINUOUS, {"discover": ["y > 4.5"]}),
}


def answered(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    capsys.readouterr()
    main([*command, "--json"])
    return json.loads(capsys.readouterr().out)


def of_page(folder: DesignFolder) -> Any:
    """Return the analysis of the page, as the command's JSON has its numbers."""
    with Store(folder.path / RESULTS, read_only=True) as store:
        return json.loads(json.dumps(plain(get(Source(store, folder), "design/analysis"))))


def executed(path: Path, kind: str) -> DesignFolder:
    sampler, n, factors, analysis = KINDS[kind]
    function = "ishigami" if factors is CONTINUOUS else "sobol_g"
    told = function_design(
        function,
        factors,
        sampler if n is None else {"name": sampler, "n": n},
        params={} if function == "ishigami" else {"coefficients": [0.0, 1.0]},
        uid="alike",
        outcomes=OUTCOME,
        analysis={"resamples": 50, **analysis},
    )
    folder = Design.from_mapping(told).generate(path)
    run_folder(folder, settings=Settings(executor="inline"))
    return folder


def check(page: Any, command: Any) -> None:
    """Compare all that ``analyse`` says with what the page has."""
    for name in ("executed", "failed", "missing"):
        assert page["runs"][name] == command[name]
    assert page["runs"]["runs"] == command["runs"]
    assert page["outcomes"] == command["outcomes"] and page["not_collected"] == command["not_collected"]
    assert len(page["methods"]) == len(command["methods"])
    for shown, said in zip(page["methods"], command["methods"], strict=True):
        assert shown["frame"] == said["indices"]
        for name in ("outcome", "method", "used", "lost", "executed", "refused", "notes"):
            assert shown[name] == said[name], name
    assert len(page["discoveries"]) == len(command["discoveries"])
    for shown, said in zip(page["discoveries"], command["discoveries"], strict=True):
        for name in ("condition", "holds", "runs", "lost", "refused", "nothing_found", "notes"):
            assert shown[name] == said[name], name
        assert len(shown["boxes"]) == len(said["boxes"])
        for box, told in zip(shown["boxes"], said["boxes"], strict=True):
            figures = {name: box.get(name) for name in told if name not in ("method", "box", "trajectory")}
            assert figures == {name: told[name] for name in figures}
            assert box["name"] == f"{told['method']} {told['box']}"
    assert len(page["robustness"]) == len(command["robustness"])
    for shown, said in zip(page["robustness"], command["robustness"], strict=True):
        for name in ("what", "by", "over", "better", "confidence", "scenarios", "warnings"):
            assert shown[name] == said[name], name
        values = {(row["level"], row["metric"]): row for row in said["metrics"]}
        for row in shown["levels"]:
            for (level, metric), entry in values.items():
                if level == row["level"]:
                    assert row[metric] == entry["value"]
    assert (page["search"] is None) == (command["search"] is None)
    if command["search"] is not None:
        assert {name: page["search"][name] for name in command["search"]} == command["search"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_analyses_what_the_command_analyses(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "discovery":
        pytest.importorskip("sklearn")
    folder = executed(tmp_path / "f", kind)
    page = of_page(folder)
    check(page, answered(capsys, "analyse", str(folder.path)))
    if "levels" in next(iter(KINDS[kind][2].values())):
        compared = answered(capsys, "compare", str(folder.path))["comparisons"]
        assert len(compared) == len(page["comparisons"]) > 0
        for shown, said in zip(page["comparisons"], compared, strict=True):
            assert {name: shown[name] for name in said} == said


def test_a_search_has_its_importances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    tuned(search_design(search={"sampler": "random", "budget": {"runs": 14}}))
    page = of_page(DesignFolder.open("f"))
    check(page, answered(capsys, "analyse", "f"))
    assert set(page["search"]["importances"]["y"]) == {"x1", "x2"}
    assert sum(item["share"] for item in page["search"]["importances"]["y"].values()) == pytest.approx(1)
    assert page["search"]["summary"].startswith("14 settings (14 complete)")


def test_importances_need_a_journal_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    tuned(search_design(search={"sampler": "random", "budget": {"runs": 12}}))
    monkeypatch.setattr("palaestrai_mosaik.arsenai.search.result.os.access", lambda path, mode: False)
    search = of_page(DesignFolder.open("f"))["search"]
    assert search["importances"] == {} and len(search["best"]) > 0
    assert "importances" in search["summary"]
