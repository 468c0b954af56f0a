"""The section ``search`` of a design: what it may hold, and what goes together with it."""

from __future__ import annotations

import jsonschema
import pytest
from support.factors import refused

from palaestrai_mosaik.arsenai.design.load import from_mapping, loads
from palaestrai_mosaik.arsenai.design.model import Budget, SearchSpec
from palaestrai_mosaik.arsenai.design.vocabulary import design_schema

PARAMS = "schedule.only.environments.formula.environment.params"


def design(search=None, **keys):
    formula = {
        "uid": "formula",
        "name": "function",
        "params": {"function": "branin", "steps": 1, "x1": 0.0, "x2": 0.0},
    }
    only = {
        "environments": [{"environment": formula}],
        "agents": [{"name": "nobody", "muscle": "idle", "sensors": [], "actuators": ["formula.idle"]}],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    found = {
        "uid": "valley",
        "seed": 1,
        "base": {"schedule": [{"only": only}]},
        "factors": {name: {"path": f"{PARAMS}.{name}", "low": -5, "high": 10} for name in ("x1", "x2")},
        "search": {"budget": {"runs": 10}} if search is None else search,
        "outcomes": {"y": {"of": "reward.y", "better": "lower"}},
    }
    return {**found, **keys}


def problems(data):
    return {problem.path: problem.message for problem in refused(from_mapping, data).problems}


def test_defaults_are_written_out_and_load_again():
    spec = from_mapping(design())
    assert spec.search == SearchSpec("tpe", Budget(10), 1, "none", ("y",), 0)
    assert spec.repetitions == 1
    again = from_mapping(dict(spec.resolved))
    assert (again.search, again.hash) == (spec.search, spec.hash)
    jsonschema.validate(design(), design_schema())
    jsonschema.validate(dict(spec.resolved), design_schema())


def test_budget_and_confirmation_are_no_part_of_the_identity():
    one = from_mapping(design())
    assert from_mapping(design({"budget": {"runs": 99, "hours": 2}, "confirm": 3})).hash == one.hash
    for other in ({"sampler": "random"}, {"seeds_per_setting": 2}, {"prune": "median"}):
        assert from_mapping(design({"budget": {"runs": 10}} | other)).hash != one.hash


def test_all_that_is_wrong_is_said_at_once():
    found = problems(
        design(
            {
                "sampler": "tpee",
                "budget": {"runs": 0, "stepz": 3},
                "prune": "halvin",
                "confirm": -1,
                "seeds": 2,
            },
            sampler="lhs",
            repetitions=3,
            max_runs=4,
        )
    )
    assert set(found) == {
        *(
            "sampler",
            "repetitions",
            "max_runs",
            "search.sampler",
            "search.budget.runs",
            "search.budget.stepz",
        ),
        *("search.prune", "search.confirm", "search.seeds"),
    }
    assert "did you mean 'tpe'?" in found["search.sampler"]
    assert "did you mean 'steps'?" in found["search.budget.stepz"]
    assert "did you mean 'halving'?" in found["search.prune"]
    assert "a search proposes its settings itself" in found["sampler"]


def test_a_message_has_the_line():
    text = "uid: a\nseed: 1\nsearch:\n  budget: {runs: 3}\n  prune: never\n"
    assert 5 in {problem.line for problem in refused(loads, text).problems}


@pytest.mark.parametrize("budget", [{}, {"runs": None}, None, {"hours": 0}, {"hours": True}, {"steps": 1.5}])
def test_a_budget_is_a_limit(budget):
    assert any(path.startswith("search") for path in problems(design({"budget": budget})))


def test_a_budget_is_enough_for_a_setting():
    found = problems(design({"budget": {"runs": 2}, "seeds_per_setting": 3}))
    assert "a setting takes 3 runs" in found["search.budget.runs"]


def test_outcomes_say_which_direction_is_good():
    assert "add better: higher" in problems(design(outcomes={"y": "reward.y"}))["outcomes.y"]
    assert "a search needs outcomes" in problems(design(outcomes={}))["search"]
    two = {"y": {"of": "reward.y", "better": "lower"}, "n": {"of": "steps", "better": "higher"}}
    assert "several outcomes (y, n)" in problems(design(outcomes=two))["search"]
    found = problems(design({"budget": {"runs": 9}, "objectives": ["yy"]}, outcomes=two))
    assert "did you mean 'y'?" in found["search.objectives"]
    several = {"budget": {"runs": 9}, "objectives": ["y", "n"]}
    assert from_mapping(design(several, outcomes=two)).search.objectives == ("y", "n")
    assert (
        "takes one objective"
        in problems(design({**several, "sampler": "gp"}, outcomes=two))["search.objectives"]
    )
    assert (
        "compares one number"
        in problems(design({**several, "prune": "median"}, outcomes=two))["search.prune"]
    )


def test_samplers_take_the_factors_that_they_understand():
    factors = design()["factors"]
    levels = factors | {"f": {"path": f"{PARAMS}.function", "levels": ["branin", "linear"]}}
    cmaes = {"sampler": "cmaes", "budget": {"runs": 9}}
    assert "the levels of f have no order" in problems(design(cmaes, factors=levels))["search.sampler"]
    ordered = factors | {"steps": {"path": f"{PARAMS}.steps", "levels": [1, 2, 8], "ordered": True}}
    assert from_mapping(design(cmaes, factors=ordered)).search.sampler == "cmaes"
    one = {"x1": factors["x1"]}
    assert "needs two factors" in problems(design(cmaes, factors=one))["search.sampler"]
    when = levels | {"x2": factors["x2"] | {"when": "f == 'branin'"}}
    for sampler in ("gp", "nsgaii", "cmaes"):
        search = {"sampler": sampler, "budget": {"runs": 9}}
        assert "'when'; choose tpe or random" in problems(design(search, factors=when))["search.sampler"]
    assert "a search needs factors" in problems(design(factors={}))["search"]


def test_pruners_need_what_they_compare():
    wilcoxon = {"budget": {"runs": 40}, "prune": "wilcoxon", "seeds_per_setting": 4}
    assert "give seeds_per_setting: 5 or more" in problems(design(wilcoxon))["search.prune"]
    assert from_mapping(design(wilcoxon | {"seeds_per_setting": 5})).search.seeds == 5
    halving = {"budget": {"runs": 40}, "prune": "halving"}
    reading = {"y": {"of": "reading.formula.y", "better": "lower"}}
    assert "not of 'y'" in problems(design(halving, outcomes=reading))["search.prune"]


def test_failures_are_the_worst_unless_they_are_excluded():
    assert from_mapping(design()).search.failures == "worst"
    excluded = design({"budget": {"runs": 10}, "failures": "exclude"})
    assert from_mapping(excluded).search.failures == "exclude"
    assert from_mapping(excluded).hash != from_mapping(design()).hash
    assert "failures" in problems(design({"budget": {"runs": 10}, "failures": "ignore"}))["search.failures"]


def test_settings_that_were_stopped_early_are_confirmed_only_where_some_are_stopped():
    search = {"budget": {"runs": 10}, "confirm_pruned": 2, "confirm": 3}
    assert "give confirm and prune" in problems(design(search))["search.confirm_pruned"]
    assert from_mapping(design({**search, "prune": "median"})).search.confirm_pruned == 2


def test_a_search_chooses_no_value_of_what_is_uncertain():
    given = design()
    given["factors"]["x2"]["uncertain"] = True
    assert "x2 is uncertain" in problems(given)["factors.x2"]
    plain = {key: value for key, value in given.items() if key != "search"}
    plain["sampler"] = {"name": "lhs", "n": 8}
    assert from_mapping(plain).factor("x2").uncertain
    again = from_mapping(dict(from_mapping(plain).resolved))
    assert again.factor("x2").uncertain and not again.factor("x1").uncertain
