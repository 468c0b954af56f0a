"""Bodies of agents: read, completed from the agent, checked, cascaded, identified, described."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import (
    BodySpec,
    ClassSpec,
    RunDocument,
    check_classes,
    describe,
    from_mapping,
    json_schema,
    loads,
)
from palaestrai_mosaik.experiment.model import MAX_BODIES

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra 'test')")

VALIDATOR = jsonschema.Draft202012Validator(json_schema())

TEXT = """\
uid: bodies
seed: 1
version: "3.5"
schedule:
  - train:
      environments:
        - environment: {uid: pendulum, name: "e:Pendulum"}
        - environment: {uid: arena, name: "e:Arena"}
        - environment: {uid: cells, name: "e:Cells"}
      agents:
        - name: learner
          brain: {name: "a:B"}
          muscle: {name: "a:M", params: {g: 1}}
          objective: {name: "a:O"}
          filters: [{name: "a:F"}]
          bodies:
            - {environment: pendulum, count: 64}
            - name: left
              sensors: ["arena.left.*"]
              actuators: ["arena.left.u"]
              objective: {name: "a:O", params: {sign: -1}}
            - {count: 4, first: 8, sensors: ["cells.{body}.*"], actuators: ["cells.{body}.u"], filters: []}
            - {sensors: [arena.x], objective: null, muscle: {name: "a:Other"}}
      simulation: {name: vanilla}
run_config:
  condition: {name: "e:End"}
"""
AGENT = "schedule.0.train.agents.0"


def bodies_of(document: RunDocument, phase: int = 0) -> tuple[BodySpec, ...]:
    return document.phases[phase].agents[0].bodies


def with_bodies(data: dict[str, Any], *bodies: Any, **keys: Any) -> dict[str, Any]:
    """Return ``data`` with these bodies of its agent, of which other ``keys`` are changed (``...``: left out)."""
    agent = data["schedule"][0]["first"]["agents"][0]
    agent.update(bodies=list(bodies), **keys)
    for key in [key for key, value in keys.items() if value is ...]:
        del agent[key]
    return data


def problems_of(data: Any) -> list[tuple[str, str]]:
    with pytest.raises(DocumentError) as error:
        from_mapping(data)
    return [(problem.path, problem.message) for problem in error.value.problems]


def test_what_an_entry_leaves_out_is_that_of_the_agent() -> None:
    document = loads(TEXT)
    muscle, objective, filters = ClassSpec("a:M", {"g": 1}), ClassSpec("a:O"), (ClassSpec("a:F"),)
    assert bodies_of(document) == (
        BodySpec(muscle, objective, (), (), filters, "pendulum", None, 64, 0),
        BodySpec(
            muscle,
            ClassSpec("a:O", {"sign": -1}),
            ("arena.left.*",),
            ("arena.left.u",),
            filters,
            "arena",
            "left",
        ),
        BodySpec(muscle, objective, ("cells.{body}.*",), ("cells.{body}.u",), (), "cells", None, 4, 8),
        BodySpec(ClassSpec("a:Other"), None, ("arena.x",), (), filters, "arena"),
    )
    agent = document.phases[0].agents[0]
    assert (agent.muscle, agent.sensors, agent.actuators) == (muscle, (), ())
    assert document.warnings == ()


def test_common_sensors_and_actuators(minimal) -> None:
    other = {"name": "o:O", "params": {"sign": -1}}
    data = with_bodies(minimal, {}, {"sensors": []}, {"actuators": None, "objective": other}, {"count": None})
    one, blind, mute, again = bodies_of(from_mapping(data))
    assert (one.sensors, one.actuators, one.environment) == (("world.a",), ("world.b",), "world")
    assert (blind.sensors, blind.actuators) == ((), ("world.b",))
    assert (mute.sensors, mute.actuators, mute.objective) == (
        ("world.a",),
        (),
        ClassSpec("o:O", {"sign": -1}),
    )
    assert again == one
    # neither: all of the environment
    data = with_bodies(minimal, {"environment": "world", "sensors": [], "actuators": []})
    (all_of_it,) = bodies_of(from_mapping(data))
    assert (all_of_it.sensors, all_of_it.actuators, all_of_it.environment) == ((), (), "world")


def test_a_muscle_is_given_by_the_agent_or_by_every_body(minimal) -> None:
    one, two = {"muscle": {"name": "m:One"}}, {"muscle": {"name": "m:Two"}}
    agent = from_mapping(with_bodies(copy.deepcopy(minimal), one, two, muscle=...)).phases[0].agents[0]
    assert [body.muscle.name for body in agent.bodies] == ["m:One", "m:Two"]
    assert agent.muscle == ClassSpec("m:One")
    assert problems_of(with_bodies(copy.deepcopy(minimal), one, {}, muscle=...)) == [
        (
            "schedule.0.first.agents.0.bodies.1",
            "the body needs the key 'muscle', which neither it nor its agent gives",
        )
    ]
    # a misspelled key is told, and not that the key is missing
    ((path, message),) = problems_of(with_bodies(minimal, {}, muscle=..., muscel={"name": "m:One"}))
    assert (path, "did you mean 'muscle'" in message) == ("schedule.0.first.agents.0.muscel", True)


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "said"),
    [
        ("{environment: pendulum, count: 64}", "{environment: pendulm}", 17, "bodies.0.environment",
         "no environment 'pendulm' in the phase (did you mean 'pendulum'?); environments: 'pendulum', 'arena'"),
        ("count: 64", "count: 0", 17, "bodies.0.count", "an integer of at least 1 or null, found the number 0"),
        ("count: 64", "count: true", 17, "bodies.0.count", "found the boolean true"),
        ("count: 64", "count: 64, first: -1", 17, "bodies.0.first", "at least 0 or null, found the number -1"),
        ("count: 64", f"first: {MAX_BODIES + 1}", 17, "bodies.0.first", "first must be at most 1,000,000"),
        ("count: 64", f"count: {MAX_BODIES}", 16, "bodies", "at most 1,000,000 bodies"),
        ("count: 64", "cuont: 64", 17, "bodies.0.cuont", "did you mean 'count'"),
        ("count: 64", "load: {}", 17, "bodies.0.load", "'load' is one for all bodies of an agent"),
        ("count: 64", "replay: []", 17, "bodies.0.replay", "'replay' is one for all bodies of an agent"),
        ("count: 64", "snapshots: {}", 17, "bodies.0.snapshots", "give it beside 'bodies'"),
        ("count: 64", 'brain: {name: "a:B"}', 17, "bodies.0.brain", "give it beside 'bodies'"),
        ("count: 64", "muscle: null", 17, "bodies.0.muscle", "a body's muscle may not be left out"),
        ("count: 64", "sensors: [arena.x]", 17, "bodies.0.sensors.0",
         "the body is in two environments, 'pendulum' (given as its environment) and 'arena' (where 'arena.x' is); "
         "a body is one incarnation of the agent in exactly one environment"),
        ("environment: pendulum, ", "", 17, "bodies.0", "give its 'environment', of which it then has all"),
        ("name: left", "name: 7", 18, "bodies.1.name", "may not be a whole number, found the number 7"),
        ("name: left", "name: '07'", 18, "bodies.1.name", "may not be a whole number, found the string '07'"),
        ("name: left", "name: ''", 18, "bodies.1.name", "must be a non-empty string"),
        ("first: 8,", "name: left,", 22, "bodies.2.name", "'left' is given twice: first by entry 1"),
        ('"arena.left.u"', '"arena.left.u", "cells.0.u"', 20, "bodies.1.actuators.1",
         "'arena' (where 'arena.left.*' is) and 'cells' (where 'cells.0.u' is)"),
        ('"arena.left.*"', '"aerna.left.*"', 19, "bodies.1.sensors.0", "did you mean 'arena.left.*'"),
        ('"cells.{body}.*"', '"cells.{bdoy}.*"', 22, "bodies.2.sensors.0", "(did you mean '{body}'?)"),
        ('"cells.{body}.u"', '"cells.{agent}.u"', 22, "bodies.2.actuators.0", "may have '{body}' only"),
        ('"cells.{body}.u"', '"cells.{body.u"', 22, "bodies.2.actuators.0", "'cells.{body.u' has '{'"),
        ("filters: []", "filters: {}", 22, "bodies.2.filters", "filters must be a list"),
        ('"a:Other"', '"a.Other"', 23, "bodies.3.muscle.name", "did you mean 'a:Other'"),
        ("[arena.x]", "[arena.x, arena.x]", 23, "bodies.3.sensors.1", "stands twice"),
        ("[arena.x]", "arena.x", 23, "bodies.3.sensors", "must be a list of ids"),
        ("- {sensors: [arena.x]", "- 3\n            - {sensors: [arena.x]", 23, "bodies.3", "must be a mapping"),
        ('filters: [{name: "a:F"}]', "sensors: ['cells.{body}.{k}']", 15, "sensors.0", "has '{k}'"),
    ],
)  # fmt: skip
def test_one_fault(old: str, new: str, line: int, path: str, said: str, problems) -> None:
    assert old in TEXT
    found = problems(TEXT.replace(old, new, 1))
    hits = [(p.line, p.path) for p in found if said in p.message]
    assert hits == [(line, f"{AGENT}.{path}")], found


def test_all_faults_at_once(problems) -> None:
    text = TEXT.replace("pendulum, count", "pendulm, cuont").replace("left.u", "{left}").replace("4,", "-4,")
    assert [p.line for p in problems(text)] == [17, 17, 20, 22]


@pytest.mark.parametrize(
    ("bodies", "said"),
    [([], "bodies needs at least one entry"), ({}, "bodies must be a list"), (3, "must be a list, found")],
)
def test_what_is_no_list_of_bodies(bodies, said: str, minimal) -> None:
    minimal["schedule"][0]["first"]["agents"][0]["bodies"] = bodies
    ((path, message),) = problems_of(minimal)
    assert path == "schedule.0.first.agents.0.bodies"
    assert said in message
    assert not VALIDATOR.is_valid(minimal)


def test_common_channels_in_two_environments_are_told_at_the_body(minimal) -> None:
    minimal["schedule"][0]["first"]["environments"].append({"environment": {"uid": "sky", "name": "w:Sky"}})
    data = with_bodies(minimal, {"sensors": ["sky.x"]}, {}, sensors=["world.a", "world.c"])
    ((path, message),) = problems_of(data)
    assert path == "schedule.0.first.agents.0.bodies.0"
    assert "'sky' (where 'sky.x' is) and 'world' (where 'world.b' is)" in message
    # without bodies, an agent has one body in whatever environments
    data["schedule"][0]["first"]["agents"][0] |= {"bodies": None, "sensors": ["sky.x"]}
    assert from_mapping(data).phases[0].agents[0].bodies == ()


def test_an_agent_without_bodies_has_all_channels_where_it_names_none(minimal) -> None:
    data = with_bodies(minimal, {"environment": "world"}, sensors=..., actuators=...)
    assert bodies_of(from_mapping(data))[0].environment == "world"
    data["schedule"][0]["first"]["agents"][0]["bodies"] = None
    agent = from_mapping(data).phases[0].agents[0]
    assert (agent.sensors, agent.actuators, agent.bodies) == (("world.*",), ("world.*",), ())


def test_dotted_uids_take_the_longest_that_fits(minimal) -> None:
    first = minimal["schedule"][0]["first"]
    first["environments"].append({"environment": {"uid": "world.inner", "name": "w:W"}})
    data = with_bodies(minimal, {"count": 2}, sensors=["world.inner.{body}.x"], actuators=[])
    assert bodies_of(from_mapping(data))[0].environment == "world.inner"


def test_later_bodies_replace_the_earlier_ones_whole(minimal) -> None:
    with_bodies(
        minimal, {"count": 2}, {"name": "left", "sensors": ["world.left"]}, actuators=["world.{body}"]
    )
    minimal["schedule"] += [
        {"second": {"agents": [{"name": "defender", "muscle": {"name": "m:New"}, "actuators": []}]}},
        {"third": {"agents": [{"name": "defender", "bodies": [{"objective": None}]}]}},
        {"fourth": {"agents": [{"name": "defender", "bodies": None}]}},
        {
            "fifth": {
                "agents": [{"name": "defender", "bodies": [{}], "sensors": None, "actuators": ["world.z"]}]
            }
        },
    ]
    document = from_mapping(minimal)
    one, two, three, four, five = (phase.agents[0] for phase in document.phases)
    assert [(b.name, b.count, b.actuators) for b in one.bodies] == [
        (None, 2, ("world.{body}",)),
        ("left", 1, ("world.{body}",)),
    ]
    # what is common reaches the bodies of the phase before
    assert [(b.name, b.count, b.muscle.name, b.actuators) for b in two.bodies] == [
        (None, 2, "m:New", ()),
        ("left", 1, "m:New", ()),
    ]
    assert [(b.name, b.objective, b.muscle.name) for b in three.bodies] == [(None, None, "m:New")]
    assert four.bodies == ()
    assert [(b.sensors, b.actuators) for b in five.bodies] == [((), ("world.z",))]
    again = from_mapping(document.canonical)
    assert (again.hash, again.canonical) == (document.hash, document.canonical)
    assert [phase.agents for phase in again.phases] == [phase.agents for phase in document.phases]
    VALIDATOR.validate(minimal)
    VALIDATOR.validate(document.canonical)


def test_places_of_the_model_lead_to_the_text() -> None:
    document = loads(TEXT.replace("run_config", "  - again:\nrun_config"), "run.yml")

    def told(*place: str | int) -> tuple[int | None, str]:
        problem = document.problem("x", "phases", 1, "agents", 0, *place)
        return problem.line, problem.path

    assert told("bodies", 2, "sensors", 0) == (22, f"{AGENT}.bodies.2.sensors.0")
    assert told("bodies", 1, "objective", "params", "sign") == (21, f"{AGENT}.bodies.1.objective.params.sign")
    # taken from the agent
    assert told("bodies", 1, "muscle", "params", "g") == (13, f"{AGENT}.muscle.params.g")
    assert told("bodies", 3, "filters", 0) == (15, f"{AGENT}.filters.0")
    assert told("bodies", 2, "filters") == (22, f"{AGENT}.bodies.2.filters")
    text = TEXT.replace('          muscle: {name: "a:M", params: {g: 1}}\n', "").replace(
        "{environment: pendulum,", '{muscle: {name: "b:B"}, environment: pendulum,'
    )
    text = text.replace("name: left", 'name: left\n              muscle: {name: "b:B"}')
    document = loads(text.replace("{count: 4,", '{muscle: {name: "b:B"}, count: 4,'))
    problem = document.problem("x", "phases", 0, "agents", 0, "muscle", "name")
    assert (problem.line, problem.path) == (16, f"{AGENT}.bodies.0.muscle.name")


def test_documents_without_bodies_do_not_know_the_key(minimal) -> None:
    plain = from_mapping(minimal)
    assert "bodies" not in str(plain.canonical)
    minimal["schedule"][0]["first"]["agents"][0]["bodies"] = None
    assert from_mapping(minimal).hash == plain.hash
    assert plain.hash == "1aa4780a926fde594529c1ffb16e41063d0825c37e3f09aa52ca9376f6864a80"


def test_the_canonical_form_writes_every_entry_out(minimal) -> None:
    document = from_mapping(with_bodies(minimal, {"count": 2}, actuators=["world.{body}"]))
    (agent,) = document.canonical["schedule"][0]["first"]["agents"]
    objective = {"name": "objectives:Objective", "params": {}}
    assert agent["bodies"] == [
        {
            "actuators": ["world.{body}"],
            "count": 2,
            "environment": "world",
            "filters": [],
            "first": 0,
            "muscle": {"name": "muscles:Muscle", "params": {}},
            "name": None,
            "objective": objective,
            "sensors": ["world.a"],
        }
    ]
    # what is common may as well be written at the entry
    explicit = {"objective": objective, "environment": "world", "first": 0, "filters": None, "name": None}
    assert from_mapping(with_bodies(minimal, {**explicit, "count": 2})).hash == document.hash
    one_by_one = with_bodies(minimal, {"actuators": ["world.0"]}, {"actuators": ["world.1"]})
    assert from_mapping(one_by_one).hash != document.hash


classes = st.sampled_from([{"name": "m:A"}, {"name": "m:B", "params": {"x": 1}}])
channels = st.sampled_from([[], ["world.{body}.x"], ["world.a", "world.*"]])
entries = st.fixed_dictionaries(
    {"environment": st.just("world")},
    optional={
        "count": st.sampled_from([None, 1, 7]),
        "first": st.sampled_from([None, 0, 3]),
        "muscle": classes,
        "objective": st.none() | classes,
        "filters": st.none() | st.lists(classes, max_size=2),
        "sensors": channels | st.none(),
        "actuators": channels | st.none(),
    },
)
several = st.none() | st.lists(entries, min_size=1, max_size=3)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(first=several, later=st.lists(several, max_size=2), common=st.sampled_from([[], ["world.c"]]))
def test_any_bodies_survive_their_canonical_form(first, later, common, minimal) -> None:
    data = copy.deepcopy(minimal)
    data["schedule"][0]["first"]["agents"][0] |= {"bodies": first, "sensors": common}
    for number, bodies in enumerate(later):
        data["schedule"].append({f"p{number}": {"agents": [{"name": "defender", "bodies": bodies}]}})
    document = from_mapping(data)
    again = from_mapping(document.canonical)
    assert again.canonical == document.canonical
    assert [phase.agents for phase in again.phases] == [phase.agents for phase in document.phases]
    assert [len(bodies_of(document, i)) for i in range(1 + len(later))] == [
        len(bodies or ()) for bodies in (first, *later)
    ]
    VALIDATOR.validate(data)
    VALIDATOR.validate(document.canonical)


rubbish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "world", "world.{", "1"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "count", "sensors", "muscle", "filters", "environment", "brain"]), inner
        )
    ),
    max_leaves=6,
)


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    bodies=rubbish | st.lists(st.dictionaries(st.sampled_from(sorted(VALIDATOR.schema["$defs"]["body"]["properties"])), rubbish)),
    missing=st.sets(st.sampled_from(["muscle", "sensors", "actuators"])),
)  # fmt: skip
def test_rubbish_is_told_not_raised(bodies, missing, minimal) -> None:
    data = copy.deepcopy(minimal)
    agent = data["schedule"][0]["first"]["agents"][0]
    agent["bodies"] = bodies
    for key in missing:
        del agent[key]
    try:
        document = from_mapping(data)
    except DocumentError as error:
        assert all(problem.path.startswith("schedule.0.first") for problem in error.problems)
    else:
        assert from_mapping(document.canonical).hash == document.hash


def test_hostile_numbers_and_repetitions_are_refused(problems) -> None:
    for number in (10**12, 10**4000):
        (problem,) = problems(TEXT.replace("count: 64", f"count: {number}"))
        assert "at most 1,000,000 bodies" in problem.message
    assert problems(TEXT.replace("count: 64", f"count: {MAX_BODIES - 6}, first: {MAX_BODIES}")) == []
    # what is common is written out for every body of every phase
    common = ", ".join(f"arena.{i}" for i in range(1000))
    entries = "            - {environment: arena}\n" * 100
    text = TEXT.replace("bodies:\n", f"sensors: [{common}]\n          bodies:\n{entries}", 1)
    text = text.replace("pendulum, count: 64", "arena").replace(
        "filters: []}", "filters: [], actuators: null}"
    )
    text = text.replace('["cells.{body}.*"], actuators: ["cells.{body}.u"]', "['arena.{body}']")
    assert problems(text) == []
    phases = "".join(f"  - p{i}:\n" for i in range(10))
    (problem,) = problems(text.replace("run_config", f"{phases}run_config", 1))
    assert problem.path == "schedule.9.p8"
    assert "bodies take them from their agents" in problem.message


@pytest.mark.parametrize(
    ("body", "keys", "warned"),
    [
        ({"count": 4}, {}, {"count": "the 4 bodies have the same actuators (world.b), as {body} is not in them"}),
        ({"count": 4}, {"actuators": ["world.*.b"]}, {"count": "the last one holds"}),
        ({"count": 4}, {"actuators": []}, {}),
        ({"count": 4}, {"actuators": ["world.{body}"]}, {}),
        ({"count": 4, "environment": "world"}, {"sensors": ..., "actuators": ...}, {}),
        ({"first": 4}, {}, {"first": "'first' has no effect"}),
        ({"first": 4}, {"sensors": ["world.{body}"]}, {}),
        ({"first": 4, "environment": "world"}, {"sensors": ..., "actuators": ...}, {}),
        ({"sensors": ["world.x"], "muscle": {"name": "m:N"}, "objective": None}, {},
         {"sensors": "every body of the agent has its own, or none", "muscle": "has no effect",
          "objective": "has no effect"}),
        ({"filters": None}, {"filters": [{"name": "f:F"}]}, {"filters": "has no effect"}),
        ({"muscle": {"name": "muscles:Muscle", "params": {"x": 1}}}, {}, {}),
    ],
)  # fmt: skip
def test_warnings(body, keys, warned: dict[str, str], minimal) -> None:
    found = {
        w.path.rsplit(".", 1)[1]: w.message for w in from_mapping(with_bodies(minimal, body, **keys)).warnings
    }
    assert set(found) == set(warned)
    for key, said in warned.items():
        assert said in found[key]


def test_what_another_phase_without_bodies_uses_is_not_warned_of(minimal) -> None:
    body = {"environment": "world", "sensors": ["world.x"], "actuators": ["world.y"]}
    minimal["schedule"].append({"second": {"agents": [{"name": "defender", "bodies": [body]}]}})
    assert from_mapping(minimal).warnings == ()


def test_classes_of_bodies_are_checked(tmp_path, monkeypatch) -> None:
    (tmp_path / "body_parts.py").write_text(
        "class Part:\n    def __init__(self, **params): ...\n\nclass Bare: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = TEXT
    for name in ("e:Pendulum", "e:Arena", "e:Cells", "e:End", "a:B", "a:O", "a:F", "a:M", "a:Other"):
        text = text.replace(f'"{name}"', '"body_parts:Part"')
    text = text.replace("run_config", "  - again:\nrun_config")
    assert check_classes(loads(text)) == []
    broken = text.replace("name: left", 'name: left\n              filters: [{name: "body_parts:Prt"}]')
    broken = broken.replace(
        'muscle: {name: "body_parts:Part"}}', 'muscle: {name: "body_parts:Bare", params: {x: 1}}}'
    )
    broken = broken.replace("params: {g: 1}", "params: {g: 1}, name: 'body_parts:Part'", 0)
    found = check_classes(loads(broken, "run.yml"))
    assert [(p.line, p.path) for p in found] == [  # each once, in both phases
        (19, f"{AGENT}.bodies.1.filters.0.name"),
        (24, f"{AGENT}.bodies.3.muscle.params.x"),
    ]
    # what is common is told once, where it stands
    found = check_classes(loads(text), {"muscle": dict, "objective": object})
    assert [p.path for p in found] == [f"{AGENT}.muscle.name", f"{AGENT}.bodies.3.muscle.name"]
    sys.modules.pop("body_parts", None)


def test_describe_shows_bodies() -> None:
    text = describe(loads(TEXT))
    assert (
        text[text.index("  agent") : text.index("run_config")]
        == """\
  agent 'learner'
    muscle a:M(g=1)
    brain a:B()
    objective a:O()
    filter a:F()
    64 bodies in pendulum: numbers 0 to 63
      all sensors and actuators
    1 body in arena: 'left' number 64
      objective a:O(sign=-1)
      sensors: arena.left.*
      actuators (1): arena.left.u
    4 bodies in cells: numbers 65 to 68, {body} from 8
      sensors: cells.{body}.*
      actuators: cells.{body}.u
      no filters
    1 body in arena: number 69
      muscle a:Other()
      no objective
      sensors (1): arena.x
"""
    )


@pytest.mark.parametrize(
    "spoil",
    [
        {"cuont": 3},
        {"count": 0},
        {"first": -1},
        {"count": MAX_BODIES + 1},
        {"name": "7"},
        {"brain": {"name": "b:B"}},
        {"muscle": None},
        {"sensors": ["world.{bdoy}"]},
        {"actuators": ["world.{body"]},
        {"environment": 3},
    ],
)
def test_the_schema_refuses(spoil, minimal) -> None:
    assert VALIDATOR.is_valid(with_bodies(minimal, {"name": "a7", "sensors": ["world.{body}"]}))
    assert not VALIDATOR.is_valid(with_bodies(minimal, spoil))
