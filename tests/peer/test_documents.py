"""Documents of palaestrAI 3.5: every key of its schema, its own examples, and the trace of a run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("palaestrai")

import ruamel.yaml
from palaestrai.experiment import ExperimentRun
from support.documents import agent, named, phase

from palaestrai_mosaik.experiment import fields, from_mapping, load, loads, vocabulary
from palaestrai_mosaik.experiment.yaml_text import read
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOLDEN = HERE / "golden.yml"

#: the parts of palaestrAI's schema: where they stand in a document, and our words for them
SECTIONS = {
    "": ("", vocabulary.TOP),
    "run_parameters": ("", vocabulary.PHASE),
    "optional_run_parameters": ("", vocabulary.PHASE),
    "environment_parameters": ("environments.", vocabulary.ENVIRONMENT_ENTRY),
    "optional_environment_parameters": ("environments.", vocabulary.ENVIRONMENT_ENTRY),
    "agent_parameters": ("agents.", vocabulary.AGENT),
    "optional_agent_parameters": ("agents.", vocabulary.AGENT),
    "load_parameters": ("load.", vocabulary.LOAD),
    "simulation_parameters": ("simulation.", vocabulary.SIMULATION),
    "optional_simulation_parameters": ("simulation.", vocabulary.SIMULATION),
    "phase_config_parameters": ("phase_config.", vocabulary.PHASE_CONFIG),
    "optional_phase_config_parameters": ("phase_config.", vocabulary.PHASE_CONFIG),
    "name_params": ("class.", fields.CLASS),
    "optional_name_params": ("class.", fields.CLASS),
    "run_config_parameters": ("run_config.", vocabulary.RUN_CONFIG),
}
#: parts that are no mapping with keys of their own
PLACES = {"run_phases", "optional_parameters"}


def schema() -> dict[str, list[str]]:
    """Return the keys of each part of palaestrAI's schema."""
    text = files("palaestrai.experiment").joinpath(ExperimentRun.SCHEMA_FILE).read_text()
    top, parts = ruamel.yaml.YAML(typ="safe", pure=True).load_all(text)
    return {"": list(top), **{name: list(keys) for name, keys in parts.items() if name not in PLACES}}


def test_every_key_of_palaestrais_schema_is_read_and_told_of():
    text = (ROOT / "docs" / "from-palaestrai.md").read_text()
    table = text.partition("\n## Keys of a run document\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE))
    expected = set()
    for part, keys in schema().items():
        place, section = SECTIONS[part]
        for key in keys:
            assert key in section.words, f"{part}.{key}"
            expected.add(f"{place}{key}")
    expected |= {f"replay.{key}" for key in schema()["load_parameters"]}
    assert set(schema()["load_parameters"]) <= set(vocabulary.REPLAY.words)
    assert told == expected


def test_numbers_and_words_are_read_as_there():
    words = "1_000 -12_345_678 1_000.5 012 0o12 0x1F 1:30 yes no on Off true TRUE ~ null .5 5. 1e3 1e-5 1E5 .inf -.inf +5 y n"
    for word in words.split():
        theirs = ruamel.yaml.YAML(typ="safe", pure=True).load(f"a: {word}")["a"]
        ours = read(f"a: {word}", "").value["a"]
        assert (type(ours), ours) == (type(theirs), theirs), word


def test_what_a_phase_has_differs_from_palaestrai_where_a_hint_says_so():
    config = {"workers": 1, "episodes": 1}
    plain: dict[str, Any] = {
        "uid": "cascade",
        "seed": 1,
        "version": "3.5",
        "schedule": [
            {"first": phase(**config)},
            {"second": {"agents": [agent("b", 5)], "phase_config": {"episodes": 3}}},
        ],
        "run_config": {"condition": named("palaestrai.experiment:MaxEpisodesTerminationCondition")},
    }
    plain["schedule"][0]["first"]["simulation"]["name"] = "palaestrai.simulation:Vanilla"
    plain["schedule"][0]["first"]["phase_config"]["mode"] = "test"
    theirs = ExperimentRun("cascade", 1, "3.5", plain["schedule"], plain["run_config"]).canonical_config
    second = theirs["schedule"][1]["second"]
    document = from_mapping(plain)
    assert [one["name"] for one in second["agents"]] == ["b"]
    assert [one.name for one in document.phases[1].agents] == ["a", "b"]
    assert second["phase_config"] == {"episodes": 3}
    assert document.phases[1].mode.value == "test"
    hints = [note.message for note in document.notes]
    assert any("agents of phase 'first' that are not listed here go on: 'a'" in hint for hint in hints)
    assert any(
        "'mode' of phase 'first', test, goes on here; palaestrAI would take train mode" in hint
        for hint in hints
    )


def test_the_trace_of_a_run_is_that_of_palaestrai():
    golden = json.loads((HERE / "golden.json").read_text())
    assert len(golden) == 30
    with Store(create=True) as store:
        execute(load(GOLDEN), store=store)
        ours = {}
        for name in ("together", "in_turns"):
            for row in store.steps("latest", phase=name).to_dict("records"):
                ours[name, row["agent"], row["episode"], row["time"]] = row
    assert len(ours) == len(golden)
    for theirs in golden:
        row = ours[theirs["phase"], theirs["agent"], theirs["episode"], theirs["time"]]
        expected = {"objective": theirs["objective"], "terminated": bool(theirs["done"])}
        for kind in ("reading", "setpoint"):
            for uid, value in theirs[f"{kind}s"].items():
                expected[f"{kind}.{uid}"] = value[0] if isinstance(value, list) else value
        for uid, value in theirs["rewards"].items():
            expected[f"reward.tanks.{uid}"] = value
        for key, value in expected.items():
            # its sums are made in the same order: the numbers are the same to the last bit
            assert row[key] == value, (theirs, key)


#: what is said of those of palaestrAI's examples that do not run; all others do
SAID = {
    "invalid_run.yml": "unknown key 'user_id'",
    "crashing_env_dummy_run.yml": "RuntimeError: Mwaaaahhhrgh!!",
    "dummy_run-phases_modes.yml": "there is no experiment run 'Yo-ho, a dummy experiment run for me!'",
    "dummy_run_tt_multiworker.yml": "there is no experiment run 'Yo-ho, a dummy experiment run for me!'",
    "dummy_run_with_state_transformer.yml": "'fixtures' has no class 'CountingWorldStateTransformer'",
    "end_to_end_test_run.yml": "gave the reward 'Reward-2'",
    "dummy_replay_run.yml": "has no dump with the tag 'sac_actor'",
    "tictactoe_run.yml": "there is no module 'harl.dqn'",
    "gym-td3-mcc_run.yml": "the module 'harl' has no class 'TD3Muscle'",
    "gym_experiment_run.yml": 'TypeError: Value "[1.]" not contained in space',
    "tic_tac_toe_experiment_run.yml": "there is no module 'tictactoe'",
}
#: its conditions end no phase, there and here
ENDLESS = {"dummy_run-multiple_tc.yml"}
#: they learn for minutes, or are MIDAS's (see test_midas.py)
LONG = {"filter-test.yml", "action_time_shift_filter_test.yml", "tictactoe-sac_experiment_run.yml"}
SOURCES = os.environ.get("PALAESTRAI_MOSAIK_TEST_PEER_SOURCES", "")


def examples() -> list[Path]:
    """Return the run documents of palaestrAI's and palaestrai-environments' source distributions."""
    folders = ("palaestrai-[0-9]*", "palaestrai_environments-*")
    found = (
        [path for folder in folders for path in Path(SOURCES).glob(f"{folder}/tests/fixtures/*.yml")]
        if SOURCES
        else []
    )
    return [
        path for path in found if "schedule" in path.read_text() and "midas" not in path.read_text().lower()
    ]


@pytest.mark.parametrize("path", examples(), ids=lambda path: path.name)
def test_an_example_of_palaestrai_runs_or_says_why_not(path: Path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # they name their own classes in two ways, one of which is that of a file of ours
    monkeypatch.delitem(sys.modules, "fixtures", raising=False)
    monkeypatch.syspath_prepend(str(path.parents[1]))
    text = path.read_text().replace("tests.fixtures", "fixtures")
    if path.name in SAID:
        with Store(create=True) as store, pytest.raises(Exception, match=re.escape(SAID[path.name])):
            execute(loads(text, path.name), store=store)
    elif path.name in ENDLESS | LONG:
        assert loads(text, path.name).phases
    else:
        with Store(create=True) as store:
            execute(loads(text, path.name), store=store)
            assert store.runs().iloc[-1]["status"] == "finished"


@pytest.mark.skipif(importlib.util.find_spec("palaestrai_environments") is None, reason="not installed")
def test_published_environments_run_unchanged():
    def run(entry: dict[str, Any], sensors: list[str], actuators: list[str], **config: Any) -> Any:
        one = agent(
            sensors=sensors,
            actuators=actuators,
            muscle=named("palaestrai_mosaik.agent.library.random_agent:RandomMuscle"),
        )
        document = from_mapping(
            {
                "uid": "published",
                "seed": 1,
                "version": "3.5",
                "schedule": [{"only": phase([{"environment": {"uid": "e", **entry}}], [one], **config)}],
                "run_config": {
                    "condition": named("palaestrai.experiment:VanillaRunGovernorTerminationCondition")
                },
            }
        )
        with Store(create=True) as store:
            execute(document, store=store)
            return store.environment_states("latest")

    package = "palaestrai_environments"
    random = named(f"{package}.random.continuous_environment:ContinuousRandomEnvironment", num_sensors=2)
    states = run(random, ["e.Sensor-1"], ["e.Actuator-0"], episodes=2)
    assert states["step"].tolist() == 2 * [*range(6)]
    assert states["reward.e.Reward"].notna().sum() == 10
    assert states.equals(run(random, ["e.Sensor-1"], ["e.Actuator-0"], episodes=2))
    game = named(f"{package}.tictactoe:TicTacToeEnvironment", randomness=1.0)
    tiles = [f"e.Tile {row}-{column}" for row in (1, 2, 3) for column in (1, 2, 3)]
    states = run(game, tiles, ["e.Field selector"], episodes=3)
    assert states["terminated"].sum() == 3
    assert states.equals(run(game, tiles, ["e.Field selector"], episodes=3))
