"""What an evaluation says about an agent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from palaestrai_mosaik.agent import Brain
from palaestrai_mosaik.errors import ContractError

from .worker import EpisodeReport


def metrics_of(agent: str, reports: Sequence[EpisodeReport]) -> dict[str, float]:
    """Return the mean over the evaluation's episodes of an agent's objective and of their lengths."""
    objectives = [report.outcomes[agent]["objective"] for report in reports]
    return {
        "objective": mean([o["mean"] for o in objectives]),
        "objective_sum": mean([o["sum"] for o in objectives]),
        "steps": mean([report.steps for report in reports]),
    }


def more_metrics(brain: Brain, metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Tell the brain its ``metrics``; return those that it adds."""
    more = brain.evaluated(dict(metrics))
    if more is not None and not isinstance(more, Mapping):
        raise ContractError(
            f"{type(brain).__name__}.evaluated of agent {brain.name!r} must return a mapping of metrics or None, "
            f"not {more!r}"
        )
    return more or {}


def mean(values: Sequence[float]) -> float:
    """Return the mean of those that are not NaN; NaN where there are none."""
    array = np.array(values, dtype=np.float64)
    known = array[~np.isnan(array)]
    return float(known.mean()) if len(known) else math.nan
