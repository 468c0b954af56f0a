"""Values of settings whose scales differ are made comparable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.errors import PalaestraiMosaikError

from .options import Normalise

if TYPE_CHECKING:
    import pandas as pd


def normalised(runs: pd.DataFrame, how: Normalise, against: Mapping[str, str]) -> pd.Series[float]:
    """Return the values of ``runs`` (level, setting, value) as ``Options.normalise`` says.

    ``against``: the baseline of each level that is not one. Raises ``PalaestraiMosaikError``
    where a setting's baseline has no finished run, or is 0 on average.
    """
    if how == "minmax":
        return _minmax(runs)
    return _relative(runs, against) if how == "baseline" else runs["value"]


def _minmax(runs: pd.DataFrame) -> pd.Series[float]:
    values = runs["value"]
    grouped = values.groupby(runs["setting"])
    low = grouped.transform("min")
    width = grouped.transform("max") - low
    # where all runs are alike, all are halfway: the setting speaks for nobody
    return ((values - low) / width.where(width > 0)).mask(values.notna() & (width == 0), 0.5)


def _relative(runs: pd.DataFrame, against: Mapping[str, str]) -> pd.Series[float]:
    means = runs.groupby(["level", "setting"])["value"].mean().to_dict()
    baselines = [against.get(level, level) for level in runs["level"]]
    found = [means.get(place, np.nan) for place in zip(baselines, runs["setting"], strict=True)]
    for baseline, setting, mean in zip(baselines, runs["setting"], found, strict=True):
        if np.isnan(mean) or mean == 0:
            what = "has no finished run" if np.isnan(mean) else "is 0 on average"
            raise PalaestraiMosaikError(
                f"normalise 'baseline': {baseline!r} {what} in setting {setting!r}; use 'minmax'"
            )
    scale = np.asarray(found)
    return (runs["value"] - scale) / np.abs(scale)
