"""A Sobol' sample that doubles until its intervals are narrow: where it stops is what SALib says of the formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rounds.growing import contents, executed, ishigami_design
from SALib.analyze import sobol as analyser
from SALib.sample import sobol as sampler

from palaestrai_mosaik.analysis import Results, sensitivity
from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.design.load import from_mapping
from palaestrai_mosaik.design.samplers import sample
from palaestrai_mosaik.design.samplers.sobol import largest_n, with_n
from palaestrai_mosaik.environment.functions import ishigami

PROBLEM = {"num_vars": 3, "names": ["x1", "x2", "x3"], "bounds": [[0.0, 1.0]] * 3}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("ishigami"))
        yield executed(ishigami_design()).absolute()


@pytest.fixture
def store(stopped):
    """The options that say where the runs are already, so that they need not be executed again."""
    return "--store", str(stopped / "results")


def widest(unit, resamples=100, seed=1):
    """Return the largest half-width of S1 and ST that SALib gives for points of the unit cube."""
    y = np.array([ishigami(point) for point in (2 * unit - 1) * math.pi])
    found = analyser.analyze(PROBLEM, y, calc_second_order=False, num_resamples=resamples, seed=seed)
    return max(*found["S1_conf"], *found["ST_conf"])


def test_it_stops_where_salib_says_so(stopped):
    folder = DesignFolder.open(stopped)
    rounds = folder.rounds
    assert rounds.ended == "all intervals are within ±0.45"
    assert [one["n"] for one in rounds.measured] == [8 * 2**k for k in range(rounds.number)]
    assert rounds.number >= 3
    for one in rounds.measured:
        unit = sample(with_n(folder.spec, one["n"])).unit
        # (bootstraps with other seeds)
        assert one["interval"] == pytest.approx(widest(unit), rel=0.35)
        assert (one["interval"] <= 0.45) == (one is rounds.measured[-1])
    # the indices of the last round are those of the formula, within the intervals that it has asked for
    (found,) = sensitivity(Results(folder), ("sobol",))
    known = {("S1", "x1"): 0.3139, ("S1", "x2"): 0.4424, ("S1", "x3"): 0.0}
    known |= {("ST", "x1"): 0.5576, ("ST", "x2"): 0.4424, ("ST", "x3"): 0.2437}
    for row in found.frame.to_dict("records"):
        assert abs(row["value"] - known[row["index"], row["factor"]]) < 0.45


def test_ishigamis_stopping_n():
    # SALib alone, with sequences of its own: intervals of ±0.05 need thousands of blocks
    stops = []
    for seed in (1, 2, 3):
        n = 64
        while widest(sampler.sample(PROBLEM, n, calc_second_order=False, seed=seed)) > 0.05:
            n *= 2
        stops.append(n)
    spec = from_mapping(
        ishigami_design(
            sampler={"name": "sobol", "n": 64, "second_order": False, "until": {"interval": 0.05}}
        )
    )
    ours = 64
    while widest(sample(with_n(spec, ours)).unit) > 0.05:
        ours *= 2
    assert ours in {n for stop in stops for n in (stop // 2, stop, 2 * stop)}
    assert ours <= largest_n(spec) == 4096


def test_the_same_results_make_the_same_folder(stopped, store):
    assert contents(executed(ishigami_design(), "again", *store)) == contents(stopped)


def test_until_is_no_part_of_the_identity(store):
    plain = ishigami_design(sampler={"name": "sobol", "n": 8, "second_order": False})
    with_until = ishigami_design()
    assert from_mapping(plain).hash == from_mapping(with_until).hash
    # so a design that was executed without goes on
    executed(plain, "f", *store)
    assert DesignFolder.open("f").rounds is None
    folder = DesignFolder.open(executed(with_until, "f", *store))
    assert folder.rounds.number >= 3


def test_the_limit_ends_it(store):
    design = ishigami_design()
    design["sampler"]["until"] = {"interval": 0.01, "max_n": 16}
    folder = DesignFolder.open(executed(design, "f", *store))
    assert folder.rounds.ended == "n has reached 16 (max_n)"
    assert len(folder.runs) == 16 * 5


def test_constant_outcomes_are_not_waited_for(store):
    design = ishigami_design()
    design["outcomes"]["steps"] = {"of": "steps"}
    narrow = DesignFolder.open(executed(design, "f", *store))
    assert narrow.rounds.measured[-1]["outcome"] == "y"
    design["sampler"]["until"] = {"interval": 0.45, "outcomes": "steps"}
    constant = DesignFolder.open(executed(design, "g", *store))
    assert constant.rounds.number == 1
    assert constant.rounds.ended == "all intervals are within ±0.45"
