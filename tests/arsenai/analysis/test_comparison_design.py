"""Designs that are generated, executed and compared: the differences are known, the seeds common."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
import yaml
from support.documents import DUMMY, ENVIRONMENT_ENDS, VANILLA_RUN, agent, environment, named

from palaestrai_mosaik.arsenai.analysis.comparison import compare_design
from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.cli.analyse import next_step
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import PalaestraiMosaikError

FUNCTION = "palaestrai_mosaik.environment.functions:FunctionEnvironment"
PLACE = "schedule.p.environments.f.environment.params"
FACTORS = {
    "algorithm": {"path": f"{PLACE}.x1", "levels": [0, 1, 3], "labels": ["idle", "cem", "ppo"]},
    "grid": {"path": f"{PLACE}.x2", "levels": [0, 20], "labels": ["rural", "urban"]},
}


def write(directory, *, params=None, **keys):
    """The objective is x1 + x2 + x3 and noise, which is the environment's and so the seed's."""
    told = {"function": "linear", "x1": 0, "x2": 0, "x3": 0, "noise": 1.0, **(params or {})}
    function = environment("f", FUNCTION, **told)
    one = agent("a", sensors=["f.y"], actuators=["f.idle"], muscle=named(f"{DUMMY}:DummyMuscle"))
    phase = {
        "environments": [function],
        "agents": [{**one, "objective": named(f"{DUMMY}:DummyObjective")}],
        "simulation": {"name": "vanilla", "conditions": [named(ENVIRONMENT_ENDS)]},
        "phase_config": {"mode": "test", "episodes": 1},
    }
    base = {"version": "3.5", "schedule": [{"p": phase}], "run_config": {"condition": named(VANILLA_RUN)}}
    outcomes = {"y": {"of": "reward.f.y", "better": "higher"}}
    design = {"uid": "d", "seed": 3, "version": "3.5", "repetitions": 3, "base": base, "factors": FACTORS}
    file = directory / "design.yml"
    file.write_text(yaml.safe_dump({**design, "outcomes": outcomes, **keys}))
    return file


def executed(directory, **keys):
    folder = Design.load(write(directory, **keys)).generate(directory / "out")
    run_folder(folder, settings=Settings(executor="inline"))
    return Results(folder)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return executed(tmp_path_factory.mktemp("common"))


def differences(comparison):
    pairs = comparison.pairs
    return dict(zip(zip(pairs["a"], pairs["b"], strict=True), pairs["difference"], strict=True))


def test_differences_under_common_seeds_are_free_of_noise(results):
    algorithm, grid = compare_design(results)
    assert (algorithm.by, grid.by, algorithm.paired) == (("algorithm",), ("grid",), True)
    wanted = {("idle", "cem"): -1, ("idle", "ppo"): -3, ("cem", "ppo"): -2}
    assert differences(algorithm) == pytest.approx(wanted, abs=1e-12)
    assert differences(grid) == pytest.approx({("rural", "urban"): -20}, abs=1e-12)
    assert list(algorithm.pairs["n"]) == [6, 6, 6]
    assert list(algorithm.cells["setting"]) == ["grid=rural", "grid=urban"] * 3
    # the noise is there: levels scatter by it, their differences do not, so these have no interval
    assert (algorithm.levels["std"] > 0.1).all()
    assert (algorithm.pairs["distinct"] == 1).all()
    assert algorithm.pairs[["difference_low", "difference_high"]].isna().all(axis=None)
    frame = results.outcomes()
    assert algorithm.levels["mean"].mean() == pytest.approx(frame["y"].mean())


ALGORITHMS = {"path": f"{PLACE}.x1", "levels": [0, 1], "labels": ["idle", "cem"]}


@pytest.mark.parametrize(
    ("keys", "settings"),
    [
        # no two rows share a setting
        (
            {
                "factors": {"algorithm": ALGORITHMS, "load": {"path": f"{PLACE}.x2", "low": 0, "high": 20}},
                "sampler": {"name": "lhs", "n": 10},
            },
            {"idle": 5, "cem": 5},
        ),
        # one level has another factor, and is taken over all of its values
        (
            {
                "factors": {
                    "algorithm": ALGORITHMS,
                    "clip": {"path": f"{PLACE}.x2", "levels": [1, 2, 3], "when": 'algorithm == "cem"'},
                },
                "sampler": {"name": "factorial"},
            },
            {"idle": 1, "cem": 3},
        ),
        # levels are compared setting by setting
        (
            {
                "factors": {"algorithm": ALGORITHMS, "grid": FACTORS["grid"]},
                "sampler": {"name": "factorial"},
            },
            {"idle": 2, "cem": 2},
        ),
    ],
    ids=["lhs", "nested", "factorial"],
)
def test_the_settings_of_the_levels_are_those_that_the_best_was_chosen_from(tmp_path, keys, settings):
    executed(tmp_path, **keys, repetitions=2, analysis={"compare": ["algorithm"], "resamples": 20})
    assert main(["report", str(tmp_path / "out"), "--quiet"]) == 0
    (file,) = (tmp_path / "out/report").glob("comparison-*-levels.csv")
    table = pd.read_csv(file, index_col="level")
    assert table["settings"].to_dict() == settings
    page = (tmp_path / "out/report/index.html").read_text(encoding="utf-8")
    assert f"chosen from {sum(settings.values())} settings" in page


def test_combinations_and_baselines(results):
    (both,) = compare_design(results, ["algorithm", "grid"], baseline="idle")
    assert len(both.levels) == 6
    assert differences(both) == pytest.approx(
        {
            (f"algorithm={name}, grid={grid}", f"algorithm=idle, grid={grid}"): value
            for name, value in (("cem", 1), ("ppo", 3))
            for grid in ("rural", "urban")
        },
        abs=1e-12,
    )
    # of factors compared on their own, only one has the baseline
    algorithm, grid = compare_design(results, baseline="idle")
    assert (len(algorithm.pairs), len(grid.pairs)) == (2, 1)


def test_relative_to_the_baseline(results):
    (found,) = compare_design(results, ["algorithm"], baseline="idle", normalise="baseline")
    cell = found.cells.set_index(["level", "setting"])
    idle = results.outcomes()["y"][3:6].mean()  # the second row: idle, urban
    assert cell.loc[("ppo", "grid=urban"), "mean"] == pytest.approx(3 / idle)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": ["algoritm"]}, "no factor 'algoritm' in the design (did you mean 'algorithm'?)"),
        ({"outcomes": ["z"]}, "no outcome 'z'; there are y"),
        ({"baseline": "idl"}, "(did you mean 'idle'?); these are idle, cem, ppo, rural, urban"),
    ],
)
def test_unknown_names_are_errors(results, arguments, message):
    with pytest.raises(PalaestraiMosaikError) as error:
        compare_design(results, **arguments)
    assert message in str(error.value)


def test_what_is_zipped_or_inactive_is_no_setting_of_its_own(tmp_path):
    """x3 is varied with the grid, and only where the algorithm is none that idles."""
    tuning = {
        "path": f"{PLACE}.x3",
        "levels": [0, 100],
        "labels": ["soft", "hard"],
        "when": "algorithm != 'idle'",
    }
    steps = {"path": f"{PLACE}.steps", "levels": [1, 2], "create": True, "when": "algorithm == 'ppo'"}
    found = compare_design(
        executed(
            tmp_path,
            factors={**FACTORS, "tuning": tuning, "steps": steps},
            zip=[["grid", "tuning"]],
            outcomes={"y": {"of": "reward.f.y", "step": "mean"}},
            seeds={"policy": "independent"},
            params={"noise": 0.0},
            repetitions=2,
        ),
        ["algorithm"],
    )
    (one,) = found
    # idle: 0 and 20; the others: 0 and 120. Two rows of idle and cem for one document each are equal
    # but for their seeds, which are independent here.
    assert dict(zip(one.levels["level"], one.levels["mean"], strict=True)) == pytest.approx(
        {"idle": 10, "cem": 61, "ppo": 63}
    )
    assert set(one.cells["setting"]) == {"grid=rural + soft", "grid=urban + hard"}
    assert not one.paired
    assert any("'steps': only some levels" in text for text in one.warnings)


def test_runs_that_fail_cost_their_pairs(tmp_path):
    found = executed(tmp_path, params={"failures": 0.4}, repetitions=4)
    (one,) = compare_design(found, ["algorithm"], baseline="idle")
    lost = int((found.outcomes()["status"] == "failed").sum())
    # who fails is the seed's: a repetition fails in all rows or in none
    assert 0 < lost < 24
    assert list(one.levels["lost"]) == [lost / 3] * 3
    assert list(one.pairs["lost"]) == [lost / 3] * 2
    assert differences(one) == pytest.approx({("cem", "idle"): 1, ("ppo", "idle"): 3}, abs=1e-12)
    assert any(f"{lost // 3} of 8 of idle" in text for text in one.warnings)


def test_a_sensitivity_sample_is_not_compared_by_itself(tmp_path):
    gain = {"gain": {"path": f"{PLACE}.x3", "low": 0.0, "high": 1.0}}
    sampler = {"name": "sobol", "n": 4, "second_order": False}
    found = executed(tmp_path, factors={**FACTORS, **gain}, sampler=sampler, repetitions=1)
    with pytest.raises(PalaestraiMosaikError, match="serves a sensitivity analysis"):
        compare_design(found)
    (one,) = compare_design(found, ["algorithm"])
    # rows of one document are one run; rows that differ in the algorithm only are pairs
    runs = found.outcomes()["run"]
    assert one.levels["n"].sum() == runs.nunique() < len(runs)
    assert one.paired


def test_numbers_without_levels_are_in_their_order(tmp_path):
    """Two-digit numbers, drawn in any order, are neither sorted as text nor as they come."""
    count = {"count": {"path": f"{PLACE}.x3", "type": "int", "low": 8, "high": 11}}
    drawn = {"name": "lhs", "n": 8}
    found = executed(tmp_path, factors={**FACTORS, **count}, sampler=drawn, repetitions=1)
    values = [row["count"] for row in found.folder.values()]
    assert list(dict.fromkeys(values)) != sorted(set(values))
    (one,) = compare_design(found, ["count"])
    assert list(one.levels["level"]) == ["8", "9", "10", "11"]


def test_the_command(results, tmp_path, capsys):
    folder = str(results.folder.path)
    assert main(["compare", folder, "--by", "algorithm", "--baseline", "idle", "-o", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "y by algorithm (higher is better)" in told.out
    assert "ppo - idle" in told.out
    assert "warning: y by algorithm: only 3 repetitions" in told.err
    assert told.out.endswith(f"next: arsenai report {folder}\n")
    store = f"{folder}/results"
    main(["compare", folder, "--store", store, "--by", "algorithm", "-o", str(tmp_path / "other")])
    assert capsys.readouterr().out.endswith(f"next: arsenai report {folder} --store {store}\n")
    shutil.rmtree(tmp_path / "other")
    pairs = pd.read_csv(tmp_path / "comparison-pairs.csv")
    assert list(pairs[["outcome", "by", "a", "b"]].iloc[1]) == ["y", "algorithm", "ppo", "idle"]
    np.testing.assert_allclose(pairs["difference"], [1, 3])
    first = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert sorted(first) == [f"comparison-{name}.csv" for name in ("cells", "levels", "pairs", "profiles")]
    main(["compare", folder, "--by", "algorithm", "--baseline", "idle", "-o", str(tmp_path)])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == first
    capsys.readouterr()
    assert main(["compare", folder, "--by", "algoritm"]) == 2
    assert "did you mean 'algorithm'?" in capsys.readouterr().err


def test_the_command_for_robustness(results, tmp_path, capsys):
    folder = str(results.folder.path)
    asked = ["compare", folder, "--by", "algorithm", "-o", str(tmp_path)]
    robust = [*asked, "--robustness", "--over", "grid", "--satisfice", "y > 10"]
    assert main(robust) == 0
    told = capsys.readouterr()
    assert "y by algorithm over grid (higher is better), intervals with confidence 0.95" in told.out
    assert "y > 10 by algorithm over grid, intervals" in told.out
    table = pd.read_csv(tmp_path / "robustness.csv").set_index(["what", "level", "metric"])
    # ppo is the best by 3 in both grids, and common seeds leave no noise
    assert table.loc[("y", "ppo", "regret_max"), "value"] == 0
    np.testing.assert_allclose(
        table.loc[("y", "idle", "regret_max"), ["value", "low", "high"]].astype(float), 3
    )
    # above 10 in the urban grid alone
    assert table.loc[("y > 10", "cem", "satisficing"), "value"] == 0.5
    assert len(pd.read_csv(tmp_path / "robustness-scenarios.csv")) == 12
    first = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert main(robust) == 0
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == first
    capsys.readouterr()
    for wrong, message in (
        (["--over", "grid"], "--over is for --robustness"),
        (["--satisfice", "y > 1"], "--satisfice is for --robustness"),
        (["--robustness", "--baseline", "idle"], "--baseline is for comparisons without --robustness"),
        (["--robustness", "--over", "grit"], "did you mean 'grid'?"),
    ):
        assert main([*asked, *wrong]) == 2
        assert message in capsys.readouterr().err


def test_a_constant_outcome_is_told_and_not_compared(tmp_path, capsys):
    """The last reward of an episode, whatever its length and its seed."""
    turns = {"path": f"{PLACE}.steps", "levels": [1, 2], "labels": ["vanilla", "in turns"], "create": True}
    outcome = {"last": {"of": "reward.f.y", "step": "last", "better": "higher"}}
    params = {"x1": 36, "noise": 0.0}
    result = executed(tmp_path, params=params, factors={"turns": turns}, outcomes=outcome, repetitions=10)
    folder = str(result.folder.path)
    capsys.readouterr()
    assert main(["compare", folder]) == 0
    told = capsys.readouterr()
    assert "all 20 runs gave 36: there is nothing to compare" in told.out
    assert "warning: last by turns: all 20 runs gave 36" in told.err
    assert "[36, 36]" not in told.out
    pairs = pd.read_csv(tmp_path / "out" / "analysis" / "comparison-pairs.csv")
    assert pairs[["p", "p_holm", "difference_low", "favours"]].isna().all(axis=None)
    assert main(["report", folder]) == 0
    told = capsys.readouterr().out
    assert "All 20 runs gave the same last, 36: there is nothing to compare or explain." in told
    assert "best" not in told


def test_the_next_step_is_a_command_without_a_password(tmp_path):
    said = next_step(tmp_path / "a folder", "postgresql://me:secret@host/results")
    assert (
        said
        == f"next: arsenai report '{tmp_path}/a folder' --store 'postgresql+psycopg://me:***@host/results'"
    )
