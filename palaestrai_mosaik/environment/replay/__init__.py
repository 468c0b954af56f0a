"""Replay of recorded sessions: the pool that holds them, and environments that replay them."""

from .environments import SessionBatchEnvironment, SessionPoolEnvironment, SessionReplay
from .pool import PoolWriter, SessionPool
from .sessions import Field, Signature

__all__ = [
    "Field",
    "PoolWriter",
    "SessionBatchEnvironment",
    "SessionPool",
    "SessionPoolEnvironment",
    "SessionReplay",
    "Signature",
]
