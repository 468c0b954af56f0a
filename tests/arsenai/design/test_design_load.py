"""Designs that vary a run document: read, merged, resolved, checked, built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documents import agent, environment, named, phase
from support.factors import refused

from palaestrai_mosaik.arsenai.design.expansion import DocumentBuilder
from palaestrai_mosaik.arsenai.design.load import from_mapping, load, loads
from palaestrai_mosaik.arsenai.design.model import (
    INACTIVE,
    AnalysisSpec,
    DesignSpec,
    OutcomeSpec,
    RobustnessSpec,
    SamplerSpec,
)
from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import dumps
from palaestrai_mosaik.experiment import from_mapping as run_from_mapping

GAIN = "schedule.control.agents.a.muscle.params.gain"
RUN = {
    "uid": "run",
    "seed": 3,
    "version": "3.5",
    "schedule": [
        {
            "control": phase(
                [environment(discrete=True)],
                [agent("a", muscle=named("m:M", gain=1.0, band=[0.9, 1.1])), agent("b", 5)],
            )
        },
        {"exam": {"phase_config": {"mode": "test"}}},
    ],
    "run_config": {"conditions": [named("c:Run")]},
}
LHS = {"name": "lhs", "n": 4}


def design(*factors: Any, base: Any = RUN, sampler: Any = LHS, **keys: Any) -> DesignSpec:
    """Return a design over the run document."""
    data = {"uid": "d", "seed": 1, "base": base, "factors": list(factors), "sampler": sampler, **keys}
    return from_mapping(data)


def gain(**keys: Any) -> dict[str, Any]:
    return {"path": GAIN, **keys}


def problems(*factors: Any, **keys: Any) -> str:
    return "\n".join(map(str, refused(design, *factors, **keys).problems))


def test_factors_with_their_defaults() -> None:
    spec = design(
        gain(low=0, high=2),
        {"path": f"{GAIN[:-4]}band[1]", "low": 1, "high": 10, "type": "int"},
        {"path": f"{GAIN[:-4]}mode", "create": True, "levels": ["slow", {"fast": 2}, None, 1.0, True]},
        {"name": "c", "path": "schedule.control.phase_config.episodes", "levels": {"few": 1, "many": 9}, "weights": [1, 3]},
        {"name": "n", "path": "schedule.exam.phase_config.mode", "levels": ["train", "test"], "ordered": True},
        {"name": "t", "path": f"{GAIN[:-4]}band[0]", "low": 0, "high": 3, "dist": "triangular"},
        {"name": "s", "path": "schedule.control.agents.b.muscle.params.s", "create": True, "dist": "normal", "mean": 1, "std": 2},
    )  # fmt: skip
    one, whole, mixed, few, mode, tri, normal = spec.factors
    assert (one.name, one.kind, one.dist, one.low, one.high, one.params) == (
        "gain",
        "float",
        "uniform",
        0,
        2,
        {},
    )
    assert (whole.name, whole.kind, whole.low, whole.high) == ("band[1]", "int", 1, 10)
    assert mixed.labels == ("slow", '{"fast":2}', "null", "1.0", "true")
    assert mixed.levels == ("slow", {"fast": 2}, None, 1.0, True)
    assert mixed.nominal and mixed.create
    assert (few.labels, few.levels, few.weights) == (("few", "many"), (1, 9), (0.25, 0.75))
    assert mode.ordered and not mode.nominal
    assert tri.params == {"mode": 1.5}
    assert (normal.low, normal.high, normal.params) == (None, None, {"mean": 1, "std": 2})
    assert (spec.sampler, spec.seed_policy, spec.analysis) == (
        SamplerSpec("lhs", 4),
        "common",
        AnalysisSpec(),
    )
    assert spec.base is not None
    assert set(spec.base) == {"version", "schedule", "run_config"}


def test_building_changes_the_paths_and_nothing_else() -> None:
    spec = design(
        gain(low=0, high=2),
        {"name": "new", "path": f"{GAIN[:-4]}new", "create": True, "low": 0, "high": 1, "when": "gain > 1"},
        {
            "name": "who",
            "path": "schedule.control.agents.b.muscle",
            "levels": [named("m:X"), named("m:Y", k=1)],
        },
    )
    before = dumps(spec.resolved)
    builder = DocumentBuilder(spec)
    built = builder.build({"gain": 1.5, "new": 0.5, "who": named("m:Y", k=1)})
    expected = run_from_mapping(RUN).canonical
    for one in (expected["schedule"][0]["control"]["agents"], expected["schedule"][1]["exam"]["agents"]):
        one[0]["muscle"]["params"] |= {"gain": 1.5, "new": 0.5}
        one[1]["muscle"] = named("m:Y", k=1)
    assert run_from_mapping({"uid": "run", "seed": 3, **built}).canonical == expected
    assert "new" not in str(builder.build({"gain": 0.5, "new": INACTIVE, "who": None}))
    assert dumps(spec.resolved) == before


def test_identity_of_the_base_is_dropped_and_its_schedule_may_be_a_mapping() -> None:
    by_name = {name: body for phase in RUN["schedule"] for name, body in phase.items()}  # type: ignore[attr-defined]
    mapped = design(
        gain(low=0, high=1), base={"schedule": by_name, "run_config": RUN["run_config"], "version": "3.5"}
    )
    assert mapped.hash == design(gain(low=0, high=1)).hash
    assert mapped.hash == design(gain(low=0, high=1), base={**RUN, "uid": "other", "seed": 9}).hash


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("low"), st.floats(-1e300, 1e299), st.floats(1e-3, 1e300)),
            st.tuples(st.just("levels"), st.lists(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
                | st.text(max_size=20) | st.dictionaries(st.text(max_size=3), st.integers(), max_size=3), min_size=2, max_size=4),
                st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4)),
        ),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_any_sound_design_reads_back_from_its_resolved_text(drawn: list[Any]) -> None:
    factors = []
    for number, (kind, first, second) in enumerate(drawn):
        entry: dict[str, Any] = {"name": f"f{number}", "path": f"{GAIN[:-4]}f{number}", "create": True}
        if kind == "low":
            entry |= {"low": first, "high": first + abs(first) + second}
        else:
            labels = [f"l{index}" for index in range(len(first))]
            entry |= {"levels": first, "labels": labels, "weights": second[: len(first)]}
        factors.append(entry)
    try:
        spec = design(*factors)
    except DocumentError as error:
        assert "is given twice" in str(error) or "finite number" in str(error)
        return
    again = loads(dumps(dict(spec.resolved)))
    assert again.hash == spec.hash
    assert again.axes == spec.axes


def test_the_hash_knows_the_order_of_factors_and_all_that_makes_runs() -> None:
    a, b = gain(low=0, high=1), {"name": "b", "path": f"{GAIN[:-4]}band", "levels": [[0, 1], [1, 2]]}
    hash_ = design(a, b).hash
    assert design(a, b, output="x", execution={"jobs": 3}).hash == hash_
    assert design(a, b, execution={"jobs": 3}).resolved["execution"] == {"jobs": 3}
    others = [
        design(b, a),
        design(a, b, seed=2),
        design(a, b, repetitions=2),
        design(a, b, sampler={"name": "lhs", "n": 5}),
        design(a, b, seeds={"policy": "independent"}),
        design(a, {**b, "ordered": True}),
    ]
    assert len({hash_, *(one.hash for one in others)}) == len(others) + 1


def test_zip_and_groups() -> None:
    parts = [gain(levels=[1, 2, 3]), {"name": "b", "path": f"{GAIN[:-4]}band[0]", "low": 0, "high": 1},
             {"name": "c", "path": f"{GAIN[:-4]}band[1]", "levels": ["x", "y", "z"]}]  # fmt: skip
    spec = design(*parts, zip=[["c", "gain"]])
    assert [(axis.name, axis.levels, axis.group) for axis in spec.axes] == [
        ("gain+c", 3, None),
        ("b", None, None),
    ]
    sobol = {"name": "sobol", "n": 8}
    named = design(*parts, zip={"both": ["c", "gain"]})
    assert [axis.name for axis in named.axes] == [
        "both" if len(axis.factors) > 1 else axis.name for axis in spec.axes
    ]
    assert from_mapping(dict(named.resolved)).hash == named.hash != spec.hash
    spec = design(*parts, zip=[["c", "gain"]], groups={"all": ["c"], "rest": ["b"]}, sampler=sobol)
    assert [axis.group for axis in spec.axes] == ["all", "rest"]
    assert loads(dumps(spec.resolved)).hash == spec.hash


def test_outcomes_and_analysis() -> None:
    spec = design(
        gain(levels=[1, 2]),
        outcomes={
            "violations": {"of": "reward.band", "phase": "control", "agent": "a", "step": "max", "episode": "last",
                           "outside": [0.9, 1.1], "evaluation": True, "better": "lower"},
            "goal": "objective",
        },
        analysis={"compare": "gain", "baseline": 1, "confidence": 0.9, "resamples": 50},
        sampler="factorial",
    )  # fmt: skip
    assert spec.outcomes == (
        OutcomeSpec("violations", "reward.band", "control", "a", "max", "last", (0.9, 1.1), True, "lower"),
        OutcomeSpec("goal", "objective"),
    )
    assert spec.analysis == AnalysisSpec((), ("gain",), "1", 0.9, 50)
    assert loads(dumps(spec.resolved)).outcomes == spec.outcomes


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (gain(low=2, high=1), "low (2) must be below high (1)"),
        (gain(low=0), "needs 'high'"),
        (gain(), "needs 'low'; or give 'levels'"),
        (gain(low=0, high="1"), "high must be a finite number, found the string '1'"),
        (gain(low=0, high=float("inf")), "high must be a finite number"),
        (gain(low=0, high=10**400), "high must be a finite number, found the number 1000"),
        (gain(levels=[1, 2], weights=[1, 10**400]), "a weight must be a number above 0"),
        (gain(low=0, high=2**53 + 1, type="int"), "must stay below 2**53"),
        (gain(dist="lognormal", mean=1000, std=1), "reach from infinity to infinity"),
        (gain(dist="normal", mean=0, std=1e308, type="int"), "reach from minus infinity to infinity"),
        (gain(low=0, high=1, dist="loguniform"), "low of loguniform must be above 0, found 0"),
        (gain(low=-1, dist="lognormal", mean=0, std=1), "low of lognormal must be 0 or above"),
        (gain(dist="normal", mean=0, std=0), "std must be above 0"),
        (gain(dist="normal", mean=0), "(normal) needs 'std'"),
        (gain(dist="nromal", low=0, high=1), "dist is the string 'nromal' (did you mean 'normal'?)"),
        (gain(low=0, high=1, mean=3), "'mean' is no parameter of uniform; its parameters: low, high"),
        (gain(low=0, high=1, dist="triangular", mode=2), "mode (2) must lie from low (0) to high (1)"),
        (gain(low=0.5, high=3, type="int"), "low of an int factor must be a whole number, found 0.5"),
        (gain(levels=[1, 2], low=0), "'low' has no place in a factor with levels"),
        (gain(low=0, high=1, weights=[1]), "'weights' has no place in a factor with low and high"),
        (gain(levels=[1]), "at least two levels, found 1"),
        (gain(levels=3), "levels must be a list, or a mapping from labels, found the number 3"),
        (gain(levels=[1, 1]), "two levels have the label '1'"),
        (gain(levels=[1, 1], labels=["a", "b"]), "is given twice; use 'weights' instead"),
        (gain(levels=[1, "1"]), "two levels have the label '1'"),
        (gain(levels=[1, 2], labels=["a"]), "labels must be a list of 2, one for each level, found 1"),
        (gain(levels=[1, 2], weights=[1]), "weights must be a list of 2, one for each level, found 1"),
        (gain(levels=[1, 2], weights=[1, 0]), "a weight must be a number above 0, found the number 0"),
        (gain(levels=[1, "x" * 61]), "levels of more than 60 characters need 'labels'"),
        (gain(low=0, high=1, lgo=2), "unknown key 'lgo' in a factor (did you mean 'low'?)"),
        ({"low": 0, "high": 1}, "a factor needs the key 'path', which is missing"),
        ({"path": "a..b", "low": 0, "high": 1}, "the path 'a..b' is not understood at character 3"),
        ({"path": GAIN[:-1], "low": 0, "high": 1}, "has no key 'gai' (did you mean 'gain'?); keys: gain, band"),
        ({"path": "seed", "low": 0, "high": 1, "name": "s"}, "'seed' is set by the design for every run"),
        (gain(low=0, high=1, name="Row"), "'Row' is a column of the design's table"),
        (gain(low=0, high=1, name=" x"), "a factor's name has at most 100 printable characters"),
        (gain(low=0, high=1, when="gain > 1"), "circle: gain -> gain"),
        (gain(low=0, high=1, when="gian > 1"), "names 'gian', which is no factor (did you mean 'gain'?)"),
        (gain(low=0, high=1, when="1 > 0"), "names no factor, so it is always the same"),
        (3, "a factor must be a mapping, found the number 3"),
    ],
)  # fmt: skip
def test_contradictions_of_a_factor(factor: Any, message: str) -> None:
    assert message in problems(factor)


BAND = {"name": "band", "path": f"{GAIN[:-4]}band", "levels": [[0, 1], [1, 2], [2, 3]]}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"factors": [gain(low=0, high=1), gain(low=0, high=2, name="other")]}, "'gain' and 'other' set the same part"),
        ({"factors": [gain(low=0, high=1), {"name": "p", "path": GAIN[:-5], "levels": [{}, {"x": 1}]}]}, "or lies inside it"),
        ({"factors": [BAND, {"name": "e", "path": f"{GAIN[:-4]}band[0]", "low": 0, "high": 1}]}, "'band' and 'e' set the same"),
        ({"factors": [gain(low=0, high=1), {**gain(low=0, high=2), "path": BAND["path"]} | {"name": "gain"}]}, "two factors have the name 'gain' (the other: entry 0)"),
        ({"zip": [["gain", "bnd"]]}, "zip names the string 'bnd', which is no factor (did you mean 'band'?)"),
        ({"factors": [gain(levels=[1, 2, 3]), BAND], "zip": {"band": ["gain", "band"]}}, "a zip's name must be a string that no factor has, found the string 'band'"),
        ({"zip": [["gain"]]}, "a zip needs at least two factors, found 1"),
        ({"zip": ["gain", "band"]}, "zip must be a list of lists"),
        ({"zip": [["gain", "band"]]}, "must all have levels, or none of them: 'band' has, 'gain' has not"),
        ({"factors": [gain(levels=[1, 2]), BAND], "zip": [["gain", "band"]]}, "as many levels: 'gain' has 2, 'band' has 3"),
        ({"factors": [gain(levels=[1, 2, 3], weights=[1, 1, 2]), BAND], "zip": [["gain", "band"]]}, "the same weights"),
        ({"factors": [gain(levels=[1, 2, 3]), BAND], "zip": [["gain", "band"], ["band", "gain"]]}, "also in zip 0"),
        ({"groups": {"g": ["gain"], "h": ["gain"]}}, "the factor 'gain' is also in group g; it can be in one group only"),
        ({"groups": {"gain": ["gain"]}}, "a group and a factor have the same name, 'gain'"),
        ({"groups": {"g": []}}, "a group must be a list of factors, found an empty list"),
        ({"factors": [gain(levels=[1, 2, 3]), BAND], "zip": [["gain", "band"]], "groups": {"g": ["gain"], "h": ["band"]}}, "they vary as one, so they belong to one group"),
        ({"constraints": ["gain <"]}, "is not understood"),
        ({"constraints": ["gain < 'x'"]}, "'<' compares two numbers or two strings"),
        ({"factors": [gain(levels=[1, 2])], "constraints": ["gain > 2"]}, "is false for all levels of its factors"),
        ({"outcomes": {"x": {"of": "rewards.band"}}}, "cannot be of 'rewards.band' (did you mean 'reward'?); allowed: objective, steps, reward.NAME"),
        ({"outcomes": {"x": {"of": "steps", "phase": "contrl"}}}, "there is no phase 'contrl' (did you mean 'control'?)"),
        ({"outcomes": {"x": {"of": "steps", "phase": 2}}}, "there is no phase 2: the last of 2 is 1"),
        ({"outcomes": {"x": {"of": "objective", "agent": "c"}}}, "the phase 'exam' has no agent 'c'; agents there: a, b"),
        ({"outcomes": {"x": {"of": "steps", "step": "avg"}}}, "step (how the steps"),
        ({"outcomes": {"x": {"of": "steps", "outside": [1, 0]}}}, "outside must be a band [low, high], low below high, found [1, 0]"),
        ({"outcomes": {"gain": "steps"}}, "'gain' is already the name of a factor"),
        ({"analysis": {"compare": ["gain"]}}, "'gain', which has no levels that could be compared"),
        ({"analysis": {"compare": ["bnd"]}}, "did you mean 'band'?"),
        ({"analysis": {"baseline": "[0,1)"}}, "baseline is '[0,1)', no label of a level (did you mean '[0,1]'?)"),
        ({"analysis": {"robustness": []}}, "robustness of the analysis must be a mapping, found"),
        ({"analysis": {"robustness": {"ovr": "gain"}}}, "analysis.robustness.ovr: unknown key 'ovr' in robustness of the analysis (did you mean 'over'?)"),
        ({"analysis": {"robustness": {"by": "bnd"}}}, "analysis.robustness.by: by names 'bnd', which is no factor (did you mean 'band'?)"),
        ({"analysis": {"robustness": {"by": "gain"}}}, "by names 'gain', which has no levels that could be compared"),
        ({"analysis": {"robustness": {"by": "band", "over": ["gian"]}}}, "analysis.robustness.over: over names 'gian', which is no factor (did you mean 'gain'?)"),
        ({"analysis": {"robustness": {"by": "band", "over": "band"}}}, "over names 'band', which is a factor of the decision (by), or zipped with one"),
        ({"factors": [BAND], "analysis": {"robustness": {"by": "band"}}}, "robustness needs a factor beside those of the decision (by)"),
        ({"factors": [gain(low=0, high=1)], "analysis": {"robustness": {}}}, "robustness needs 'by', the factors of the decision"),
        ({"analysis": {"robustness": {"by": "band"}}}, "robustness needs to know what is good: give an outcome better: higher"),
        ({"outcomes": {"x": {"of": "steps"}}, "analysis": {"robustness": {"satisfice": "y > 1"}}}, "analysis.robustness.satisfice: "),
        ({"outcomes": {"x": {"of": "steps"}}, "analysis": {"robustness": {"satisfice": "status == 'failed'"}}}, "names the status: scenarios have outcomes, no status"),
        ({"analysis": {"confidence": 95}}, "confidence must be a number between 0 and 1"),
        ({"sampler": {"n": 4}}, "sampler needs the key 'name'"),
        ({"sampler": {"name": "lhss", "n": 4}}, "no sampler is called 'lhss' (did you mean 'lhs'?)"),
        ({"seeds": {"policy": "same"}}, "policy of seeds is the string 'same'; allowed: common, independent"),
        ({"max_runs": 0}, "max_runs (rows of the design; null: no limit) must be an integer of at least 1"),
        ({"schedule": [{"p": None}]}, "a design has either 'base' or 'schedule'"),
        ({"base": None}, "a design needs 'base' (a run document to vary), or 'definitions' and 'schedule'"),
        ({"base": [1]}, "base must be the path of a run document, or the document itself, found a list"),
        ({"base": {"schedul": 1}}, "unknown key 'schedul' in the base (did you mean 'schedule'?)"),
        ({"factor": []}, "unknown key 'factor' in the design (did you mean 'factors'?)"),
        ({"uid": 3}, "uid must be a non-empty string, found the number 3; put it in quotes"),
        ({"execution": 3}, "execution must be a mapping"),
        ({"execution": {"tmeout": 3}}, "unknown key 'tmeout' in execution (did you mean 'timeout'?)"),
        ({"execution": {"jobs": 0}}, "jobs must be an integer of at least 1"),
        ({"execution": {"timeout": -1}}, "timeout must be 0 or a number of seconds, found the number -1"),
        (
            {"execution": {"executor": "slrum"}},
            "executor is the string 'slrum' (did you mean 'slurm'?); allowed: local, inline, slurm, parsl",
        ),
    ],
)  # fmt: skip
def test_contradictions_of_a_design(keys: dict[str, Any], message: str) -> None:
    factors = keys.pop("factors", [gain(low=0, high=1), BAND])
    assert message in problems(*factors, **keys)


def test_robustness_is_read_and_does_not_change_the_hash_of_others() -> None:
    outcomes = {"x": {"of": "steps", "better": "higher"}}
    factors = [gain(low=0, high=1), BAND]
    plain = design(*factors, outcomes=outcomes)
    assert "robustness" not in plain.resolved["analysis"] and plain.analysis.robustness is None
    told = {"by": "band", "satisfice": ["x > 1"]}
    asked = design(*factors, outcomes=outcomes, analysis={"robustness": told})
    assert asked.analysis.robustness == RobustnessSpec(("band",), (), ("x > 1",))
    assert asked.hash != plain.hash
    # what is resolved is a design itself
    again = from_mapping(asked.resolved)
    assert (again.hash, again.analysis) == (asked.hash, asked.analysis)
    empty = design(*factors, outcomes=outcomes, analysis={"robustness": {}})
    assert empty.analysis.robustness == RobustnessSpec()


def test_a_constraint_is_not_refused_for_a_value_it_was_tried_with() -> None:
    # in the middle of the range 1 / 0, and 10 ** 320
    for text in ("1 / gain > 2", "(10.0 ** 64) ** (5 + 10 * gain) > 1"):
        assert design(gain(low=-1, high=1), constraints=[text]).constraints == (text,)
    told = problems(gain(levels=[0, 1]), constraints=["1 / gain > 2"])
    assert "cannot be computed for gain = 0: division by zero" in told


def test_circles_of_conditions() -> None:
    first = gain(low=0, high=1, when='factor["b"] > 0')
    second = {"name": "b", "path": f"{GAIN[:-4]}band[0]", "low": 0, "high": 1, "when": "gain > 0"}
    assert "in a circle: gain -> b -> gain" in problems(first, second)


def test_points_are_a_part_of_the_design(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text('gain,band\n0.25,"[1,2]"\n')
    data = {"uid": "d", "seed": 1, "base": RUN, "factors": [gain(low=0, high=1), BAND]}
    spec = from_mapping({**data, "sampler": {"name": "points", "file": "points.csv"}}, "x", tmp_path)
    again = loads(dumps(spec.resolved))
    assert again.hash == spec.hash
    (tmp_path / "points.csv").write_text('gain,band\n0.5,"[1,2]"\n')
    assert (
        from_mapping({**data, "sampler": {"name": "points", "file": "points.csv"}}, "x", tmp_path).hash
        != spec.hash
    )


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yml").parent.mkdir(exist_ok=True)
        (folder / f"{name}.yml").write_text(text)
    return folder


PARENT = f"""\
uid: parent
seed: 1
base: run.yml
repetitions: 3
sampler: {{name: lhs, n: 4}}
factors:
  - {{path: {GAIN}, low: 0, high: 1}}
  - {{name: band, path: '{GAIN[:-4]}band[0]', low: 0, high: 1}}
constraints: [gain < 2]
"""


def test_another_sampler_takes_no_option_of_the_parents(tmp_path: Path) -> None:
    parent = {"uid": "d", "seed": 1, "base": RUN, "factors": {"gain": gain(levels=[1, 2])}}
    folder = write(
        tmp_path,
        parent=dumps({**parent, "sampler": {"name": "sobol", "n": 8, "scramble": False}}),
        same="extends: parent.yml\nsampler: {name: sobol, n: 4}\n",
        other="extends: parent.yml\nsampler: {name: lhs, n: 5}\n",
        short="extends: parent.yml\nsampler: factorial\n",
    )
    assert load(folder / "same.yml").sampler == SamplerSpec("sobol", 4, {"scramble": False})
    assert load(folder / "other.yml").sampler == SamplerSpec("lhs", 5)
    assert load(folder / "short.yml").sampler == SamplerSpec("factorial")


def test_extends_merges_mappings_and_factors_by_name(tmp_path: Path) -> None:
    (tmp_path / "above").mkdir()
    write(tmp_path / "above", run=dumps(RUN), parent=PARENT)
    write(
        tmp_path,
        child="uid: child\nextends: above/parent.yml\nsampler: {n: 8}\nfactors:\n  gain: {high: 2}\n  band: null\n"
        f"  new: {{path: '{GAIN[:-4]}new', create: true, levels: [1, 2]}}\nconstraints: null\n",
        grandchild="uid: grandchild\nextends: child.yml\nfactors: [{name: new, levels: [3, 4]}]\n"
        "base: {run_config: {conditions: []}}\n",
    )
    child, grandchild = load(tmp_path / "child.yml"), load(tmp_path / "grandchild.yml")
    assert (child.uid, child.seed, child.repetitions, child.sampler) == ("child", 1, 3, SamplerSpec("lhs", 8))
    assert [(one.name, one.low, one.high) for one in child.factors] == [("gain", 0, 2), ("new", None, None)]
    assert child.constraints == ()
    assert "extends" not in child.resolved
    assert grandchild.factor("new").levels == (3, 4)
    assert grandchild.base is not None
    assert grandchild.base["run_config"] == {"conditions": []}
    assert grandchild.base["schedule"] == child.base["schedule"]  # type: ignore[index]
    assert loads(dumps(grandchild.resolved)).hash == grandchild.hash
    assert loads(dumps(child.resolved), directory="/nowhere").hash == child.hash


def test_problems_are_told_where_they_were_written(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        run=dumps(RUN).replace("schedule:", "shedule:"),
        parent=PARENT.replace("low: 0, high: 1}\n  - {name", "low: 5, high: 1}\n  - {name").replace(
            "repetitions: 3", "repetitions: x"
        ),
        child="uid: child\nextends: parent.yml\nmax_runs: 0\nfactors:\n  band: {dist: normal}\n",
    )
    faults = refused(load, folder / "child.yml").problems
    told = {f"{Path(problem.file).name}:{problem.line}:{problem.path}" for problem in faults}
    assert {
        "run.yml:4:shedule",
        "parent.yml:4:repetitions",
        "parent.yml:7:factors.0.low",
        "child.yml:3:max_runs",
    } <= told
    mean = next(fault for fault in faults if "'mean'" in fault.message)
    assert Path(mean.file).name in ("parent.yml", "child.yml")


def test_a_circle_of_designs_and_missing_files(tmp_path: Path) -> None:
    write(tmp_path, a="uid: a\nseed: 1\nextends: b.yml\n", b="extends: a.yml\n", c="uid: c\nextends: aa.yml\n",
          d="uid: d\nseed: 1\nbase: a.yaml\n")  # fmt: skip
    with pytest.raises(
        DocumentError,
        match=r"b.yml:1: extends: designs extend one another in a circle: a.yml -> b.yml -> a.yml",
    ):
        load(tmp_path / "a.yml")
    with pytest.raises(
        DocumentError, match=r"c.yml:2: extends: there is no file '.*aa.yml' \(did you mean 'a.yml'\?\)"
    ):
        load(tmp_path / "c.yml")
    with pytest.raises(DocumentError, match=r"d.yml:3: base: there is no file"):
        load(tmp_path / "d.yml")
    with pytest.raises(DocumentError, match=r"cannot be read: No such file or directory \(did you mean"):
        load(tmp_path / "dd.yml")


def test_lines_of_the_design_for_later_problems() -> None:
    text = "uid: d\nseed: 1\nbase:\n  schedule: {p: }\nfactors:\n  - {name: g, path: schedule.p, levels: [null,\n      1]}\n"
    spec = loads(text, "d.yml")
    assert spec.problem("x", "factors", "g", "levels").line == 6
    assert spec.problem("x", "sampler").line is None
    assert str(spec.problem("bad", "factors", "g")) == "d.yml:6: factors.g: bad"
