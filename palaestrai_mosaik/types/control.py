"""The mode of a phase, and the flow control of termination conditions."""

from __future__ import annotations

from enum import Enum, IntEnum


class Mode(Enum):
    """``TRAIN``: agents explore and learn. ``TEST``: they exploit, and nothing learns."""

    TRAIN = "train"
    TEST = "test"


class SimulationFlowControl(IntEnum):
    """Flow control of an episode, a phase or a run; the strongest (largest) value takes precedence.

    ========================= ==========================================================
    ``CONTINUE``              go on
    ``RESET``                 end this worker's episode; its objects are kept and reset
    ``RESTART``               end this worker's episode and create its objects anew
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
