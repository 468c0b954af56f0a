"""An agent in whose run a fault happens, at a step of the test's choice."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from support.learning import Follower

#: the environment variable that names the file of the order
ORDER = "PALAESTRAI_MOSAIK_TEST_ORDER"


class Unlucky(Follower):
    """As :class:`Follower`, but it carries out the order that it finds, if there is one.

    That is ``train`` or ``test`` and the number of a step of that phase, a word, and a path: ``fill`` the
    disk of the folder, ``rename`` it, ``delete`` the file, ``truncate`` or ``halve`` it, or write there that the clock goes an hour
    ``back`` or a day ``ahead``. An order is carried out once, and changes nothing in what the agent does;
    of several lines the first one is the order, and the others remain.
    """

    def propose_actions(self, sensors, actuators_available):
        order = Path(os.environ.get(ORDER, "/nonexistent"))
        if order.exists():
            first, _, others = order.read_text().partition("\n")
            mode, at, word, path = first.split(" ", 3)
            if (self.mode.value, self.acted) == (mode, int(at)):
                order.write_text(others) if others else order.unlink()
                DO[word](Path(path))
        return super().propose_actions(sensors, actuators_available)


def fill(folder):
    """Leave no byte on the disk of ``folder``."""
    with open(folder / "filler", "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def rename(folder):
    folder.rename(away(folder))


def away(folder):
    """Return where ``rename`` puts a folder."""
    return folder.with_name(folder.name + ".away")


#: seconds
HOUR, DAY = 3600, 86400

DO = {
    "fill": fill,
    "rename": rename,
    "delete": os.unlink,
    "truncate": lambda file: os.truncate(file, 0),
    "halve": lambda file: os.truncate(file, file.stat().st_size // 2),
    "back": lambda clock: clock.write_text(str(-HOUR)),
    "ahead": lambda clock: clock.write_text(str(DAY)),
}
