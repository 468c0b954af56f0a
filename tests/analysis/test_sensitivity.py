"""From results to indices: what is left out, what is refused, what is told."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from support.documents import document

from palaestrai_mosaik.analysis.loss import keep, lost_runs
from palaestrai_mosaik.analysis.sensitivity import COLUMNS, sensitivity, tidy
from palaestrai_mosaik.design import from_mapping
from palaestrai_mosaik.design.model import OutcomeSpec
from palaestrai_mosaik.design.samplers import sample
from palaestrai_mosaik.errors import DocumentError, StoreError

NAN = float("nan")


class Made:
    """Results of a design over two numbers, whose outcomes are made up."""

    def __init__(self, sampler, change=lambda y: y, **keys):
        base = {key: value for key, value in document().canonical.items() if key not in ("uid", "seed")}
        path = "schedule[0].phase_0.environments.myenv.environment.params"
        numbers = {f"x{i}": {"path": f"{path}.x{i}", "create": True, "low": 0, "high": 1} for i in (1, 2)}
        told = {"uid": "d", "seed": 1, "version": "3.5", "base": base, "factors": numbers, "sampler": sampler}
        self.spec = from_mapping({**told, "analysis": {"resamples": 20}, **keys})
        drawn = sample(self.spec)
        self.folder = SimpleNamespace(sample=drawn)
        self.outcome_specs = (OutcomeSpec("y", "objective"), OutcomeSpec("flat", "objective"))
        y = change(drawn.unit @ np.array([2.0, 1.0]))
        self.frame = pd.DataFrame(
            {"row": np.arange(len(y)), "repetition": 0, "status": "finished", "y": y, "flat": 3.0}
        )

    def outcomes(self):
        return self.frame

    def by_row(self):
        return self.frame


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
    assert first["value"].tolist() == pytest.approx([0.8, 0.2], abs=0.1)
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


def test_more_than_half_lost_is_refused():
    found = only(Made(SOBOL, spoiled(*range(0, 54, 6))))
    assert (found.used, found.lost) == (0, 96)
    assert "56.2% of the rows are left out" in found.refused
    assert "with more than 50% lost nothing can be said" in found.refused
    assert found.frame["value"].isna().all()
    assert only(Made(SOBOL, spoiled(*range(0, 48, 6)))).refused == ""


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


def test_what_is_kept():
    finite = np.array([True, False, True, True, True, True])
    block = np.array([0, 0, 1, 1, 2, 2])
    assert keep(finite, block, "row").mask.tolist() == finite.tolist()
    assert keep(finite, block, "block").mask.tolist() == [False, False, True, True, True, True]
    assert keep(finite, block, "nothing").used == 0
    assert keep(np.ones(6, dtype=bool), block, "nothing").used == 6
    assert len(keep(finite, block, "row").notes) == 2
    assert len(keep(np.arange(100) > 0, np.arange(100), "row").notes) == 1


def test_lost_runs_are_counted_by_their_kind():
    frame = pd.DataFrame(
        {
            "status": ["finished", "failed", "missing", "finished", "finished"],
            "y": [1.0, NAN, NAN, NAN, np.inf],
        }
    )
    assert lost_runs(frame, ["y"]) == {"runs": 5, "failed": 1, "missing": 1, "y": 2}
