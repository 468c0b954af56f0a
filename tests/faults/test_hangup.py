"""A connection that is lost: runs end as with Ctrl-C, are recorded, and can be resumed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from arsenai.execution.folders import statuses
from faults.batch import make_batch, recorded
from support.live_runs import TESTS, slow_document
from support.waiting import HANG, until

from palaestrai_mosaik.cli.arsenai import main as arsenai
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.store import Store

PATH = os.pathsep.join([str(TESTS.parent), str(TESTS)])


def on_terminal(*command: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command as the leader of a session with a terminal; return it and the other end of the terminal."""
    ours, theirs = pty.openpty()
    program = (
        "import fcntl, os, sys, termios\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": PATH},
    )
    os.close(theirs)
    return process, ours


def test_a_run_whose_terminal_is_gone_is_interrupted_and_can_be_resumed(tmp_path: Path) -> None:
    file, store = tmp_path / "run.yml", tmp_path / "s"
    document = slow_document("r", 4, steps=20, seconds=0.01)
    file.write_text(json.dumps(document.canonical), encoding="utf-8")
    options = (str(file), "--store", str(store), "--checkpoint-every", "0.000001")
    process, terminal = on_terminal("palaestrai_mosaik.cli.main", "start", *options)
    try:
        until(lambda: list(store.glob("instances/*/checkpoints/[0-9]*")))
        os.close(terminal)
        assert process.wait(timeout=HANG) == 130
    finally:
        process.kill()
    with Store(store, read_only=True) as opened:
        assert opened.runs()["status"].tolist() == ["interrupted"]
        assert len(opened.steps("latest"))
    assert main(["start", str(file), "--resume", "--store", str(store), "--quiet"]) == 0
    with Store(store, read_only=True) as opened:
        assert opened.runs()[["status", "episodes"]].to_numpy().tolist() == [["finished", 4]]


def test_a_batch_whose_terminal_is_gone_can_be_resumed(tmp_path: Path, undisturbed) -> None:
    folder = make_batch(tmp_path / "f", seconds=0.05)
    process, terminal = on_terminal("palaestrai_mosaik.cli.arsenai", "run", str(folder.path), "--jobs", "1")
    try:
        until(lambda: list(folder.path.glob("jobs/*.running")))
        os.close(terminal)
        assert process.wait(timeout=HANG) == 130
    finally:
        process.kill()
    assert not list(folder.path.glob("jobs/*.running"))
    assert "finished" not in statuses(folder.path)[1:]
    assert arsenai(["resume", str(folder.path), "--jobs", "1", "--quiet"]) == 0
    assert recorded(folder) == recorded(undisturbed())


@pytest.mark.parametrize("ignored", [True, False])
def test_nohup_keeps_a_run_going(ignored: bool) -> None:
    program = (
        "import os, signal\n"
        "from palaestrai_mosaik.runner import Interrupt\n"
        f"signal.signal(signal.SIGHUP, signal.{'SIG_IGN' if ignored else 'SIG_DFL'})\n"
        "with Interrupt() as interrupt:\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "print(interrupt.requested)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(not ignored)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
