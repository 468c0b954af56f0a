"""The identity of a document: blind to spelling and order, sensitive to every value."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.experiment import canonical_json, content_digest, dumps, from_mapping, loads

BASE = {
    "uid": "hash",
    "seed": 7,
    "version": "3.5",
    "schedule": [
        {
            "one": {
                "environments": [
                    {
                        "environment": {
                            "uid": "w",
                            "name": "a:W",
                            "params": {"x": 1.5, "y": [1, "z"]},
                            "step_size": 2,
                        },
                        "reward": {"name": "a:R", "params": {"k": True}},
                    }
                ],
                "agents": [
                    {
                        "name": "n",
                        "muscle": {"name": "palaestrai.agent:DummyMuscle", "params": {}},
                        "brain": {"name": "a:B", "params": {"rate": 0.25}},
                        "sensors": ["w.1", "w.2"],
                        "actuators": ["w.3"],
                        "load": {"agent": "n", "experiment_run": "other", "phase": 0},
                    },
                    {
                        "name": "m",
                        "muscle": {"name": "palaestrai.agent:DummyMuscle", "params": {"g": 1}},
                        "objective": {"name": "a:O", "params": {}},
                        "sensors": ["w.4"],
                        "bodies": [
                            {"environment": "w", "count": 3, "first": 2, "actuators": ["w.{body}.u"]},
                            {
                                "name": "left",
                                "muscle": {"name": "a:L", "params": {"g": 0.5}},
                                "objective": {"name": "a:O", "params": {"sign": -1}},
                                "filters": [{"name": "a:F", "params": {"clip": 5}}],
                                "sensors": ["w.5"],
                                "actuators": ["w.6"],
                            },
                        ],
                    },
                ],
                "simulation": {
                    "name": "palaestrai.simulation:Vanilla",
                    "conditions": [{"name": "a:C", "params": {}}],
                },
                "phase_config": {"mode": "train", "workers": 2, "episodes": 3},
            }
        },
        {"two": {"phase_config": {"mode": "test"}}},
    ],
    "run_config": {"condition": {"name": "a:E", "params": {"m": 0}}},
}

# other words for the same thing: (key, old) -> new key and value
RESPELL = {
    "params": ("parameters", None),
    "workers": ("worker", None),
    "agent": ("agent_name", None),
}
RENAME = {
    "palaestrai.agent:DummyMuscle": "palaestrai.agent.dummy_muscle:DummyMuscle",
    "palaestrai.simulation:Vanilla": "palaestrai_mosaik.simulation:VanillaSimulationController",
    "train": "TRAINING",
    "test": "Testing",
}


def respelled(draw, value, key=None):
    """Return the same document with keys shuffled and other spellings chosen at random."""
    if isinstance(value, dict):
        items = draw(st.permutations(list(value.items())))
        out = {}
        for name, item in items:
            other = RESPELL.get(name, (name,))[0] if key != "params" and draw(st.booleans()) else name
            out[other] = respelled(draw, item, name)
        return out
    if isinstance(value, list):
        return [respelled(draw, item) for item in value]
    if isinstance(value, str) and key in ("name", "mode") and draw(st.booleans()):
        return RENAME.get(value, value)
    return value


@st.composite
def respellings(draw):
    data = respelled(draw, copy.deepcopy(BASE))
    if draw(st.booleans()):
        data["run_config"] = {"conditions": [data["run_config"]["condition"]]}
    if draw(st.booleans()):
        data["schedule"] = {name: phase for item in data["schedule"] for name, phase in item.items()}
    if draw(st.booleans()):  # what a later phase inherits may as well be written out
        later = data["schedule"]["two"] if isinstance(data["schedule"], dict) else data["schedule"][1]["two"]
        later["simulation"] = {"name": "vanilla"}
    return data


HASH = from_mapping(BASE).hash


@settings(max_examples=60)
@given(respellings())
def test_order_and_spelling_do_not_change_the_hash(data) -> None:
    assert from_mapping(data).hash == HASH
    assert loads(dumps(data)).hash == HASH


def test_the_content_is_all_of_a_document_but_its_name() -> None:
    def content(**keys):
        return content_digest(from_mapping(copy.deepcopy(BASE) | keys).canonical)

    assert content(uid="another") == content()
    assert content(seed=8) != content() != content(version="3.6")


def test_a_document_that_refers_to_its_own_run_has_the_content_of_the_other_one_that_does() -> None:
    def content(uid, run):
        data = copy.deepcopy(BASE) | {"uid": uid}
        phases = data["schedule"]
        agents = phases[0]["one"].pop("agents")
        del agents[0]["load"], agents[1]["bodies"]
        agents[1]["actuators"] = ["w.6"]
        phases[0]["one"]["agents"] = copy.deepcopy(agents)
        agents[0]["load"] = {"agent": "n", "experiment_run": run, "phase": 0}
        agents[1]["replay"] = [{"experiment_run": run, "phase": 0, "agent": "m"}]
        phases[1]["two"]["agents"] = agents
        return content_digest(from_mapping(data).canonical)

    assert content("a", "a") == content("b", "b")
    assert content("a", "b") == content("c", "b") != content("b", "b")
    assert content("a", "b") != content("a", "c")


def leaves(value, place=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*place, index))
    else:
        yield place, value


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return math.nextafter(value, 9)
    swaps = {"train": "test", "test": "train", "3.5": "3.6", "palaestrai.simulation:Vanilla": "taking_turns"}
    return swaps.get(value, value + "x")


# Renaming these alone makes the document unsound: ids name the environment.
BOUND = {
    ("schedule", 0, "one", "environments", 0, "environment", "uid"),
    ("schedule", 0, "one", "agents", 1, "bodies", 0, "environment"),
}
LEAVES = [place for place, _ in leaves(BASE) if place not in BOUND]


@pytest.mark.parametrize("place", LEAVES, ids=lambda place: ".".join(map(str, place)))
def test_any_value_changes_the_hash(place) -> None:
    data = copy.deepcopy(BASE)
    inner = data
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = changed(inner[place[-1]])
    assert from_mapping(data).hash != HASH


def test_comments_and_anchors_do_not_change_the_hash() -> None:
    text = dumps(BASE)
    commented = "# a comment\n" + text.replace("uid: hash", "uid: hash   # another")
    anchored = commented.replace("params: {}", "params: &none {}", 1)
    assert loads(commented).hash == loads(anchored).hash == HASH


def test_int_float_bool_and_text_differ() -> None:
    hashes = set()
    for value in (
        1,
        1.0,
        True,
        "1",
        "1.0",
        "true",
        None,
        [1],
        {"1": 1},
        {1: 1},
        {1.0: 1},
        {True: 1},
        {"!int 1": 1},
    ):
        data = copy.deepcopy(BASE)
        data["schedule"][0]["one"]["environments"][0]["environment"]["params"] = {"v": value}
        hashes.add(from_mapping(data).hash)
    assert len(hashes) == 13


def test_canonical_form_is_plain_sorted_and_loads_to_itself() -> None:
    document = from_mapping(BASE)
    again = from_mapping(document.canonical)
    assert again.hash == document.hash
    assert again.canonical == document.canonical
    assert json.loads(canonical_json(document.canonical)) == document.canonical
    assert list(document.canonical) == sorted(document.canonical)
    second = document.canonical["schedule"][1]["two"]
    assert second["phase_config"] == {"episodes": 3, "mode": "test", "workers": 2}
    assert second["agents"] == document.canonical["schedule"][0]["one"]["agents"]


def test_known_canonical_json() -> None:
    value = {"b": 1e-05, "a": [1, 1.0, True, None, "ä"], "c": {2: math.inf}}
    assert canonical_json(value) == '{"a":[1,1.0,true,null,"ä"],"b":1e-05,"c":{"!int 2":Infinity}}'


def test_numbers_of_numpy_are_plain_numbers(minimal) -> None:
    params = minimal["schedule"][0]["first"]["environments"][0]["environment"]["params"]
    params |= {"f": 0.5, "i": 3, "t": [1, 2]}
    expected = from_mapping(minimal)
    params |= {"f": np.float64(0.5), "i": np.int64(3), "t": (1, 2)}
    document = from_mapping(minimal)
    assert document.hash == expected.hash
    made = document.phases[0].environments[0].params
    assert (type(made["f"]), type(made["i"]), type(made["t"])) == (float, int, list)
    assert loads(document.text).hash == document.hash
