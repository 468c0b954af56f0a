"""What goes wrong in a worker process, and how runs of several workers are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.documents import document, named, phase
from support.learning import HERE, NotPicklableError, Own, follower, learner, noted, track, write
from support.processes import children
from support.waiting import HANG, until

from palaestrai_mosaik.core.errors import ContractError, SimulationError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.worker_process import WorkerDied
from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "palaestrai_mosaik.cli.main", "start"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


def fail(tmp_path, error, words, *phases):
    """Execute a document that fails; return the store, after looking at what every failure leaves."""
    store, before = Store(tmp_path, create=True), children()
    with pytest.raises(error, match=words):
        execute(document(*phases), store=store)
    assert children() <= before
    (run,) = store.runs().itertuples()
    assert run.status == "failed"
    # a run that has failed can be looked at as any other
    assert len(store.episodes("latest")) >= 0
    return store


def faulty(where, how="raise", **params):
    return learner(muscle=named(f"{HERE}:Faulty", where=where, how=how, **params))


def rows(store):
    """Return the numbers of stored rows by (worker, episode)."""
    return store.steps("latest", agent="a").groupby(["worker", "episode"]).size().to_dict()


@pytest.mark.parametrize(
    ("where", "at", "expected", "episodes"),
    [
        ("setup", 1, {}, 0),
        # both workers stand at time 2 and have got the reward of two rows; one episode has failed
        ("propose", 3, {(0, 0): 2, (1, 0): 2}, 1),
        # the first episode of both is whole, the next one has begun in worker 0
        ("reset", 1, {(0, 0): 4, (1, 0): 4, (0, 1): 2}, 2),
        ("teardown", 1, {(w, e): 4 for w in (0, 1) for e in (0, 1)}, 4),
    ],
)
def test_a_muscle_that_raises_ends_the_run_with_its_own_exception(tmp_path, where, at, expected, episodes):
    with fail(
        tmp_path,
        Own,
        f"broken in {where}",
        phase([track()], [faulty(where, at=at)], workers=2, episodes=2, sync_every=2),
    ) as store:
        (recorded,) = store.errors("latest").itertuples()
        assert "self._maybe" in recorded.traceback
        assert "raised in worker 1" in recorded.traceback
        assert "support/learning.py" in recorded.traceback
        assert (rows(store) if expected else {}) == expected
        found = store.episodes("latest")
        assert len(found) == episodes
        assert (found["ended_by"] == "failed").sum() == (where == "propose")


@pytest.mark.parametrize("where", ["setup", "reset", "step", "shutdown"])
def test_an_environment_that_raises_in_a_worker_ends_the_run(tmp_path, where, monkeypatch):
    monkeypatch.setenv("TEST_MAIN", str(os.getpid()))
    world = track("t", "FaultyTrack", where=where)
    fail(tmp_path, Own, f"broken in {where}", phase([world], [learner()], workers=2)).close()


def test_a_failure_is_told_also_where_a_slower_worker_is_waited_for(tmp_path):
    """Worker 1 has raised and ended before worker 0 makes its first step."""
    outliving = learner(muscle=named(f"{HERE}:Outliving", where="propose"))
    broken = phase([track()], [outliving], workers=2, sync_every=2)
    with fail(tmp_path, Own, "broken in propose", broken) as store:
        assert rows(store) == {(0, 0): 2}


def test_an_objective_that_raises_in_a_worker_ends_the_run(tmp_path):
    one = learner(objective=named(f"{HERE}:FaultyObjective", at=3))
    with fail(tmp_path, Own, "broken in objective", phase([track()], [one], workers=2)) as store:
        # the third row has no objective, so it is not whole
        assert rows(store) == {(0, 0): 2}


def test_a_condition_that_raises_in_a_worker_ends_the_run(tmp_path):
    conditions = [named(f"{HERE}:FaultyCondition")]
    broken = phase([track()], [learner()], conditions, workers=2, asynchronous=True)
    fail(tmp_path, Own, "broken in condition", broken).close()


def test_a_brain_that_raises_ends_the_run_with_two_workers(tmp_path):
    thinking = learner(brain=named("support.parts:RaisingBrain", where="thinking"))
    broken = phase([track()], [thinking], workers=2, sync_every=2)
    fail(tmp_path, RuntimeError, "brain broken in thinking", broken).close()


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("unpicklable", SimulationError, "worker 1: .*NotPicklableError: cannot be pickled in propose"),
        ("exit", SimulationError, r"SystemExit\(0\)"),
        ("kill", WorkerDied, r"worker 1 \(process [0-9]+\) was ended by signal 9 \(SIGKILL\)"),
    ],
)
def test_a_worker_that_ends_in_another_way_ends_the_run(tmp_path, how, error, words):
    broken = faulty("propose", how, at=6)
    with fail(tmp_path, error, words, phase([track()], [broken], workers=2, episodes=2)) as store:
        found = rows(store)
        assert {key: found[key] for key in found if key[1] == 0} == {(0, 0): 4, (1, 0): 4}
        if how == "unpicklable":
            assert NotPicklableError.__name__ in store.errors("latest").iloc[0]["traceback"]


@pytest.mark.parametrize("how", ["fork", "fork kill"])
def test_a_process_that_users_code_forked_off_keeps_no_run_from_ending(tmp_path, how, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("TEST_LOG", str(log))
    doc = document(phase([track()], [faulty("propose", how, at=2)], workers=2))
    try:
        if how == "fork":
            assert execute(doc).phases[0].episodes == 2
        else:
            with pytest.raises(WorkerDied, match="SIGKILL"):
                execute(doc)
        (forked,) = noted(log)
        if how == "fork":
            # a worker that ends by itself takes along what it has started
            assert not psutil.pid_exists(int(forked)) or is_over(psutil.Process(int(forked)))
        else:
            # it is still there, with the worker's end of the stream in its hands
            assert psutil.Process(int(forked)).status() == psutil.STATUS_SLEEPING
    finally:
        for forked in noted(log):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(forked), signal.SIGKILL)


def is_over(process):
    return process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exit_outside_of_an_episode_is_a_failure_too(tmp_path, workers):
    broken = phase([track()], [faulty("setup", "exit", worker=workers - 1)], workers=workers)
    fail(tmp_path, SimulationError, r"SystemExit\(0\)", broken).close()


def test_data_that_cannot_be_pickled_are_named(tmp_path):
    sending = learner(
        muscle=named(f"{HERE}:Noise", what="closure"),
        brain=named(f"{HERE}:Hearing", log=str(tmp_path / "log")),
    )
    words = "worker 0: what a muscle sends to its brain .* must be something that can be pickled"
    fail(tmp_path / "s", ContractError, words, phase([track()], [sending], workers=2)).close()


def test_prints_of_workers_reach_the_screen_and_nothing_else(tmp_path):
    path = write(
        tmp_path / "run.yml",
        document(phase([track()], [faulty("propose", "print", at=2)], workers=2), uid="printing"),
    )
    done = subprocess.run(
        [*COMMAND, str(path), "--no-store", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=HANG,
    )
    assert done.returncode == 0
    assert sorted(done.stderr.split("\n")) == ["", "printed in propose", "written"]
    # standard output is for what a command is asked for
    assert done.stdout == ""


def test_global_randomness_in_a_worker_is_warned_of(tmp_path):
    planted = phase([track()], [faulty("propose", "random")], workers=2)
    result = execute(document(planted))
    assert any("global random generator" in warning for warning in result.warnings)
    assert not execute(document(phase([track()], [learner()], workers=2))).warnings


def test_the_command_prints_the_traceback_of_a_worker(tmp_path):
    path = write(tmp_path / "run.yml", document(phase([track()], [faulty("propose", at=3)], workers=2)))
    done = subprocess.run(
        [*COMMAND, str(path), "--store", str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=HANG,
    )
    assert done.returncode == 1
    assert "failed: Own: broken in propose" in done.stderr
    assert "raise Own(" in done.stderr
    assert "worker 1" in done.stderr


class Running:
    """A command that runs for long, in a process group of its own."""

    def __init__(self, tmp_path, **keys):
        self.log = tmp_path / "log"
        self.store = tmp_path / "s"
        world = track(steps=1_000_000, seconds=0.005, log=str(self.log), **keys)
        path = write(
            tmp_path / "run.yml",
            document(phase([world], [follower()], workers=2, sync_every=2, episodes=3)),
        )
        self.process = subprocess.Popen(
            [*COMMAND, str(path), "--store", str(self.store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,
        )

    def wait_for_episodes(self):
        """Wait until both workers are in their episodes; return their processes."""
        self.wait(lambda: noted(self.log).count("t reset") >= 2)
        return psutil.Process(self.process.pid).children()

    def wait(self, condition):
        until(lambda: condition() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()[1]

    def end(self):
        """Return what the command printed to standard error."""
        return self.process.communicate(timeout=HANG)[1]

    def __enter__(self):
        return self

    def __exit__(self, *told):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def gone(processes):
    return psutil.wait_procs(processes, timeout=HANG)[1] == []


@pytest.mark.parametrize("whom", ["main", "group"])
def test_ctrl_c_ends_workers_between_two_steps(tmp_path, whom):
    with Running(tmp_path) as running:
        workers = running.wait_for_episodes()
        assert len(workers) == 2
        time.sleep(0.3)
        if whom == "main":
            running.process.send_signal(signal.SIGINT)
        else:
            os.killpg(running.process.pid, signal.SIGINT)
        said = running.end()
        assert running.process.returncode == 130
        assert "Traceback" not in said
        assert "interrupted" in said
        assert gone(workers)
    with Store(running.store, create=False) as store:
        (run,) = store.runs().itertuples()
        assert run.status == "interrupted"
        episodes = store.episodes("latest")
        assert episodes["ended_by"].tolist() == ["interrupted"] * 2
        assert store.steps("latest").groupby("worker").size().tolist() == episodes["steps"].tolist()
        assert (episodes["steps"] > 0).all()


def test_ctrl_c_while_the_workers_start(tmp_path):
    with Running(tmp_path) as running:
        running.wait(lambda: len(psutil.Process(running.process.pid).children()) == 2)
        workers = psutil.Process(running.process.pid).children()
        os.killpg(running.process.pid, signal.SIGINT)
        said = running.end()
        assert running.process.returncode == 130
        assert "Traceback" not in said
        assert gone(workers)


def test_a_second_ctrl_c_does_not_wait_for_a_busy_worker(tmp_path):
    with Running(tmp_path, stuck_at=10) as running:
        workers = running.wait_for_episodes()
        running.wait(lambda: noted(running.log).count("t stuck") >= 2)
        os.killpg(running.process.pid, signal.SIGINT)
        # the main process looks for the wish five times a second, and then waits for its workers
        time.sleep(1)
        assert running.process.poll() is None
        os.killpg(running.process.pid, signal.SIGINT)
        running.end()
        assert running.process.returncode == 130
        assert gone(workers)


@pytest.mark.parametrize("stuck_at", [None, 10])
def test_workers_do_not_outlive_a_main_process_that_is_killed(tmp_path, stuck_at):
    with Running(tmp_path, stuck_at=stuck_at) as running:
        workers = running.wait_for_episodes()
        if stuck_at:
            running.wait(lambda: noted(running.log).count("t stuck") >= 2)
        running.process.kill()
        running.process.communicate()
        assert gone(workers)
    with Store(running.store, create=False) as store:
        assert store.runs()["status"].tolist() == ["lost"]


def test_a_killed_worker_of_a_command_ends_it(tmp_path):
    with Running(tmp_path) as running:
        workers = running.wait_for_episodes()
        workers[0].kill()
        said = running.end()
        assert running.process.returncode == 1
        assert "was ended by signal 9 (SIGKILL)" in said
        assert gone(workers)


STUCK = """
uid: stuck
seed: 1
version: "3.5"
schedule:
  - only:
      environments:
        - environment:
            uid: co
            name: palaestrai_mosaik.environment.described:DescribedCoSimulation
            params:
              end: 9
              simulators: {{s: {{cmd: '%(python)s "{simulator}" %(addr)s', params: {{hangs: step}}}}}}
              entities: [{{uid: m, simulator: s, model: Slow}}]
              sensors: [{{uid: got, entity: m, attribute: got, space: "Box(-99, 99, (3,))"}}]
              actuators: [{{uid: x, entity: m, attribute: x, space: "Box(-99, 99, ())", value: 0.0}}]
      agents:
        - name: a
          muscle: {{name: "palaestrai_mosaik.agent.library.idle:IdleMuscle"}}
          sensors: [co.got]
          actuators: [co.x]
      simulation: {{name: vanilla}}
      phase_config: {{mode: test, workers: 2, episodes: 1}}
run_config:
  condition: {{name: "palaestrai_mosaik.simulation.conditions:VanillaRunGovernorTerminationCondition"}}
"""


def test_simulators_that_workers_have_started_do_not_outlive_them(tmp_path):
    path = tmp_path / "stuck.yml"
    path.write_text(STUCK.format(simulator=ROOT / "tests" / "example_simulators" / "slow_sim.py"))
    command = [*COMMAND, str(path), "--store", str(tmp_path / "s"), "--quiet"]
    process = subprocess.Popen(command, env=ENVIRONMENT)
    try:
        # two workers, and the simulator of each, which never answers
        until(
            lambda: (
                len(psutil.Process(process.pid).children(recursive=True)) == 4 or process.poll() is not None
            )
        )
        below = psutil.Process(process.pid).children(recursive=True)
        assert len(below) == 4
        # until they are asked to step: one that waits for a request notices that nobody asks any more
        time.sleep(4)
    finally:
        process.kill()
        process.wait()
    assert gone(below)


@pytest.mark.parametrize("workers", [1, 2])
def test_environments_are_shut_down_after_a_failure(tmp_path, workers, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("TEST_LOG", str(log))
    doc = document(
        phase(
            [track(name="Leaving", steps=40)], [faulty("propose", worker=workers - 1, at=3)], workers=workers
        )
    )
    with pytest.raises(Own):
        execute(doc)
    # the main process made one environment to look at it, and where there are several workers, each made one
    processes = {int(line.split()[1]) for line in noted(log)}
    assert len(processes) == (1 if workers == 1 else 3)


def zeroing(brain, muscle, **keys):
    return learner(brain=named(f"{HERE}:Zeroing", **brain), muscle=named(f"{HERE}:Zeroed", **muscle), **keys)


def test_an_array_with_a_zero_is_an_update(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_LOG", str(tmp_path / "log"))
    execute(document(phase([track(steps=4)], [zeroing({}, {})])))
    assert noted(tmp_path / "log") == ["2.0", "1.0", "0.0", "-1.0"]


@pytest.mark.parametrize(
    ("brain", "muscle", "workers", "words"),
    [
        ({"same": True}, {"same": True}, 1, "agent 'a' both report the statistic 'same'"),
        ({"same": True}, {"same": True}, 2, "agent 'a' both report the statistic 'same'"),
        ({"pickles": False}, {}, 2, "agent 'a': what a brain returns .* can be pickled"),
        ({"evaluated": 3.0}, {}, 1, r"Zeroing.evaluated of agent 'a' must return a mapping .*, not 3.0"),
    ],
)
def test_the_faults_of_a_brain_are_told_with_its_agent(tmp_path, brain, muscle, workers, words, monkeypatch):
    monkeypatch.setenv("TEST_LOG", str(tmp_path / "log"))
    doc = document(
        phase([track(steps=8)], [zeroing(brain, muscle)], workers=workers, sync_every=2, evaluate_every=1)
    )
    with Store(tmp_path / "s", create=True) as store, pytest.raises(ContractError, match=words):
        execute(doc, store=store)
