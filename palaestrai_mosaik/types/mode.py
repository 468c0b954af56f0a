"""How agents behave in a phase."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """``TRAIN``: agents explore and learn. ``TEST``: they exploit; nothing learns."""

    TRAIN = "train"
    TEST = "test"
