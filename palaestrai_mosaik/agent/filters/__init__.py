"""Filters that ship with the package."""

from .history import (
    ActionTimeShiftFilter,
    DelayFilter,
    DeltaActionFilter,
    DeltaObsFilter,
    DeltaStepFilter,
    MergeStepsFilter,
)
from .norm import NormFilter
from .penalties import AbsoluteDeviationFilter, ActionChangePenaltyFilter, QuadraticPenaltyFilter
from .scale import ScaleFilter

__all__ = [
    "AbsoluteDeviationFilter",
    "ActionChangePenaltyFilter",
    "ActionTimeShiftFilter",
    "DelayFilter",
    "DeltaActionFilter",
    "DeltaObsFilter",
    "DeltaStepFilter",
    "MergeStepsFilter",
    "NormFilter",
    "QuadraticPenaltyFilter",
    "ScaleFilter",
]
