"""A Sobol' sample that doubles until its intervals are narrow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from arsenai.search.growing import contents, executed, ishigami_design, written
from SALib.analyze import sobol as analyser
from SALib.sample import sobol as sampler_of_salib

from palaestrai_mosaik.arsenai.analysis import Results, sensitivity
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.load import from_mapping
from palaestrai_mosaik.arsenai.design.methods import METHODS, Study
from palaestrai_mosaik.arsenai.design.samplers import sample, sobol
from palaestrai_mosaik.arsenai.design.samplers.sobol import largest_n, with_n
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.environment.functions import ishigami

PROBLEM = {"num_vars": 2, "names": ["x1", "x2"], "bounds": [[0.0, 1.0]] * 2}


#: four rows a block; with three rounds, 64 runs
SAMPLER = {"name": "sobol", "n": 4, "second_order": False, "until": {"interval": 0.9}}


def two_factors(**sampler):
    """Return a design over sin x1 + 7 sin^2 x2."""
    design = ishigami_design(sampler={**SAMPLER, **sampler})
    del design["factors"]["x3"]
    return design


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("ishigami"))
        yield executed(two_factors()).absolute()


@pytest.fixture
def store(stopped):
    """The options that say where the runs are already, so that they need not be executed again."""
    return "--store", str(stopped / "results")


def widest(drawn, formula):
    """Return the largest half-width of S1 and ST for a formula of points of the unit cube, and the indices."""
    y = np.array([formula(point) for point in drawn.unit])
    names = tuple(f"x{i}" for i in range(1, drawn.unit.shape[1] + 1))
    study = Study(drawn.unit, y, drawn.block, names, names, "sobol", drawn.arguments)
    rows = [row for row in METHODS["sobol"].analyse(study).rows if row.index != "p_adjusted"]
    return max(max(row.high - row.value, row.value - row.low) for row in rows), rows


def test_it_stops_where_the_intervals_of_the_formula_are_narrow(stopped):
    folder = DesignFolder.open(stopped)
    rounds = folder.rounds
    assert rounds.ended == "all intervals are within ±0.9"
    assert [one["n"] for one in rounds.measured] == [4 * 2**k for k in range(rounds.number)]
    assert rounds.number >= 3
    for one in rounds.measured:
        drawn = sample(with_n(folder.spec, one["n"]))
        width, _ = widest(drawn, lambda point: ishigami([*((2 * point - 1) * math.pi), 0.0]))
        assert one["interval"] == pytest.approx(width)
        assert (one["interval"] <= 0.9) == (one is rounds.measured[-1])
    # the indices of the last round are those of the formula, within the intervals that it has asked for
    (found,) = sensitivity(Results(folder), ("sobol",))
    # of the variance, 1/2 is that of sin x1, and 49/8 that of 7 sin^2 x2
    known = {"x1": 4 / 53, "x2": 49 / 53}
    for row in found.frame[found.frame["index"] != "p_adjusted"].to_dict("records"):
        assert abs(row["value"] - known[row["factor"]]) < 0.9


def test_the_share_of_noise_needs_no_interval():
    design = two_factors(n=2, until={"interval": 0.9, "max_n": 4}) | {"repetitions": 2}
    assert DesignFolder.open(executed(design)).rounds.measured[0]["interval"] > 0


def test_a_smooth_formula_needs_few_rounds():
    """SALib's bootstrap takes points of the sequence for independent: four times the points are not enough for it."""
    spec = from_mapping(two_factors(n=64, until={"interval": 0.01}))
    assert largest_n(spec) == 4096

    def formula(point):
        return point[0] + 2 * point[1]

    n = 64
    while (found := widest(sample(with_n(spec, n)), formula))[0] > 0.01:
        n *= 2
    assert n <= 1024
    for row, true in zip(found[1], (0.2, 0.8, 0.2, 0.8), strict=True):
        assert row.low <= true <= row.high
    unit = sampler_of_salib.sample(PROBLEM, 4 * n, calc_second_order=False, seed=1)
    theirs = analyser.analyze(PROBLEM, unit @ [1, 2], calc_second_order=False, num_resamples=50, seed=1)
    assert max(*theirs["S1_conf"], *theirs["ST_conf"]) > 0.01


def test_rows_of_another_version_are_not_continued(monkeypatch, capsys):
    """Its one sequence cannot become eight; what was executed can be analysed."""
    design = two_factors(n=2, until={"interval": 0.01})
    with monkeypatch.context() as patch:
        patch.setattr(sobol, "RANDOMIZATIONS", 1)
        assert main(["generate", written(design), "-o", "f", "--check", "none", "--quiet"]) == 0
    assert main(["run", "f", "--executor", "inline", "--quiet"]) != 0
    assert "another version has drawn the rows of this folder" in capsys.readouterr().err
    assert main(["analyse", "f"]) == 0
    assert "all points are of one sequence" in capsys.readouterr().out


def test_the_same_results_make_the_same_folder(stopped, store):
    assert contents(executed(two_factors(), "again", *store)) == contents(stopped)


def test_until_is_no_part_of_the_identity(store):
    plain, with_until = two_factors(), two_factors()
    del plain["sampler"]["until"]
    assert from_mapping(plain).hash == from_mapping(with_until).hash
    # so a design that was executed without goes on
    executed(plain, "f", *store)
    assert DesignFolder.open("f").rounds is None
    folder = DesignFolder.open(executed(with_until, "f", *store))
    assert folder.rounds.number >= 3


def test_the_limit_ends_it(store):
    design = two_factors()
    design["sampler"]["until"] = {"interval": 0.01, "max_n": 8}
    folder = DesignFolder.open(executed(design, "f", *store))
    assert folder.rounds.ended == "n has reached 8 (max_n)"
    assert len(folder.runs) == 8 * 4


def test_constant_outcomes_are_not_waited_for(store):
    design = two_factors()
    design["outcomes"]["steps"] = {"of": "steps"}
    narrow = DesignFolder.open(executed(design, "f", *store))
    assert narrow.rounds.measured[-1]["outcome"] == "y"
    design["sampler"]["until"] = {"interval": 0.9, "outcomes": "steps"}
    constant = DesignFolder.open(executed(design, "g", *store))
    assert constant.rounds.number == 1
    assert constant.rounds.ended == "all intervals are within ±0.9"
