"""The mode of a phase, and what a termination condition may ask for."""

from __future__ import annotations

from enum import Enum, IntEnum


class Mode(Enum):
    """``TRAIN``: agents explore and learn. ``TEST``: they exploit; nothing learns."""

    TRAIN = "train"
    TEST = "test"


class SimulationFlowControl(IntEnum):
    """Flow control of an episode, a phase or a run; the strongest (largest) wins.

    ========================= ==========================================================
    ``CONTINUE``              go on
    ``RESET``                 end this worker's episode; objects live on, and are reset
    ``RESTART``               end this worker's episode and build its objects anew
    ``STOP_SIMULATION``       end the phase for this worker, not for the others
    ``STOP_PHASE``            end the phase for all its workers
    ``SHUTDOWN``              end the whole run
    ========================= ==========================================================
    """

    CONTINUE = 0
    RESET = 1
    RESTART = 2
    STOP_SIMULATION = 3
    STOP_PHASE = 4
    SHUTDOWN = 5
