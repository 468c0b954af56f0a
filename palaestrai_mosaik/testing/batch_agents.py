"""What muscles and objectives for many bodies must keep besides: it is as if each body were alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik import seeding
from palaestrai_mosaik.agent import Memory, Muscle, Objective
from palaestrai_mosaik.agent.batch import BatchMuscle, BatchObjective, BatchReadings, BatchRows
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings, collect_setpoints

from .findings import Findings, same, sample_flat, twin

FloatVector = npt.NDArray[np.float64]

#: bodies of a muscle under check
_BODIES = 5
_EPISODES = 2
#: share of the bodies whose environment ends with a step
_ENDS = 0.2


def check_together(
    findings: Findings,
    factory: Callable[[], Muscle],
    channels: tuple[Sequence[Any], Sequence[Any]],
    mode: Mode,
    *,
    steps: int,
    seed: int,
    rounding: float,
) -> None:
    """Check that one :class:`BatchMuscle` does for several bodies what one muscle each would do.

    Some bodies end, rest for a step, and begin again. ``rounding`` is the largest relative
    difference of set-points (0: none, to the byte).
    """
    muscles = [twin(factory, findings) for _ in range(_BODIES + 1)]
    whole, singles = muscles[0], muscles[1:]
    assert isinstance(whole, BatchMuscle)
    sensors, actuators = (Layout([c.uid for c in every], [c.space for c in every]) for every in channels)
    for muscle in muscles:
        muscle.uid, muscle.mode = "agent.0", mode
        muscle._memory = Memory()
        with findings.calling("setup"):
            muscle.setup()
    for episode in range(_EPISODES):
        rng = seeding.generator(seed, "together", mode.value, episode)
        whole.rngs = [seeding.generator(seed, "agent", episode, body) for body in range(_BODIES)]
        whole.rng = whole.rngs[0]
        for body, muscle in enumerate(singles):
            muscle.rng = seeding.generator(seed, "agent", episode, body)
        offered = [actuators.bound(muscle.rng) for muscle in singles]
        ended = np.zeros(_BODIES, dtype=bool)
        for step in range(steps):
            when = f"{mode.value} mode, episode {episode}, step {step}"
            begun, ended = ended, rng.random(_BODIES) < _ENDS
            _begin_again(findings, whole, singles, np.flatnonzero(begun))
            places = np.flatnonzero(~ended)
            if not len(places):
                continue
            readings = np.array([sample_flat(channels[0], rng) for _ in places])
            mine, data = _proposed(findings, whole, readings, places, (sensors, actuators), when)
            for i, place in enumerate(places.tolist()):
                with findings.calling(when):
                    answer, own = singles[place].propose_actions(
                        SensorReadings(sensors, readings[i].copy()), ActuatorSetpoints(offered[place])
                    )
                    singles[place].pop_statistics()
                wanted = collect_setpoints(offered[place], answer)
                if not _agree(mine[i], wanted, rounding):
                    findings.add(
                        "propose_batch gives a body other set-points than propose_actions",
                        f"{when}, body {place}: {mine[i].tolist()}, alone {wanted.tolist()}",
                    )
                elif rounding == 0.0 and not same(None if data is None else data[i], own):
                    findings.add(
                        "propose_batch sends other data to the brain than propose_actions",
                        f"{when}, body {place}",
                    )
        for muscle in muscles:
            with findings.calling("reset"):
                muscle.reset()
    for muscle in muscles:
        with findings.calling("teardown"):
            muscle.teardown()


def check_objective_together(
    findings: Findings,
    objective: Objective,
    rows: Sequence[tuple[FloatVector, FloatVector, FloatVector]],
    values: Sequence[float],
) -> None:
    """Check that a :class:`BatchObjective` gives ``rows`` the ``values`` that it gave them one by one."""
    assert isinstance(objective, BatchObjective)
    readings, setpoints, rewards = (np.array(column) for column in zip(*rows, strict=True))
    with findings.calling("internal_rewards"):
        answer = np.array(
            objective.internal_rewards(BatchRows(readings, setpoints, rewards, np.arange(len(rows)))),
            dtype=np.float64,
        )
    if answer.shape != (len(rows),):
        raise findings.stop(
            "internal_rewards does not return a value for each row",
            f"its shape is {answer.shape}, there are {len(rows)} rows",
        )
    if not same(answer, np.array(values)):
        place = int(np.argmax(~((answer == values) | (np.isnan(answer) & np.isnan(values)))))
        findings.add(
            "internal_rewards gives a row another value than internal_reward",
            f"row {place}: {answer[place]!r}, alone {values[place]!r}",
        )


def _begin_again(
    findings: Findings, whole: BatchMuscle, singles: Sequence[Muscle], places: npt.NDArray[np.intp]
) -> None:
    if len(places):
        with findings.calling("reset_bodies"):
            whole.reset_bodies(places)
        for place in places.tolist():
            with findings.calling("reset"):
                singles[place].reset()


def _proposed(
    findings: Findings,
    muscle: BatchMuscle,
    readings: npt.NDArray[np.float64],
    places: npt.NDArray[np.intp],
    layouts: tuple[Layout, Layout],
    when: str,
) -> tuple[npt.NDArray[np.float64], Any]:
    given = readings.copy()
    with findings.calling(when):
        answer = muscle.propose_batch(BatchReadings(given, places, *layouts))
        muscle.pop_statistics()
    if not same(given, readings):
        findings.add("changes the readings that it is given", when)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise findings.stop("propose_batch does not return (set-points, data)", f"{when}: {answer!r}")
    setpoints, data = np.array(answer[0], dtype=np.float64), answer[1]
    expected = (len(places), layouts[1].size)
    if setpoints.shape != expected:
        raise findings.stop(
            "propose_batch returns set-points of another shape", f"{when}: {setpoints.shape}, not {expected}"
        )
    if data is not None and len(data) != len(places):
        raise findings.stop("propose_batch does not return data for each body", f"{when}: {len(data)}")
    return setpoints, data


def _agree(a: FloatVector, b: FloatVector, rounding: float) -> bool:
    if rounding == 0.0:
        return same(a, b)
    return bool(np.allclose(a, b, rtol=rounding, atol=rounding, equal_nan=True))
