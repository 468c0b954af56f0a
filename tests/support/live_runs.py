"""Runs in processes of their own, which tests look at while they go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.documents import agent, document, environment, named, phase
from support.processes import Program
from support.waiting import until

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.experiment import RunDocument
from palaestrai_mosaik.store import Store

TESTS = Path(__file__).parents[1]
AGGREGATE = "palaestrai_mosaik.agent.library.aggregate:AggregateRewardsObjective"


@contextmanager
def running(document: RunDocument, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Execute a document, recorded in the store ``folder``, until the block is left; then its process is killed.

    The block begins when the run is in the store. Its parts may be those of ``tests/support``.
    """
    file = folder.with_name(f"{folder.name}-{document.uid.encode().hex()[:32]}.yml")
    file.write_text(json.dumps(document.canonical), encoding="utf-8")
    command = [sys.executable, "-m", "palaestrai_mosaik.cli.main", "start", str(file), "--store", str(folder)]
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    with Program(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        before = _runs(folder)
        until(lambda: _runs(folder) != before or process.poll() is not None)
        assert process.poll() is None, "the run has not begun"
        yield process
        process.kill()


def _runs(folder: Path) -> int:
    if not (folder / "store.db").exists():
        return 0
    try:
        with Store(folder, read_only=True) as store:
            return store.count_runs()
    except StoreError:  # its tables are being made
        return 0


def slow_document(
    uid: str, episodes: int, *, steps: int = 5, seconds: float = 0.01, **config: Any
) -> RunDocument:
    """Return a document of one agent in an environment whose steps take ``seconds``; its reward counts them."""
    world = environment("world", "support.parts:Slow", seconds=seconds, max_steps=steps)
    one = agent("a", uid="world", sensors=["world.x"], actuators=["world.u"])
    idle = named("palaestrai_mosaik.agent.library.idle:IdleMuscle")
    one |= {
        "brain": named("support.parts:TellingBrain"),
        "muscle": idle,
        "objective": named(AGGREGATE, rewards="n"),
    }
    return document(phase([world], [one], episodes=episodes, **config), uid=uid)
