"""Differences between mosaik 3.5, 3.6 and 3.7, and mosaik's exceptions."""

from __future__ import annotations

from typing import Any, Literal

import mosaik
from mosaik import exceptions
from mosaik.exceptions import SimulationError
from tqdm import tqdm

_VERSION = tuple(int(part) for part in mosaik.__version__.split(".")[:2])
#: 3.5 leaves the key ``time`` in the outputs of a simulator
_TAKES_TIME_OUT = _VERSION >= (3, 6)
#: until 3.6, cancelled waits for a simulator's progress are kept
_FORGETS_WAITS = _VERSION >= (3, 7)


def runners(world: Any) -> list[Any]:
    """Return mosaik's runners (``SimRunner``) of an ``AsyncWorld``, in the order in which they were started."""
    if hasattr(world, "compile"):
        return list(world.compile(use_cache=True).values())
    return list(world.sims.values())


def compile_world(world: Any) -> None:
    """Make mosaik analyse the connections of an ``AsyncWorld``.

    Raises mosaik's ``ScenarioError`` if data flow in a circle within one time.
    """
    runners(world)  # compiles it, since 3.6
    if not hasattr(world, "compile"):
        world.ensure_no_dataflow_cycles()
        world.cache_triggering_ancestors()


def forget_waits(progress: Any) -> None:
    """Drop cancelled waits from a simulator's progress."""
    if not _FORGETS_WAITS:
        progress._futures[:] = [wait for wait in progress._futures if not wait[1].cancelled()]


class NoBar:
    """Replaces a hidden progress bar: tqdm starts a thread even for these."""

    disable = True
    n = 0

    def update(self, n: float = 1) -> None:
        """Ignore the update."""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """Ignore the text."""

    def close(self) -> None:
        """Do nothing."""


def show_progress_bars(world: Any, until: int, shown: bool | Literal["individual"]) -> list[Any]:
    """Set the progress bars that mosaik's code expects on an ``AsyncWorld`` and its simulators; return them."""
    sim_runners = runners(world)
    if not shown:
        world.tqdm = NoBar()
        for runner in sim_runners:
            runner.tqdm = NoBar()
    elif hasattr(world, "_init_progress_bars"):
        world._init_progress_bars(until, shown)
    else:
        world.tqdm = tqdm(total=until, disable=not shown, unit="steps", colour="green")
        for runner in sim_runners:
            runner.tqdm = tqdm(total=until, desc=runner.sid, leave=False, disable=shown != "individual")
    return [*(runner.tqdm for runner in sim_runners), world.tqdm]


def take_time(outputs: dict[str, Any], now: int) -> int:
    """Return the time of a simulator's outputs: their own time, or ``now``."""
    if "time" not in outputs:
        return now
    time: int = outputs.pop("time") if _TAKES_TIME_OUT else outputs["time"]
    return time


#: mosaik's exceptions since 3.7, and their messages until then, when each was a ``SimulationError``
_MESSAGES = {
    "MaxLoopIterationsExceededError": "Simulator {} has performed a sub-step more than {} times. (The complete now "
    "is {}.) This might indicate that you have run into an infinite loop. If not, you can increase "
    "max_loop_iterations to get rid of this warning.",
    "StepTimeMismatchError": "Simulator {} is trying to perform a step at time {}, but it has already progressed to "
    "time {}.",
    "InvalidNextStepTypeError": "the next step time returned by the step method must be of type int, but is of type "
    '{1.__class__} for simulator "{0}"',
    "InvalidNextStepTimeError": "the next step time returned by step must be later than the current step's time, but "
    '{1} <= {2} for simulator "{0}"',
    "InvalidOutputTimeError": 'Output time ({1}) is not >= time ({2}) for simulator "{0}".',
}


def error(name: str, sid: str, *details: Any) -> Exception:
    """Build mosaik's exception ``name`` for a simulator."""
    kind = getattr(exceptions, name, None)
    return SimulationError(_MESSAGES[name].format(sid, *details)) if kind is None else kind(sid, *details)


def connection_lost(sid: str, cause: BaseException) -> Exception:
    """Build the error for a lost simulator in another process."""
    kind = getattr(exceptions, "SimulatorConnectionLostError", None)
    text = f'Simulator "{sid}" closed its connection.'
    return SimulationError(text, cause) if kind is None else kind(sid, cause)
