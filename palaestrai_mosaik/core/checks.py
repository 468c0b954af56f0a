"""Checks of arguments from users' documents, with the message that all of them share."""

from __future__ import annotations

from palaestrai_mosaik.core.errors import ContractError


def check_whole(name: str, value: object, least: int) -> None:
    """Raise :class:`ContractError` unless the argument ``name`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ContractError(f"{name} must be a whole number of at least {least}, not {value!r}")
