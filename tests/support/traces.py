"""Traces of runs: what environments, muscles and brains did, in order, a line for each call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent.library.constant import ConstantMuscle
from palaestrai_mosaik.agent.library.dummy import DummyBrain, DummyMuscle
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.environment.dummy import DummyEnvironment
from palaestrai_mosaik.environment.matrix_game import MatrixGame
from palaestrai_mosaik.environment.tabular import SlipperyGrid
from palaestrai_mosaik.experiment import RunDocument, from_mapping, loads

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def scenario(name: str, phase: str, *, scheduler: str = "direct", **phase_config: Any) -> RunDocument:
    """Return one phase of a scenario as a document of its own; ``phase_config`` replaces what is given there."""
    whole = loads((SCENARIOS / f"{name}.yml").read_text(), f"{name}.yml")
    plain = from_mapping(whole.canonical).canonical
    (content,) = [entry for entry in plain["schedule"] if phase in entry]
    content[phase]["simulation"]["scheduler"] = scheduler
    content[phase]["phase_config"] |= phase_config
    return from_mapping({**plain, "schedule": [content]})


def numbers(values: Any) -> str:
    """Return numbers as a text."""
    return " ".join(f"{value:g}" for value in np.asarray(values, dtype=float).reshape(-1))


def trace(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let library parts write down what they do; return the list in which they do.

    An incarnation is named by its number, a body by the uid of its muscle. The bodies that a
    muscle is asked about with one call are between braces, and each of them between strokes.
    """
    log: list[str] = []
    for muscle in (DummyMuscle, ConstantMuscle):
        _patch_muscle(monkeypatch, muscle, log)
    for environment in (SlipperyGrid, MatrixGame):
        _patch_batch(monkeypatch, environment, log)

    reset, step, thinking = DummyEnvironment.reset, DummyEnvironment.step, DummyBrain.thinking

    def logged_reset(self: Any) -> Any:
        log.append(f"{self.uid} resets")
        return reset(self)

    def logged_step(self: Any, setpoints: Any) -> Any:
        state = step(self, setpoints)
        given = " ".join(f"{i}={u:g}" for i, u in enumerate(setpoints) if u)
        log.append(f"{self.uid} steps to {self.iter} with {given or 'nothing'}")
        return state

    def logged_thinking(self: Any, muscle_id: str, data: Any) -> Any:
        update = thinking(self, muscle_id, data)
        row = self.memory_of(muscle_id).tail(1)
        end = " at the end" if row.dones[0] else ""
        log.append(f"{self.name} learns {row.objective[0]:g} from {muscle_id}{end}, says {update}")
        return update

    monkeypatch.setattr(DummyEnvironment, "reset", logged_reset)
    monkeypatch.setattr(DummyEnvironment, "step", logged_step)
    monkeypatch.setattr(DummyBrain, "thinking", logged_thinking)
    return log


def _patch_muscle(monkeypatch: pytest.MonkeyPatch, muscle: Any, log: list[str]) -> None:
    alone, together = muscle.propose_actions, muscle.propose_batch

    def propose_actions(self: Any, sensors: Any, actuators_available: Any) -> Any:
        before = len(log)
        answer = alone(self, sensors, actuators_available)
        # an ArrayMuscle acts as a batch of one
        del log[before:]
        given = actuators_available.vector
        if given is None:
            given = [actuator.value for actuator in answer[0]]
        log.append(f"{self.uid} sees {numbers(sensors.vector)} sets {numbers(given)}")
        return answer

    def propose_batch(self: Any, batch: Any) -> Any:
        setpoints, data = together(self, batch)
        first = int(self.uid.rpartition(".")[2])
        who = " ".join(str(first + body) for body in batch.bodies)
        seen, given = (" | ".join(map(numbers, rows)) for rows in (batch.observations, setpoints))
        log.append(f"{self.uid.rpartition('.')[0]}.{{{who}}} sees {seen} sets {given}")
        return setpoints, data

    monkeypatch.setattr(muscle, "propose_actions", propose_actions)
    monkeypatch.setattr(muscle, "propose_batch", propose_batch)


def _patch_batch(
    monkeypatch: pytest.MonkeyPatch, environment: type[BatchEnvironment], log: list[str]
) -> None:
    first, results = environment.get_first_states, environment.get_action_results

    def get_first_states(self: Any, incarnations: Any) -> Any:
        states, observations = first(self, incarnations)
        who = " ".join(map(str, incarnations))
        seen = " | ".join(map(numbers, np.stack(observations, axis=1)))
        log.append(f"{self.uid}.{{{who}}} begins at {seen}")
        return states, observations

    def get_action_results(self: Any, last_states: Any, actions: Any) -> Any:
        states, observations = results(self, last_states, actions)
        active = np.flatnonzero(self.active)
        if len(active):
            who = " ".join(map(str, active))
            seen, given = (
                " | ".join(map(numbers, np.stack(a, axis=1)[active])) for a in (observations, actions)
            )
            log.append(f"{self.uid}.{{{who}}} steps to {seen} with {given}")
        return states, observations

    monkeypatch.setattr(environment, "get_first_states", get_first_states)
    monkeypatch.setattr(environment, "get_action_results", get_action_results)
