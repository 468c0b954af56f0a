"""The parameters of a Stable-Baselines3 learner: their checks, and the recipe for muscles."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.utils import LinearSchedule

from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ContractError, did_you_mean

ALGORITHMS: Mapping[str, type] = {"PPO": PPO, "A2C": A2C, "SAC": SAC, "TD3": TD3, "DDPG": DDPG, "DQN": DQN}
#: parameters that the framework sets, or that have no meaning in it
_NOT_OURS = {
    "policy",
    "env",
    "device",
    "seed",
    "verbose",
    "monitor_wrapper",
    "stats_window_size",
    "tensorboard_log",
    "optimize_memory_usage",
    "rollout_buffer_class",
    "rollout_buffer_kwargs",
    "replay_buffer_class",
    "replay_buffer_kwargs",
    "_init_setup_model",
}
#: integer parameters and their smallest values
_WHOLE = {
    "batch_size": 1,
    "buffer_size": 1,
    "gradient_steps": -1,
    "learning_starts": 0,
    "n_epochs": 1,
    "n_steps": 1,
    "policy_delay": 1,
    "sde_sample_freq": -1,
    "target_update_interval": 1,
}
_UNITS = ("step", "episode")
SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")
#: DQN's exploration rate at the start, at the end, and the share of ``total_timesteps`` in between
EXPLORATION = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
_NOISE = {"kind": "normal", "mean": 0.0, "sigma": 0.1, "theta": 0.15, "dt": 1e-2}
_NOISE_KINDS = ("normal", "ornstein_uhlenbeck")


@dataclass(frozen=True)
class Recipe:
    """The settings with which a muscle acts like the algorithm; plain data.

    ``warm_up``: number of rows with random actions at the start. ``epsilon``: DQN's exploration rate at
    the start, at the end, and the share of ``total_timesteps`` in between. ``rollout``: steps (or
    episodes) between two trainings, for state-dependent exploration. ``sde_every``: steps between further
    resets of its noise (0: never).
    """

    algorithm: str
    policy: str = "MlpPolicy"
    policy_kwargs: dict[str, Any] = field(default_factory=dict)
    warm_up: int = 0
    epsilon: tuple[float, float, float] | None = None
    total_timesteps: int | None = None
    noise: dict[str, Any] | None = None
    use_sde: bool = False
    sde_every: int = -1
    rollout: tuple[int, str] = (0, "step")

    @property
    def on_policy(self) -> bool:
        """Whether the algorithm learns only from the actions of its current policy."""
        return self.algorithm in ("PPO", "A2C")

    def exploration_rate(self, steps: int) -> float:
        """Return DQN's epsilon after ``steps`` rows."""
        if self.epsilon is None:
            return 0.0
        return float(LinearSchedule(*self.epsilon)(progress_remaining(steps, self.total_timesteps)))

    def as_json(self) -> dict[str, Any]:
        """Return the recipe as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """Rebuild a recipe from the result of :meth:`as_json`."""
        values = dict(data)
        for name in ("epsilon", "rollout"):
            values[name] = values[name] and tuple(values[name])
        return cls(**values)


def progress_remaining(steps: int, total: int | None) -> float:
    """Return the share of ``total`` left after ``steps``, from 1 to 0; 1 without a total."""
    return 1.0 if total is None else max(1.0 - steps / total, 0.0)


def make_recipe(
    algorithm: str, policy: str, hyperparameters: Mapping[str, Any], total_timesteps: int | None
) -> Recipe:
    """Check the parameters of a learner and make its recipe.

    Args:
        algorithm: a key of :data:`ALGORITHMS`.
        policy: ``MlpPolicy``.
        hyperparameters: arguments of the algorithm's class by name; its defaults apply to the others.
        total_timesteps: the number of rows of all muscles in the phase; ``None`` if unknown.

    Raises:
        ContractError: a parameter does not exist, or has an invalid value.
    """
    if algorithm not in ALGORITHMS:
        raise ContractError(
            f"Stable-Baselines3 has no algorithm {algorithm!r}{did_you_mean(algorithm, ALGORITHMS)}; "
            f"allowed are {', '.join(ALGORITHMS)}"
        )
    if policy != "MlpPolicy":
        raise ContractError(
            f"policy must be 'MlpPolicy', not {policy!r}: observations are vectors, not images or mappings"
        )
    if total_timesteps is not None:
        check_whole("total_timesteps", total_timesteps, 1)
    values = _with_defaults(algorithm, hyperparameters)
    check_numbers(hyperparameters)
    epsilon = _exploration_rates(values)
    frequency = values.get("train_freq", 0)
    use_sde = bool(values.get("use_sde", False))
    recipe = Recipe(
        algorithm=algorithm,
        policy=policy,
        policy_kwargs=_plain_kwargs(values["policy_kwargs"] or {}),
        warm_up=0 if use_sde and values.get("use_sde_at_warmup") else int(values.get("learning_starts", 0)),
        epsilon=epsilon,
        total_timesteps=total_timesteps,
        noise=_noise(values.get("action_noise")),
        use_sde=use_sde,
        sde_every=int(values.get("sde_sample_freq", -1)),
        rollout=tuple(frequency) if isinstance(frequency, Sequence) else (frequency, "step"),
    )
    varying = [name for name in SCHEDULES if not isinstance(values.get(name, 0.0), float | int | None)]
    if epsilon is not None and epsilon[0] != epsilon[1]:
        varying.append("the exploration rate")
    if varying and total_timesteps is None:
        warnings.warn(
            f"{algorithm}: {', '.join(varying)} cannot change over time without 'total_timesteps' (rows of "
            "all muscles in this phase), and stays as it is at the start",
            stacklevel=3,
        )
    return recipe


def _with_defaults(algorithm: str, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the algorithm's parameters; raise :class:`ContractError` for a name that it lacks."""
    parameters = inspect.signature(ALGORITHMS[algorithm]).parameters
    defaults = {name: p.default for name, p in parameters.items() if name not in _NOT_OURS}
    for name in hyperparameters:
        if name not in defaults:
            raise ContractError(
                f"{algorithm} has no parameter {name!r} here{did_you_mean(name, defaults)}; "
                f"allowed are {', '.join(defaults)}"
            )
    return defaults | dict(hyperparameters)


def _exploration_rates(values: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Return :attr:`Recipe.epsilon`; ``None`` for algorithms other than DQN."""
    if "exploration_fraction" not in values:
        return None
    initial, final, fraction = (_share(name, values[name]) for name in EXPLORATION)
    # a fraction of 0 means the final rate from the start
    return (initial, final, fraction) if fraction else (final, final, 1.0)


def check_numbers(hyperparameters: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` for the first parameter with an invalid value."""
    for name, least in _WHOLE.items():
        if name in hyperparameters:
            check_whole(name, hyperparameters[name], least)
    frequency = hyperparameters.get("train_freq", 1)
    pair = isinstance(frequency, list | tuple) and len(frequency) == 2
    count, unit = frequency if pair else (frequency, "step")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or unit not in _UNITS:
        raise ContractError(
            f"train_freq must be a whole number of at least 1, or [number, {' | '.join(_UNITS)}], not {frequency!r}"
        )
    if not isinstance(hyperparameters.get("policy_kwargs") or {}, Mapping):
        raise ContractError(f"policy_kwargs must be a mapping, not {hyperparameters['policy_kwargs']!r}")


def check_noise(noise: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` for infinite or, except for the mean, negative numbers of ``action_noise``."""
    for name in ("mean", "sigma", "theta", "dt"):
        value = noise[name]
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or (name != "mean" and value < 0):
            least = "" if name == "mean" else " of at least 0"
            raise ContractError(f"action_noise: {name} must be a finite number{least}, not {value!r}")


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ContractError(f"{name} must be a number from 0 to 1, not {value!r}")
    return float(value)


def _noise(settings: Any) -> dict[str, Any] | None:
    if settings is None:
        return None
    if not isinstance(settings, Mapping) or not set(settings) <= set(_NOISE):
        raise ContractError(
            f"action_noise must be a mapping with keys of {', '.join(_NOISE)}, not {settings!r}"
        )
    noise = _NOISE | dict(settings)
    if noise["kind"] not in _NOISE_KINDS:
        hint = did_you_mean(noise["kind"], _NOISE_KINDS)
        raise ContractError(
            f"action_noise: no kind {noise['kind']!r}{hint}; allowed are {', '.join(_NOISE_KINDS)}"
        )
    check_noise(noise)
    return noise


def _plain_kwargs(policy_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``policy_kwargs`` with torch's classes replaced by their names."""
    plain = {}
    for name, value in policy_kwargs.items():
        if isinstance(value, type) and value in (*vars(torch.nn).values(), *vars(torch.optim).values()):
            value = value.__name__
        if not _is_plain(value):
            raise ContractError(
                f"policy_kwargs: {name} must be made of numbers, texts, lists and mappings (or a class of torch.nn "
                f"or torch.optim), not {value!r}"
            )
        plain[name] = value
    return plain


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)
