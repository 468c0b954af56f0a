"""What a report tells of a comparison beside its tables: the single runs, seeds, what losses may hide.

A *seed* is what runs are independent by: with common seeds a repetition, which all rows share,
else every run has its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.analysis.comparison import Comparison
from palaestrai_mosaik.analysis.comparison.aggregates import AGGREGATES
from palaestrai_mosaik.analysis.comparison.runs import collect
from palaestrai_mosaik.analysis.results import Results, labels
from palaestrai_mosaik.types.arrays import FloatArray

if TYPE_CHECKING:
    import pandas as pd

#: the best of levels that are equal
_TIE = "(tie)"
TITLES = {"iqm": "interquartile mean", "mean": "mean"}


def count_seeds(runs: pd.DataFrame, common: bool) -> int:
    """Return how many distinct seeds ``runs`` (``repetition``, ``run``) have."""
    return int(runs["repetition" if common else "run"].nunique())


@dataclass(frozen=True)
class Extremes:
    """The mean of a level where lost runs are counted as the worst, and as the best, of their setting."""

    worst: float
    best: float


@dataclass(frozen=True)
class Compared:
    """A comparison, ``comparison``, with the single ``runs`` that it is made of.

    ``runs``: one row per planned run with ``level``, ``setting``, ``repetition``, ``run`` and
    ``value`` (NaN where it is lost), each run of a level once.
    """

    comparison: Comparison
    runs: pd.DataFrame

    @property
    def statistic(self) -> str:
        """The aggregate by which levels are ranked."""
        return "iqm" if "iqm" in self.comparison.levels else "mean"

    @property
    def sign(self) -> int:
        """1 where higher is better (or nothing is said), -1 where lower is."""
        return -1 if self.comparison.options.better == "lower" else 1

    @property
    def settings(self) -> list[str]:
        """The settings of the other factors, in order."""
        return list(dict.fromkeys(self.comparison.cells["setting"]))

    def ordered(self) -> pd.DataFrame:
        """Return the levels that have runs, the best first."""
        levels = self.comparison.levels.dropna(subset=[self.statistic])
        placed = levels.assign(_place=-self.sign * levels[self.statistic])
        return placed.sort_values(["_place", "level"], kind="stable").drop(columns="_place")

    def seeds(self, *levels: str, setting: str | None = None) -> int:
        """Return how many distinct seeds the finished runs of each of the levels have, at least."""
        own = self.runs[self.runs["value"].notna()]
        if setting is not None:
            own = own[own["setting"] == setting]
        common = self.comparison.options.common_seeds
        return min(count_seeds(own[own["level"] == level], common) for level in levels)

    def dots(self, statistic: str, level: str) -> FloatArray:
        """Return the ``statistic`` of the runs of each seed alone.

        A seed that has lost its run in a setting gives none, because it would speak of other
        settings. Where seeds are not common, these are single runs.
        """
        own = self.runs[(self.runs["level"] == level) & self.runs["value"].notna()]
        if not self.comparison.options.common_seeds:
            return own["value"].to_numpy(float)
        settings = own.groupby("repetition")["setting"].nunique()
        whole = settings.index[settings == own["setting"].nunique()]
        found = []
        for repetition in sorted(whole):
            parts = own[own["repetition"] == repetition].groupby("setting", sort=False)["value"]
            found.append(float(AGGREGATES[statistic](*(part.to_numpy(float) for _, part in parts))))
        return np.array(found)

    def differences(self, a: str, b: str) -> FloatArray:
        """Return the mean difference of ``a`` and ``b`` over their settings of each seed alone (paired)."""
        if not self.comparison.paired:
            return np.empty(0)
        means = self.runs.groupby(["level", "setting", "repetition"])["value"].agg(
            lambda v: v.mean(skipna=False)
        )
        of_a, of_b = (means.xs(level).unstack("repetition") for level in (a, b))
        shared = of_a.index.intersection(of_b.index)
        differences = (of_a.loc[shared] - of_b.loc[shared]).dropna(how="all")
        found = differences.to_numpy(float).mean(axis=0) if len(differences) else np.empty(0)
        return np.asarray(found[np.isfinite(found)])

    def unit(self, pair: Mapping[Any, Any]) -> float:
        """Return what a difference of 1 is, relative to the mean of the pair's second level.

        The mean is that over the settings of both, and taken as known. NaN where its interval
        holds 0: nothing can be measured by it. (Of runs that all gave one value, the mean is that.)
        """
        level = self.comparison.levels.set_index("level").loc[pair["b"]]
        constant = level["n"] > 1 and level["distinct"] == 1
        if not constant and not level["mean_low"] * level["mean_high"] > 0:
            return math.nan
        means = self.means()
        known = means[[pair["a"], pair["b"]]].dropna()
        mean = float(known[pair["b"]].mean()) if len(known) else 0.0
        return 1 / abs(mean) if mean else math.nan

    def pairs(self) -> pd.DataFrame:
        """Return the pairs with their distinct ``seeds``, and the difference ``relative`` to the second mean."""
        found = self.comparison.pairs.copy()
        rows = found.to_dict("records")
        found.insert(min(3, len(found.columns)), "seeds", [self.seeds(row["a"], row["b"]) for row in rows])
        if "difference" in found:
            units = [self.unit(row) for row in rows]
            for name in ("", "_low", "_high"):
                found[f"relative{name}"] = found[f"difference{name}"] * units
        return found

    def means(self) -> pd.DataFrame:
        """Return the mean of each setting (rows) and level (columns), in their order."""
        cells = self.comparison.cells.pivot(index="setting", columns="level", values="mean")
        return cells.reindex(index=self.settings, columns=list(self.comparison.levels["level"]))

    def by_setting(self) -> pd.DataFrame:
        """Return the means by setting with the ``best`` level of each, and the fewest runs and seeds."""
        means = self.means()
        found = means.reset_index().rename_axis(columns=None)
        counts = self.comparison.cells.pivot(index="setting", columns="level", values="n").reindex(
            self.settings
        )
        names = list(means.columns)
        taken = set(found)
        for name, values in (
            ("best", [self._best(row) or _TIE * int(row.count() > 1) for _, row in means.iterrows()]),
            ("fewest runs", counts.min(axis=1).fillna(0).astype(int).tolist()),
            ("fewest seeds", [self.seeds(*names, setting=setting) for setting in self.settings]),
        ):
            found[f"({name})" if name in taken else name] = values
        return found

    def best_by_setting(self, level: str) -> dict[str, str]:
        """Return the level with the best mean in each setting that ``level`` shares with another (or nothing)."""
        means = self.means()
        shared = means[means[level].notna() & (means.notna().sum(axis=1) > 1)]
        return {str(setting): self._best(row) for setting, row in shared.iterrows()}

    def _best(self, means: pd.Series[float]) -> str:
        """Return the level with the best of ``means``, nothing where the first ones are equal."""
        ranked = (self.sign * means.dropna()).sort_values(ascending=False, kind="stable")
        if len(ranked) < 2 or math.isclose(ranked.iloc[0], ranked.iloc[1], rel_tol=1e-9):
            return ""
        return str(ranked.index[0])

    def losses(self) -> pd.DataFrame:
        """Return how many runs of each level were planned, used and lost, and what the lost ones may hide."""
        import pandas as pd

        levels = self.comparison.levels
        planned = levels["n"] + levels["lost"]
        found = pd.DataFrame({"level": levels["level"], "planned": planned, "used": levels["n"]})
        found["seeds"] = [self.seeds(level) for level in levels["level"]]
        found["lost"] = levels["lost"]
        found["share lost"] = levels["lost"] / planned.where(planned > 0)
        if levels["lost"].any():
            extremes = [self.extremes(level) for level in levels["level"]]
            found["mean of the used"] = levels["mean"]
            found["mean if lost runs were the worst"] = [one.worst for one in extremes]
            found["mean if lost runs were the best"] = [one.best for one in extremes]
        return found

    @property
    def uneven(self) -> bool:
        """Whether, in some setting, a level lost a larger share of its runs than another."""
        cells = self.comparison.cells
        shares = (cells["lost"] / (cells["n"] + cells["lost"])).groupby(cells["setting"])
        return bool((shares.max() > shares.min()).any())

    def extremes(self, level: str) -> Extremes:
        """Return the mean of ``level`` if its lost runs were the worst, or the best, of all in their setting.

        Of a setting without any finished run, the worst and best of all settings are taken. What
        was lost may still lie beyond what was seen.
        """
        values = self.sign * self.runs["value"]
        ends = values.groupby(self.runs["setting"]).agg(["min", "max"])
        ends = ends.fillna({"min": values.min(), "max": values.max()})
        own = self.runs["level"] == level
        setting = self.runs.loc[own, "setting"]
        found = [
            self.sign * float(values[own].fillna(setting.map(ends[end])).groupby(setting).mean().mean())
            for end in ("min", "max")
        ]
        return Extremes(*found)


def with_runs(results: Results, comparisons: Sequence[Comparison]) -> list[Compared]:
    """Return the comparisons with the runs that they were made of."""
    spec, values = results.spec, results.folder.values()
    found = []
    for one in comparisons:
        others = [axis.factors for axis in spec.axes if not any(f.name in one.by for f in axis.factors)]
        runs = results.outcomes().copy()
        for factors in (*((spec.factor(name),) for name in one.by), *others):
            texts = labels(factors, values)
            runs[factors[0].name] = [texts[row] for row in runs["row"]]
        settings = [factors[0].name for factors in others]
        frame = collect(runs, one.by, one.outcome, settings, one.options).frame
        # as in the comparison: a run that stands for several settings counts once
        found.append(Compared(one, frame.drop_duplicates(["level", "run"], ignore_index=True)))
    return found
