"""The JSON Schema accepts what loads and refuses what is misspelled."""

from __future__ import annotations

import json

import pytest

from palaestrai_mosaik.experiment import fields, from_mapping, json_schema, vocabulary
from palaestrai_mosaik.experiment.class_names import SHORT_NAMES, TOPICS

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra 'test')")

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_it_is_a_schema_and_plain_json() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_it_accepts_a_document_and_its_canonical_form(minimal) -> None:
    VALIDATOR.validate(minimal)
    VALIDATOR.validate(from_mapping(minimal).canonical)


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("agent", vocabulary.AGENT),
        ("body", vocabulary.BODY),
        ("phase", vocabulary.PHASE),
        ("simulation", vocabulary.SIMULATION),
        ("phase_config", vocabulary.PHASE_CONFIG),
        ("run_config", vocabulary.RUN_CONFIG),
        ("environment_entry", vocabulary.ENVIRONMENT_ENTRY),
    ],
)
def test_it_knows_every_word_of_the_vocabulary(name: str, section: vocabulary.Section) -> None:
    assert set(SCHEMA["$defs"][name]["properties"]) == set(section.words)


def test_it_knows_every_word_of_a_class_and_all_short_names() -> None:
    for topic in (topic for topic in TOPICS if topic != "environment"):
        name, whole = SCHEMA["$defs"][topic]["anyOf"][-2:]
        assert set(whole["properties"]) == set(fields.CLASS.words)
        shown = json.dumps(SCHEMA["$defs"][topic])
        assert all(f'"{short}"' in shown for short in SHORT_NAMES[topic]), name


def _agent(data):
    return data["schedule"][0]["first"]["agents"][0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.update(sead=1),
        lambda d: d.pop("uid"),
        lambda d: d.update(seed="1"),
        lambda d: d.update(version=3.5),
        lambda d: d["schedule"][0]["first"].update(agent=[]),
        lambda d: d["schedule"][0].update(second={}),
        lambda d: _agent(d).update(muscel={}),
        lambda d: _agent(d).update(sensors=[1.5]),
        lambda d: _agent(d).update(muscle={"name": "a:B", "parms": {}}),
        lambda d: _agent(d).update(load={"phase": 1.5}),
        lambda d: d["schedule"][0]["first"]["simulation"].update(name="palaestrai.simulation:Vanila"),
        lambda d: d["schedule"][0]["first"]["simulation"].update(bridge="none"),
        lambda d: d["schedule"][0]["first"]["phase_config"].update(mode="trian"),
        lambda d: d["schedule"][0]["first"]["phase_config"].update(worker=0),
        lambda d: d["schedule"][0]["first"]["environments"][0].update(rewrad={}),
        lambda d: d["run_config"].update(conditions=[]),
    ],
)
def test_it_refuses(spoil, minimal) -> None:
    spoil(minimal)
    assert not VALIDATOR.is_valid(minimal)


def test_it_accepts_the_spellings(minimal) -> None:
    first = minimal["schedule"][0]["first"]
    first["phase_config"] = {"mode": "Training", "worker": 1, "episodes": None}
    first["agents"][0]["muscle"] = {"name": "a:B", "parameters": {}}
    first["simulation"] = "defined"
    VALIDATOR.validate(minimal)
