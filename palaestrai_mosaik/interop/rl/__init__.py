"""Run documents as environments of Gymnasium and PettingZoo, with a mosaik world inside.

Needs the extra ``rl`` (or Gymnasium and PettingZoo alone). Importing
it registers ``palaestrai_mosaik/Run-v0`` with Gymnasium. From version 1.0 on, Gymnasium does not read entry points of
packages, but imports the module before the colon:
``gymnasium.make("palaestrai_mosaik.interop.rl:palaestrai_mosaik/Run-v0", document="run.yml")``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core.importing import needed
from palaestrai_mosaik.core.installation import install_extra

try:
    from gymnasium.envs.registration import register, registry
except ImportError as error:
    raise ImportError(f"run documents as environments need {needed(error)}: {install_extra('rl')}") from error

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv
    from pettingzoo import AECEnv

    from .gymnasium_env import RunEnv
    from .pettingzoo_env import RunParallelEnv

__all__ = ["RUN", "aec_env", "make", "make_vec", "parallel_env"]

#: Gymnasium's id of a run document
RUN = "palaestrai_mosaik/Run-v0"


def make(document: Any, **options: Any) -> RunEnv:
    """Make a Gymnasium environment from a run document; the caller controls one agent.

    Args:
        document: the path of a file, plain data, or a loaded document.
        options: those of :class:`~palaestrai_mosaik.interop.rl.gymnasium_env.RunEnv`: ``agent``, ``phase``, ``seed``,
            ...

    Returns:
        The environment, before its first ``reset()``. Close it to end its simulators.

    Raises:
        DocumentError: the document cannot be run.
        ContractError: an option or a name in one does not exist, or the agent has several bodies.
    """
    from .driver import check_options
    from .gymnasium_env import RunEnv

    check_options(RunEnv.__init__, options)
    return RunEnv(document, **options)


def make_vec(document: Any, num_envs: int = 1, **options: Any) -> VectorEnv[Any, Any, Any]:
    """Make a Gymnasium vector environment from copies of a run document's world.

    Args:
        document: the path of a file, plain data, or a loaded document.
        num_envs: the number of copies.
        options: those of :func:`~palaestrai_mosaik.interop.rl.vector_env.vector_env`: ``backend``, ``agent``,
            ``max_episode_steps``, ...

    Returns:
        The vector environment, before its first ``reset()``: observations and actions are batches with one row
        for each copy.

    Raises:
        DocumentError: the document cannot be run.
        ContractError: an option or a name in one does not exist, or the copies cannot share a world.
    """
    from .vector_env import vector_env

    return vector_env(document, num_envs, **options)


def parallel_env(document: Any, **options: Any) -> RunParallelEnv:
    """Make a parallel PettingZoo environment from a run document.

    Args:
        document: the path of a file, plain data, or a loaded document.
        options: those of :class:`~palaestrai_mosaik.interop.rl.pettingzoo_env.RunGame`: ``agents``, ``phase``,
            ``seed``, ...

    Returns:
        The environment, before its first ``reset()``: all of the caller's agents act in each step.

    Raises:
        DocumentError: the document cannot be run.
        ContractError: an option or a name in one does not exist, or the agents take turns.
    """
    from .pettingzoo_env import RunParallelEnv

    return RunParallelEnv(document, **options)


def aec_env(document: Any, **options: Any) -> AECEnv[Any, Any, Any]:
    """Make a PettingZoo environment from a run document in which agents act in turn (AEC).

    Args:
        document: the path of a file, plain data, or a loaded document.
        options: those of :class:`~palaestrai_mosaik.interop.rl.pettingzoo_env.RunGame`: ``agents``, ``phase``,
            ``seed``, ...

    Returns:
        The environment, before its first ``reset()``. Calls in the wrong order raise PettingZoo's errors.

    Raises:
        DocumentError: the document cannot be run.
        ContractError: an option or a name in one does not exist.
    """
    from .pettingzoo_env import ordered

    return ordered(document, **options)


if RUN not in registry:
    register(
        id=RUN,
        entry_point=f"{__name__}.gymnasium_env:RunEnv",
        vector_entry_point=f"{__name__}.vector_env:vector_env",
    )
