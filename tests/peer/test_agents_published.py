"""Learners that were published for palaestrAI learn here as they are, and their models are loaded."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("harl")

from support.documents import agent, document, environment, named, phase
from support.learning import digests

from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

#: all rewards count by themselves, so that the best action is known
OFF_POLICY = {"update_after": 60, "update_every": 20, "batch_size": 32, "gamma": 0.0, "fc_dims": [32, 32]}
LEARNERS = {
    "SAC": ("SACMuscle", {**OFF_POLICY, "lr": 5e-3, "gradient_steps": 8}, {"start_steps": 60}),
    "TD3": ("OffPolicyMuscle", OFF_POLICY, {"start_steps": 60}),
    "DDPG": ("OffPolicyMuscle", OFF_POLICY, {"start_steps": 60}),
    "PPO": (
        "PPOMuscle",
        {
            "rollout_size": 60,
            "epochs": 8,
            "batch_size": 20,
            "gamma": 0.0,
            "fc_dims": [32, 32],
            "actor_lr": 1e-3,
        },
        {},
    ),
}
EPISODES = {"PPO": 40}


def learning(name, seed=5, episodes=None):
    """Return a document of two phases: learn to answer with half of what is shown, and be tested."""
    muscle, brain, acting = LEARNERS[name]
    one = agent(
        "learner",
        brain=named(f"harl:{name}Brain", **brain),
        muscle=named(f"harl:{muscle}", **acting),
        objective=named("palaestrai.agent:AggregateRewardsObjective", rewards=["match"]),
        sensors=["half.shown"],
        actuators=["half.answer"],
    )
    world = [environment("half", "support.palaestrai_agents:Half")]
    return document(
        phase(world, [one], episodes=episodes or EPISODES.get(name, 15)),
        phase(world, [{**one, "load": {}}], mode="test", episodes=3),
        seed=seed,
    )


@pytest.mark.parametrize("name", ["SAC", "PPO", "TD3", "DDPG"])
def test_a_published_learner_learns(tmp_path, name):
    with Store(tmp_path / "s", create=True) as store:
        result = execute(learning(name), store=store)
        steps = store.steps("latest")
    assert result.warnings == []
    trained = steps[steps["phase"] == 0]["objective"].to_numpy()
    tested = steps[steps["phase"] == 1]["objective"].to_numpy()
    # at random, the mean of -(answer - shown/2)^2 is -(1/3 + 1/12)
    assert trained[:40].mean() < -0.15
    assert tested.mean() > -0.03
    answers = steps[steps["phase"] == 1][["reading.half.shown", "setpoint.half.answer"]].to_numpy()
    assert np.corrcoef(answers.T)[0, 1] > 0.9


@pytest.mark.parametrize("name", ["SAC", "PPO"])
def test_the_same_document_gives_the_same_bytes(tmp_path, name):
    found = []
    for seed in (5, 5, 6):
        with Store(tmp_path / "s", create=True) as store:
            execute(learning(name, seed, episodes=5), store=store)
            root = store.instance_directory(store.find_run("latest")) / "brains"
            dumps = [path.read_bytes() for path in sorted(root.rglob("*.bin"))]
            found.append((digests(store), dumps))
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
