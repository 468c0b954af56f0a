"""Other values in a document: ``--set`` of the commands, ``overrides`` of :func:`palaestrai_mosaik.run`."""

from __future__ import annotations

from pathlib import Path

import pytest

import palaestrai_mosaik as pm
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import RunDocument, as_document, load, loads
from palaestrai_mosaik.experiment.paths import parse

TEXT = """
uid: walk
seed: 7
schedule:
  train:
    environments: [slippery_grid]
    agents: [{name: walker, muscle: random}]
    phase_config: {episodes: 3}
  test:
    agents: [{name: walker, muscle: {name: constant, params: {values: 1}}}]
    phase_config: {mode: test, episodes: 1}
"""


def changed(*settings: str) -> RunDocument:
    return loads(TEXT, overrides=parse(settings))


def test_the_document_is_that_of_a_file_with_these_values() -> None:
    document = changed("schedule.train.phase_config.episodes=5", "seed=8")
    written = loads(TEXT.replace("episodes: 3", "episodes: 5").replace("seed: 7", "seed: 8"))
    assert document.hash == written.hash != loads(TEXT).hash
    assert loads(document.text).hash == document.hash, "the text that is recorded is the changed one"


def test_a_path_in_a_phase_changes_every_phase_in_which_it_leads_somewhere() -> None:
    both = changed("phase_config.episodes=9")
    assert [phase.episodes for phase in both.phases] == [9, 9]
    one = changed("agents.walker.muscle.params.values=2")
    assert [phase.agents[0].muscle.params for phase in one.phases] == [{}, {"values": 2}]
    # what no phase gives is given in the first one, and inherited
    new = changed("phase_config.workers=2", "environments.slippery_grid.environment.params.slip=0.5")
    assert [phase.workers for phase in new.phases] == [2, 2]
    assert new.phases[1].environments[0].params == {"slip": 0.5}
    assert changed("simulation.scheduler=mosaik").phases[0].simulation.scheduler == "mosaik"


def test_values_are_yaml() -> None:
    document = changed("agents.walker.sensors=[slippery_grid.state]", "experiment_uid=x")
    assert document.phases[0].agents[0].sensors == ("slippery_grid.state",)
    assert document.experiment_uid == "x"
    assert changed("seed=1_000").seed == 1000


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("episodes", "write PATH=VALUE"),
        ("=3", "write PATH=VALUE"),
        ("phase_confg.episodes=3", "leads nowhere: the document has no key 'phase_confg'"),
        ("agents.wlker.muscle=idle", r"no item 'wlker' \\(did you mean 'walker'\\?\\)"),
        ("schedule.trian.phase_config=1", r"no key 'trian' \\(did you mean 'train'\\?\\)"),
        ("phase_config.episods=3", "unknown key 'episods' in phase_config"),
        ("seed=[1", "not valid YAML"),
        ("seed=x", "seed must be an integer"),
        ("a[=3", "is not understood"),
    ],
)
def test_what_leads_nowhere_is_an_error(setting: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said.replace("\\\\", "\\")):
        changed(setting)


def test_a_path_is_set_once() -> None:
    with pytest.raises(DocumentError, match="'seed' is set twice"):
        parse(["seed=1", "seed=2"])


def test_commands_and_python_record_the_changed_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("walk.yml").write_text(TEXT)
    options = ["--set", "phase_config.episodes=2", "--seed", "9"]
    assert main(["check", "walk.yml", *options]) == 0
    assert "seed 9" in capsys.readouterr().out
    assert main(["graph", "walk.yml", *options]) == 0
    assert main(["start", "walk.yml", "--quiet", "--store", "results", *options]) == 0
    overrides = {"phase_config.episodes": 2, "seed": 9}
    run = pm.run("walk.yml", store="results", quiet=True, overrides=overrides)
    assert run.store.runs()["seed"].tolist() == [9, 9]
    assert as_document(run.document).hash == load("walk.yml", overrides).hash
    # what has finished is found again by what it was
    assert main(["start", "walk.yml", "--store", "results", "--resume", *options]) == 0
    assert "has finished already" in capsys.readouterr().err
    assert as_document(load("walk.yml"), overrides).hash == load("walk.yml", overrides).hash
