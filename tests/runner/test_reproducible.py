"""Same document, same seed, same bytes; and what must not be left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from support.documents import DUMMY, agent, document, environment, named, phase

from palaestrai_mosaik.agent.library.dummy import DummyBrain
from palaestrai_mosaik.core.errors import RunInterrupted
from palaestrai_mosaik.runner import Interrupt, Progress, execute
from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]

TWO_WORLDS = {
    "environments": [
        environment("fast", discrete=False, max_iter=40),
        environment("slow", discrete=False, max_iter=40),
    ],
    "agents": [
        agent("a", uid="fast", sensors=[f"{e}.{i}" for e in ("fast", "slow") for i in range(3)]),
        agent("b", 5, uid="slow"),
        agent("c", 7, count=2, uid="fast"),
    ],
}
TWO_WORLDS["environments"][1]["environment"]["step_size"] = 3


def digests(tmp_path, doc, name="results"):
    with Store(tmp_path / name, create=True) as store:
        result = execute(doc, store=store)
        streams = store.streams(result.instance)
        streams = streams[streams["digest"].notna() & (streams["rows"] > 0)]
        return {
            f.removeprefix("trajectories/"): d for f, d in streams[["folder", "digest"]].to_numpy().tolist()
        }


@pytest.mark.parametrize("controller", ["vanilla", "taking_turns"])
def test_two_executions_give_the_same_trajectories(tmp_path, controller):
    doc = document(phase(**TWO_WORLDS, controller=controller, episodes=3, workers=2))
    first, second = digests(tmp_path, doc), digests(tmp_path, doc, "again")
    assert first == second
    assert len(first) >= 5


#: nobody acts in the second world, which mosaik's scheduler would let run ahead of the agents
UNTOUCHED = {**TWO_WORLDS, "agents": [agent("a", uid="fast"), agent("c", 5, uid="fast")]}


@pytest.mark.parametrize("controller", ["vanilla", "taking_turns"])
@pytest.mark.parametrize("parts", [TWO_WORLDS, UNTOUCHED], ids=["two worlds", "one untouched"])
def test_both_schedulers_give_the_same_trajectories(parts, controller, tmp_path):
    found = [
        digests(
            tmp_path,
            document(phase(**parts, controller=controller, scheduler=scheduler, episodes=2)),
            scheduler,
        )
        for scheduler in ("direct", "mosaik")
    ]
    assert found[0] == found[1]


def test_another_seed_gives_other_trajectories(tmp_path):
    first = digests(tmp_path, document(phase(**TWO_WORLDS), seed=1), "one")
    second = digests(tmp_path, document(phase(**TWO_WORLDS), seed=2), "two")
    assert not set(first.values()) & set(second.values())


def test_adding_an_agent_changes_nobody_elses_stream(tmp_path):
    alone = digests(tmp_path, document(phase(**TWO_WORLDS)), "one")
    more = {**TWO_WORLDS, "agents": [agent("new", 3, count=1, uid="slow"), *TWO_WORLDS["agents"]]}
    together = digests(tmp_path, document(phase(**more)), "two")
    assert alone.items() <= together.items()


class Seeded(DummyBrain):
    """Notes what it is given to draw with."""

    given: list[tuple[str, int, float]] = []

    def setup(self):
        self.given.append((self.name, self.seed, float(self.rng.random())))


def test_brains_have_seeds_and_generators_of_their_own():
    def given(seed, *names):
        Seeded.given.clear()
        agents = [agent(name, brain=named(f"{__name__}:Seeded")) for name in names]
        execute(document(phase(agents=agents), phase(agents=agents), seed=seed))
        return set(Seeded.given)

    first = given(1, "a", "b")
    assert given(1, "a", "b") == first
    # each in each phase, whoever else is there, and others with another seed of the document
    assert given(1, "b") < first
    assert len(first) == len({seed for _, seed, _ in first}) == len({drawn for *_, drawn in first}) == 4
    other = given(2, "a", "b")
    for place in (1, 2):
        assert not {one[place] for one in first} & {one[place] for one in other}


SCRIPT = """
import sys
from palaestrai_mosaik.experiment import load
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
with Store(sys.argv[2], create=True) as store:
    result = execute(load(sys.argv[1]), store=store)
    print(sorted(store.streams(result.instance)[["folder", "digest"]].to_numpy().tolist()))
"""


def test_processes_with_different_hash_seeds_give_the_same_trajectories(tmp_path):
    outputs = set()
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(ROOT / "scenarios" / "dummy.yml"), str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert "agent-mighty_defender" in outputs.pop()


def test_a_planted_use_of_global_randomness_is_caught(tmp_path):
    planted = agent("a", muscle=named("support.parts:GloballyRandom"), brain=None)
    doc = document(phase(agents=[planted, agent("b", 5)]))
    first, second = digests(tmp_path, doc), digests(tmp_path, doc, "again")
    assert first["phase-0/agent-a"] != second["phase-0/agent-a"]
    assert first["phase-0/agent-b"] == second["phase-0/agent-b"]
    with Store(tmp_path / "again", create=True) as store:
        result = execute(doc, store=store)
    assert any("global random generator" in warning for warning in result.warnings)
    assert not execute(document(phase())).warnings


def test_nothing_is_left_after_1000_episodes():
    process = psutil.Process()

    def tasks():
        # (a proxy of what is gone has a type, but no class)
        return sum(issubclass(type(o), asyncio.Task) for o in gc.get_objects())

    class Counting(Progress):
        """Takes stock after every episode."""

        def __init__(self):
            self.found = []

        def episode(self, worker, episode, steps, objectives):
            if episode % 333 == 0 and episode:
                gc.collect()
                self.found.append(
                    (
                        process.num_fds(),
                        threading.active_count(),
                        len(process.children()),
                        tasks(),
                        len(gc.get_objects()),
                    )
                )

    progress = Counting()
    gc.collect()
    # other tests of this process may have left tasks
    before = (process.num_fds(), threading.active_count(), len(process.children()), tasks())
    execute(document(phase([environment(max_iter=2)], episodes=1000)), progress=progress)
    first, *_, last = progress.found
    assert first[:4] == last[:4]
    assert last[3] <= before[3]
    # objects: what the memories of the two agents grow by, nothing per world
    assert last[4] - first[4] < 2000
    assert (process.num_fds(), threading.active_count(), len(process.children())) == before[:3]


class InterruptAt(Progress):
    """Asks for the end after some steps."""

    def __init__(self, interrupt, steps):
        self.interrupt, self.left = interrupt, steps

    def step(self, worker, episode, steps):
        self.left -= 1
        if self.left == 0:
            self.interrupt.request()


@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_an_interruption_ends_the_run_and_keeps_what_was_recorded(tmp_path, scheduler):
    interrupt = Interrupt()
    doc = document(phase([environment(max_iter=50)], episodes=10, scheduler=scheduler))
    with Store(tmp_path, create=True) as store:
        with pytest.raises(RunInterrupted):
            execute(doc, store=store, interrupt=interrupt, progress=InterruptAt(interrupt, 75))
        assert store.runs().iloc[-1]["status"] == "interrupted"
        steps = store.steps("latest", agent="a")
        # 51 states of the first episode, 24 of the second; the wish came after all had
        # acted on the last one, so one more state closed their rows: 50 and 24
        assert len(steps) == 74
        assert steps.iloc[-1]["truncated"]
        assert list(store.phases("latest")["reason"]) == ["interrupted"]


@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_a_notebook_executes_documents(tmp_path, scheduler):
    """Its cells run below an event loop; what comes out is the same."""
    doc = document(phase([environment(max_iter=5)], scheduler=scheduler))

    async def cell():
        return digests(tmp_path, doc, "below")

    assert asyncio.run(cell()) == digests(tmp_path, doc, "alone")


def test_rows_of_the_store_are_those_that_the_agents_lived_through(tmp_path):
    doc = document(
        phase(
            [environment(max_iter=5)], [agent("a", muscle=named(f"{DUMMY}:DummyMuscle", count_upwards=True))]
        )
    )
    with Store(tmp_path, create=True) as store:
        execute(doc, store=store)
        steps = store.steps("latest")
        states = store.environment_states("latest")
    assert steps["time"].tolist() == [0, 1, 2, 3, 4]
    assert steps["reading.myenv.0"].tolist() == [0, 1, 2, 3, 4]
    assert steps["setpoint.myenv.4"].tolist() == [0, 1, 2, 3, 4]
    # the reward that follows: steps modulo max_iter
    assert steps["objective"].tolist() == [1, 2, 3, 4, 0]
    assert steps["terminated"].tolist() == [False] * 4 + [True]
    assert states["time"].tolist() == [0, 1, 2, 3, 4, 5]
    assert states["reading.myenv.9"].tolist() == [0, 1, 2, 3, 4, 0]
    assert states["terminated"].tolist() == [False] * 5 + [True]
