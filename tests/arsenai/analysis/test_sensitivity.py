"""From results to indices: what is left out, what is refused, what is told."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from support.documents import document

from palaestrai_mosaik.arsenai.analysis.lost_runs import count_missing_runs, keep
from palaestrai_mosaik.arsenai.analysis.sensitivity import COLUMNS, sensitivity, tidy
from palaestrai_mosaik.arsenai.design import from_mapping
from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.model import OutcomeSpec
from palaestrai_mosaik.arsenai.design.samplers import sample
from palaestrai_mosaik.core.errors import DocumentError, StoreError

NAN = float("nan")


class Made:
    """Results of a design over two numbers, whose outcomes are made up."""

    def __init__(self, sampler, change=lambda y: y, numbers=None, **keys):
        base = {key: value for key, value in document().canonical.items() if key not in ("uid", "seed")}
        path = "schedule[0].phase_0.environments.myenv.environment.params"
        numbers = numbers or {f"x{i}": {"low": 0, "high": 1} for i in (1, 2)}
        numbers = {name: {"path": f"{path}.{name}", "create": True, **told} for name, told in numbers.items()}
        told = {"uid": "d", "seed": 1, "version": "3.5", "base": base, "factors": numbers, "sampler": sampler}
        self.spec = from_mapping({**told, "analysis": {"resamples": 20}, **keys})
        drawn = sample(self.spec)
        self.folder = SimpleNamespace(sample=drawn, values=lambda: decode(self.spec, drawn.unit))
        self.outcome_specs = (OutcomeSpec("y", "objective"), OutcomeSpec("flat", "objective"))
        y = change(drawn.unit @ np.array([2.0, 1.0]))
        self.frame = pd.DataFrame(
            {
                "row": np.arange(len(y)),
                "repetition": 0,
                "run": np.arange(len(y)),
                "status": "finished",
                "y": y,
                "flat": 3.0,
            }
        )

    def outcomes(self):
        return self.frame


class Repeated(Made):
    """Of each row several runs, whose common seeds add noise; x2 has no effect, and a quarter of the runs fails."""

    def __init__(self, sampler, repetitions):
        super().__init__(sampler, repetitions=repetitions)
        rng = np.random.Generator(np.random.PCG64(1))
        row, number = np.divmod(np.arange(len(self.frame) * repetitions), repetitions)
        y = 2.0 * self.folder.sample.unit[row, 0] + rng.normal(0.0, 2.0, repetitions)[number]
        y[rng.choice(len(y), len(y) // 4, replace=False)] = NAN
        self.frame = pd.DataFrame({"row": row, "repetition": number, "run": np.arange(len(y)), "y": y})


def spoiled(*rows, by=NAN):
    def change(y):
        y[list(rows)] = by
        return y

    return change


SOBOL = {"name": "sobol", "n": 16}


def only(results, method=None, outcome="y"):
    return sensitivity(results, None if method is None else [method], [outcome])[0]


def test_all_is_told_in_one_tidy_frame():
    found = sensitivity(Made(SOBOL))
    assert [(one.outcome, one.method) for one in found] == [
        *(("y", "sobol"), ("y", "shapley"), ("flat", "sobol"), ("flat", "shapley"))
    ]
    frame = tidy(found)
    assert frame.columns.tolist() == list(COLUMNS)
    first = frame[(frame["outcome"] == "y") & (frame["index"] == "S1")].set_index("factor")
    assert first["value"].tolist() == pytest.approx([0.8, 0.2], abs=0.15)
    assert set(frame["used"]) == {96}
    assert set(frame["lost"]) == {0}


@pytest.mark.parametrize("by", [NAN, float("inf"), -float("inf")])
def test_what_is_not_finite_never_reaches_an_analyser(by):
    whole = only(Made(SOBOL))
    found = only(Made(SOBOL, spoiled(7, by=by)))
    assert (found.used, found.lost) == (90, 6)
    assert found.frame["value"].notna().all()
    assert not np.array_equal(found.frame["value"], whole.frame["value"])
    assert found.notes[0] == (
        "6.2% of the rows are left out (6 of 96): 1 row without a finite outcome, and those that belong to "
        "the same blocks"
    )


def test_each_method_loses_what_it_must():
    assert only(Made({"name": "morris", "n": 6}, spoiled(0, 4))).lost == 6  # two trajectories of 3
    assert only(Made({"name": "finite_differences", "n": 6}, spoiled(0))).lost == 3
    lhs = {"name": "lhs", "n": 70}
    assert only(Made(lhs, spoiled(3, 5)), "pawn").lost == 2
    found = only(Made({"name": "fast", "n": 65}, spoiled(3)))
    assert found.refused == "1 row of 130 without a finite outcome, and the method needs all of them"
    assert found.frame["value"].isna().all()
    assert found.frame["index"].tolist() == ["S1", "S1", "ST", "ST"]


def test_half_lost_is_refused():
    found = only(Made(SOBOL, spoiled(*range(0, 54, 6))))
    assert (found.used, found.lost) == (0, 96)
    assert "56.2% of the rows are left out" in found.refused
    assert "with 50% or more lost nothing can be said" in found.refused
    assert found.frame["value"].isna().all()
    assert "50.0% of the rows" in only(Made(SOBOL, spoiled(*range(0, 48, 6)))).refused
    assert only(Made(SOBOL, spoiled(*range(0, 42, 6)))).refused == ""


def test_a_constant_outcome_is_told_not_divided_by():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one in sensitivity(Made(SOBOL), outcomes=["flat"]):
            assert one.refused.startswith("constant outcome: it is 3 in all runs")
            assert one.frame["value"].isna().all()
            assert set(one.frame["factor"]) == {"x1", "x2"}
    rounding = only(Made(SOBOL, lambda y: 1e6 + 1e-9 * y))
    assert rounding.refused.startswith("constant outcome")


def test_of_saltelli_blocks_other_methods_use_independent_rows():
    found = only(Made({"name": "sobol", "n": 32}), "pawn")
    assert found.used == 64
    assert "the two rows that are independent" in found.notes[0]


def test_unknown_and_unfitting_methods_and_outcomes_are_refused():
    with pytest.raises(DocumentError, match=r"no method is called 'sobel' \(did you mean 'sobol'\?\)"):
        sensitivity(Made(SOBOL), ["sobel"])
    with pytest.raises(DocumentError, match="morris does not fit the sampler sobol"):
        sensitivity(Made(SOBOL), ["morris"])
    with pytest.raises(StoreError, match=r"no outcome 'z'.*it has: y, flat"):
        sensitivity(Made(SOBOL), outcomes=["z"])


def kept(loses, lost=(1,), rows=6, block=(0, 0, 1, 1, 2, 2)):
    y = np.arange(float(rows))[:, None]
    y[list(lost)] = NAN
    return keep(y, np.array(block), loses)


def test_what_is_kept():
    assert kept("row").rows.tolist() == [True, False, True, True, True, True]
    assert kept("block").rows.tolist() == [False, False, True, True, True, True]
    assert (kept("nothing").used, kept("nothing", ()).used) == (0, 6)
    assert len(kept("row").notes) == 2
    assert len(kept("row", (0,), 100, range(100)).notes) == 1


def additive(lost, loses, common=True):
    """Six rows in three blocks, ten apart, times three repetitions that are 0, 100 and 1000 apart."""
    y = 10.0 * np.arange(6)[:, None] + np.array([0.0, 100.0, 1000.0])
    for place in lost:
        y[place] = NAN
    return keep(y, np.array([0, 0, 1, 1, 2, 2]), loses, common)


def test_rows_of_a_block_are_means_of_the_same_repetitions():
    found = additive([(0, 0), (3, 2)], "block")
    assert found.runs.tolist() == [[False, True, True]] * 2 + [[True, True, False]] * 2 + [[True] * 3] * 2
    assert (found.used, found.lost) == (14, 4)
    # what seeds differ by is none of the rows'
    np.testing.assert_allclose(np.diff(found.y), 10.0, rtol=0, atol=1e-9)
    assert found.notes[0].startswith("2 of 18 runs without a finite outcome; repetitions share their seeds")
    assert "2 finite runs are not used" in found.notes[0]
    assert "differ by on average is subtracted" in found.notes[1]
    # one block has no repetition in full, the others have different ones
    gone = additive([(0, 0), (0, 1), (1, 2), (3, 2)], "block")
    assert gone.rows.tolist() == [False, False, True, True, True, True]
    np.testing.assert_allclose(np.diff(gone.y[2:]), 10.0, rtol=0, atol=1e-9)
    assert "2 rows of blocks that have no repetition in full" in gone.notes[1]


def test_repetitions_of_what_is_lost():
    lost = [(0, 0), (3, 2)]
    rows = additive(lost, "row")
    assert rows.lost == 2
    np.testing.assert_allclose(np.diff(rows.y), 10.0, rtol=0, atol=1e-9)
    # all rows have the second repetition: nothing is to be adjusted
    whole = additive(lost, "nothing")
    np.testing.assert_array_equal(whole.y, 10.0 * np.arange(6) + 100)
    refused = additive([(0, 0), (3, 2), (4, 1)], "nothing").refused
    assert "no repetition, whose seed they share, is finite in all of them" in refused
    # seeds of their own: the mean of what is left
    independent = additive(lost, "block", common=False)
    assert (independent.lost, independent.y[0], independent.y[3]) == (2, 550.0, 80.0)
    assert "rows are means of the runs that they have left" in independent.notes[0]


def test_lost_repetitions_make_no_effect_of_a_factor_that_has_none():
    """Morris, one factor without effect; every repetition adds noise to all rows alike; a quarter is lost."""
    found = Repeated({"name": "morris", "n": 6}, 4)
    result = only(found, "morris")
    told = result.frame[result.frame["index"] == "mu_star"].set_index("factor")["value"]
    assert told.to_dict() == pytest.approx({"x1": 2.0, "x2": 0.0, "(noise)": 0.0}, abs=1e-9)
    assert result.used + result.lost == 72
    assert result.lost >= 18
    assert "18 of 72 runs" in result.notes[0]


def test_a_level_that_is_lost_whole_is_told():
    numbers = {f"x{i}": {"levels": [0.0, 1.0], "labels": ["low", "high"]} for i in (1, 2)}
    found = Made({"name": "factorial"}, spoiled(2), numbers)
    result = only(found, "anova")
    assert result.refused == "" and not any("is left: nothing" in note for note in result.notes)
    found.frame.loc[found.folder.sample.unit[:, 0] > 0.5, "y"] = NAN
    assert "50% or more lost" in only(found, "anova").refused
    three = {**numbers, "x1": {"levels": [0.0, 1.0, 7.0]}}
    found = Made({"name": "factorial"}, numbers=three)
    found.frame.loc[found.folder.sample.unit[:, 0] > 0.7, "y"] = NAN
    assert "no run of x1=7.0 is left: nothing is said of it" in only(found, "anova").notes


def test_of_a_level_that_lost_some_of_its_drawn_rows_nothing_is_said():
    """Rows of one level have coordinates of their own in a drawn sample: what is lost of them is not the level."""
    levels = {"x1": {"levels": [0.0, 1.0]}, "x2": {"low": 0.0, "high": 1.0}}
    found = Made({"name": "lhs", "n": 100}, numbers=levels)
    of_one = np.flatnonzero(found.folder.sample.unit[:, 0] > 0.5)
    found.frame.loc[of_one[:9], "y"] = NAN
    result = only(found, "pawn")
    assert result.refused == "" and result.lost == 9
    assert not any("is left: nothing" in note for note in result.notes)
    found.frame.loc[of_one[:-1], "y"] = NAN
    assert not any("is left: nothing" in note for note in only(found, "pawn").notes)
    three = {**levels, "x1": {"levels": [0.0, 1.0, 7.0]}}
    found = Made({"name": "lhs", "n": 100}, numbers=three)
    found.frame.loc[found.folder.sample.unit[:, 0] > 2 / 3, "y"] = NAN
    assert "no run of x1=7.0 is left: nothing is said of it" in only(found, "pawn").notes


def test_lost_runs_are_counted_by_their_kind():
    frame = pd.DataFrame(
        {
            "status": ["finished", "failed", "missing", "finished", "finished"],
            "run": ["a", "b", "c", "a", "d"],
            "y": [1.0, NAN, NAN, NAN, np.inf],
        }
    )
    assert count_missing_runs(frame, ["y"]) == {"runs": 5, "executed": 3, "failed": 1, "missing": 1, "y": 2}
