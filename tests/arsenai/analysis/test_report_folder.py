"""The report of a design that was generated and executed: from its document to the page."""

from __future__ import annotations

import io
import re
import shutil
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from palaestrai_mosaik.arsenai.analysis.comparison import Comparison
from palaestrai_mosaik.arsenai.analysis.report import collect, headline, render
from palaestrai_mosaik.arsenai.analysis.report.pictures.canvas import DASHES, SERIES
from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import StoreError

#: y = x1 + x2 with x1 of 0, 1, 3 and x2 of 0, 2: shares of variance 14/23 and 9/23
DESIGN = """
uid: additive
seed: 11
repetitions: 2
base:
  schedule:
    - learn:
        environments:
          - environment:
              name: palaestrai_mosaik.environment.functions:FunctionEnvironment
              uid: f
              params: {function: linear, x1: 0, x2: 0}
        agents:
          - name: watcher
            brain: {name: "palaestrai_mosaik.agent.library.dummy:DummyBrain", params: {}}
            muscle: {name: "palaestrai_mosaik.agent.library.dummy:DummyMuscle", params: {}}
            objective: {name: "palaestrai_mosaik.agent.library.dummy:DummyObjective", params: {}}
            sensors: [f.y]
            actuators: [f.idle]
        simulation:
          name: palaestrai_mosaik.simulation:Vanilla
          conditions: [{name: "palaestrai.experiment:EnvironmentTerminationCondition", params: {}}]
        phase_config: {mode: train, worker: 1, episodes: 5}
  run_config: {condition: {name: "palaestrai.experiment:VanillaRunGovernorTerminationCondition", params: {}}}
factors:
  x1: {path: schedule.learn.environments.f.environment.params.x1, levels: [0, 1, 3]}
  x2: {path: schedule.learn.environments.f.environment.params.x2, levels: [0, 2]}
outcomes:
  y: {of: reward.f.y, agent: watcher, step: sum, episode: mean, better: higher}
analysis: {methods: [anova], compare: [x1], resamples: 100}
"""


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of which all rows but the last are done; each test changes its own copy only."""
    directory = tmp_path_factory.mktemp("design")
    (directory / "design.yml").write_text(DESIGN)
    folder = directory / "additive"
    assert main(["generate", str(directory / "design.yml"), "--output", str(folder), "--quiet"]) == 0
    execution = ["--executor", "inline", "--quiet"]
    assert main(["run", str(folder), "--rows", "0-4", *execution]) == 0
    return folder


@pytest.fixture(scope="module")
def folder(half_done: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, done."""
    done = shutil.copytree(half_done, tmp_path_factory.mktemp("done") / "additive")
    assert main(["resume", str(done), "--executor", "inline", "--quiet"]) == 0
    return done


def test_a_design_that_is_half_done_and_done(
    half_done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(half_done, tmp_path / "additive")
    assert main(["report", str(folder)]) == 0
    told = capsys.readouterr()
    assert "warning: 2 of 12 runs (16.7 %) have not finished: 2 missing." in told.err
    page = (folder / "report" / "index.html").read_text()
    assert "2 of 12 runs (16.7 %) have not finished" in page
    missing = pd.read_csv(folder / "report" / "failures.csv")
    assert missing["run"].tolist() == ["additive-5-r0", "additive-5-r1"]
    assert missing["values"].tolist() == ["x1=3, x2=2"] * 2

    assert main(["resume", str(folder), "--executor", "inline", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["report", str(folder)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "x1 explains 61 % of the variance of y." in told.out
    assert "x2 explains 39 %." in told.out
    assert "Of x1, 3 has the best interquartile mean of y" in told.out
    assert str(folder / "report" / "index.html") in told.out
    assert not (folder / "report" / "failures.csv").exists()
    shares = pd.read_csv(folder / "report" / "sensitivity-y-anova.csv", index_col="factor")["eta2"]
    assert shares["x1"] == pytest.approx(14 / 23, abs=1e-12)
    assert shares["x2"] == pytest.approx(9 / 23, abs=1e-12)
    assert main(["analyse", str(folder), "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    runs = pd.read_csv(folder / "report" / "runs.csv")
    # one number in both, that of a sample
    told = pd.read_csv(folder / "report" / "summary-y.csv", index_col=0).iloc[:, 0]
    assert told["standard deviation"] == pytest.approx(runs["y"].std())
    assert f"  {runs['y'].std():.4f}  " in printed
    assert (runs["y"] == runs["x1"] + runs["x2"]).all()
    learned = pd.read_csv(folder / "report" / "learning-0.csv")
    assert learned.groupby("level")["episode"].max().to_dict() == {0: 5, 1: 5, 3: 5}
    assert (learned["n"] == 4).all(), "two settings of two repetitions"
    assert (learned["seeds"] == 2).all()
    assert "interquartile mean over 4 runs of 2 seeds" in page_of(folder)

    page = (folder / "report" / "index.html").read_text()
    first = {path.name: path.read_bytes() for path in (folder / "report").iterdir()}
    assert main(["report", str(folder), "--output", str(folder / "again")]) == 0
    assert {path.name: path.read_bytes() for path in (folder / "again").iterdir()} == first
    assert re.search(r"generated with</dt><dd>palaestrai_mosaik \d", page)
    assert re.search(r"executed with</dt><dd>.*mosaik 3\.", page)


def test_the_python_way(folder: Path) -> None:
    data = collect(Results(folder))
    ((outcome, sentences),) = headline(data)
    assert outcome == "y"
    assert str(sentences[0]).startswith("Among the levels of x1, 3 has the best"), "it was planned"
    assert any(str(sentence).startswith("x1 explains") for sentence in sentences)
    assert set(render(data)) >= {"index.html", "runs.csv", "factors.csv"}


def test_the_single_runs_are_those_of_the_comparison(folder: Path) -> None:
    """Names of settings and levels, and what is counted, are as the comparison has them."""
    (compared,) = collect(Results(folder)).comparisons
    cells = compared.comparison.cells
    assert cells["setting"].nunique() == 2
    found = compared.runs.groupby(["level", "setting"])["value"].agg(["size", "mean"]).reset_index()
    assert found["size"].tolist() == [2] * 6
    merged = found.merge(cells, on=["level", "setting"], validate="1:1")
    assert len(merged) == len(cells) == 6
    assert (merged["mean_x"] == merged["mean_y"]).all()
    # 0, 1 or 3, and 0 or 2 on average
    assert compared.dots("mean", "3").tolist() == [4, 4]
    assert compared.differences("0", "1").tolist() == [-1, -1]


def page_of(folder: Path) -> str:
    return (folder / "report" / "index.html").read_text()


#: groups of a variance-based sample, and a zip with a name that no figure has room for
LONG = "everything that the operator of the grid can set " * 3
GROUPED = (
    DESIGN[: DESIGN.index("factors:")]
    .replace("uid: additive", "uid: grouped")
    .replace("{function: linear, x1: 0, x2: 0}", "{function: linear, x1: 0, x2: 0, x3: 0, x4: 0, x5: 0}")
    .replace("repetitions: 2", "repetitions: 1")
    + "factors:\n"
    + "".join(
        f"  x{i}: {{path: schedule.learn.environments.f.environment.params.x{i}, low: 0, high: {i}}}\n"
        for i in range(1, 6)
    )
    + f"""
zip: {{"{LONG}": [x1, x2]}}
groups: {{rest: [x4, x5]}}
sampler: {{name: sobol, n: 4, second_order: false}}
outcomes: {{y: {{of: reward.f.y, agent: watcher}}}}
analysis: {{resamples: 50}}
"""
)


def test_groups_and_zipped_factors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "design.yml").write_text(GROUPED)
    folder = tmp_path / "grouped"
    assert main(["generate", str(tmp_path / "design.yml"), "--output", str(folder), "--quiet"]) == 0
    assert main(["run", str(folder), "--executor", "inline", "--quiet"]) == 0
    data = collect(Results(folder))
    files = render(data)
    page = files["index.html"]
    names = {LONG, "x3", "rest"}
    assert set(data.sensitivity.loc[data.sensitivity["method"] == "sobol", "factor"]) == names
    for name in names:
        assert f"<title>{name}</title>" in page, "what is cut can be read"
    factors = pd.read_csv(io.StringIO(files["factors.csv"]), index_col="factor", keep_default_na=False)
    assert factors["group"].tolist() == ["", "", "", "rest", "rest"]
    assert factors["zip"].tolist() == [LONG, LONG, "", "", ""]
    titles = re.findall(r"y against (x\d)</title><desc", page)
    assert sorted(titles) == ["x1", "x2", "x3", "x4", "x5"]
    assert [note for note in data.notes if note.startswith("no comparison: nothing to compare")]

    # what else is wrong is no reason to leave a comparison out
    def broken(results: Results, progress: object) -> list[Comparison]:
        raise StoreError("the store is gone")

    # the package has a function of the module's name
    module = import_module("palaestrai_mosaik.arsenai.analysis.report.collect")
    monkeypatch.setattr(module, "compare_design", broken)
    with pytest.raises(StoreError, match="the store is gone"):
        collect(Results(folder))


def test_a_folder_without_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "design.yml").write_text(DESIGN)
    folder = tmp_path / "new"
    assert main(["generate", str(tmp_path / "design.yml"), "--output", str(folder), "--quiet"]) == 0
    assert main(["report", str(folder)]) == 2
    assert f"arsenai run {folder}" in capsys.readouterr().err
    assert not (folder / "report").exists()


NESTED = (
    DESIGN.replace("uid: additive", "uid: nested")
    .replace("analysis: {methods: [anova], compare: [x1], resamples: 100}", "analysis: {resamples: 100}")
    .replace("levels: [0, 2]}", "levels: [0, 2], when: x1 == 3}")
)


def test_runs_that_rows_share_are_told_as_executed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """x2 matters at one of three levels of x1 only: of twelve runs, eight are executed."""
    (tmp_path / "design.yml").write_text(NESTED)
    folder = str(tmp_path / "nested")
    assert main(["generate", str(tmp_path / "design.yml"), "--output", folder, "--quiet"]) == 0
    assert main(["run", folder, "--executor", "inline", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["status", folder]) == 0
    assert "per run (median, with the start of its process)" in capsys.readouterr().out
    assert main(["analyse", folder]) == 0
    out = capsys.readouterr().out
    assert out.startswith("12 runs (8 executed)\n")
    assert "y by anova (8 runs used)" in out
    table = pd.read_csv(tmp_path / "nested" / "analysis" / "sensitivity.csv")
    assert set(table["used"]) == set(table["executed"]) == {8}
    assert main(["compare", folder, "--by", "x1"]) == 0
    assert capsys.readouterr().out.startswith("12 runs (8 executed)\n")
    assert main(["report", folder]) == 0
    page = (tmp_path / "nested" / "report" / "index.html").read_text()
    assert "12 runs (8 executed), 2 seeds." in page
    assert "s in all, without the start of their processes" in page


def test_learning_curves_are_those_of_the_leading_factor(tmp_path: Path) -> None:
    """Numbers without anything to compare by: a line for each third of the values of x1, which matters most."""
    design = DESIGN.replace("levels: [0, 1, 3]", "low: 0, high: 3").replace(
        "levels: [0, 2]", "low: 0, high: 1"
    )
    design = design.replace("repetitions: 2", "sampler: {name: lhs, n: 30}")
    design = design.replace("methods: [anova], compare: [x1], ", "methods: [pawn], ")
    (tmp_path / "design.yml").write_text(design)
    folder = tmp_path / "additive"
    assert main(["generate", str(tmp_path / "design.yml"), "--output", str(folder), "--quiet"]) == 0
    assert main(["run", str(folder), "--executor", "inline", "--quiet"]) == 0
    data = collect(Results(folder))
    (curves,) = data.learning
    assert curves.title == "How watcher did in phase learn, by x1"
    assert curves.note.endswith("The runs of a line differ in the other factors.")
    sizes = curves.lines.groupby("level", sort=False)["n"].first()
    assert sizes.tolist() == [10, 10, 10]
    ends = [tuple(map(float, name.split(" to "))) for name in sizes.index]
    values = sorted(row["x1"] for row in data.values)
    for (low, high), third in zip(ends, (values[:10], values[10:20], values[20:]), strict=True):
        assert (low, high) == pytest.approx((third[0], third[-1]), rel=5e-3)


def test_evaluations_have_curves_and_levels_have_their_labels(tmp_path: Path) -> None:
    design = DESIGN.replace("worker: 1, episodes: 5", "worker: 1, episodes: 4, evaluate_every: 1")
    design = design.replace("levels: [0, 1, 3]", "levels: [0, 1, 3], labels: [off, low, high]")
    (tmp_path / "design.yml").write_text(design)
    folder = tmp_path / "additive"
    assert main(["generate", str(tmp_path / "design.yml"), "--output", str(folder), "--quiet"]) == 0
    assert main(["run", str(folder), "--executor", "inline", "--quiet"]) == 0
    data = collect(Results(folder))
    training, evaluations = data.learning
    assert training.title == "How watcher did in phase learn, by x1"
    assert evaluations.title == "How watcher did in evaluations of phase learn, by x1"
    assert evaluations.each == "evaluation"
    for curves in data.learning:
        assert curves.lines.groupby("level", sort=False)["episode"].max().to_dict() == {
            "off": 4,
            "low": 4,
            "high": 4,
        }
    assert ">evaluation</text>" in render(data)["index.html"]


def test_learning_curves_of_many_levels_are_not_drawn(tmp_path: Path) -> None:
    """No two of thirty lines could be told apart."""
    assert len(SERIES) * len(DASHES) < 30
    design = DESIGN.replace("levels: [0, 1, 3]", f"levels: {list(range(30))}")
    design = design.replace("repetitions: 2", "repetitions: 1")
    (tmp_path / "design.yml").write_text(design)
    folder = tmp_path / "additive"
    assert main(["generate", str(tmp_path / "design.yml"), "--output", str(folder), "--quiet"]) == 0
    assert main(["run", str(folder), "--executor", "inline", "--quiet"]) == 0
    data = collect(Results(folder))
    assert data.learning == ()
    assert any("no learning curves: 30 levels of x1 are more lines" in note for note in data.notes)
