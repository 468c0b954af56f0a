"""An agent that does what a test wants: well, slowly, loudly, or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from palaestrai_mosaik.agent import Muscle


class Doing(Muscle):
    """At the third step of the run it does what ``do`` says; ``number`` makes runs differ.

    ``slow``: each step takes 30 ms; ``hang``: the step does not end before there is the file ``gate``
    (``well`` raises without it); ``stubborn``: it never ends, whatever it is told;
    ``mortal``: it kills its process if there is the file ``gate``, and removes that.
    """

    def __init__(self, do: str = "well", number: int = 0, gate: str | None = None):
        self.do, self.number, self.gate = do, number, gate
        self.steps = 0

    def propose_actions(self, sensors, actuators_available):
        self.steps += 1
        if self.do == "slow":
            time.sleep(0.03)
        elif self.steps == 3:
            getattr(self, f"_{self.do}")()
        for actuator in actuators_available:
            actuator.value = actuator.space.sample(self.rng)
        return actuators_available, None

    def _well(self):
        if self.gate is not None and not Path(self.gate).exists():
            raise ValueError(f"there is no {self.gate}")

    def _raise(self):
        raise ValueError(f"number {self.number} has had enough")

    def _exit(self):
        os._exit(7)

    def _kill(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def _mortal(self):
        with contextlib.suppress(FileNotFoundError):
            Path(self.gate).unlink()
            self._kill()

    def _hang(self):
        while self.gate is None or not Path(self.gate).exists():
            time.sleep(0.01)

    def _stubborn(self):
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(0.01)

    def _print(self):
        print(f"number {self.number} prints")
        print("and warns", file=sys.stderr)
        subprocess.run(["echo", "a child echoes"], check=True)
        ctypes.CDLL(None).puts(b"compiled code prints")
