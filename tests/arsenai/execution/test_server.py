"""What the fork server does before it forks."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing import Pipe

import pytest

from palaestrai_mosaik.arsenai.execution import fork_server

CODE = """
import os, sys, threading
from palaestrai_mosaik.arsenai.execution import fork_server as server

def held():
    tables = [f for f in os.listdir("/proc/self/fd")] if os.path.isdir("/proc/self/fd") else []
    return len(tables), threading.active_count()

done = []
execute = server.execute
server.execute = lambda *args, **options: done.append(execute(*args, **options))
server.warm_up()  # what is imported at first use may stay open
before = held()
server.warm_up()
print([[(phase.name, phase.steps) for phase in result.phases] for result in done], held() == before)
"""


def test_a_rehearsal_executes_a_run_and_leaves_nothing_open_and_says_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[[('rehearsal', 1)], [('rehearsal', 1)]] True"
    assert done.stderr == ""


def test_who_starts_many_processes_has_one_rehearsal_before_the_fourth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planted() -> None:
        said.append("rehearsal")
        raise RuntimeError("planted: it is the runs that tell")

    said: list[object] = []
    ours, theirs = Pipe()
    lifeline, other = os.pipe()
    served = fork_server._Server(theirs, lifeline)
    try:
        monkeypatch.setattr(fork_server, "warm_up", planted)
        monkeypatch.setattr(served, "_start", lambda key, jobs: said.append(key))
        for key in range(6):
            served._handle_message(("start", key, ()))
    finally:
        for descriptor in (lifeline, other, served._wakeup, served._woken):
            os.close(descriptor)
        ours.close()
        theirs.close()
    assert said == [0, 1, 2, "rehearsal", 3, 4, 5]
