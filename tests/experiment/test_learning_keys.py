"""Filters, replay, snapshots, evaluations, workers that hear from brains: read, checked, described."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import (
    ClassSpec,
    ReplaySpec,
    SnapshotSpec,
    check_classes,
    describe,
    from_mapping,
    json_schema,
    loads,
    vocabulary,
)
from palaestrai_mosaik.experiment.class_names import canonical_name
from palaestrai_mosaik.types import Mode

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra 'test')")

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
REPLAY = {
    "agent_name": "defender",
    "experiment_id": "other",
    "instance": "i1",
    "phase_name": "early",
    "mode": "Training",
    "repeat": 3,
    "sensors": ["old.a"],
    "actuators": ["old.b"],
    "strict": True,
}


def phase(data, index=0):
    return next(iter(data["schedule"][index].values()))


def with_agent(data, **keys):
    phase(data)["agents"][0].update(keys)
    return data


def with_config(data, **keys):
    phase(data)["phase_config"].update(keys)
    return data


def problems_of(data):
    with pytest.raises(DocumentError) as error:
        from_mapping(data)
    return error.value.problems


def warnings_of(data):
    return [(w.path, w.message) for w in from_mapping(data).warnings]


def test_the_keys_of_an_agent(minimal) -> None:
    with_agent(
        minimal,
        filters=[{"name": "f:Norm", "parameters": {"clip": 5}}, {"name": "f:Stack"}],
        replay=[REPLAY, {"phase": 0}, {"phase": "first"}, {}],
        snapshots={"every": 10, "best": True},
        load={"snapshot": "best", "experiment_run": "other", "phase": 3},
    )
    document = from_mapping(minimal)
    (agent,) = document.phases[0].agents
    assert agent.filters == (ClassSpec("f:Norm", {"clip": 5}), ClassSpec("f:Stack"))
    assert agent.replay == (
        ReplaySpec("defender", "other", "i1", "early", "train", 3, ("old.a",), ("old.b",)),
        ReplaySpec(phase=0),
        ReplaySpec(phase="first"),
        ReplaySpec(),
    )
    assert agent.snapshots == SnapshotSpec(10, True)
    assert agent.load == {"snapshot": "best", "experiment_run": "other", "phase": 3}
    assert document.warnings == ()


def test_the_keys_of_phase_config(minimal) -> None:
    with_config(minimal, evaluate_every=5, sync_every=8, asynchronous=True)
    document = from_mapping(minimal)
    (first,) = document.phases
    assert (first.evaluate_every, first.sync_every, first.asynchronous) == (5, 8, True)
    assert document.warnings == ()


def test_what_is_not_given(minimal) -> None:
    (first,) = from_mapping(minimal).phases
    assert (first.evaluate_every, first.sync_every, first.asynchronous) == (None, 32, False)
    (agent,) = first.agents
    assert (agent.filters, agent.replay, agent.snapshots) == ((), (), None)


#: the defaults of keys that came with learning, as they may be written
DEFAULTS = {
    "evaluate_every": [0, None],
    "sync_every": [32, None],
    "asynchronous": [False, None],
    "filters": [[], None],
    "replay": [[], None],
    "snapshots": [None, {"best": False}, {"every": None, "best": None}],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in DEFAULTS.items() for value in values]
)
def test_a_default_that_is_written_does_not_change_the_hash(key, value, minimal) -> None:
    plain = from_mapping(minimal)
    (with_config if key in vocabulary.PHASE_CONFIG.keys else with_agent)(minimal, **{key: value})
    document = from_mapping(minimal)
    assert document.hash == plain.hash
    assert key not in str(document.canonical)
    assert document.warnings == ()


def test_a_document_keeps_the_hash_that_it_had_before_these_keys(minimal) -> None:
    assert from_mapping(minimal).hash == "1aa4780a926fde594529c1ffb16e41063d0825c37e3f09aa52ca9376f6864a80"


FULL = {
    "filters": [{"name": "f:Norm", "params": {"clip": 5}}, {"name": "f:Stack", "params": {}}],
    "replay": [{**REPLAY, "mode": "test"}, {"phase": 0}, {"agent": "defender"}],
    "snapshots": {"every": 10, "best": True},
    "load": {"snapshot": "episode-10", "experiment_run": "other", "phase": 3},
}
CONFIG = {"evaluate_every": 5, "sync_every": 8, "asynchronous": True}


def test_any_of_their_values_changes_the_hash(minimal) -> None:
    with_config(with_agent(minimal, **copy.deepcopy(FULL)), **CONFIG)
    variants = [minimal]

    def vary(change) -> None:
        data = copy.deepcopy(minimal)
        change(phase(data)["agents"][0], phase(data)["phase_config"])
        variants.append(data)

    vary(lambda a, c: a.pop("filters"))
    vary(lambda a, c: a["filters"].reverse())
    vary(lambda a, c: a["filters"][0]["params"].update(clip=6))
    vary(lambda a, c: a["replay"].reverse())
    for key in (
        "agent_name",
        "experiment_id",
        "instance",
        "phase_name",
        "mode",
        "repeat",
        "sensors",
        "actuators",
    ):
        vary(lambda a, c, key=key: a["replay"][0].pop(key))
    vary(lambda a, c: a["replay"][1].update(phase="first"))
    vary(lambda a, c: a["snapshots"].update(every=11))
    vary(lambda a, c: a["snapshots"].update(best=False))
    vary(lambda a, c: a["load"].update(snapshot="best"))
    for key, value in (("evaluate_every", 4), ("sync_every", 9), ("asynchronous", False)):
        vary(lambda a, c, key=key, value=value: c.update({key: value}))
    hashes = [from_mapping(data).hash for data in variants]
    assert len(set(hashes)) == len(hashes)


def test_canonical_form_and_schema(minimal) -> None:
    with_config(with_agent(minimal, **copy.deepcopy(FULL)), **CONFIG)
    document = from_mapping(minimal)
    again = from_mapping(document.canonical)
    assert (again.hash, again.canonical) == (document.hash, document.canonical)
    assert again.phases[0].agents == document.phases[0].agents
    VALIDATOR.validate(minimal)
    VALIDATOR.validate(document.canonical)
    assert loads(document.text).hash == document.hash


def test_a_later_phase_without_them_stays_so_in_the_canonical_form(minimal) -> None:
    with_config(with_agent(minimal, **copy.deepcopy(FULL)), **CONFIG)
    off = {"name": "defender", "filters": None, "replay": [], "snapshots": None, "load": None}
    config = {"evaluate_every": 0, "sync_every": None, "asynchronous": False}
    other = {"name": "other", "muscle": {"name": "m:M"}, "sensors": [], "actuators": ["world.x"]}
    minimal["schedule"].append({"second": {"agents": [off, other], "phase_config": config}})
    document = from_mapping(minimal)
    again = from_mapping(document.canonical)
    assert (again.hash, again.canonical) == (document.hash, document.canonical)
    second = again.phases[1]
    assert (second.evaluate_every, second.sync_every, second.asynchronous) == (None, 32, False)
    assert (second.agents[0].filters, second.agents[0].replay, second.agents[0].snapshots) == ((), (), None)
    written = document.canonical["schedule"][1]["second"]["agents"]
    assert written[0]["replay"] == []
    assert "replay" not in written[1]  # nobody gives this one any
    VALIDATOR.validate(document.canonical)


PARTS = st.fixed_dictionaries(
    {},
    optional={
        "filters": st.sampled_from([[], [{"name": "f:A"}], [{"name": "f:B"}, {"name": "f:A"}]]),
        "replay": st.sampled_from([[], [{"phase": 0}], [{}, {"repeat": 2}]]),
        "snapshots": st.sampled_from([None, {"best": True}, {"every": 2}]),
        "bodies": st.sampled_from(
            [
                None,
                [{"count": 2}],
                [
                    {"sensors": ["world.{body}"], "first": 3},
                    {"objective": None, "filters": [{"name": "f:C"}]},
                ],
            ]
        ),
    },
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "evaluate_every": st.sampled_from([None, 1, 2]),
        "sync_every": st.sampled_from([None, 1, 32]),
        "asynchronous": st.booleans(),
    },
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(given=st.lists(st.tuples(PARTS, CONFIGS), min_size=2, max_size=4))
def test_the_canonical_form_of_any_cascade_says_the_same(given, minimal) -> None:
    data = copy.deepcopy(minimal)
    for number, (keys, config) in enumerate(given):
        data["schedule"].append(
            {f"p{number}": {"agents": [{"name": "defender", **keys}], "phase_config": config}}
        )
    document = from_mapping(data)
    again = from_mapping(document.canonical)
    assert again.canonical == document.canonical
    assert [phase.agents for phase in again.phases] == [phase.agents for phase in document.phases]
    for one, other in zip(again.phases, document.phases, strict=True):
        for key in ("evaluate_every", "sync_every", "asynchronous"):
            assert getattr(one, key) == getattr(other, key)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    replay=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "agent": st.just("defender"),
                "experiment_run": st.sampled_from(["minimal", "other"]),
                "instance": st.text("ab", min_size=1, max_size=3),
                "phase": st.sampled_from([0, "first"]),
                "mode": st.sampled_from(["train", "TEST", "testing"]),
                "repeat": st.integers(1, 9),
                "sensors": st.lists(st.text("ab.", min_size=1, max_size=3), min_size=1, unique=True),
                "strict": st.just(True),
            },
        ),
        max_size=3,
    )
)
def test_every_replay_survives_its_canonical_form(replay, minimal) -> None:
    data = with_agent(copy.deepcopy(minimal), replay=replay)
    document = from_mapping(data)
    assert from_mapping(document.canonical).phases[0].agents == document.phases[0].agents
    assert len(document.phases[0].agents[0].replay) == len(replay)
    VALIDATOR.validate(data)


def test_they_cascade_by_key(minimal) -> None:
    with_config(with_agent(minimal, **copy.deepcopy(FULL)), **CONFIG)
    minimal["schedule"] += [
        {"second": {"agents": [{"name": "defender", "replay": None, "filters": [{"name": "f:Other"}]}]}},
        {"third": {"phase_config": {"evaluate_every": None, "mode": "test"}}},
    ]
    one, two, three = from_mapping(minimal).phases
    assert two.agents[0].replay == ()
    assert two.agents[0].filters == (ClassSpec("f:Other"),)
    assert two.agents[0].snapshots == one.agents[0].snapshots == SnapshotSpec(10, True)
    assert (two.evaluate_every, two.sync_every, two.asynchronous) == (5, 8, True)
    assert (three.evaluate_every, three.sync_every, three.mode) == (None, 8, Mode.TEST)


@pytest.mark.parametrize(
    ("keys", "path", "said"),
    [
        ({"filters": {"name": "a:B"}}, "filters", "filters must be a list, found a mapping"),
        ({"filters": [3]}, "filters.0", "an entry of filters must be a name, or a mapping with name and params"),
        ({"filters": [{"name": "a:B"}, {"nam": "a:B"}]}, "filters.1.nam", "did you mean 'name'"),
        ({"filters": [{"name": "a.B"}]}, "filters.0.name", "did you mean 'a:B'"),
        ({"replay": {"phase": 0}}, "replay", "replay must be a list, found a mapping"),
        ({"replay": [3]}, "replay.0", "an entry of replay must be a mapping"),
        ({"replay": [{"pahse": 0}]}, "replay.0.pahse", "did you mean 'phase'"),
        ({"replay": [{"phase": -1}]}, "replay.0.phase", "an integer of at least 0"),
        ({"replay": [{"phase": 1.5}]}, "replay.0.phase", "an index, or a name"),
        ({"replay": [{"phase": 7}]}, "replay.0.phase", "there is no phase 7: the last of 1 is 0"),
        ({"replay": [{"phase": "frist"}]}, "replay.0.phase", "did you mean 'first'"),
        ({"replay": [{"phase_name": "frist"}]}, "replay.0.phase_name", "did you mean 'first'"),
        ({"replay": [{"phase": 0, "phase_name": "first"}]}, "replay.0", "not both"),
        ({"replay": [{"agent": "defendr"}]}, "replay.0.agent", "did you mean 'defender'"),
        ({"replay": [{"experiment_run": "minimal", "agent": "x"}]}, "replay.0.agent", "there is no agent 'x'"),
        ({"replay": [{"agent": 3}]}, "replay.0.agent", 'put it in quotes: "3"'),
        ({"replay": [{"mode": "tset"}]}, "replay.0.mode", "did you mean 'test'"),
        ({"replay": [{"repeat": 0}]}, "replay.0.repeat", "at least 1 or null, found the number 0"),
        ({"replay": [{"repeat": True}]}, "replay.0.repeat", "found the boolean true"),
        ({"replay": [{"sensors": []}]}, "replay.0.sensors", "must name at least one"),
        ({"replay": [{"sensors": ["a.b", "a.b"]}]}, "replay.0.sensors.1", "stands twice"),
        ({"replay": [{"actuators": "a.b"}]}, "replay.0.actuators", "must be a list of ids"),
        ({"replay": [{"strict": "yes"}]}, "replay.0.strict", "must be true or false, found the string 'yes'"),
        ({"snapshots": True}, "snapshots", "snapshots must be a mapping"),
        ({"snapshots": {}}, "snapshots", "snapshots needs 'every'"),
        ({"snapshots": {"evry": 3}}, "snapshots.evry", "did you mean 'every'"),
        ({"snapshots": {"every": 0}}, "snapshots.every", "at least 1"),
        ({"snapshots": {"best": 1}}, "snapshots.best", "must be true or false, found the number 1"),
        ({"load": {"snapshot": 20}}, "load.snapshot", 'put it in quotes: "20"'),
        ({"load": {"snapshto": "best"}}, "load.snapshto", "did you mean 'snapshot'"),
        ({"load": {"phase": True}}, "load.phase", "an integer of at least 0"),
        ({"load": {"phase": "frist"}}, "load.phase", "did you mean 'first'"),
        ({"load": {"phase": "first", "phase_name": "first"}}, "load", "'phase_name', not both"),
    ],
)  # fmt: skip
def test_faults_of_an_agent(keys, path: str, said: str, minimal) -> None:
    found = problems_of(with_agent(minimal, **keys))
    hits = [p for p in found if p.path == f"schedule.0.first.agents.0.{path}" and said in p.message]
    assert len(hits) == 1, found


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"evaluate_every": -1},
            "evaluate_every (episodes; 0: never) must be an integer of at least 0 or null",
        ),
        ({"evaluate_every": 2.0}, "found the number 2.0"),
        ({"evaluate_every": True}, "found the boolean true"),
        ({"sync_every": 0}, "sync_every (steps) must be an integer of at least 1 or null"),
        ({"asynchronous": "no"}, "asynchronous must be true or false, found the string 'no'"),
        ({"asynchronous": 1}, "found the number 1"),
        ({"asynchronos": True}, "did you mean 'asynchronous'"),
        ({"evaluate_evry": 2}, "did you mean 'evaluate_every'"),
    ],
)
def test_faults_of_phase_config(keys, said: str, minimal) -> None:
    (problem,) = problems_of(with_config(minimal, **keys))
    assert said in problem.message
    assert problem.path == f"schedule.0.first.phase_config.{next(iter(keys))}"


def test_a_fault_is_told_in_its_line(text: str, problems) -> None:
    lines = "[world.b]\n          replay:\n            - {phase: first}\n            - {repeat: 0}"
    (problem,) = problems(text.replace("[world.b]", lines))
    assert (problem.line, problem.path) == (15, "schedule.0.first.agents.0.replay.1.repeat")


def test_what_other_runs_and_instances_have_is_not_checked_here(minimal) -> None:
    other = [
        {"experiment_run": "other", "agent": "x", "phase": "y"},
        {"instance": "i", "agent": "x", "phase": 9},
    ]
    assert len(from_mapping(with_agent(minimal, replay=other)).phases[0].agents[0].replay) == 2


def test_replay_that_is_not_strict_is_warned_of(minimal) -> None:
    ((path, message),) = warnings_of(with_agent(minimal, replay=[{"strict": False}]))
    assert path.endswith("replay.0.strict")
    assert "always strict" in message


def test_the_bridge_has_no_effect_and_stays_in_the_digest(minimal) -> None:
    plain = from_mapping(minimal)
    given = copy.deepcopy(minimal)
    given["schedule"][0]["first"]["simulation"]["bridge"] = "per_agent"
    ((path, message),) = warnings_of(given)
    assert path == "schedule.0.first.simulation.bridge"
    assert message == "'bridge' has no effect: every agent is a mosaik simulator of its own"
    assert from_mapping(given).hash != plain.hash
    given["schedule"][0]["first"]["simulation"]["bridge"] = "agents"
    assert from_mapping(given).hash == plain.hash
    # as the canonical form has it, which is a document, too
    assert not warnings_of(given) and not warnings_of(plain.canonical)


@pytest.mark.parametrize(
    ("config", "agent", "expected"),
    [
        ({"mode": "test", "evaluate_every": 2}, {}, {"evaluate_every": "test mode"}),
        ({"evaluate_every": 6}, {}, {"evaluate_every": "the phase has 5 episodes only"}),
        ({"evaluate_every": 5}, {}, {}),
        ({"evaluate_every": 6, "episodes": None}, {}, {}),
        ({"mode": "test", "sync_every": 2, "asynchronous": True}, {},
         {"sync_every": "test mode", "asynchronous": "test mode"}),
        ({"workers": 1, "sync_every": 2, "asynchronous": True}, {},
         {"sync_every": "with one worker", "asynchronous": "with one worker"}),
        ({"sync_every": 2, "asynchronous": True}, {"brain": None},
         {"sync_every": "no agent of the phase has a brain", "asynchronous": "no agent of the phase has a brain"}),
        ({"mode": "test"}, {"replay": [{}], "snapshots": {"best": True}},
         {"replay": "test mode", "snapshots": "test mode"}),
        ({}, {"brain": None, "replay": [{}], "snapshots": {"every": 1}},
         {"replay": "the agent has no brain", "snapshots": "the agent has no brain"}),
        ({}, {"replay": [{}], "snapshots": {"every": 1}}, {}),
    ],
)  # fmt: skip
def test_keys_without_effect_are_warned_of(config, agent, expected, minimal) -> None:
    found = warnings_of(with_agent(with_config(minimal, **config), **agent))
    assert {path.rsplit(".", 1)[1] for path, _ in found} == set(expected)
    for path, message in found:
        assert "has no effect: " in message
        assert expected[path.rsplit(".", 1)[1]] in message


def test_what_a_test_phase_inherits_is_not_warned_of(minimal) -> None:
    with_config(with_agent(minimal, replay=[{}], snapshots={"best": True}), evaluate_every=2, sync_every=4)
    minimal["schedule"].append({"second": {"phase_config": {"mode": "test", "workers": 2}}})
    assert warnings_of(minimal) == []
    phase(minimal, 1)["phase_config"]["evaluate_every"] = 3  # of the test phase itself
    assert [path for path, _ in warnings_of(minimal)] == ["schedule.1.second.phase_config.evaluate_every"]


def test_a_key_that_only_a_later_phase_uses_is_not_warned_of(minimal) -> None:
    with_config(minimal, mode="test", evaluate_every=2)
    minimal["schedule"].append({"second": {"phase_config": {"mode": "train", "workers": 2}}})
    assert warnings_of(minimal) == []


@pytest.mark.parametrize(
    ("snapshots", "load", "warned"),
    [
        ({"best": True}, {"snapshot": "best"}, False),
        ({"every": 5}, {"snapshot": "best"}, True),
        (None, {"snapshot": "best", "phase": 0}, True),
        ({"every": 5}, {"snapshot": "episode-5", "phase_name": "first"}, False),
        ({"best": True}, {"snapshot": "episode-5"}, True),
        (None, {"snapshot": "best", "experiment_run": "other", "phase": 0}, False),
        (None, {"snapshot": "best", "base": "elsewhere"}, False),
    ],
)
def test_a_snapshot_that_nobody_takes_is_warned_of(snapshots, load, warned: bool, minimal) -> None:
    with_agent(minimal, snapshots=snapshots)
    minimal["schedule"].append({"second": {"agents": [{"name": "defender", "load": load}]}})
    found = warnings_of(minimal)
    assert [path for path, _ in found] == (["schedule.1.second.agents.0.load"] if warned else [])


def test_describe_shows_them(minimal) -> None:
    text = describe(from_mapping(with_config(with_agent(minimal, **copy.deepcopy(FULL)), **CONFIG)))
    for line in (
        "  evaluation after every 5 episodes\n",
        "  workers hear from the brains every 8 steps, each for itself\n",
        "    filter f:Norm(clip=5)\n    filter f:Stack()\n",
        "    replay phase 0, repeat 1\n",
        "    replay agent 'defender', repeat 1\n",
        "    snapshots every 10 episodes and of the best\n",
        "    load snapshot 'episode-10', experiment_run 'other', phase 3\n",
    ):
        assert line in text
    plain = with_config(with_agent(minimal, snapshots={"every": 1}, replay=None, filters=None), workers=1)
    plain["schedule"][0]["first"]["phase_config"]["evaluate_every"] = 1
    text = describe(from_mapping(plain))
    assert "  evaluation after every episode\n" in text
    assert "    snapshots every episode\n" in text
    assert "hear" not in text and "replay" not in text and "filter" not in text


@pytest.mark.parametrize(
    "spoil",
    [
        {"filters": [{"nam": "a:B"}]},
        {"replay": [{"phase": -1}]},
        {"replay": [{"sensors": []}]},
        {"replay": [{"strict": 1}]},
        {"snapshots": {}},
        {"snapshots": {"every": 0}},
        {"load": {"snapshot": 3}},
    ],
)
def test_the_schema_refuses(spoil, minimal) -> None:
    assert VALIDATOR.is_valid(minimal)
    assert not VALIDATOR.is_valid(with_agent(minimal, **spoil))


@pytest.mark.parametrize("spoil", [{"evaluate_every": -1}, {"sync_every": 0}, {"asynchronous": "yes"}])
def test_the_schema_refuses_in_phase_config(spoil, minimal) -> None:
    assert not VALIDATOR.is_valid(with_config(minimal, **spoil))


def test_filters_are_checked_like_other_classes(minimal) -> None:
    filters = [
        {"name": "json:JSONEncoder"},
        {"name": "json:JSONDecoder", "params": {"strct": 1}},
        {"name": "json:Nothing"},
    ]
    minimal = with_agent(minimal, filters=filters)
    minimal["schedule"].append({"second": None})
    found = [p for p in check_classes(from_mapping(minimal)) if ".filters." in p.path]
    assert [p.path.split(".filters.")[1] for p in found] == [
        "1.params.strct",
        "2.name",
    ]  # once for two phases
    assert "did you mean 'strict'" in found[0].message
    found = check_classes(from_mapping(minimal), {"filter": dict})
    assert "is no filter: it does not derive from builtins:dict" in "".join(map(str, found))


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("palaestrai.agent.filters.normalization_filter:NormFilter", "NormFilter"),
        ("palaestrai.agent.filters:Norm", "NormFilter"),
        ("palaestrai.agent:NormFilter", "NormFilter"),
        ("palaestrai.agent.filters.merge_steps_filter:MergeStepsFilter", "MergeStepsFilter"),
        ("palaestrai.agent.filters.delta_obs_filter:DeltaObsFilter", "DeltaObsFilter"),
        ("palaestrai.agent.filters.delta_action_filter:DeltaActionFilter", "DeltaActionFilter"),
        ("palaestrai.agent.filters.delta_step_filter:DeltaStepFilter", "DeltaStepFilter"),
        ("palaestrai.agent.filters.action_time_shift_filter:ActionTimeShiftFilter", "ActionTimeShiftFilter"),
        ("palaestrai.agent.filters.absolute_deviation_filter:AbsoluteDeviationFilter", "AbsoluteDeviationFilter"),
        ("palaestrai.agent.filters.quadratic_penalty_filter:QuadraticPenaltyFilter", "QuadraticPenaltyFilter"),
    ],
)  # fmt: skip
def test_filters_of_palaestrai_are_ours(name: str, ours: str, minimal) -> None:
    assert canonical_name(name) == f"palaestrai_mosaik.agent.filters:{ours}"


def test_a_warning_about_an_inherited_load_is_given_once(minimal) -> None:
    minimal["schedule"] += [
        {"second": {"agents": [{"name": "defender", "load": {"snapshot": "best"}}]}},
        {"third": {}},
        {"fourth": {}},
    ]
    assert [path for path, _ in warnings_of(minimal)] == ["schedule.1.second.agents.0.load"]


def with_second(data, load, **keys):
    """Add a phase ``second`` in which an agent with the ``load`` takes part, and ``third``."""
    name = keys.pop("name", "defender")
    other = {"muscle": {"name": "m:M"}, "sensors": [], "actuators": ["world.x"]} if name != "defender" else {}
    one = {"name": name, **other, **keys, "load": load}
    data["schedule"] += [{"second": {"agents": [one]}}, {"third": {}}]
    return data


@pytest.mark.parametrize("named", [{"phase": "first"}, {"phase_name": "first"}])
def test_a_phase_is_loaded_from_by_index_or_name(named, minimal) -> None:
    data = with_second(copy.deepcopy(minimal), named)
    document = from_mapping(data)
    assert document.phases[1].agents[0].load == {"phase_name": "first"}
    assert document.hash == from_mapping(with_second(minimal, {"phase_name": "first"})).hash
    assert from_mapping(document.canonical).hash == document.hash
    VALIDATOR.validate(data)


@pytest.mark.parametrize(
    ("load", "keys", "said"),
    [
        ({"phase": 1}, {}, "'load' in phase 'second' points to this very phase"),
        ({"phase": "third"}, {}, "'load' in phase 'second' points to phase 'third', a later one"),
        ({}, {"name": "other"}, "phase 'first' has no agent 'other'; agents there: defender"),
        ({"agent": "other", "phase": 0}, {"name": "other"}, "phase 'first' has no agent 'other'"),
        ({"experiment_run": "another"}, {}, "'load' from another execution must name the phase"),
        ({"instance": "20260101-x"}, {}, "'load' from another execution must name the phase"),
    ],
)
def test_a_load_that_cannot_work_is_found(load, keys, said: str, minimal) -> None:
    found = problems_of(with_second(minimal, load, **keys))
    # once, although the third phase inherits it
    assert [p.path for p in found if said in p.message] == ["schedule.1.second.agents.0.load"]


@pytest.mark.parametrize("load", [{"phase": "frist"}, {"phase_name": "frist"}, {"phase": 7}])
def test_an_inherited_load_of_an_unknown_phase_is_one_problem(load, minimal) -> None:
    (problem,) = problems_of(with_second(minimal, load))
    assert problem.path == f"schedule.1.second.agents.0.load.{next(iter(load))}"


def test_a_load_in_the_first_phase_must_name_one(minimal) -> None:
    for load in ({"phase_name": None, "base": "./custom"}, {"base": "./custom"}, {"snapshot": "best"}):
        (problem,) = problems_of(with_agent(minimal, load=load))
        assert problem.path == "schedule.0.first.agents.0.load"
        assert "the first phase has none before it" in problem.message


def test_an_agent_without_a_brain_leaves_nothing_to_load(minimal) -> None:
    with_agent(minimal, brain=None)
    (problem,) = problems_of(with_second(minimal, {}, brain={"name": "b:B"}))
    assert "agent 'defender' has no brain in phase 'first'" in problem.message


def test_what_lies_in_a_folder_or_in_another_execution_is_not_checked_here(minimal) -> None:
    loads_of = [
        {"base": "./custom", "phase": 1},
        {"base": "./custom", "phase": "third", "agent": "defender"},
        {"experiment_run": "another", "phase": 7, "agent": "x"},
        {"instance": "i", "phase": "y"},
        {"experiment_run": "minimal", "instance": "i", "phase": "second"},
    ]
    for load in loads_of:
        assert from_mapping(with_second(copy.deepcopy(minimal), load)).warnings == ()


RULES = {
    "success": {
        "metric": "objective",
        "threshold": 1,
        "direction": "greater_equal",
        "consecutive": 1,
        "min_evaluations": 1,
    },
    "plateau": {
        "metric": "objective",
        "direction": "maximize",
        "min_delta": 0,
        "patience": 1,
        "min_evaluations": 1,
        "window": 1,
    },
}


@pytest.mark.parametrize(
    ("rule", "key", "value", "said"),
    [
        ("success", "threshold", 10**400, "threshold must be a finite number, found the number 1000"),
        ("success", "threshold", -(10**400), "threshold must be a finite number, found the number -1000"),
        ("plateau", "min_delta", 10**400, "min_delta must be a finite number of at least 0"),
        ("plateau", "window", 10**20, "window must be an integer of 1 to 1,000,000,000"),
        ("success", "consecutive", 10**400, "consecutive must be an integer of 1 to 1,000,000,000"),
    ],
)
def test_numbers_that_are_too_large_for_a_rule_are_found(rule, key, value, said, minimal) -> None:
    rules = {rule: {**RULES[rule], key: value}}
    name = vocabulary.EVALUATION_CONDITION
    minimal["run_config"] = {"condition": {"name": name, "params": {"agents": {"defender": rules}}}}
    with_config(minimal, evaluate_every=1)
    (problem,) = problems_of(minimal)
    assert problem.path == f"run_config.condition.params.agents.defender.{rule}.{key}"
    assert said in problem.message


def test_the_largest_numbers_of_a_rule_are_taken(minimal) -> None:
    rules = {"success": {**RULES["success"], "threshold": 10**300, "consecutive": 10**9}}
    name = vocabulary.EVALUATION_CONDITION
    minimal["run_config"] = {"condition": {"name": name, "params": {"agents": {"defender": rules}}}}
    assert from_mapping(with_config(minimal, evaluate_every=1)).warnings == ()
