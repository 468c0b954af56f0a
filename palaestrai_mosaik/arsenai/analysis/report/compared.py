"""A comparison in a report: single runs, seeds, and the possible effects of losses.

A *seed* is the independent unit of runs: with common seeds a repetition, which all rows share, otherwise every run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis.comparison import Comparison
from palaestrai_mosaik.arsenai.analysis.comparison.aggregates import AGGREGATES, distinct
from palaestrai_mosaik.arsenai.analysis.comparison.compare import runs_of
from palaestrai_mosaik.arsenai.analysis.lost_runs import Bounds, bounds
from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.types.arrays import FloatArray

if TYPE_CHECKING:
    import pandas as pd

#: in place of the best level: levels are equal, or lost runs could change which is the best
_TIE, _OPEN = "(tie)", "(lost runs decide)"
TITLES = {"iqm": "interquartile mean", "mean": "mean"}


def count_seeds(runs: pd.DataFrame, common: bool) -> int:
    """Count the distinct seeds of ``runs`` (``repetition``, ``run``)."""
    return int(runs["repetition" if common else "run"].nunique())


@dataclass(frozen=True)
class Extremes:
    """The mean of a level with lost runs counted as the worst, and as the best, of their setting."""

    worst: float
    best: float


@dataclass(frozen=True)
class Compared:
    """A comparison with its single runs.

    Attributes:
        comparison: the comparison.
        runs: one row per planned run with ``level``, ``setting``, ``repetition``, ``run`` and ``value`` (NaN if
            lost), each run of a level once.
    """

    comparison: Comparison
    runs: pd.DataFrame

    @property
    def statistic(self) -> str:
        """The aggregate that ranks the levels."""
        return "iqm" if "iqm" in self.comparison.levels else "mean"

    @property
    def sign(self) -> int:
        """1 if higher is better or no direction is declared, -1 if lower is better."""
        return -1 if self.comparison.options.better == "lower" else 1

    @property
    def settings(self) -> list[str]:
        """The settings of the other factors, in order."""
        return list(dict.fromkeys(self.comparison.cells["setting"]))

    def ordered(self) -> pd.DataFrame:
        """Return the levels with runs, the best first."""
        levels = self.comparison.levels.dropna(subset=[self.statistic])
        placed = levels.assign(_place=-self.sign * levels[self.statistic])
        return placed.sort_values(["_place", "level"], kind="stable").drop(columns="_place")

    def seeds(self, *levels: str, setting: str | None = None) -> int:
        """Return the smallest number of distinct seeds among the finished runs of each level."""
        finished = self.runs[self.runs["value"].notna()]
        if setting is not None:
            finished = finished[finished["setting"] == setting]
        common = self.comparison.options.common_seeds
        return min(count_seeds(finished[finished["level"] == level], common) for level in levels)

    def dots(self, statistic: str, level: str) -> FloatArray:
        """Return the ``statistic`` of each seed's runs, (seeds,).

        Seeds that lost their run in a setting are left out, because their other settings are not comparable. If
        seeds are not common, the values are those of single runs.
        """
        finished = self.runs[(self.runs["level"] == level) & self.runs["value"].notna()]
        if not self.comparison.options.common_seeds:
            return finished["value"].to_numpy(float)
        settings = finished.groupby("repetition")["setting"].nunique()
        whole = settings.index[settings == finished["setting"].nunique()]
        values = []
        for repetition in sorted(whole):
            parts = finished[finished["repetition"] == repetition].groupby("setting", sort=False)["value"]
            values.append(float(AGGREGATES[statistic](*(part.to_numpy(float) for _, part in parts))))
        return np.array(values)

    def differences(self, a: str, b: str) -> FloatArray:
        """Return each seed's mean difference of ``a`` and ``b`` over their settings, if paired."""
        if not self.comparison.paired:
            return np.empty(0)
        means = self.runs.groupby(["level", "setting", "repetition"])["value"].agg(
            lambda v: v.mean(skipna=False)
        )
        of_a, of_b = (means.xs(level).unstack("repetition") for level in (a, b))
        shared = of_a.index.intersection(of_b.index)
        differences = (of_a.loc[shared] - of_b.loc[shared]).dropna(how="all")
        seed_means = differences.to_numpy(float).mean(axis=0) if len(differences) else np.empty(0)
        return np.asarray(seed_means[np.isfinite(seed_means)])

    def unit(self, pair: Mapping[Any, Any]) -> float:
        """Return the factor that turns a difference into a share of the mean of the pair's second level.

        The mean is over the settings of both levels, and treated as exact. The factor is NaN if the interval of the
        mean contains 0, unless all its runs have one value.
        """
        level = self.comparison.levels.set_index("level").loc[pair["b"]]
        constant = level["n"] > 1 and level["distinct"] == 1
        if not constant and not level["mean_low"] * level["mean_high"] > 0:
            return math.nan
        means = self.means()
        both_means = means[[pair["a"], pair["b"]]].dropna()
        mean = float(both_means[pair["b"]].mean()) if len(both_means) else 0.0
        return 1 / abs(mean) if mean else math.nan

    def pairs(self) -> pd.DataFrame:
        """Return the pairs with their distinct ``seeds``, and the difference ``relative`` to the second mean."""
        table = self.comparison.pairs.copy()
        rows = table.to_dict("records")
        table.insert(min(3, len(table.columns)), "seeds", [self.seeds(row["a"], row["b"]) for row in rows])
        if "difference" in table:
            units = [self.unit(row) for row in rows]
            for name in ("", "_low", "_high"):
                table[f"relative{name}"] = table[f"difference{name}"] * units
        return table

    def means(self) -> pd.DataFrame:
        """Return the mean of each setting (rows) and level (columns), in their order."""
        cells = self.comparison.cells.pivot(index="setting", columns="level", values="mean")
        return cells.reindex(index=self.settings, columns=list(self.comparison.levels["level"]))

    def by_setting(self) -> pd.DataFrame:
        """Return the means by setting with the ``best`` level of each, and the fewest runs and seeds."""
        means = self.means()
        table = means.reset_index().rename_axis(columns=None)
        counts = self.comparison.cells.pivot(index="setting", columns="level", values="n").reindex(
            self.settings
        )
        names = list(means.columns)
        taken = set(table)
        for name, values in (
            ("best", [self._best_or_why(str(setting), row) for setting, row in means.iterrows()]),
            ("fewest runs", counts.min(axis=1).fillna(0).astype(int).tolist()),
            ("fewest seeds", [self.seeds(*names, setting=setting) for setting in self.settings]),
        ):
            table[f"({name})" if name in taken else name] = values
        return table

    def best_by_setting(self, level: str) -> dict[str, str]:
        """Return the best level in each setting that ``level`` shares with another, empty for ties.

        Settings are left out if lost runs could change which level is the best.
        """
        means = self.means()
        shared = means[means[level].notna() & (means.notna().sum(axis=1) > 1)]
        return {
            str(setting): self._best(row)
            for setting, row in shared.iterrows()
            if not self._open(str(setting), row)
        }

    def _best_or_why(self, setting: str, means: pd.Series[float]) -> str:
        """Return the level with the best of ``means`` in a setting, or why there is none."""
        if self._open(setting, means):
            return _OPEN
        return self._best(means) or _TIE * int(means.count() > 1)

    def _open(self, setting: str, means: pd.Series[float]) -> bool:
        """Whether lost runs could change which level has the best mean in a setting."""
        best = self._best(means)
        if not best or not self.lost:
            return False
        ends = self._extremes_by_setting[self._extremes_by_setting["setting"] == setting]
        is_best = (ends["level"] == best).to_numpy()
        worst, rivals = (self.sign * ends[end].to_numpy(float) for end in ("worst", "best"))
        return bool((rivals[~is_best] > worst[is_best]).any())

    @cached_property
    def _extremes_by_setting(self) -> pd.DataFrame:
        """The mean of each setting and level with lost runs at the ``worst``, and at the ``best`` value of the setting."""
        low, high = ("worst", "best") if self.sign > 0 else ("best", "worst")
        values = self.runs.assign(**{low: self._bounds.lowest, high: self._bounds.highest})
        return values.groupby(["setting", "level"], as_index=False)[["worst", "best"]].mean()

    def _best(self, means: pd.Series[float]) -> str:
        """Return the level with the best of ``means``, or an empty string for ties."""
        ranked = (self.sign * means.dropna()).sort_values(ascending=False, kind="stable")
        if len(ranked) < 2 or distinct(np.array(ranked[:2], dtype=float)) == 1:
            return ""
        return str(ranked.index[0])

    def losses(self) -> pd.DataFrame:
        """Return the planned, used and lost runs of each level, with its mean if these were extreme."""
        import pandas as pd

        levels = self.comparison.levels
        planned = levels["n"] + levels["lost"]
        table = pd.DataFrame({"level": levels["level"], "planned": planned, "used": levels["n"]})
        table["seeds"] = [self.seeds(level) for level in levels["level"]]
        table["lost"] = levels["lost"]
        table["share lost"] = levels["lost"] / planned.where(planned > 0)
        if levels["lost"].any():
            extremes = [self.extremes(level) for level in levels["level"]]
            table["mean of the used"] = levels["mean"]
            table["mean if lost runs were the worst"] = [ends.worst for ends in extremes]
            table["mean if lost runs were the best"] = [ends.best for ends in extremes]
        return table

    @cached_property
    def lost(self) -> bool:
        """Whether lost runs could change the order. If seeds are shared, a seed lost by all levels cannot."""
        limits = self._bounds
        return bool((limits.lowest != limits.highest).where(limits.lowest.notna(), False).any())

    @cached_property
    def _bounds(self) -> Bounds:
        return bounds(self.runs, self.comparison.paired)

    def extremes(self, level: str) -> Extremes:
        """Return the mean of ``level`` if its lost runs were the worst, or the best, of all in their setting.

        For a setting without finished runs, the extremes of all settings are used. If levels share seeds, a seed that
        no level finished is left out. Lost runs may still lie beyond the observed range.
        """
        ends = self._extremes_by_setting[self._extremes_by_setting["level"] == level]
        return Extremes(float(ends["worst"].mean()), float(ends["best"].mean()))


def with_runs(results: Results, comparisons: Sequence[Comparison]) -> list[Compared]:
    """Combine the comparisons with their runs."""
    compared = []
    for comparison in comparisons:
        frame = runs_of(results, comparison.by, comparison.outcome, comparison.options).frame
        # As in the comparison, a run that stands for several settings counts once.
        compared.append(Compared(comparison, frame.drop_duplicates(["level", "run"], ignore_index=True)))
    return compared
