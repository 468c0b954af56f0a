"""The algorithm and the networks of a Stable-Baselines3 learner, and their serialisation."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping
from copy import deepcopy
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Env
from gymnasium import spaces as gym
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import LinearSchedule, get_device

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError, did_you_mean
from palaestrai_mosaik.core.installation import install_extra

from .buffers import ChainedReplay
from .recipe import ALGORITHMS, EXPLORATION, SCHEDULES, Recipe

Weights = dict[str, npt.NDArray[Any]]

#: the first release of torch in which ``weights_only`` is safe. CVE-2025-32434 (code in a file of the old
#: format) was fixed in 2.6, CVE-2026-24747 (memory overwritten by wrong opcodes and sizes) in 2.10
_READS_SAFELY = (2, 10)
_SUPPORTED: Mapping[str, tuple[type, ...]] = {
    "PPO": (gym.Box, gym.Discrete, gym.MultiDiscrete, gym.MultiBinary),
    "A2C": (gym.Box, gym.Discrete, gym.MultiDiscrete, gym.MultiBinary),
    "SAC": (gym.Box,),
    "TD3": (gym.Box,),
    "DDPG": (gym.Box,),
    "DQN": (gym.Discrete,),
}


def _torch_kwargs(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``policy_kwargs`` with the names of torch's classes replaced by the classes."""
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


def _arguments(recipe: Recipe, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the algorithm's class."""
    arguments = {
        name: _schedule(name, value) if name in SCHEDULES else value
        for name, value in hyperparameters.items()
        # the muscles add the noise
        if name != "action_noise"
    }
    arguments["policy_kwargs"] = _torch_kwargs(recipe.policy_kwargs)
    if recipe.epsilon is not None:
        arguments.update(zip(EXPLORATION, recipe.epsilon, strict=True))
    if "train_freq" in arguments:
        arguments["train_freq"] = recipe.rollout
    if not recipe.on_policy and arguments.get("n_steps", 1) > 1:
        parameters = inspect.signature(ALGORITHMS[recipe.algorithm]).parameters
        gamma = arguments.get("gamma", parameters["gamma"].default)
        arguments["replay_buffer_class"] = ChainedReplay
        arguments["replay_buffer_kwargs"] = {"n_steps": arguments.pop("n_steps"), "gamma": gamma}
    return arguments


def make_algorithm(
    recipe: Recipe,
    spaces: tuple[gym.Space[Any], gym.Space[Any]],
    hyperparameters: Mapping[str, Any],
    device: str,
    seed: int,
    muscles: int = 1,
) -> Any:
    """Make the algorithm with fresh networks. Draws from and seeds the global generators.

    Args:
        recipe: the recipe of ``hyperparameters``.
        spaces: the observation space and the action space.
        hyperparameters: arguments of the algorithm's class by name.
        device: the device of torch, such as ``cpu``.
        seed: the seed of the algorithm.
        muscles: the number of muscles that will send it rows.

    Raises:
        ContractError: the algorithm does not support the action space or refuses a parameter.
    """
    supported = _SUPPORTED[recipe.algorithm]
    if not isinstance(spaces[1], supported):
        raise ContractError(
            f"{recipe.algorithm} has no actions in {spaces[1]}; it takes {', '.join(s.__name__ for s in supported)}"
        )
    arguments = _arguments(recipe, hyperparameters)
    # Stable-Baselines3 refuses rollouts of one row, but here each of several muscles adds one
    single = recipe.on_policy and muscles > 1 and arguments.get("n_steps") == 1
    if single:
        arguments["n_steps"] = 2
    try:
        with warnings.catch_warnings():
            if muscles > 1:
                # the warning counts the rows of one environment only
                warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
            algorithm = ALGORITHMS[recipe.algorithm](
                recipe.policy, _Nowhere(*spaces), device=device, seed=seed, **arguments
            )
    except (TypeError, ValueError, AssertionError) as error:
        raise ContractError(
            f"Stable-Baselines3 refuses the parameters of {recipe.algorithm}: {error}"
        ) from error
    if single:
        algorithm.n_steps = 1
    algorithm.env = None
    algorithm.set_logger(Logger(folder=None, output_formats=[]))
    return algorithm


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
