"""How runs are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from palaestrai_mosaik.errors import PalaestraiMosaikError, did_you_mean

Normalise = Literal["none", "minmax", "baseline"]
Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """How runs are compared.

    ``better``: which direction is good (``None``: not said; "better" then means higher).
    ``baseline``: the label of one of the compared factors; each other level is compared with
    it alone (``None``: all pairs). ``common_seeds``: runs of one repetition share their seed,
    so they are compared pair by pair. ``normalise``: how values of different settings are made
    comparable: ``"minmax"`` maps the worst and the best run of a setting to 0 and 1,
    ``"baseline"`` gives the change relative to the baseline's mean there (0.1: 10 % more).
    ``confidence`` of all intervals, ``resamples`` of each bootstrap, ``seed`` of its generators.
    Raises ``PalaestraiMosaikError`` for values that mean nothing.
    """

    better: Better | None = None
    baseline: str | None = None
    common_seeds: bool = True
    normalise: Normalise = "none"
    confidence: float = 0.95
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise PalaestraiMosaikError(f"confidence must lie between 0 and 1, not {self.confidence}")
        if self.resamples < 1:
            raise PalaestraiMosaikError(f"resamples must be 1 or more, not {self.resamples}")
        allowed = get_args(Normalise)
        if self.normalise not in allowed:
            raise PalaestraiMosaikError(
                f"normalise is one of {', '.join(allowed)}, not {self.normalise!r}"
                f"{did_you_mean(self.normalise, allowed)}"
            )
        if self.normalise == "baseline" and self.baseline is None:
            raise PalaestraiMosaikError("normalise 'baseline' needs a baseline")
