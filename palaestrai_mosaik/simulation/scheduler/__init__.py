"""Executes the schedule of any world of mosaik, without an event loop where no simulator is remote.

What the schedule of a world *is*, mosaik says: it is in the delays, triggers, groups and connections of a built
world. This package reads them, and makes the same calls with the same inputs. It knows mosaik, and nothing else
of this project.

=================  =============================================================================================
:mod:`.run`        :func:`run_world` for scenario scripts; :func:`run`, in the stead of ``mosaik.scheduler.run``;
                   :func:`stepwise`, to drive a world from outside
:mod:`.order`      which of those that may step goes first
:mod:`.direct`     all simulators in this process: one loop that calls one after the other
:mod:`.general`    some in other processes: mosaik's conditions, written out
:mod:`.versions`   what differs between mosaik 3.5, 3.6 and 3.7
=================  =============================================================================================
"""

from .direct import Question, Runner, Schedule, only_questions
from .general import GeneralSchedule
from .run import SCHEDULERS, end_after, run, run_async_world, run_method, run_world, schedule, stepwise

__all__ = [
    "SCHEDULERS",
    "GeneralSchedule",
    "Question",
    "Runner",
    "Schedule",
    "end_after",
    "only_questions",
    "run",
    "run_async_world",
    "run_method",
    "run_world",
    "schedule",
    "stepwise",
]
