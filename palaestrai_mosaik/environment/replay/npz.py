"""Reads sessions out of npz files (``numpy.savez``)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile

from palaestrai_mosaik.errors import ContractError, did_you_mean

from .fields import NUMBERS, REWARDS, Field, Signature
from .pool import SessionPool
from .sequences import reward_names
from .sessions import Array

_ARRAYS = ("observations", "actions", "rewards", "is_alive", "prev_memories", "terminated")


def read_npz(path: str | Path) -> SessionPool:
    """Return the sessions of an npz file (``numpy.savez``).

    Its arrays are called as the arguments of :meth:`.pool.SessionPool.load_sessions`:
    ``observations`` [session, tick, ...], ``actions``, ``rewards``, ``is_alive``, ``prev_memories``,
    ``terminated``. Where there are several observations or actions (memories), they are
    ``observations.<name>``, ... Dtypes and shapes are those of the arrays.

    Raises :class:`ContractError` where the file is damaged, or its arrays are not such sequences.
    """
    arrays = _npz_arrays(path)
    for name, array in arrays.items():
        kind = name.split(".", 1)[0]
        if kind not in _ARRAYS:
            raise ContractError(
                f"source: {path} has the array {name!r}{did_you_mean(name, _ARRAYS)}; expected are "
                f"{', '.join(_ARRAYS)}"
            )
        axes = ("session",) if kind in ("prev_memories", "terminated") else ("session", "tick")
        if array.dtype.kind not in NUMBERS or array.ndim < len(axes) or 0 in array.shape[len(axes) :]:
            raise ContractError(
                f"source: {path}: {name} is {array.dtype} of shape {array.shape}, expected are numbers "
                f"[{', '.join(axes)}, ...]"
            )
        if name != kind and kind in arrays:
            raise ContractError(
                f"source: {path} has {kind!r} and {name!r}; either there is one, or all of them have names"
            )
    observed, acted, memories = (
        _called(arrays, kind) for kind in ("observations", "actions", "prev_memories")
    )
    rewards = arrays.get("rewards")
    try:
        signature = Signature.declared(
            _npz_fields("observation", observed),
            _npz_fields("action", acted),
            REWARDS if rewards is None else reward_names(rewards),
        )
        pool = SessionPool(signature.observations, signature.actions, signature.rewards)
        pool.load_sessions(
            list(observed.values()) if len(observed) > 1 else next(iter(observed.values())),
            list(acted.values()) if len(acted) > 1 else next(iter(acted.values()), None),
            rewards,
            arrays.get("is_alive"),
            list(memories.values()) or None,
            terminated=arrays.get("terminated"),
        )
    except ContractError as error:
        raise ContractError(f"source: {path}: {error}") from error
    return pool


def _npz_arrays(path: str | Path) -> dict[str, Array]:
    try:
        found: Any = np.load(path, allow_pickle=False)
        if not isinstance(found, NpzFile):
            raise ContractError(
                f"source: {path} holds one array; expected is a file of several, written by numpy.savez"
            )
        with found as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, SyntaxError, EOFError, BadZipFile, zlib.error, NotImplementedError) as error:
        raise ContractError(f"source: cannot read {path}: {error or type(error).__name__}") from error


def _called(arrays: Mapping[str, Array], kind: str) -> dict[str, Array]:
    """Return the arrays of a kind by the names that they have (``""``: the only one has none)."""
    if kind in arrays:
        return {"": arrays[kind]}
    return {name.split(".", 1)[1]: array for name, array in arrays.items() if name.startswith(f"{kind}.")}


def _npz_fields(kind: str, arrays: Mapping[str, Array]) -> list[Field]:
    return [Field(name or kind, array.shape[2:], array.dtype) for name, array in arrays.items()]
