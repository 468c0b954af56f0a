"""Designs that vary the bodies of agents: by path, and in arsenAI's form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documents import DUMMY, ENVIRONMENT_ENDS, VANILLA_RUN, agent, environment, named, phase
from support.factors import checked_documents, over_base

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.expansion import DocumentBuilder, Expansion
from palaestrai_mosaik.arsenai.design.load import from_mapping as design_from_mapping
from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import from_mapping, loads

BODIES = "agents.learner.bodies"
FACTORS = {
    "count": {"path": f"schedule[0].train.{BODIES}[0].count", "levels": [1, 64]},
    "gain": {"path": f"schedule.train.{BODIES}[1].muscle.params.gain", "low": 0, "high": 1},
    "sign": {"path": f"schedule.train.{BODIES}.left.objective.params.deep.sign", "levels": [1, -1]},
    "clip": {"path": f"schedule.train.{BODIES}[1].filters[0].params.clip", "low": 0, "high": 1},
    "first": {
        "path": f"schedule.train.{BODIES}[1].first",
        "low": 0,
        "high": 9,
        "type": "int",
        "create": True,
    },
    "sensors": {
        "path": f"schedule.train.{BODIES}.left.sensors",
        "levels": [["myenv.0"], ["myenv.1"]],
        "labels": ["one", "other"],
    },
}
LEARNER = agent(
    "learner",
    bodies=[
        {"count": 2},
        {
            "name": "left",
            "muscle": named(f"{DUMMY}:DummyMuscle", gain=1),
            "objective": named(f"{DUMMY}:DummyObjective", deep={"sign": 1}),
            "filters": [named("f.m:Clip", clip=1)],
            "sensors": ["myenv.2"],
        },
    ],
)


def design() -> Design:
    """Return a design over the bodies of the dummy agent."""
    data = over_base(FACTORS, sampler={"name": "random", "n": 1})
    phases = [{"train": phase([environment()], [LEARNER])}, {"test": None}]
    return Design.from_mapping({**data, "base": {**data["base"], "schedule": phases}})


EXPANSION = Expansion(design().spec)
VALUES = {"count": 64, "gain": 0.5, "sign": -1, "clip": 2.5, "first": 3, "sensors": ["myenv.1"]}


def test_factors_vary_bodies() -> None:
    document = from_mapping(EXPANSION.mapping(VALUES, "d-0-r0", 1))
    for of_phase in document.phases:
        one, left = of_phase.agents[0].bodies
        assert (one.count, left.first, left.sensors) == (64, 3, ("myenv.1",))
        assert left.muscle.params == {"gain": 0.5}
        assert left.objective is not None and left.objective.params == {"deep": {"sign": -1}}
        assert left.filters[0].params == {"clip": 2.5}


@settings(max_examples=30)
@given(
    st.fixed_dictionaries(
        {
            "count": st.sampled_from([1, 64]),
            "gain": st.none() | st.floats() | st.text(max_size=9) | st.lists(st.integers()),
            "sign": st.sampled_from([1, -1, "x: y"]),
            "clip": st.floats(),
            "first": st.integers(0, 9),
            "sensors": st.sampled_from([["myenv.0"], ["myenv.1"]]),
        }
    )
)
def test_a_filled_structure_is_the_document(values: dict[str, Any]) -> None:
    expected = from_mapping(EXPANSION.mapping(values, "d-0-r0", 3))
    text, hash_ = EXPANSION.row(values, 0).document("d-0-r0", 3)
    assert hash_ == expected.hash
    assert loads(text).hash == expected.hash


def test_parameters_of_bodies_are_no_part_of_the_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = checked_documents(monkeypatch)
    expansion = Expansion(EXPANSION.spec)
    for number in range(20):
        expansion.row({**VALUES, "gain": number, "sign": -number, "clip": number / 2}, number)
    assert len(checked) == 1
    for key, value in (("count", 1), ("first", 5), ("sensors", ["myenv.0"])):
        expansion.row({**VALUES, key: value}, 20)
    assert len(checked) == 4
    with pytest.raises(DocumentError, match=r"bodies\.0\.count: count .* found the number 0"):
        expansion.row({**VALUES, "count": 0}, 21)


def test_agents_with_bodies_need_no_sensors_in_arsenais_form() -> None:
    several = {
        "name": "learner",
        "bodies": [{"environment": "myenv", "count": 3, "muscle": {"name": f"{DUMMY}:DummyMuscle"}}],
    }
    single = {"name": "learner", "muscle": {"name": f"{DUMMY}:DummyMuscle"}}
    data = {
        "uid": "bodies",
        "seed": 1,
        "definitions": {
            "environments": {"e": environment()},
            "agents": {"several": several, "single": single},
            "sensors": {"all": {"myenv": [0, 1]}},
            "actuators": {"all": {"myenv": [2]}},
            "simulation": {"s": {"name": "vanilla", "conditions": [{"name": ENVIRONMENT_ENDS}]}},
            "phase_config": {"c": {"episodes": 1}},
            "run_config": {"condition": {"name": VANILLA_RUN}},
        },
        "schedule": [
            {
                "first": {
                    "environments": [["e"]],
                    "agents": [["single"], ["several"]],
                    "sensors": {"single": ["all"]},
                    "actuators": {"single": ["all"]},
                    "simulation": ["s"],
                    "phase_config": ["c"],
                }
            },
            {"second": {"agents": [["several"], ["single"]]}},
        ],
    }
    spec = design_from_mapping(data)
    for first in ("single", "several"):
        for second in ("several", "single"):
            built = DocumentBuilder(spec).build({"first.agents": first, "second.agents": second})
            document = from_mapping({**built, "uid": "r", "seed": 1})
            for name, of_phase in zip((first, second), document.phases, strict=True):
                (one,) = of_phase.agents
                assert [body.count for body in one.bodies] == ([3] if name == "several" else [])
                assert one.sensors == (() if name == "several" else ("myenv.0", "myenv.1"))
    single.pop("muscle")
    with pytest.raises(DocumentError, match=r"agents\.single: an agent's definition needs the key 'muscle'"):
        design_from_mapping(data)
