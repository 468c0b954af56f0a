"""Replay of recorded sessions: the pool that holds them, and environments that live through them again."""

from .fields import Field, Signature
from .files import PoolWriter
from .pool import SessionPool
from .session_batch import SessionBatchEnvironment, SessionReplay
from .session_pool import SessionPoolEnvironment

__all__ = [
    "Field",
    "PoolWriter",
    "SessionBatchEnvironment",
    "SessionPool",
    "SessionPoolEnvironment",
    "SessionReplay",
    "Signature",
]
