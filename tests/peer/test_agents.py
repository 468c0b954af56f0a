"""Brains, muscles, objectives and filters that derive from palaestrAI's classes run here."""

# ruff: noqa: NPY002 (what is tested is that global generators stay as they are)

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("palaestrai")

from support import palaestrai_agents as parts
from support.documents import agent, document, environment, named, phase
from support.learning import digests

from palaestrai_mosaik.core.errors import BrainDumpError, ContractError, DocumentError
from palaestrai_mosaik.runner import checkpoint, earlier_run, execute
from palaestrai_mosaik.store import Store

PARTS = "support.palaestrai_agents"
ODD = "support.palaestrai_odd"
CONSTANT = "palaestrai_mosaik.agent.library.constant:ConstantMuscle"


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts.LOG.clear()
    return parts.LOG


def ladder(uid="l", **params):
    return environment(uid, f"{PARTS}:Ladder", **params)


def theirs(name="a", uid="l", muscle="Teller", brain="Listener", objective="Negative", **keys):
    return (
        agent(
            name,
            muscle=named(f"{PARTS}:{muscle}"),
            brain=named(f"{PARTS}:{brain}"),
            objective=named(f"{PARTS}:{objective}"),
            sensors=[f"{uid}.n"],
            actuators=[f"{uid}.u"],
        )
        | keys
    )


def gambler(name="a", uid="l", **keys):
    return theirs(name, uid, "Gambler", "House") | keys


def test_all_that_happens_to_the_parts_of_an_agent(log):
    train = phase([ladder()], [theirs()], episodes=2)
    test = phase([ladder()], [theirs(load={})], mode="test")
    with Store(create=True) as store:
        result = execute(document(train, test), store=store)
        steps, statistics = store.steps("latest", phase=0), store.statistics("latest", phase=0)
    assert result.warnings == []
    first = [
        "muscle sees l.n=0 l.u=None",
        "objective sees -10, ends False",
        "brain thinks of a.0 {'n': 0.0} [0.0, 100.0, 10.0, -10.0] --- 0 of {0}",
        "muscle hears update {0}",
        "muscle sees l.n=1 l.u=None",
        "objective sees -20, ends True",
        "brain thinks of a.0 {'n': 1.0} [1.0, 101.0, 20.0, -20.0] TT- 1 of {1}",
    ]
    assert log == [
        "brain a setup in train, 1 1",
        "brain is asked for a.0, knows 0 rows",
        "muscle a a setup in train",
        "muscle hears first",
        *(line.replace("{0}", "1").replace("{1}", "2") for line in first),
        "muscle reset",
        *(line.replace("{0}", "3").replace("{1}", "4") for line in first),
        "muscle teardown",
        "brain loads what was learned",
        "brain a setup in test, 1 1",
        "brain is asked for a.0, knows 0 rows",
        "muscle prepares with what was learned",
        "muscle a a setup in test",
        "muscle hears first",
        *(line for line in first if not line.startswith(("brain", "muscle hears"))),
        "muscle teardown",
    ]
    assert steps["setpoint.l.u"].tolist() == 2 * [100, 101]
    assert steps["objective"].tolist() == 2 * [-10, -20]
    found = {key: rows["value"].tolist() for key, rows in statistics.groupby("key")}
    # a mapping is its mean; what is no figure is left out
    assert found == {"seen": 2 * [0, 1], "losses": 4 * [1.5]}


@pytest.mark.parametrize(
    ("form", "workers"), [("array", 1), ("none", 1), ("empty", 1), ("nan", 1), ("nan", 2)]
)
def test_forms_of_an_objective(log, form, workers):
    one = theirs() | {"objective": named(f"{ODD}:Forms", form=form)}
    with Store(create=True) as store:
        execute(document(phase([ladder()], [one], workers=workers)), store=store)
        found = store.steps("latest")["objective"].to_numpy()
    learned = [line for line in log if line.startswith("brain thinks")]
    np.testing.assert_array_equal(found, [-10, -20] if form == "array" else 2 * workers * [np.nan])
    # a row without a value is discarded, as palaestrAI's contract says; NaN is a value there
    assert len(learned) == (0 if form in ("none", "empty") else 2 * workers)
    assert all("20.0, -20.0]" in line or ", nan]" in line or "10.0, -10.0]" in line for line in learned)


def test_what_a_brain_tells_without_a_row_goes_with_the_next_one():
    one = theirs() | {"brain": named(f"{ODD}:Reporter")}
    again = phase([ladder()], [one | {"replay": [{"phase": 0}]}])
    with Store(create=True) as store:
        execute(document(phase([ladder()], [one]), again), store=store)
        told = store.statistics("latest", phase=1)
    found = {key: rows["value"].tolist() for key, rows in told.groupby("key")}
    assert found == {"asked": [2, 3], "first": [7], "seen": [0, 1]}


def test_what_objectives_draw_comes_from_the_tree_of_seeds():
    def drawn(seed, muscle):
        one = theirs() | {"muscle": muscle, "objective": named(f"{ODD}:Drawing")}
        del one["brain"]
        with Store(create=True) as store:
            result = execute(document(phase([ladder(steps=3)], [one], episodes=2), seed=seed), store=store)
            assert result.warnings == []
            return store.steps("latest")["objective"].tolist()

    for muscle in (named(f"{PARTS}:Teller"), named(CONSTANT, values=7.0)):
        first = drawn(1, muscle)
        assert len(set(first)) == 6
        assert drawn(1, muscle) == first != drawn(2, muscle)


@pytest.mark.parametrize("form", ["none", "pair", "numbers", "three"])
def test_a_muscle_that_gives_something_else_than_actuators(form):
    one = theirs() | {"muscle": named(f"{ODD}:Answering", form=form)}
    with pytest.raises(
        ContractError, match=r"agent 'a': Answering\.propose_actions gave .*; allowed (is|are) "
    ):
        execute(document(phase([ladder()], [one])))


def test_an_episode_that_is_cut_is_truncated_for_the_brain(log):
    execute(document(phase([ladder(terminates=False)], [theirs()])))
    assert [line for line in log if line.startswith("brain thinks")][-1].split()[-4] == "T-T"


def test_evaluations_are_told_with_what_the_brain_adds(log):
    with Store(create=True) as store:
        execute(document(phase([ladder()], [theirs()], episodes=2, evaluate_every=2)), store=store)
        assert len(store.steps("latest", evaluation=True)) == 2
    # the evaluation's muscle tests: nobody thinks
    assert sum(line.startswith("brain thinks") for line in log) == 4


def test_global_generators_are_each_parts_own_and_everybody_elses_stay(tmp_path):
    np.random.normal()
    before = random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]
    alone = phase([ladder("l", steps=5)], [gambler()], episodes=3)
    both = phase([ladder("k", steps=5), ladder("l", steps=5)], [gambler("other", "k"), gambler()], episodes=3)
    found = []
    for schedule in (alone, alone, both):
        with Store(tmp_path / "s", create=True) as store:
            result = execute(document(schedule), store=store)
            assert result.warnings == []
            found.append(store.steps("latest", agent="a")["setpoint.l.u"].to_numpy())
    assert len(set(found[0])) == 15
    np.testing.assert_array_equal(found[0], found[1])
    # another agent that gambles changes nothing
    np.testing.assert_array_equal(found[0], found[2])
    assert (random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]) == before


def test_workers_in_processes_of_their_own_give_the_same_bytes_again(tmp_path):
    doc = document(phase([ladder("l", steps=4)], [gambler()], workers=2, episodes=2, sync_every=2))
    found = []
    for _ in range(2):
        with Store(tmp_path / "s", create=True) as store:
            assert execute(doc, store=store).warnings == []
            found.append(digests(store))
            values = store.steps("latest", phase=0)["setpoint.l.u"]
            assert values.nunique() == len(values) == 16
    assert found[0] == found[1]


def test_a_run_that_was_cut_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_SHARE", 1e9)
    path = str(tmp_path / "broken")

    def doc(**fault):
        ends = named("palaestrai_mosaik.simulation.conditions:EnvironmentTerminationCondition")
        breaks = named("support.learning:FailsWhile", path=path, episode=2, time=2)
        one = gambler(objective=named(f"{ODD}:Drawing"))
        return document(phase([ladder("l", steps=4)], [one], [ends, breaks], episodes=4))

    with Store(tmp_path / "whole", create=True) as store:
        execute(doc(), store=store, checkpoint_every=0)
        whole = digests(store)
    (tmp_path / "broken").touch()
    with Store(tmp_path / "cut", create=True) as store:
        with pytest.raises(ValueError, match="not mended yet"):
            execute(doc(), store=store, checkpoint_every=1e-9)
        (tmp_path / "broken").unlink()
        instance = earlier_run(doc(), store).instance
        result = execute(doc(), store=store, resume=instance, checkpoint_every=1e-9)
        assert result.warnings == []
        assert digests(store) == whole


def test_ours_and_theirs_take_turns(log):
    ours = agent(
        "ours",
        muscle=named(CONSTANT, values=7.0),
        brain=None,
        objective=None,
        sensors=["l.n"],
        actuators=["l.u"],
    )
    ours = {key: value for key, value in ours.items() if value is not None}
    with Store(create=True) as store:
        execute(document(phase([ladder(steps=4)], [ours, theirs()], controller="taking_turns")), store=store)
        steps = store.steps("latest", agent="a")
    assert [line for line in log if "sees l" in line] == [
        "muscle sees l.n=1 l.u=None",
        "muscle sees l.n=3 l.u=None",
    ]
    assert steps["setpoint.l.u"].tolist() == [101, 103]


@pytest.mark.parametrize("own", ["muscle", "brain", "objective"])
def test_parts_of_ours_and_of_theirs_make_one_agent(log, own):
    library = "palaestrai_mosaik.agent.library"
    ours = {
        "muscle": named(f"{library}.constant:ConstantMuscle", values=7.0),
        "brain": named(f"{PARTS}:Reader"),
        "objective": named(f"{library}.dummy:DummyObjective"),
    }
    with Store(create=True) as store:
        one = theirs(brain="Talker") | {own: ours[own]}
        execute(document(phase([ladder()], [one])), store=store)
        steps = store.steps("latest")
    assert steps["setpoint.l.u"].tolist() == ([7, 7] if own == "muscle" else [100, 101])
    assert steps["objective"].tolist() == ([10, 20] if own == "objective" else [-10, -20])
    heard = [line for line in log if line.startswith("muscle hears")]
    assert bool(heard) == (own == "objective")
    read = [line for line in log if line.startswith("our brain")]
    assert len(read) == (2 if own == "brain" else 0)


def test_a_brain_that_loads_nothing_is_an_error():
    forgetful = gambler(brain=named(f"{PARTS}:Forgetful"))
    with pytest.raises(BrainDumpError, match="no dump with the tag 'elsewhere'"):
        execute(
            document(
                phase([ladder()], [forgetful]), phase([ladder()], [{**forgetful, "load": {}}], mode="test")
            )
        )


def test_a_muscle_that_fails_without_its_dump_is_told_which_one():
    lost = gambler(brain=named(f"{PARTS}:OldFashioned"))
    with pytest.raises(BrainDumpError, match="no dump without a tag; it has 'files'"):
        execute(document(phase([ladder()], [lost]), phase([ladder()], [{**lost, "load": {}}], mode="test")))


def test_in_a_test_the_model_comes_from_the_brain_if_the_muscle_loads_none(log):
    """The brain is of the kind that keeps files of its own."""
    one = gambler(brain=named(f"{PARTS}:OldFashioned"), muscle=named(f"{PARTS}:Waiting"))
    with Store(create=True) as store:
        execute(
            document(phase([ladder()], [one]), phase([ladder()], [{**one, "load": {}}], mode="test")),
            store=store,
        )
        folder = store.instance_directory(store.find_run("latest")) / "brains"
        assert [path.name for path in folder.rglob("*.bin")][:1] == ["brain-files.bin"]
    told = [line for line in log if line.startswith("t")]
    # before the first row, after two rows, and in the test as it was then
    assert [line.split()[0] for line in told] == ["train", "train", "train", "test"]
    assert told[-1].split()[1] == told[-2].split()[1]


def test_filters_are_given_what_palaestrai_gives_them(log):
    one = theirs(muscle="Tenfold", brain="Talker", filters=[named(f"{PARTS}:Doubling")])
    with Store(create=True) as store:
        execute(document(phase([ladder()], [one])), store=store)
        steps = store.steps("latest")
    # before that, it was tried which channels it makes
    assert [line for line in log if not line.startswith("objective")][-10:] == [
        "filter has a brain",
        "filter has a muscle",
        "filter has a muscle",
        "muscle hears model",
        "muscle sees twice.l.n=0",
        "filter passes marked data 0",
        "muscle hears filtered data 100",
        "muscle sees twice.l.n=2",
        "filter passes marked data 2",
        "muscle hears filtered data 101",
    ]
    assert steps["setpoint.l.u"].tolist() == [100, 101]


def test_replay_fills_the_memory_for_pretraining(log):
    train = phase([ladder()], [theirs()], episodes=2)
    student = theirs(brain="Student", replay=[{"phase": 0}])
    with Store(create=True) as store:
        execute(document(train, phase([ladder()], [student])), store=store)
    found = [line for line in log if line.startswith(("pretrainer", "thinks"))]
    trajectory = "pretrainer [0.0, 1.0] [False, True] [-10.0, -20.0]"
    # what pretrain returns is no model; what was replayed is forgotten then
    assert found == [trajectory, trajectory, "thinks, 0 rows", "thinks, 1 rows", "thinks, 2 rows"]


def test_what_does_not_fit_is_told_before_anything_runs():
    one = theirs() | {"objective": named(f"{PARTS}:Negative", form="float", shape=1)}
    with pytest.raises(DocumentError, match=r"takes no parameter 'shape'.*allowed: form"):
        execute(document(phase([ladder()], [one])))
    with pytest.raises(DocumentError, match=r"agent:Brain' is abstract: it does not implement thinking"):
        execute(document(phase([ladder()], [theirs(brain="x") | {"brain": named("palaestrai.agent:Brain")}])))
