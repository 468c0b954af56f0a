"""Executes any mosaik world, without an event loop if no simulator is remote.

The schedule of a world is determined by mosaik: by the delays, triggers, groups and connections of a built
world. This package reads them, and makes the same calls with the same inputs. It depends on mosaik, and on
nothing else in this project.

=================  =============================================================================================
:mod:`.run`        :func:`run_world` for scenario scripts; :func:`run`, which replaces ``mosaik.scheduler.run``;
                   :func:`stepwise`, to drive a world from outside
:mod:`.direct`     all simulators in this process: one loop that calls one after the other
:mod:`.runner`     one of these simulators: its calls, steps, inputs and outputs, and its rank in the order of steps
:mod:`.inputs`     collects its inputs, and keeps its outputs for the simulators that fetch them
:mod:`.general`    some in other processes: mosaik's conditions, written out
:mod:`.versions`   the differences between mosaik 3.5, 3.6 and 3.7
=================  =============================================================================================
"""

from .direct import Schedule
from .general import GeneralSchedule
from .run import SCHEDULERS, end_after, run, run_async_world, run_method, run_world, schedule, stepwise
from .runner import Question, Runner, only_questions

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
