"""Tests that fail do not hang: :mod:`support.processes` and :mod:`support.waiting`."""

from __future__ import annotations

import subprocess
import sys
import threading

import psutil
import pytest
from support.processes import Program
from support.waiting import HANG, meanwhile

#: starts another process, prints its number, and never ends
FOREVER = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]).pid, flush=True)
time.sleep(3600)
"""


def test_a_program_ends_with_its_children_when_its_block_fails():
    with (
        pytest.raises(AssertionError, match="on purpose"),
        Program([sys.executable, "-c", FOREVER], stdout=subprocess.PIPE, text=True) as program,
    ):
        child = psutil.Process(int(program.stdout.readline()))
        raise AssertionError("on purpose")
    assert program.returncode != 0
    assert psutil.wait_procs([child], timeout=HANG)[1] == []


def test_a_program_whose_block_ends_well_is_waited_for():
    with Program([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        pass  # (its input is closed)
    assert program.returncode == 1


def test_work_that_fails_ends_the_block_that_waits_for_it():
    def fail():
        raise ValueError("on purpose")

    never = threading.Event()
    with pytest.raises(ValueError, match="on purpose"), meanwhile(fail):
        never.wait(HANG)
        pytest.fail("it was not interrupted")


def test_work_goes_on_beside_the_block_and_ends_before_what_follows():
    begun, go_on, done = threading.Event(), threading.Event(), []

    def work():
        begun.set()
        go_on.wait(HANG)
        done.append(True)

    with meanwhile(work):
        assert begun.wait(HANG)
        go_on.set()
    assert done == [True]


def test_what_the_block_raises_is_raised_though_work_goes_on():
    end = threading.Event()
    with pytest.raises(AssertionError, match="of the block"), meanwhile(lambda: end.wait(HANG)):
        raise AssertionError("of the block")
    end.set()
    with pytest.raises(KeyboardInterrupt), meanwhile(lambda: None):
        raise KeyboardInterrupt
