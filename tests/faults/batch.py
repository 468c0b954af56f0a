"""Batches of runs that faults happen to, and what was recorded of them in the end."""

from __future__ import annotations

import threading
import time

import psutil
from support.documents import VANILLA_RUN, named, phase
from support.learning import HERE, digests, learner, track
from support.processes import children

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.folder import RESULTS
from palaestrai_mosaik.arsenai.execution import Settings, StoreLocation, run_folder
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.store.verify import verify

#: what depends on the wall-clock
CLOCKS = ["duration", "ended"]


def make_batch(path, rows=3, *, seconds=0.01, workers=1):
    """Generate a design of ``rows`` runs, which differ.

    Each trains, with each of its ``workers``, for four episodes of five steps of ``seconds``, then tests what it has learned for two
    episodes: 30 steps. One agent learns, and may be unlucky; another one acts at random.
    """
    one = learner(
        muscle=named("faults.parts:Unlucky"),
        brain=named(f"{HERE}:Teacher"),
        objective=named(f"{HERE}:Noting", target=0.0),
    )
    tracks = [track("t", steps=5, seconds=seconds), track("o", steps=5)]
    phases = [
        phase(tracks, [one, learner("rule", uid="o")], episodes=4, workers=workers),
        phase(tracks, [{**one, "load": {}}, learner("rule", uid="o")], episodes=2, mode="test"),
    ]
    design = {
        "uid": "batch",
        "seed": 5,
        "version": "3.5",
        "seeds": {"policy": "independent"},
        "base": {
            "schedule": [{f"phase_{i}": one} for i, one in enumerate(phases)],
            "run_config": {"conditions": [named(VANILLA_RUN)]},
        },
        "factors": {
            "target": {
                "path": "schedule[1].phase_1.agents.a.objective.params.target",
                "levels": [float(i) for i in range(rows)],
            }
        },
    }
    return Design.from_mapping(design).generate(path)


def execute(folder, which="unfinished", rows=None, store=None, **settings):
    """Execute runs of the folder from this process; return the summary."""
    return run_folder(folder, which=which, rows=rows, store=store, settings=Settings(**settings))


def results(folder, location=None):
    """Open the store of the folder, or the one that is given."""
    return StoreLocation.of(folder.path / RESULTS, location).open()


def recorded(folder, location=None):
    """Return all that was recorded of the folder's finished runs, by run: digests, episodes, outcomes.

    Each run must have finished once, and each finished one be whole.
    """
    found = {}
    with results(folder, location) as store:
        table = store.runs()
        table = table[table["status"] == "finished"]
        assert table["document"].is_unique
        for instance, run in table[["run", "document"]].to_numpy().tolist():
            assert verify(store, instance).damage == ()
            episodes = store.episodes(instance, evaluation=None).drop(columns=CLOCKS)
            found[run] = (digests(store, instance), episodes.to_csv(), store.outcomes(instance).to_csv())
    assert all(len(streams) > 4 for streams, _, _ in found.values())
    return found


def analysed(folder):
    """Return the files that ``arsenai analyse`` writes, by name."""
    main(["analyse", str(folder.path)])
    return {path.name: path.read_bytes() for path in (folder.path / "analysis").iterdir()}


def gone(processes):
    """Whether none of the processes runs any more."""
    return not any(process.is_running() and process.status() != "zombie" for process in processes)


def _children(process):
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


class Killer(threading.Thread):
    """Kills the processes that the fork server of this process starts, each so many seconds after it began."""

    def __init__(self, delays):
        super().__init__(daemon=True)
        self._delays = list(delays)
        self._end = threading.Event()
        self._before = children()
        #: how many were killed
        self.killed = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self.join()

    def run(self):
        due, seen = {}, set()
        while not self._end.wait(0.003):
            clock = time.monotonic()
            for server in children() - self._before:
                for process in _children(server):
                    if process.pid not in seen and self._delays:
                        seen.add(process.pid)
                        due[process] = clock + self._delays.pop(0)
            for process in [process for process, when in due.items() if when <= clock]:
                del due[process]
                try:
                    process.kill()
                    self.killed += 1
                except psutil.NoSuchProcess:
                    pass
