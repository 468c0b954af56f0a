"""Records of agents and environments, as a run describes them to the store, and a small run of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestrai_mosaik.store import (
    AgentRecord,
    BodyRecord,
    ChannelRecord,
    EnvironmentRecord,
    InstanceRecorder,
    Store,
)
from palaestrai_mosaik.types import Node, Topology

TOPOLOGY = Topology((Node("tank", "the tank", 1.0, None, "tank", "myenv.0"),))
SCALAR = "Box(low=0.0, high=1.0, shape=(1,), dtype=float64)"


def one_body(
    name: str,
    brain: str | None = None,
    muscle: str | None = None,
    objective: str | None = None,
    **channels: Any,
) -> AgentRecord:
    """Return an agent of one body; ``channels`` are the body's sensors, actuators and rewards."""
    body = BodyRecord(muscle=muscle, objective=objective, **channels)
    return AgentRecord(name, brain, muscle, objective, [body])


def channels(prefix: str, count: int) -> list[ChannelRecord]:
    return [ChannelRecord(f"{prefix}.{i}", SCALAR, 1) for i in range(count)]


def agent_record(name: str, sensors: int = 2, actuators: int = 1) -> AgentRecord:
    return one_body(
        name,
        brain="DummyBrain",
        muscle="DummyMuscle",
        objective="DummyObjective",
        sensors=channels("myenv", sensors),
        actuators=channels("myenv", actuators),
        rewards=["count"],
    )


def begin(store: Store, uid: str = "my-run", **kwargs: Any) -> InstanceRecorder:
    given = {"document": {"uid": uid, "seed": 7}, "text": f"uid: {uid}\n", "hash": f"hash of {uid}"}
    return store.begin_run(uid=uid, seed=7, version="3.5", **(given | kwargs))


def begin_phase(run: InstanceRecorder, index: int = 0, agents: tuple[AgentRecord, ...] = ()) -> Any:
    return run.begin_phase(
        index,
        f"phase_{index}",
        mode="train",
        workers=1,
        episodes=2,
        controller="Vanilla",
        environments=[
            EnvironmentRecord(
                "myenv",
                "Dummy",
                {"max_iter": np.int64(3), "limit": float("inf")},
                sensors=channels("myenv", 2),
                actuators=channels("myenv", 1),
                rewards=[ChannelRecord("count", "Box(low=-inf, high=inf, shape=(), dtype=float64)", 1)],
                topology=TOPOLOGY,
            )
        ],
        agents=agents or (agent_record("a"), agent_record("b")),
    )


def moments(*values: float) -> dict[str, float]:
    return {"sum": sum(values), "mean": sum(values) / len(values), "min": min(values), "max": max(values)}


def record_small_run(store: Store, uid: str = "my-run", **kwargs: Any) -> str:
    """Two agents, two episodes of three steps: reading 0 is the step, reading 1 the episode.

    The set-point of ``a`` is 10 times the step, that of ``b`` 20 times; the reward is the
    step, and the objective is the sum of the rewards so far.
    """
    run = begin(store, uid, **kwargs)
    phase = begin_phase(run)
    for episode in range(2):
        for step in range(3):
            readings = np.array([step, episode], dtype=float)
            phase.environment("myenv").append(
                0, episode, step, step, readings, [step], step == 2, False, {"step": step} if step else None
            )
            for name, factor in (("a", 10.0), ("b", 20.0)):
                objective = sum(range(step + 1))
                phase.agent(name).append(
                    *(0, episode, step, step, readings, [factor * step], [step]),
                    *(objective, step == 2, False, 0.001 * (step + 1)),
                )
        phase.statistic("a", 0, episode, 2, "loss", 0.5 * episode)
        results = {"objective": moments(0, 1, 3), "rewards": {"count": moments(0, 1, 2)}}
        phase.episode(
            0,
            episode,
            steps=3,
            ticks=2,
            ended_by="EnvironmentTerminationCondition",
            flow="RESET",
            duration=0.25,
            agents={"a": results, "b": results},
        )
    phase.finish("two episodes")
    run.warning("a warning")
    run.finish("finished")
    return run.uid
