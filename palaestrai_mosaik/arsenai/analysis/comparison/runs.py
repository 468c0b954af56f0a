"""The runs of a comparison: options, levels and settings, normalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from palaestrai_mosaik.arsenai.design.few import MOST_LEVELS
from palaestrai_mosaik.core.errors import PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.types.arrays import FloatArray

from ..moments import Better
from .aggregates import Sample, UnpairedRuns

if TYPE_CHECKING:
    import pandas as pd

Normalise = Literal["none", "minmax", "baseline"]


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """Options of a comparison.

    Args:
        better: the better direction of the outcome; ``None``: undeclared ("better" then means higher).
        baseline: a label of one of the compared factors; each other level is compared only with it.
            ``None``: all pairs are compared.
        common_seeds: whether runs of one repetition share their seed, so that they are compared pair by pair.
        normalise: how to make values of different settings comparable: ``"none"``; ``"minmax"`` maps the
            worst and the best run of a setting to 0 and 1; ``"baseline"`` gives the change relative to the
            baseline's mean there (0.1: 10 % more).
        confidence: confidence level of all intervals, between 0 and 1.
        resamples: number of resamples of each bootstrap, at least 1.
        seed: seed of the bootstrap's generators.

    Raises:
        PalaestraiMosaikError: a value is not allowed.
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


def normalised(runs: pd.DataFrame, how: Normalise, against: Mapping[str, str]) -> pd.Series[float]:
    """Normalise the values of ``runs`` (level, setting, value).

    Args:
        runs: one row per run.
        how: see ``ComparisonOptions.normalise``.
        against: the baseline of each other level.

    Returns:
        The normalised value of each row.

    Raises:
        PalaestraiMosaikError: the baseline has no finished run in a setting, or a mean of 0.
    """
    if how == "minmax":
        return _minmax(runs)
    return _relative(runs, against) if how == "baseline" else runs["value"]


def _minmax(runs: pd.DataFrame) -> pd.Series[float]:
    values = runs["value"]
    grouped = values.groupby(runs["setting"])
    low = grouped.transform("min")
    width = grouped.transform("max") - low
    # If all runs of a setting are equal, it favours no level: all are halfway.
    return ((values - low) / width.where(width > 0)).mask(values.notna() & (width == 0), 0.5)


def _relative(runs: pd.DataFrame, against: Mapping[str, str]) -> pd.Series[float]:
    means = runs.groupby(["level", "setting"])["value"].mean().to_dict()
    baselines = [against.get(level, level) for level in runs["level"]]
    baseline_means = [means.get(key, np.nan) for key in zip(baselines, runs["setting"], strict=True)]
    for baseline, setting, mean in zip(baselines, runs["setting"], baseline_means, strict=True):
        if np.isnan(mean) or mean == 0:
            what = "has no finished run" if np.isnan(mean) else "is 0 on average"
            raise PalaestraiMosaikError(
                f"normalise 'baseline': {baseline!r} {what} in setting {setting!r}; use 'minmax'"
            )
    scale = np.asarray(baseline_means)
    result: pd.Series[float] = (runs["value"] - scale) / np.abs(scale)
    return result


#: label of a level without the factor
INACTIVE = "(none)"
#: the setting if only the compared factors vary, or if levels share no setting
ONE_SETTING = "all"

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Runs:
    """The runs of one outcome.

    Attributes:
        by: the compared factors.
        levels: name -> labels, one for each factor in ``by``, in order.
        settings: the names of the settings.
        crossed: whether levels can be compared within settings.
        against: the baseline of each other level; ``None``: all pairs are compared.
        frame: one row per run: level, setting, place (the row of the design), repetition, value (NaN if lost) and
            run (the execution, which can belong to several settings). The order does not depend on when runs ended.
        warnings: cautions for the reader.
        nested: factors that only some levels have; these levels are averaged over their values.
    """

    by: tuple[str, ...]
    levels: dict[str, Labels]
    settings: tuple[str, ...]
    crossed: bool
    against: dict[str, str] | None
    frame: pd.DataFrame
    warnings: tuple[str, ...]
    nested: tuple[str, ...] = ()

    def used(self, level: str) -> pd.DataFrame:
        """Return the runs of a level that have a value, without duplicates."""
        runs = self.frame[(self.frame["level"] == level) & self.frame["value"].notna()]
        return runs.drop_duplicates("run")

    def strata(self, level: str) -> dict[str, FloatArray]:
        """Return the values of a level by setting, without lost runs and empty settings."""
        grouped = self.used(level).groupby("setting", sort=False)["value"]
        return {str(name): part.to_numpy(float) for name, part in grouped}

    def settings_of(self, level: str) -> int:
        """Return the number of settings with runs of a level, or of rows if levels are not compared by setting."""
        own_rows = self.settings == (ONE_SETTING,) and (not self.crossed or bool(self.nested))
        return int(self.used(level)["place" if own_rows else "setting"].nunique())

    def rows(self, level: str, common_seeds: bool) -> UnpairedRuns:
        """Return the runs of a level with their rows, and their seeds if rows share these."""
        used = self.used(level)
        seeds = used["repetition"].to_numpy() if common_seeds else None
        return UnpairedRuns.of(used["value"].to_numpy(float), used["place"].to_numpy(), seeds)

    def sample(self, level: str, common_seeds: bool) -> Sample:
        """Return the runs of a level with the units to resample.

        The unit is the seed if settings share seeds, so that its effect on all of them counts once, and otherwise
        the run. If settings are drawn at random, the units are the rows, and also the seeds if rows share them.
        """
        if not self.crossed:
            return Sample.of_rows(self.rows(level, common_seeds))
        parts = [part for _, part in self.used(level).groupby("setting", sort=False)]
        seeds = [part["repetition"].to_numpy() for part in parts] if common_seeds else None
        return Sample.of([part["value"].to_numpy(float) for part in parts], seeds)

    def seeds(self, level: str) -> int:
        """Return the smallest number of independent runs of a level in a setting: repetitions if crossed."""
        used = self.used(level)
        if used.empty:
            return 0
        counted = used.groupby("setting")["repetition"]
        return int((counted.nunique() if self.crossed else counted.size()).min())


def collect(
    frame: pd.DataFrame, by: Sequence[str], outcome: str, settings: Sequence[str], options: ComparisonOptions
) -> Runs:
    """Arrange the runs of ``frame`` by level and setting (see ``compare``)."""
    _check_names(frame, by, outcome, settings)
    order = [column for column in ("row", "repetition") if column in frame.columns]
    frame = frame.sort_values(order, kind="stable") if order else frame
    levels = _levels(frame, by)
    warnings: list[str] = []
    nested = [name for name in settings if _is_nested(frame, by, name)]
    if nested:
        warnings.append(
            f"{_names(nested)}: only some levels of {_names(by)} have {'it' if len(nested) == 1 else 'them'}, so each of these levels is taken "
            "over all its values there"
        )
    shared = [name for name in settings if name not in nested and frame[name].nunique(dropna=False) > 1]
    runs = _run_table(frame, by, outcome, shared)
    crossed = bool((runs.groupby("setting")["level"].nunique() > 1).any())
    if not crossed:
        warnings.append(
            f"no setting of {_names(shared)} occurs with two levels of {_names(by)}: runs are compared as if "
            "these were drawn at random for each, not setting by setting"
        )
        runs = runs.assign(setting=ONE_SETTING).drop_duplicates(["level", "run"], ignore_index=True)
    elif runs.duplicated(["level", "run"]).any():
        warnings.append(
            f"some runs stand for several settings of {_names(shared)}, which make no difference to them: "
            "each counts once, and a pair of the same two runs does"
        )
    against = None if options.baseline is None else baseline_of(levels, by, options.baseline)
    runs["value"] = normalised(runs, options.normalise, against or {})
    return Runs(
        tuple(by),
        levels,
        tuple(dict.fromkeys(runs["setting"])),
        crossed,
        against,
        runs,
        tuple(warnings),
        tuple(nested),
    )


def _run_table(frame: pd.DataFrame, by: Sequence[str], outcome: str, settings: Sequence[str]) -> pd.DataFrame:
    """Return :attr:`Runs.frame` before normalisation: a run that stands for several rows counts once."""
    import pandas as pd

    names = _setting_names(frame, settings) if settings else [ONE_SETTING] * len(frame)
    runs = pd.DataFrame(
        {
            "level": _level_names(frame, by),
            "setting": names,
            "place": frame["row"].to_numpy() if "row" in frame.columns else names,
            "repetition": frame["repetition"].to_numpy() if "repetition" in frame.columns else 0,
            "value": _values(frame, outcome).to_numpy(),
            "run": frame["run"].to_numpy() if "run" in frame.columns else np.arange(len(frame)),
        }
    )
    return runs.drop_duplicates(["level", "setting", "repetition", "run"], ignore_index=True)


def _check_names(frame: pd.DataFrame, by: Sequence[str], outcome: str, settings: Sequence[str]) -> None:
    if not by:
        raise PalaestraiMosaikError("nothing to compare by: name a factor")
    for what, names in (("factor", (*by, *settings)), ("outcome", (outcome,))):
        for name in names:
            if name not in frame.columns:
                columns = [str(column) for column in frame.columns]
                raise PalaestraiMosaikError(f"no {what} {name!r} in the runs{did_you_mean(name, columns)}")


def _values(frame: pd.DataFrame, outcome: str) -> pd.Series[float]:
    """Return the outcome, NaN if it is not finite or the run has not finished."""
    values = frame[outcome].astype(float)
    whole = np.isfinite(values)
    if "status" in frame.columns:
        whole &= frame["status"] == "finished"
    return values.where(whole)


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _labels(frame: pd.DataFrame, by: Sequence[str]) -> list[Labels]:
    return list(zip(*(_text(frame[name]) for name in by), strict=True))


def _text(column: pd.Series) -> list[str]:
    missing = column.isna()
    return [INACTIVE if none else str(label) for none, label in zip(missing, column, strict=True)]


def _name(labels: Labels, by: Sequence[str]) -> str:
    if len(by) == 1:
        return labels[0]
    return ", ".join(f"{name}={label}" for name, label in zip(by, labels, strict=True))


def _level_names(frame: pd.DataFrame, by: Sequence[str]) -> list[str]:
    return [_name(labels, by) for labels in _labels(frame, by)]


def _setting_names(frame: pd.DataFrame, settings: Sequence[str]) -> list[str]:
    columns = [[f"{name}={label}" for label in _text(frame[name])] for name in settings]
    return [", ".join(parts) for parts in zip(*columns, strict=True)]


def _levels(frame: pd.DataFrame, by: Sequence[str]) -> dict[str, Labels]:
    """Return the levels in the order of each factor's categories, or of their appearance."""
    ranks = [{label: i for i, label in enumerate(_in_order(frame[name]))} for name in by]
    levels = sorted(
        set(_labels(frame, by)), key=lambda labels: [r[x] for r, x in zip(ranks, labels, strict=True)]
    )
    if len(levels) > MOST_LEVELS:
        raise PalaestraiMosaikError(
            f"{_names(by)}: {len(levels):,} levels are too many to compare (at most {MOST_LEVELS}); "
            "'arsenai analyse' tells how outcomes depend on such a factor"
        )
    if len(levels) < 2:
        raise PalaestraiMosaikError(f"{_names(by)}: one level only, nothing to compare it with")
    return {_name(labels, by): labels for labels in levels}


def _in_order(column: pd.Series) -> list[str]:
    if column.dtype.name == "category":
        return [*map(str, column.cat.categories), INACTIVE]
    return list(dict.fromkeys(_text(column)))


def _is_nested(frame: pd.DataFrame, by: Sequence[str], name: str) -> bool:
    """Whether a level never has the factor ``name``, while another has it."""
    import pandas as pd

    inactive = frame[name].isna().groupby(pd.Series(_level_names(frame, by), frame.index)).all()
    return bool(inactive.any() and not inactive.all())


def baseline_of(levels: dict[str, Labels], by: Sequence[str], baseline: str) -> dict[str, str]:
    """Return the baseline of each other level.

    Args:
        levels: name -> labels of the compared factors.
        by: the compared factors.
        baseline: a label of one of the factors. A combination is compared with the one that has this label and
            is otherwise equal.

    Returns:
        Level -> baseline, both by name.

    Raises:
        PalaestraiMosaikError: no factor or several factors have the label.
    """
    positions = [i for i in range(len(by)) if any(labels[i] == baseline for labels in levels.values())]
    if len(positions) != 1:
        all_labels = list(dict.fromkeys(label for labels in levels.values() for label in labels))
        if positions:
            raise PalaestraiMosaikError(f"baseline {baseline!r} is a level of each of {_names(by)}")
        raise PalaestraiMosaikError(
            f"baseline {baseline!r} is no level of {_names(by)}{did_you_mean(baseline, all_labels)}; "
            f"these are {', '.join(all_labels)}"
        )
    position = positions[0]
    names = {labels: name for name, labels in levels.items()}
    against = {}
    for name, labels in levels.items():
        other = names.get((*labels[:position], baseline, *labels[position + 1 :]))
        if other is not None and other != name:
            against[name] = other
    return against
