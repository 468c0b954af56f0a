"""Rows that share one executed run: what is counted, what is tested, how often chance is taken for an effect."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from support.noise import DESIGNS, Noise, alarms
from support.reports import made_up

from palaestrai_mosaik.arsenai.analysis.report import render
from palaestrai_mosaik.arsenai.analysis.report.numbers import Mark
from palaestrai_mosaik.arsenai.analysis.report.pictures.canvas import drawing
from palaestrai_mosaik.arsenai.analysis.report.pictures.distributions import running_mean
from palaestrai_mosaik.arsenai.analysis.report.pictures.rows import Block, Row, rows_picture
from palaestrai_mosaik.arsenai.analysis.sensitivity import sensitivity
from palaestrai_mosaik.arsenai.design.methods import METHODS, Refused, Study
from palaestrai_mosaik.arsenai.design.methods.method import rows_of, worth

ALGORITHMS = "one of two algorithms has a parameter"
_PPO = 'algo == "ppo"'


def random(seed=1):
    return np.random.Generator(np.random.PCG64(seed))


def indices(result):
    columns = (result.frame[name] for name in ("index", "factor", "factor2", "value"))
    return {(index, *filter(None, names)): value for index, *names, value in zip(*columns, strict=True)}


@pytest.mark.parametrize(
    "name", [ALGORITHMS, "a parameter of a parameter", "whole numbers of a Latin hypercube"]
)
def test_factors_without_influence_are_taken_for_more_than_chance_as_seldom_as_said(name, tmp_path):
    """400 studies of noise: 5 % of them, whose standard error is 1.1; with each row counted, 37 % of the first design.

    Nearly three standard errors are allowed; within two, every third set of so many shares would not be.
    """
    times = 400 if "analysis" not in DESIGNS[name] else 60
    shares = alarms(Noise(tmp_path / "design", **DESIGNS[name]), times, seed=2)
    assert set(shares) == set(DESIGNS[name]["factors"])
    if times == 60:
        assert max(shares.values()) <= 0.1
    else:
        assert shares == pytest.approx(dict.fromkeys(shares, 0.05), abs=0.03)


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("5 algorithms, 2 grids, 5 seeds; 50% of the seed's variance differs by grid", 0.0),
        ("5 algorithms, 2 grids, 5 seeds; 50% of the seed's variance differs by grid", 0.2),
        ("3 algorithms, 3 grids, 10 seeds; 50% of the seed's variance differs by grid", 0.0),
    ],
)
def test_seeds_that_differ_by_grid_are_no_effect_of_the_grid(name, lost, tmp_path):
    """As blocks whose effect is the same on each grid, common seeds raised an alarm for the grid in 36 of 100 studies."""
    shares = alarms(Noise(tmp_path / "design", lost=lost, **DESIGNS[name]), 400, seed=2)
    assert shares == pytest.approx(dict.fromkeys(("algo", "grid", "algo x grid"), 0.05), abs=0.03)


def drawn(tmp_path, name=ALGORITHMS, **keys):
    noise = Noise(tmp_path / "design", **{**DESIGNS[name], **keys})
    noise.draw(random())
    return noise


def test_each_executed_run_is_one_observation(tmp_path):
    noise = drawn(tmp_path)
    (result,) = sensitivity(noise)
    assert (result.used, result.lost, result.executed) == (35, 0, 35)
    assert (
        result.notes[0]
        == "25 of 60 runs are identical to another, executed with it, and counted once with it"
    )
    found = indices(result)
    # seven settings of five runs: 1 for the algorithms, 5 for the levels of the parameter, 4 for seeds
    assert {name: value for (index, name), value in found.items() if index == "df"} == {
        **{"algo": 1.0, "clip": 5.0},
        "(error)": 24.0,
    }
    shares = {name: value for (index, name), value in found.items() if index == "eta2"}
    assert set(shares) == {"algo", "clip", "(repetition)", "(error)"}
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-12)


def test_a_nested_factor_by_hand(tmp_path):
    """Effects without noise: 2 between the algorithms, 1 between three levels of one of them."""
    name = "one of two algorithms has a parameter"
    noise = drawn(tmp_path, name, repetitions=1)
    values = noise.folder.values()
    clips = DESIGNS[name]["factors"]["clip"]["levels"]
    y = [5.0 if row["algo"] == "sac" else 3.0 + clips.index(row["clip"]) % 2 for row in values]
    noise.frame = noise.frame.assign(y=[y[row] for row in noise.frame["row"]])
    (result,) = sensitivity(noise)
    found = indices(result)
    # seven runs: 5, and 3, 4, 3, 4, 3, 4; between algorithms 6/7 (5 - 3.5)^2, between levels 6 * 0.25
    between, within = 6 / 7 * 1.5**2, 1.5
    assert found["eta2", "algo"] == pytest.approx(between / (between + within), abs=1e-12)
    assert found["eta2", "clip"] == pytest.approx(within / (between + within), abs=1e-12)


def test_a_nested_factor_of_the_same_effect_everywhere_interacts_with_nothing(tmp_path):
    """Two of three algorithms have the parameter, which does the same in both: the pair has 2 degrees of freedom."""
    noise = drawn(tmp_path, "two of three have it, on two grids")
    values = noise.folder.values()
    levels = {0.1: 0.0, 0.2: 3.0, 0.3: 7.0}
    noise.frame["y"] = [levels.get(values[row]["clip"], 0.0) for row in noise.frame["row"]]
    found = indices(sensitivity(noise)[0])
    assert found["df", "clip"] == found["df", "algo", "clip"] == 2
    assert found["eta2", "clip"] > 0.1
    assert found["eta2", "algo", "clip"] == 0


def test_what_makes_no_difference_to_a_document_is_inactive_there(tmp_path):
    """No ``when`` says so here: rows of one algorithm differ in a parameter that their documents do not have."""
    base_path = "schedule[0].phase_0.environments.myenv.environment.params"
    factors = {
        "algo": {"path": f"{base_path}.algo", "levels": ["ppo", "sac"]},
        "clip": {"levels": [0.1, 0.2, 0.3], "when": _PPO},
    }
    noise = drawn(tmp_path, factors=factors)
    (by_when,) = sensitivity(noise)
    values = noise.folder.values()
    clips = iter([0.1, 0.2, 0.3])
    told = [{**row, "clip": next(clips)} if row["algo"] == "sac" else row for row in values]
    noise.folder.values = lambda: told
    (by_document,) = sensitivity(noise)
    assert by_document.used == by_document.executed == 20
    assert indices(by_document) == indices(by_when)
    assert indices(by_document)["df", "clip"] == 2


def test_a_lost_run_is_one_however_many_rows_share_it(tmp_path):
    noise = drawn(tmp_path)
    values = noise.folder.values()
    rows = [row for row, told in enumerate(values) if told["algo"] == "sac"]
    third = noise.frame["row"].isin(rows) & (noise.frame["repetition"] == 2)
    assert noise.frame.loc[third, "run"].nunique() == 1
    noise.frame.loc[third, "y"] = np.nan
    (result,) = sensitivity(noise)
    assert (result.used, result.lost, result.executed) == (34, 1, 34)
    assert result.refused == ""
    # all runs of one algorithm are six of twelve rows, and one of seven settings
    noise.frame.loc[noise.frame["row"].isin(rows), "y"] = np.nan
    (result,) = sensitivity(noise)
    assert (result.used, result.lost, result.refused) == (30, 5, "")
    assert any("no run of algo=sac is left" in note for note in result.notes)


def test_rows_whose_repetitions_alone_differ_are_called_so(tmp_path):
    noise = drawn(tmp_path)
    noise.frame["y"] = noise.frame["repetition"].astype(float)
    (result,) = sensitivity(noise)
    assert result.refused.startswith("constant outcome: it is 2 in all rows (mean of the repetitions), so")


def test_a_branch_that_is_one_run_is_no_sample(tmp_path):
    """Half of a hypercube is one executed run: of a distribution nothing can be said by rows."""
    factors = {"algo": {"levels": ["ppo", "sac"]}, "clip": {"low": 0.1, "high": 0.4, "when": _PPO}}
    noise = drawn(tmp_path, factors=factors, sampler={"name": "lhs", "n": 200}, repetitions=1)
    for result in sensitivity(noise, ["pawn", "delta"]):
        assert result.executed == 101
        assert result.refused.startswith("200 rows share 101 executed runs and are worth 4 independent ones")
        assert "seeds: {policy: independent}" in result.refused
    own = drawn(
        tmp_path / "own", factors=factors, sampler={"name": "lhs", "n": 200}, seeds={"policy": "independent"}
    )
    assert [one.refused for one in sensitivity(own, ["pawn", "delta"])] == ["", ""]


def test_methods_of_points_take_one_value_at_many_and_say_so(tmp_path):
    factors = {"algo": {"levels": ["ppo", "sac"]}, "clip": {"low": 0.1, "high": 0.4, "when": _PPO}}
    noise = drawn(tmp_path, factors=factors, sampler={"name": "sobol", "n": 64}, repetitions=1)
    (result,) = sensitivity(noise, ["sobol"])
    assert (result.used, result.lost) == (384, 0)
    assert result.executed == len(noise.executed) < 384
    assert f"({len(noise.executed)} for 384 rows)" in result.notes[0]
    assert "do not tell what other seeds would change" in result.notes[0]
    plain = {"x": {"low": 0.0, "high": 1.0}, "z": {"low": 0.0, "high": 1.0}}
    noise = drawn(tmp_path / "plain", factors=plain, sampler={"name": "sobol", "n": 64}, repetitions=1)
    (result,) = sensitivity(noise, ["sobol"])
    # in each block: rows of two factors that have one from A and one from B come twice
    assert (result.used, result.executed) == (384, 256)
    assert not any("share an executed run" in note for note in result.notes)


@pytest.mark.parametrize("name", ["pawn", "delta", "rbd_fast"])
def test_rows_that_repeat_all_others_add_no_certainty(name):
    """Each row twice, with one executed run: intervals, and what chance can do, are those of the single rows."""
    unit = random().random((200, 2))
    y = 2.0 * unit[:, 0] + random(2).normal(size=200)
    names = ("x1", "x2")

    def study(times, run=None):
        block = np.arange(200 * times)
        rows = np.tile(unit, (times, 1)), np.tile(y, times)
        return Study(*rows, block, names, names, seed=5, resamples=60, run=run)

    def width(given):
        rows = METHODS[name].analyse(given).rows
        if name == "pawn":
            return next(row.value for row in rows if row.factor == "(irrelevant)")
        return float(np.nanmean([row.high - row.value for row in rows]))

    alone, shared, counted = (
        *(width(study(1)), width(study(3, np.tile(np.arange(200), 3)))),
        width(study(3)),
    )
    assert shared == pytest.approx(alone, rel=0.3)
    assert counted < 0.75 * alone


def test_what_rows_are_worth():
    assert worth(np.arange(7)) == 7
    assert worth(np.array([0, 0, 1, 1])) == 2
    assert worth(np.array([0] * 100 + list(range(1, 101)))) == pytest.approx(200**2 / (100**2 + 100))
    run = np.array([0, 1, 0, 2, 1, 0])
    assert rows_of(run, np.array([1, 2, 1])).tolist() == [1, 4, 3, 1, 4]
    assert rows_of(np.arange(4), np.array([3, 0, 3])).tolist() == [3, 0, 3]


def test_the_reason_names_what_to_do():
    run = np.repeat(np.arange(3), 10)
    unit = random().random((30, 1))
    with pytest.raises(Refused, match="30 rows share 3 executed runs and are worth 3 independent ones"):
        METHODS["pawn"].analyse(Study(unit, unit[:, 0], run, ("x",), ("x",), run=run))


@pytest.mark.parametrize(
    ("name", "index"), [("morris", "mu_star"), ("sobol", "ST"), ("dgsm", "vi"), ("dgsm", "dgsm")]
)
def test_an_interval_of_what_cannot_be_negative_ends_at_zero(name, index):
    """A factor whose effect is large in one place only, so that a normal interval would reach far below 0."""
    from SALib.sample import finite_diff, morris, sobol

    problem = {"num_vars": 2, "names": ["x1", "x2"], "bounds": [[0.0, 1.0]] * 2}
    unit = {
        "morris": lambda: morris.sample(problem, 6, seed=3),
        "sobol": lambda: sobol.sample(problem, 16, calc_second_order=False, seed=3),
        "dgsm": lambda: finite_diff.sample(problem, 16, seed=3),
    }[name]()
    y = unit[:, 0] + np.where(unit[:, 1] > 0.9, {"sobol": 4.0}.get(name, 30.0) * (unit[:, 1] - 0.9), 0.0)
    size = {"morris": 3, "sobol": 4, "dgsm": 3}[name]
    block = np.arange(len(y)) // size
    rows = METHODS[name].analyse(Study(unit, y, block, ("x1", "x2"), ("x1", "x2"), seed=1)).rows
    found = next(row for row in rows if (row.index, row.factor) == (index, "x2"))
    assert found.high - found.value > found.value > 0  # to either side, it would hold values below 0
    assert found.low == 0.0


def test_rows_of_one_place_stay_together_in_a_line():
    """Whole numbers, whose outcomes scatter: sorted by these and cut, they made a zigzag of up to 3."""
    x = np.repeat(np.arange(4.0), 50)
    y = random().normal(size=200)
    at, mean = running_mean(x, y)
    assert at.tolist() == [0.0, 1.0, 2.0, 3.0]
    np.testing.assert_allclose(mean, y.reshape(4, 50).mean(axis=1))
    # of some ties and many single places, spans still hold about equally many rows
    x = np.concatenate([np.full(30, 0.5), random(2).random(70)])
    at, mean = running_mean(x, np.arange(100.0))
    assert (np.diff(at) > 0).all()
    assert 0.5 in at and len(at) >= 12
    assert mean[at == 0.5] == pytest.approx(np.mean(np.arange(30.0)))
    assert len(running_mean(np.ones(50), np.arange(50.0))[0]) == 0


def test_an_interval_from_one_distinct_value_is_none():
    assert str(Mark(389.0, 389.0, 389.0)) == "389"
    assert str(Mark(389.0, 388.0, 390.0)) == "389 (388 to 390)"
    marks = (Mark(389.0, 389.0, 389.0), Mark(400.0, 400.0, 400.0))

    def picture(*dots):
        rows = tuple(Row(name, (mark,), values) for name, mark, values in zip("ab", marks, dots, strict=True))
        with drawing():
            return rows_picture("i", "title", [Block("title", "y", rows)], 360).svg()

    alone = picture(np.array([389.0]), np.array([400.0]))
    # nothing tells how values scatter: the axis holds 0, so that the two stand where they are
    assert ">0</text>" in alone and ">390</text>" not in alone
    known = picture(*[np.array([380.0, 389.0, 410.0])] * 2)
    assert ">0</text>" not in known and ">390</text>" in known


def test_what_is_in_brackets_stands_behind_its_noun():
    data = made_up()
    page = render(
        replace(data, sizes={"rows": "48 (2 more rejected by constraints)", "runs": "1,000 (442 executed)"})
    )
    assert "48 rows (2 more rejected by constraints), 1,000 runs (442 executed)." in page["index.html"]


def test_shared_runs_are_told_in_a_report():
    data = made_up(rows=8, repetitions=1)
    runs = data.runs.assign(run=["one"] * 4 + [f"own-{i}" for i in range(4)])
    page = render(replace(data, runs=runs, comparisons=()))["index.html"]
    assert "They stand for 8 runs (5 executed) of 1 seed." in page
    assert re.search(r"runs that were executed</th><td[^>]*>5<", page)
    told = data.sensitivity.assign(used=60, lost=4, executed=35)
    assert "60 runs used, 35 executed, 4 lost" in render(replace(data, sensitivity=told))["index.html"]
