"""What a learner of Stable-Baselines3 is made of: parameters, networks, and their bytes."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Env
from gymnasium import spaces as gym
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import LinearSchedule, get_device

from palaestrai_mosaik.errors import BrainDumpError, ContractError, did_you_mean
from palaestrai_mosaik.installation import install_extra

from .buffers import ChainedReplay

#: parameters that are whole numbers, and the least that each may be
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


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise :class:`ContractError` unless ``value`` is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ContractError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_numbers(hyperparameters: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` for the first of the given parameters that cannot be."""
    for name, least in _WHOLE.items():
        if name in hyperparameters:
            check_whole(name, hyperparameters[name], least)
    frequency = hyperparameters.get("train_freq", 1)
    count, unit = (
        frequency if isinstance(frequency, list | tuple) and len(frequency) == 2 else (frequency, "step")
    )
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or unit not in _UNITS:
        raise ContractError(
            f"train_freq must be a whole number of at least 1, or [number, {' | '.join(_UNITS)}], not {frequency!r}"
        )
    if not isinstance(hyperparameters.get("policy_kwargs") or {}, Mapping):
        raise ContractError(f"policy_kwargs must be a mapping, not {hyperparameters['policy_kwargs']!r}")


def check_noise(noise: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` unless the numbers of ``action_noise`` are finite, and none is negative."""
    for name in ("mean", "sigma", "theta", "dt"):
        value = noise[name]
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or (name != "mean" and value < 0):
            least = "" if name == "mean" else " of at least 0"
            raise ContractError(f"action_noise: {name} must be a finite number{least}, not {value!r}")


Weights = dict[str, npt.NDArray[Any]]

ALGORITHMS: Mapping[str, type] = {"PPO": PPO, "A2C": A2C, "SAC": SAC, "TD3": TD3, "DDPG": DDPG, "DQN": DQN}
#: parameters of the algorithms that the framework sets, or that have no meaning in it
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
#: the release of torch from which on ``weights_only`` holds what it says. CVE-2025-32434 (code by a file of the old
#: format) was mended in 2.6, CVE-2026-24747 (memory overwritten by wrong opcodes and sizes) in 2.10
_READS_SAFELY = (2, 10)
_SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")
_NOISE = {"kind": "normal", "mean": 0.0, "sigma": 0.1, "theta": 0.15, "dt": 1e-2}
_NOISE_KINDS = ("normal", "ornstein_uhlenbeck")


@dataclass(frozen=True)
class Recipe:
    """What a muscle must know to act as the algorithm does; plain data.

    ``warm_up``: rows at random before the policy is used. ``epsilon``: DQN's exploration rate at
    the start, at the end, and the share of ``total_timesteps`` in between. ``rollout``: steps (or
    episodes) between two times of learning, for state-dependent exploration (``sde_every``: further
    resets of its noise; 0: no such exploration).
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
        """Whether the algorithm learns from what its present policy did, and from nothing else."""
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
        """Return the recipe that :meth:`as_json` gave."""
        given = dict(data)
        for name in ("epsilon", "rollout"):
            given[name] = given[name] and tuple(given[name])
        return cls(**given)


def progress_remaining(steps: int, total: int | None) -> float:
    """Return what is left of ``total`` after ``steps``, from 1 to 0; 1 if there is no total."""
    return 1.0 if total is None else max(1.0 - steps / total, 0.0)


def make_recipe(
    algorithm: str, policy: str, hyperparameters: Mapping[str, Any], total_timesteps: int | None
) -> Recipe:
    """Return the recipe for these parameters; raises :class:`ContractError` for unknown ones."""
    if algorithm not in ALGORITHMS:
        raise ContractError(
            f"Stable-Baselines3 has no algorithm {algorithm!r}{did_you_mean(algorithm, ALGORITHMS)}; "
            f"allowed are {', '.join(ALGORITHMS)}"
        )
    if policy != "MlpPolicy":
        raise ContractError(
            f"policy must be 'MlpPolicy', not {policy!r}: observations are vectors, not images or mappings"
        )
    if total_timesteps is not None and (not isinstance(total_timesteps, int) or total_timesteps < 1):
        raise ContractError(f"total_timesteps must be a whole number of at least 1, not {total_timesteps!r}")
    parameters = inspect.signature(ALGORITHMS[algorithm]).parameters
    allowed = [name for name in parameters if name not in _NOT_OURS]
    for name in hyperparameters:
        if name not in allowed:
            raise ContractError(
                f"{algorithm} has no parameter {name!r} here{did_you_mean(name, allowed)}; "
                f"allowed are {', '.join(allowed)}"
            )
    check_numbers(hyperparameters)
    values = {name: parameters[name].default for name in allowed} | dict(hyperparameters)
    frequency = values.get("train_freq", 0)
    use_sde = bool(values.get("use_sde", False))
    warm = int(values.get("learning_starts", 0))
    rollout = tuple(frequency) if isinstance(frequency, Sequence) else (frequency, "step")
    epsilon = None
    if "exploration_fraction" in values:
        epsilon = tuple(
            _share(f"exploration_{part}", values[f"exploration_{part}"])
            for part in ("initial_eps", "final_eps", "fraction")
        )
        if not epsilon[2]:
            # the end is reached at once
            epsilon = (epsilon[1], epsilon[1], 1.0)
    recipe = Recipe(
        algorithm=algorithm,
        policy=policy,
        policy_kwargs=_plain_kwargs(values["policy_kwargs"] or {}),
        warm_up=0 if use_sde and values.get("use_sde_at_warmup") else warm,
        epsilon=epsilon,  # type: ignore[arg-type]
        total_timesteps=total_timesteps,
        noise=_noise(values.get("action_noise")),
        use_sde=use_sde,
        sde_every=int(values.get("sde_sample_freq", -1)),
        rollout=rollout,
    )
    varying = [name for name in _SCHEDULES if not isinstance(values.get(name, 0.0), float | int | None)]
    if epsilon is not None and epsilon[0] != epsilon[1]:
        varying.append("the exploration rate")
    if varying and total_timesteps is None:
        warnings.warn(
            f"{algorithm}: {', '.join(varying)} cannot change over time without 'total_timesteps' (rows of "
            "all muscles in this phase), and stays as it is at the start",
            stacklevel=3,
        )
    return recipe


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ContractError(f"{name} must be a number from 0 to 1, not {value!r}")
    return float(value)


def _noise(given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not set(given) <= set(_NOISE):
        raise ContractError(f"action_noise must be a mapping with keys of {', '.join(_NOISE)}, not {given!r}")
    noise = _NOISE | dict(given)
    if noise["kind"] not in _NOISE_KINDS:
        hint = did_you_mean(noise["kind"], _NOISE_KINDS)
        raise ContractError(
            f"action_noise: no kind {noise['kind']!r}{hint}; allowed are {', '.join(_NOISE_KINDS)}"
        )
    check_noise(noise)
    return noise


def _plain_kwargs(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``policy_kwargs`` with the names of torch's classes in their stead."""
    plain = {}
    for name, value in given.items():
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


def _torch_kwargs(plain: Mapping[str, Any]) -> dict[str, Any]:
    kwargs = deepcopy(dict(plain))
    for name, module, base in (
        ("activation_fn", torch.nn, torch.nn.Module),
        ("optimizer_class", torch.optim, torch.optim.Optimizer),
    ):
        if isinstance(kwargs.get(name), str):
            classes = {
                key.lower(): kind
                for key, kind in vars(module).items()
                if isinstance(kind, type) and issubclass(kind, base)
            }
            found = classes.get(kwargs[name].lower())
            if found is None:
                hint = did_you_mean(kwargs[name].lower(), classes)
                raise ContractError(f"policy_kwargs: {name}: {module.__name__} has no {kwargs[name]!r}{hint}")
            kwargs[name] = found
    return kwargs


def _schedule(name: str, value: Any) -> Any:
    """Return what Stable-Baselines3 takes as a schedule: ``{start, end, fraction}`` is a straight line."""
    if not isinstance(value, Mapping):
        return value
    keys = {"start", "end", "fraction"}
    if not {"start", "end"} <= set(value) <= keys:
        raise ContractError(
            f"{name} must be a number or have the keys start, end and, if need be, fraction: {value!r}"
        )
    start, end, fraction = (float(value.get(key, 1.0)) for key in ("start", "end", "fraction"))
    if not 0 < fraction <= 1:
        raise ContractError(f"{name}: fraction must be above 0 and at most 1, not {fraction}")
    return LinearSchedule(start, end, fraction)


class _Nowhere(Env[Any, Any]):
    """Stands for the environment, which the algorithm never sees: it has spaces and nothing else."""

    def __init__(self, observations: gym.Space[Any], actions: gym.Space[Any]):
        self.observation_space = observations
        self.action_space = actions


def make_algorithm(
    recipe: Recipe,
    spaces: tuple[gym.Space[Any], gym.Space[Any]],
    hyperparameters: Mapping[str, Any],
    device: str,
    seed: int,
    muscles: int = 1,
) -> Any:
    """Return the algorithm with fresh networks. Draws from and seeds the global generators.

    ``muscles``: how many will give it rows.
    """
    kind = ALGORITHMS[recipe.algorithm]
    supported = _SUPPORTED[recipe.algorithm]
    if not isinstance(spaces[1], supported):
        raise ContractError(
            f"{recipe.algorithm} has no actions in {spaces[1]}; it takes {', '.join(s.__name__ for s in supported)}"
        )
    given = {
        name: _schedule(name, value) if name in _SCHEDULES else value
        for name, value in hyperparameters.items()
    }
    given["policy_kwargs"] = _torch_kwargs(recipe.policy_kwargs)
    if recipe.epsilon is not None:
        names = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
        given.update(zip(names, recipe.epsilon, strict=True))
    if "train_freq" in given:
        given["train_freq"] = recipe.rollout
    # the muscles add it
    given.pop("action_noise", None)
    if not recipe.on_policy and given.get("n_steps", 1) > 1:
        gamma = given.get("gamma", inspect.signature(kind).parameters["gamma"].default)
        given["replay_buffer_class"] = ChainedReplay
        given["replay_buffer_kwargs"] = {"n_steps": given.pop("n_steps"), "gamma": gamma}
    # one row is too little to learn from, but each of several muscles gives one
    single = recipe.on_policy and muscles > 1 and given.get("n_steps") == 1
    if single:
        given["n_steps"] = 2
    try:
        with warnings.catch_warnings():
            if muscles > 1:
                # it counts the rows of one environment only
                warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
            algorithm = kind(recipe.policy, _Nowhere(*spaces), device=device, seed=seed, **given)
    except (TypeError, ValueError, AssertionError) as error:
        raise ContractError(
            f"Stable-Baselines3 refuses the parameters of {recipe.algorithm}: {error}"
        ) from error
    if single:
        algorithm.n_steps = 1
    algorithm.env = None
    algorithm.set_logger(Logger(folder=None, output_formats=[]))
    return algorithm


_SUPPORTED: Mapping[str, tuple[type, ...]] = {
    "PPO": (gym.Box, gym.Discrete, gym.MultiDiscrete, gym.MultiBinary),
    "A2C": (gym.Box, gym.Discrete, gym.MultiDiscrete, gym.MultiBinary),
    "SAC": (gym.Box,),
    "TD3": (gym.Box,),
    "DDPG": (gym.Box,),
    "DQN": (gym.Discrete,),
}


class _NoOptimizer:
    """Stands for the optimizer in policies that only act; making one takes torch seconds."""

    def __init__(self, parameters: Any, **arguments: Any):
        pass


def make_policy(recipe: Recipe, observations: gym.Space[Any], actions: gym.Space[Any]) -> Any:
    """Return a policy as the algorithm's, on the CPU. Draws from the global generators."""
    policy_class = ALGORITHMS[recipe.algorithm].policy_aliases[recipe.policy]  # type: ignore[attr-defined]
    kwargs = _torch_kwargs(recipe.policy_kwargs) | {"optimizer_class": _NoOptimizer}
    if recipe.algorithm in ("PPO", "A2C", "SAC"):
        kwargs["use_sde"] = recipe.use_sde
    if recipe.algorithm == "DDPG":
        kwargs.setdefault("n_critics", 1)
    policy = policy_class(observations, actions, lambda _: 0.0, **kwargs)
    policy.set_training_mode(False)
    return policy


def acting_part(policy: Any, recipe: Recipe) -> torch.nn.Module:
    """Return the part of a policy that muscles need."""
    acts: torch.nn.Module = policy
    if not recipe.on_policy:
        acts = policy.q_net if recipe.algorithm == "DQN" else policy.actor
    return acts


def weights_of(module: torch.nn.Module) -> Weights:
    """Return copies of a module's parameters and buffers as arrays."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def set_weights(module: torch.nn.Module, weights: Mapping[str, npt.NDArray[Any]]) -> None:
    """Load what :func:`weights_of` gave; raises :class:`BrainDumpError` if it is of other networks."""
    try:
        module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
    except RuntimeError as error:
        raise BrainDumpError(f"the model is of other networks than this agent's: {error}") from error


def to_bytes(tensors: Any) -> BytesIO:
    """Return ``tensors`` (state dicts and the like) as :func:`torch.save` writes them."""
    stream = BytesIO()
    torch.save(tensors, stream)
    stream.seek(0)
    return stream


def from_bytes(stream: Any, what: str, device: str) -> Any:
    """Read what :func:`to_bytes` wrote. Never runs code from it (``weights_only``).

    Raises :class:`BrainDumpError` for what is damaged, and where this release of torch may run code of it.
    """
    release = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
    if release < _READS_SAFELY:
        raise BrainDumpError(
            f"{what} is not read with torch {torch.__version__}: a file can make torch before "
            f"{_READS_SAFELY[0]}.{_READS_SAFELY[1]} run code although only weights are asked for (CVE-2025-32434, "
            f"CVE-2026-24747); {install_extra('rl', upgrade=True)}"
        )
    try:
        return torch.load(stream, map_location=device, weights_only=True)
    except Exception as error:
        # torch has no exception of its own for a damaged or a foreign file
        raise BrainDumpError(f"{what} cannot be read: {type(error).__name__}: {error}") from error


def networks_of(algorithm: Any) -> dict[str, Any]:
    """Return the state of all networks, optimizers and learned numbers of an algorithm."""
    _, variables = algorithm._get_torch_save_params()
    return {
        "parameters": algorithm.get_parameters(),
        "variables": {name: getattr(algorithm, name).detach() for name in variables},
    }


def set_networks(algorithm: Any, networks: Mapping[str, Any]) -> None:
    """Restore what :func:`networks_of` gave; raises :class:`BrainDumpError` if it does not fit."""
    try:
        algorithm.set_parameters(networks["parameters"], exact_match=True, device=algorithm.device)
        for name, value in networks["variables"].items():
            getattr(algorithm, name).data.copy_(value)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrainDumpError(f"the model is of other networks than this agent's: {error}") from error


def describe_space(space: gym.Space[Any]) -> str:
    """Return what must be the same for a model to fit: the kind of space and its size."""
    if isinstance(space, gym.Box):
        return f"Box of {space.shape[0]} numbers"
    return str(space)


def available_device(name: str) -> str:
    """Return torch's name of the device; raises :class:`ContractError` where there is none such."""
    if name == "auto":
        return str(get_device(name))
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ContractError(f"device: {name!r} is none; allowed are auto, cpu, cuda: {error}") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ContractError(f"device: {name!r} is not there; torch finds {torch.cuda.device_count()} GPUs")
    return str(device)
