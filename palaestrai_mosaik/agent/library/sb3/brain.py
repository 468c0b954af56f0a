"""The brain, with the networks of Stable-Baselines3's algorithms and their updates."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np

from palaestrai_mosaik.agent.brain import Brain
from palaestrai_mosaik.agent.dumper import BrainDumper, dump_arrays, load_arrays
from palaestrai_mosaik.agent.memory import MemoryShard
from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError
from palaestrai_mosaik.types.arrays import FloatVector

from .buffers import Replay, Rollouts, Row, StoredBuffer, fill_replay, replay_arrays
from .model import (
    acting_part,
    available_device,
    describe_space,
    from_bytes,
    make_algorithm,
    networks_of,
    set_networks,
    to_bytes,
    weights_of,
)
from .muscle import ACTING, FORMAT, SB3Update, read_head
from .random_states import PrivateRandomness
from .recipe import make_recipe, progress_remaining
from .spaces import action_space, observation_space
from .transitions import RowReader, check_bodies

#: tags of dumps besides ACTING: all networks and optimizers, and the replay buffer
NETWORKS = "networks"
REPLAY = "replay"


class SB3Brain(Brain):
    """Learns with PPO, A2C, SAC, TD3, DDPG or DQN; its muscles are :class:`SB3Muscle`.

    With several muscles, ``n_steps`` and ``train_freq`` count the rows of each: an on-policy algorithm learns
    from ``n_steps`` times the number of muscles, in rows of any of them.

    Args:
        algorithm: ``PPO``, ``A2C``, ``SAC``, ``TD3``, ``DDPG`` or ``DQN``.
        policy: the name of Stable-Baselines3's policy; only ``MlpPolicy`` is allowed.
        device: the device of torch, such as ``cpu``; ``auto``: Stable-Baselines3 chooses.
        total_timesteps: the number of rows of all muscles in this phase, for parameters that change over time;
            ``None`` if unknown.
        store_replay_buffer: whether to save the replay buffer with the model.
        pretrain_steps: number of updates from the trajectories of ``replay``; ``None``: one per row.
        hyperparameters: those of Stable-Baselines3's class, by its names and with its defaults.
            ``policy_kwargs`` names classes of torch (``activation_fn: ReLU``), ``action_noise`` is ``{kind:
            normal | ornstein_uhlenbeck, sigma, mean, theta, dt}``, and a learning rate or a clipping range
            may be a linear schedule, ``{start, end, fraction}``.
    """

    def __init__(
        self,
        algorithm: str,
        policy: str = "MlpPolicy",
        device: str = "auto",
        total_timesteps: int | None = None,
        store_replay_buffer: bool = False,
        pretrain_steps: int | None = None,
        **hyperparameters: Any,
    ):
        self.recipe = make_recipe(algorithm, policy, hyperparameters, total_timesteps)
        if pretrain_steps is not None:
            check_whole("pretrain_steps", pretrain_steps, 0)
        self.device = device
        self.store_replay_buffer = store_replay_buffer
        self.pretrain_steps = pretrain_steps
        self.hyperparameters = hyperparameters
        self._muscles: set[str] = set()
        self._rollouts = Rollouts()
        self._replay = Replay()
        #: muscles in environments that replay and so do not execute their actions
        self._replayed: frozenset[str] = frozenset()
        #: the muscle of the batch row being processed
        self._about: str | None = None
        #: the newest row of each muscle, if its next observation is not known yet
        self._incomplete: dict[str, Row] = {}
        #: rows and episodes since the last training of an off-policy algorithm
        self._since = [0, 0]
        self._version = 0

    def setup(self) -> None:
        """Create the networks."""
        self._replayed = check_bodies(self.name, self.bodies, self.recipe, self.mode)
        self.observations = observation_space([s.space for s in self.sensors])
        self.actions = action_space([a.space for a in self.actuators], [a.uid for a in self.actuators])
        device = available_device(self.device)
        self._random = PrivateRandomness(self.seed, device)
        with self._random.for_all():
            self.algorithm = make_algorithm(
                self.recipe,
                (self.observations.space, self.actions.space),
                self.hyperparameters,
                device,
                self.seed,
                sum(len(body.muscles) for body in self.bodies),
            )
        self._reader = RowReader(
            (self.name, self.recipe.algorithm),
            (self.observations, self.actions),
            (
                [s.uid for s in self.sensors for _ in range(s.space.size)],
                [a.uid for a in self.actuators for _ in range(a.space.size)],
            ),
            self.algorithm.policy,
        )
        if not self.recipe.on_policy:
            # a trajectory for pretraining may fill the whole buffer
            for memory in self.memories:
                memory.size_limit = max(memory.size_limit, self.algorithm.buffer_size)
        if len(self.bodies) > 1:
            # their first rows come one by one, and must not be taken for those of all muscles
            self._muscles.update(muscle for body in self.bodies for muscle in body.muscles)
        self._changed()

    def initial_update(self) -> SB3Update:
        """Return the weights for the muscles' first actions."""
        return self._update

    def pretrain(self) -> SB3Update:
        """Fill the replay buffer from the memory and train on it."""
        if self.recipe.on_policy:
            raise ContractError(
                f"{self.recipe.algorithm} learns from what its own policy does, and cannot use 'replay'"
            )
        steps = 0
        for memory in self.memories:
            rows = memory.tail(len(memory))
            steps += len(rows)
            following = [None if np.isnan(seen).any() else seen for seen in rows.next_observations]
            encoded = self._reader.rows(rows, [None] * len(rows), following)
            for muscle, row in zip(rows.muscles, encoded, strict=True):
                for complete in self._replay.usable(muscle, row):
                    self._replay.store(muscle, complete, self.algorithm)
            for muscle in set(rows.muscles):
                self._replay.break_off(muscle)
        if self.pretrain_steps is not None:
            steps = self.pretrain_steps
        if not self.algorithm.replay_buffer.size():
            raise ContractError(f"agent {self.name!r}: no row of 'replay' says what followed it")
        for _ in range(steps):
            self._train(lambda: self.algorithm.train(gradient_steps=1, batch_size=self.algorithm.batch_size))
            for _ in range(self.algorithm.train_freq.frequency):
                # DQN updates its target network by the number of rows
                self.algorithm._on_step()
        self._changed()
        return self._update

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> SB3Update | None:
        """Add the newest row, and train if it is time to."""
        memory = self.memory_of(muscle_id).tail(1)
        following = self.next_observations
        if memory.dones.any():
            if following is None:
                following = memory.next_observations[0]
            if np.isnan(following).any():
                following = None
        return self._think(memory, [muscle_id], [data_from_muscle], [following], alone=True)

    def thinking_batch(self, muscle_ids: Sequence[str], data_from_muscles: Sequence[Any]) -> SB3Update | None:
        """Add the newest rows of several muscles, one after the other."""
        memory = self.memory_of(muscle_ids[0]).tail(len(muscle_ids))
        following: Sequence[FloatVector | None] = [None] * len(muscle_ids)
        if self.next_observations is not None:
            unknown = np.asarray(np.isnan(self.next_observations).any(axis=1)).tolist()
            pairs = zip(self.next_observations, unknown, strict=True)
            following = [None if missing else seen for seen, missing in pairs]
        return self._think(memory, muscle_ids, data_from_muscles, following)

    def _think(
        self,
        memory: MemoryShard,
        muscles: Sequence[str],
        data: Sequence[Any],
        following: Sequence[FloatVector | None],
        *,
        alone: bool = False,
    ) -> SB3Update | None:
        """Add the rows of ``memory``, which belong to these muscles; ``alone``: a single row, not a batch."""
        if self._replayed:
            data = [None if m in self._replayed else d for m, d in zip(muscles, data, strict=True)]
        if self.recipe.on_policy and any(item is None for item in data):
            # these rows were made before the muscles had a policy
            self._muscles.update(muscles)
            return self._update
        newest = None
        for muscle, row in zip(muscles, self._reader.rows(memory, data, following), strict=True):
            self._about = None if alone else muscle
            self._muscles.add(muscle)
            self._complete_previous(muscle, row)
            version = self._version
            if self.recipe.on_policy:
                self._think_on_policy(muscle, row)
            else:
                for complete in self._replay.complete(muscle, row):
                    self._think_off_policy(muscle, complete)
            # off-policy with several muscles, an update is also needed for its count of all rows
            counts = not self.recipe.on_policy and len(self._muscles) > 1 and not self.rows_waiting
            if counts or version != self._version:
                newest = self._update
        return newest

    def _complete_previous(self, muscle: str, row: Row) -> None:
        """Add the next observation, which ``row`` contains, to the row before it."""
        before = self._incomplete.pop(muscle, None)
        if before is not None:
            earlier = self.memory_of(muscle).tail(2, include_only=(muscle,))
            if len(earlier) == 2 and earlier.dones.item(0):
                # the episode was ended later, outside this agent's view
                before.terminated, before.truncated = earlier.terminated.item(0), earlier.truncated.item(0)
                following = earlier.next_observations[0]
                if not np.isnan(following).any():
                    before.following = self._reader.encode(following[np.newaxis], [muscle])
                elif before.terminated:
                    before.following = before.observation
            else:
                before.following = row.observation
        if row.following is None and not row.done:
            self._incomplete[muscle] = row

    def _think_on_policy(self, muscle: str, row: Row) -> None:
        algorithm, rollouts = self.algorithm, self._rollouts
        algorithm.num_timesteps += 1
        rollouts.add(muscle, row)
        if len(rollouts) < algorithm.n_steps * len(self._muscles) or self.rows_waiting:
            return
        algorithm.policy.set_training_mode(False)
        with self._random.for_torch():
            buffer = rollouts.take(algorithm)
        if buffer is None:
            return
        algorithm.rollout_buffer = buffer
        self._progress()
        self._train(algorithm.train)
        self._report()
        self._changed()

    def _think_off_policy(self, muscle: str, row: Row) -> None:
        algorithm, since = self.algorithm, self._since
        algorithm.num_timesteps += 1
        self._replay.store(muscle, row, algorithm)
        self._progress()
        algorithm._on_step()
        since[0] += 1
        since[1] += row.done
        frequency, muscles = algorithm.train_freq, len(self._muscles)
        if since[0 if frequency.unit.value == "step" else 1] >= frequency.frequency * muscles:
            steps = algorithm.gradient_steps if algorithm.gradient_steps >= 0 else since[0]
            since[:] = [0, 0]
            if algorithm.num_timesteps > algorithm.learning_starts and steps > 0:
                self._train(lambda: algorithm.train(gradient_steps=steps, batch_size=algorithm.batch_size))
                self._changed()
        if row.done:
            self._report()

    def _progress(self) -> None:
        steps, total = self.algorithm.num_timesteps, self.recipe.total_timesteps
        self.algorithm._current_progress_remaining = progress_remaining(steps, total)

    def _train(self, train: Callable[[], None]) -> None:
        with self._random.for_all():
            train()

    def _changed(self) -> None:
        """Count a new version of the networks and extract its weights."""
        self._version += 1
        self._weights = weights_of(acting_part(self.algorithm.policy, self.recipe))

    @property
    def _update(self) -> SB3Update:
        return SB3Update(
            self.recipe,
            self._version,
            self._weights,
            self.algorithm.num_timesteps,
            max(len(self._muscles), 1),
        )

    def _report(self) -> None:
        """Report the statistics of the last training, such as losses and learning rate."""
        for key, value in self.algorithm.logger.name_to_value.items():
            self.add_statistics(key, value, allow_overwrite=True, muscle_id=self._about)

    def store(self) -> None:
        """Save the head, the policy's acting part, and all networks and optimizers."""
        algorithm, dumpers = self.algorithm, self._dumpers
        head = {
            "format": FORMAT,
            "recipe": self.recipe.as_json(),
            "observations": describe_space(self.observations.space),
            "actions": describe_space(self.actions.space),
            "rows": algorithm.num_timesteps,
        }
        BrainDumper.store_brain_dump(BytesIO(json.dumps(head).encode()), dumpers)
        acting = acting_part(algorithm.policy, self.recipe).state_dict()
        BrainDumper.store_brain_dump(to_bytes(acting), dumpers, ACTING)
        BrainDumper.store_brain_dump(to_bytes(networks_of(algorithm)), dumpers, NETWORKS)
        if self.store_replay_buffer and not self.recipe.on_policy:
            dump_arrays(replay_arrays(algorithm.replay_buffer), dumpers, REPLAY)

    def load(self) -> None:
        """Restore the result of :meth:`store`; there is no warm-up with random actions then.

        DQN continues with its last exploration rate, unless ``exploration_initial_eps`` is set.
        """
        dumpers = self._dumpers
        head = read_head(BrainDumper.load_brain_dump(dumpers))
        mine = {
            "algorithm": self.recipe.algorithm,
            "observations": describe_space(self.observations.space),
            "actions": describe_space(self.actions.space),
        }
        theirs = {
            "algorithm": head["recipe"].algorithm,
            **{k: head[k] for k in ("observations", "actions")},
        }
        if mine != theirs:
            differences = [
                f"{key} {theirs[key]} instead of {mine[key]}" for key in mine if mine[key] != theirs[key]
            ]
            raise BrainDumpError(f"the model to load for agent {self.name!r} has {', '.join(differences)}")
        networks = from_bytes(
            BrainDumper.load_brain_dump(dumpers, NETWORKS), "the networks", str(self.algorithm.device)
        )
        set_networks(self.algorithm, networks)
        if self.store_replay_buffer and not self.recipe.on_policy:
            fill_replay(self.algorithm.replay_buffer, load_arrays(dumpers, REPLAY))
        self.recipe = replace(self.recipe, warm_up=0)
        epsilon = self.recipe.epsilon
        if epsilon is not None and "exploration_initial_eps" not in self.hyperparameters:
            # a trained model does not start exploring again
            self.recipe = replace(self.recipe, epsilon=(epsilon[1], *epsilon[1:]))
            self.algorithm.exploration_schedule.start = epsilon[1]
        self._changed()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        algorithm = state.get("algorithm")
        if algorithm is not None and not self.recipe.on_policy:
            state["algorithm"] = copy(algorithm)
            state["algorithm"].replay_buffer = StoredBuffer(algorithm.replay_buffer)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        algorithm = state.get("algorithm")
        if algorithm is not None and not self.recipe.on_policy:
            algorithm.replay_buffer = algorithm.replay_buffer.unpack()
