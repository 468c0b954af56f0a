"""Writes ``golden_mosaik.json``: a small world as palaestrai-mosaik's own MosaikEnvironment runs it.

Run it where palaestrai-mosaik 3.5.9 is installed, and this package is not::

    python tests/peer/make_golden_mosaik.py

The environment is stepped as palaestrAI's environment conductor does: ``start_environment``, then ``update``
with all actuators until the state says that it is done. What is set in step k depends on k and the
readings (:func:`valve`).
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES: dict[str, dict[str, Any]] = {
    "every tick": {"arl_sync_freq": 1, "end": 6},
    "slow agents": {"arl_sync_freq": 5, "end": "5*6"},
    "no extra step": {"arl_sync_freq": 5, "end": "5*6", "no_extra_step": True},
    "end between readings": {"arl_sync_freq": 3, "end": "2*5+1"},
    "an alarm": {"arl_sync_freq": 4, "end": 20, "params": {"alarm": True, "level": 1.0}},
}


def valve(k: int, level: float, rain: float) -> float:
    """What is set in step ``k`` (from 0); exact in float32."""
    return k % 3 + rain + (0.5 if level > 2 else 0.0)


async def trace(params: dict[str, Any]) -> dict[str, Any]:
    import numpy as np
    from support import mosaik_worlds
    from support.small_reward import LevelReward

    from palaestrai_mosaik import MosaikEnvironment

    mosaik_worlds.STEPS.clear()
    environment = MosaikEnvironment(
        "w",
        seed=1,
        module="support.mosaik_worlds",
        description_func="describe",
        instance_func="get_world",
        silent=True,
        **params,
    )
    environment.reward = LevelReward()
    baseline = await environment.start_environment()
    sensors, rows = baseline.sensors_available, []
    done, k = False, 0
    while not done:
        seen = {s.uid: np.asarray(s.value, dtype=float).reshape(-1).tolist() for s in sensors}
        value = valve(k, seen["Tank-0.e.level"][0], seen["Rain-0.e.rain"][0])
        rows.append({"seen": seen, "set": value})
        (actuator,) = baseline.actuators_available
        actuator.value = np.array([value], dtype=np.float32)
        state = await environment.update([actuator])
        rows[-1]["rewards"] = [float(reward.value) for reward in state.rewards]
        sensors, done = state.sensor_information, state.done
        k += 1
    last = {s.uid: np.asarray(s.value, dtype=float).reshape(-1).tolist() for s in sensors}
    await environment.sync_task
    meta = {key: value for key, value in environment.mosaik_params["meta_params"].items() if key != "seed"}
    return {"params": params, "rows": rows, "last": last, "tank": mosaik_worlds.STEPS.copy(), "meta": meta}


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    golden = {name: asyncio.run(trace(params)) for name, params in CASES.items()}
    (HERE / "golden_mosaik.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
