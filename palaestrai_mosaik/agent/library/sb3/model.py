"""The parts of a Stable-Baselines3 learner: parameters, networks, and their serialisation."""

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

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import BrainDumpError, ContractError, did_you_mean
from palaestrai_mosaik.installation import install_extra

from .buffers import ChainedReplay

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


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise :class:`ContractError` unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ContractError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_numbers(hyperparameters: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` for the first parameter with an invalid value."""
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
    """Raise :class:`ContractError` for infinite or, except for the mean, negative numbers of ``action_noise``."""
    for name in ("mean", "sigma", "theta", "dt"):
        value = noise[name]
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or (name != "mean" and value < 0):
            least = "" if name == "mean" else " of at least 0"
            raise ContractError(f"action_noise: {name} must be a finite number{least}, not {value!r}")


Weights = dict[str, npt.NDArray[Any]]

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
#: the first release of torch in which ``weights_only`` is safe. CVE-2025-32434 (code in a file of the old
#: format) was fixed in 2.6, CVE-2026-24747 (memory overwritten by wrong opcodes and sizes) in 2.10
_READS_SAFELY = (2, 10)
_SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")
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
    """Check the parameters and make their recipe. Raises :class:`ContractError` for unknown ones."""
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
            # a fraction of 0 means the final rate from the start
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
            kind_class = classes.get(kwargs[name].lower())
            if kind_class is None:
                hint = did_you_mean(kwargs[name].lower(), classes)
                raise ContractError(f"policy_kwargs: {name}: {module.__name__} has no {kwargs[name]!r}{hint}")
            kwargs[name] = kind_class
    return kwargs


def _schedule(name: str, value: Any) -> Any:
    """Convert ``{start, end, fraction}`` to a linear schedule of Stable-Baselines3."""
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
    """A stub for the environment, with spaces only: the algorithm never uses it."""

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
    """Make the algorithm with fresh networks. Draws from and seeds the global generators.

    ``muscles``: the number of muscles that will send it rows.
    """
    kind = ALGORITHMS[recipe.algorithm]
    supported = _SUPPORTED[recipe.algorithm]
    if not isinstance(spaces[1], supported):
        raise ContractError(
            f"{recipe.algorithm} has no actions in {spaces[1]}; it takes {', '.join(s.__name__ for s in supported)}"
        )
    arguments = {
        name: _schedule(name, value) if name in _SCHEDULES else value
        for name, value in hyperparameters.items()
    }
    arguments["policy_kwargs"] = _torch_kwargs(recipe.policy_kwargs)
    if recipe.epsilon is not None:
        names = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
        arguments.update(zip(names, recipe.epsilon, strict=True))
    if "train_freq" in arguments:
        arguments["train_freq"] = recipe.rollout
    # the muscles add the noise
    arguments.pop("action_noise", None)
    if not recipe.on_policy and arguments.get("n_steps", 1) > 1:
        gamma = arguments.get("gamma", inspect.signature(kind).parameters["gamma"].default)
        arguments["replay_buffer_class"] = ChainedReplay
        arguments["replay_buffer_kwargs"] = {"n_steps": arguments.pop("n_steps"), "gamma": gamma}
    # Stable-Baselines3 refuses rollouts of one row, but here each of several muscles adds one
    single = recipe.on_policy and muscles > 1 and arguments.get("n_steps") == 1
    if single:
        arguments["n_steps"] = 2
    try:
        with warnings.catch_warnings():
            if muscles > 1:
                # the warning counts the rows of one environment only
                warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
            algorithm = kind(recipe.policy, _Nowhere(*spaces), device=device, seed=seed, **arguments)
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
    """A stub for the optimizer of policies that only act; torch takes seconds to make one."""

    def __init__(self, parameters: Any, **arguments: Any):
        pass


def make_policy(recipe: Recipe, observations: gym.Space[Any], actions: gym.Space[Any]) -> Any:
    """Make a policy like the algorithm's, on the CPU. Draws from the global generators."""
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
    """Return the part of a policy that muscles use."""
    module: torch.nn.Module = policy
    if not recipe.on_policy:
        module = policy.q_net if recipe.algorithm == "DQN" else policy.actor
    return module


def weights_of(module: torch.nn.Module) -> Weights:
    """Return copies of a module's parameters and buffers as arrays."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def set_weights(module: torch.nn.Module, weights: Mapping[str, npt.NDArray[Any]]) -> None:
    """Load the result of :func:`weights_of`. Raises :class:`BrainDumpError` if it is of other networks."""
    try:
        module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
    except RuntimeError as error:
        raise BrainDumpError(f"the model is of other networks than this agent's: {error}") from error


def to_bytes(tensors: Any) -> BytesIO:
    """Serialise ``tensors`` (state dicts and the like) with :func:`torch.save`."""
    stream = BytesIO()
    torch.save(tensors, stream)
    stream.seek(0)
    return stream


def from_bytes(stream: Any, what: str, device: str) -> Any:
    """Read the result of :func:`to_bytes`, without running code from it (``weights_only``).

    Raises :class:`BrainDumpError` if it is damaged, and if this release of torch might run its code.
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
        # torch has no specific exception for a damaged or foreign file
        raise BrainDumpError(f"{what} cannot be read: {files.reading_fault(error)}") from None


def networks_of(algorithm: Any) -> dict[str, Any]:
    """Return the state of all networks, optimizers and learned numbers of an algorithm."""
    _, variables = algorithm._get_torch_save_params()
    return {
        "parameters": algorithm.get_parameters(),
        "variables": {name: getattr(algorithm, name).detach() for name in variables},
    }


def set_networks(algorithm: Any, networks: Mapping[str, Any]) -> None:
    """Restore the result of :func:`networks_of`. Raises :class:`BrainDumpError` if it does not fit."""
    try:
        algorithm.set_parameters(networks["parameters"], exact_match=True, device=algorithm.device)
        for name, value in networks["variables"].items():
            getattr(algorithm, name).data.copy_(value)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrainDumpError(f"the model is of other networks than this agent's: {error}") from error


def describe_space(space: gym.Space[Any]) -> str:
    """Describe the kind and size of a space, which must be equal for a model to fit."""
    if isinstance(space, gym.Box):
        return f"Box of {space.shape[0]} numbers"
    return str(space)


def available_device(name: str) -> str:
    """Return torch's name of the device. Raises :class:`ContractError` if it does not exist."""
    if name == "auto":
        return str(get_device(name))
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ContractError(f"device: {name!r} is none; allowed are auto, cpu, cuda: {error}") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ContractError(f"device: {name!r} is not there; torch finds {torch.cuda.device_count()} GPUs")
    return str(device)
