"""The verdicts of comparisons: the best level, its settings and lead, and reservations.

Sizes of effects come before p values. Levels without a significant difference are never called equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.analysis.comparison.aggregates import distinct
from palaestrai_mosaik.arsenai.analysis.comparison.studentized import NO_DIFFERENCE, ONE_ROW
from palaestrai_mosaik.arsenai.design.few import significance_level
from palaestrai_mosaik.arsenai.design.remark import ALONE, IDENTICAL, LOST, OPEN, kind_of
from palaestrai_mosaik.core.printing import count, joined

from ..lost_runs import count_missing_runs
from .compared import TITLES, Compared
from .data import ReportData
from .numbers import Mark
from .wording import Fact, Sentence, caution, fact, worded

if TYPE_CHECKING:
    import pandas as pd

_MOST_PAIRS = 3
_MOST_SETTINGS = 2
# Losses come before all results; the others have their own sentence here.
_SAID = (LOST, IDENTICAL, ALONE, OPEN)


def verdicts(data: ReportData, outcome: str) -> Iterator[Fact]:
    """Yield the facts from the comparisons of ``outcome``, without repeated cautions."""
    earlier: list[Fact] = []
    for compared in data.comparisons:
        if compared.comparison.outcome != outcome:
            continue
        for verdict in comparison_facts(compared):
            if not verdict.caution or verdict not in earlier:
                yield verdict
            earlier.append(verdict)


def comparison_facts(data: Compared) -> Iterator[Fact]:
    """Yield the facts of a comparison."""
    comparison = data.comparison
    ordered = data.ordered()
    if ordered.empty:
        return
    yield from (warning(text) for text in comparison.warnings if kind_of(text) == LOST)
    if comparison.constant is not None:
        yield constant(
            comparison.outcome, count(int(comparison.levels["n"].sum()), "run"), comparison.constant
        )
        return
    if comparison.equal_settings:
        yield from _first(data, ordered)
    else:
        yield caution(
            "unranked",
            by=comparison.by,
            shared=len(comparison.shared_settings),
            settings=len(data.settings),
            statistic=TITLES[data.statistic],
            outcome=comparison.outcome,
        )
    yield from _pairs(data)
    yield from (warning(text) for text in comparison.warnings if kind_of(text) not in _SAID)


def constant(outcome: str, runs: str, value: float) -> Fact:
    """Return the fact that all ``runs`` (``36 runs``) have one value, so that nothing else can be concluded."""
    return fact("constant", outcome=outcome, runs=runs, value=value)


def warning(text: str) -> Fact:
    """Turn the text of a warning into a caution."""
    return caution("warning", text=text.rstrip("."))


def _first(data: Compared, ordered: pd.DataFrame) -> Iterator[Fact]:
    """Yield the best level, or the tied best levels."""
    comparison, statistic = data.comparison, data.statistic
    best = ordered.iloc[0]
    level = str(best["level"])
    word = "best" if comparison.options.better else "highest"
    common: dict[str, Any] = {
        "by": comparison.by,
        "statistic": TITLES[statistic],
        "outcome": comparison.outcome,
    }
    values = ordered[statistic].to_numpy(float)
    leaders = ordered["level"].astype(str)[[distinct(values[[0, i]]) == 1 for i in range(len(values))]]
    if len(leaders) == len(ordered) > 1:
        yield fact("all_tie", levels=len(ordered), value=float(values[0]), **common)
        return
    if len(leaders) > 1:
        yield fact("some_tie", levels=list(leaders), word=word, value=float(values[0]), **common)
        return
    common |= {
        "level": level,
        "mark": mark_of(best, statistic),
        "same": bool(best["n"] > 1 and best["distinct"] == 1),
        "runs": int(best["n"]),
        "seeds": data.seeds(level),
        "crossed": comparison.crossed,
    }
    if len(ordered) == 1 < len(comparison.levels):
        yield fact("only_level", **common)
        return
    worst = _worst_case(data, level)
    turned = worst is not None and worst.caution
    yield fact("first_of_finished" if turned else "first_level", word=word, **common)
    if worst is not None:
        yield worst
    yield from _by_setting(data, level)


def _worst_case(data: Compared, level: str) -> Fact | None:
    """Return whether the first level stays first with each lost run counted against it; None without losses."""
    if not data.lost:
        return None
    worst = data.extremes(level).worst
    rivals = [
        (data.extremes(str(entry)).best, str(entry))
        for entry in data.comparison.levels["level"]
        if entry != level
    ]
    finite = [(value, name) for value, name in rivals if math.isfinite(value)]
    if not finite or not math.isfinite(worst):
        return None
    other, name = max(finite, key=lambda entry: (data.sign * entry[0], entry[1]))
    common = {"level": level, "own": worst, "rival": name, "other": other}
    if data.sign * worst > data.sign * other:
        return fact("worst_case_same", **common)
    return caution("worst_case_turned", **common)


def _by_setting(data: Compared, level: str) -> Iterator[Fact]:
    """Yield whether the first level is first in every setting of the other factors."""
    best = data.best_by_setting(level)
    if len(data.settings) < 2 or not best:
        return
    turned = [f"{setting}: {name}" for setting, name in best.items() if name not in ("", level)]
    word = "better" if data.comparison.options.better else "higher"
    if turned:
        yield caution("not_everywhere", word=word, settings=len(best), turned=turned, most=_MOST_SETTINGS)
    else:
        ties = sum(name == "" for name in best.values())
        yield fact("best_everywhere", word=word, settings=len(best), ties=ties)


def _pairs(data: Compared) -> Iterator[Fact]:
    """Yield the levels that differ, by the test with correction for the pairs of the comparison."""
    pairs = data.comparison.pairs
    pairs = pairs.dropna(subset=["difference"]) if len(pairs) else pairs
    yield from _untested(pairs, data)
    pairs = pairs.dropna(subset=["p_holm"]) if len(pairs) else pairs
    if pairs.empty:
        return
    ordered = pairs.sort_values(["p_holm", "a", "b"], kind="stable")
    level = significance_level(data.comparison.options.confidence)
    of_finished = (ordered["p_holm"] <= level) & (ordered["p_worst"] > level)
    significant = (ordered["p_holm"] <= level) & ~of_finished
    for pair in ordered[significant].head(_MOST_PAIRS).to_dict("records"):
        yield pair_fact(pair, data)
    if significant.sum() > _MOST_PAIRS:
        yield fact("more_pairs", more=int(significant.sum()) - _MOST_PAIRS, all=len(pairs))
    if of_finished.any():
        parts = [described(pair, data) for pair in ordered[of_finished].head(_MOST_PAIRS).to_dict("records")]
        yield caution("of_finished", pairs=parts, all=int(of_finished.sum()), outcome=data.comparison.outcome)
    alike = ordered[ordered["p_holm"] > level].to_dict("records")
    if alike:
        parts = [described(pair, data) for pair in alike[:_MOST_PAIRS]]
        p = float(alike[0]["p_holm"])
        yield fact("not_told_apart", pairs=parts, all=len(alike), p=p, tests=len(pairs))


def _untested(pairs: pd.DataFrame, data: Compared) -> Iterator[Fact]:
    """Yield the pairs that are identical, and those with only one seed or one row."""
    if not len(pairs):
        return
    kinds: dict[str, list[dict[Any, Any]]] = {"same": [], "seed": [], "row": []}
    for row in pairs[pairs["p_holm"].isna()].to_dict("records"):
        kinds[{NO_DIFFERENCE: "same", ONE_ROW: "row"}.get(row["test"], "seed")].append(row)
    if same := kinds.pop("same"):
        yield fact("identical", pairs=[(row["a"], row["b"]) for row in same[:_MOST_PAIRS]], all=len(same))
    for what, untested in kinds.items():
        if untested:
            parts = [described(row, data) for row in untested[:_MOST_PAIRS]]
            yield caution("alone", what=what, pairs=parts, all=len(untested))


def described(pair: Mapping[Any, Any], data: Compared) -> dict[str, Any]:
    """Return the levels of a pair, their difference, and its size relative to the second one's mean."""
    share = abs(float(pair["difference"])) * data.unit(pair)
    mark = mark_of(pair, "difference")
    positive = mark if mark.value >= 0 else _turned(mark)
    return {
        "first": pair["a"],
        "second": pair["b"],
        "mark": mark,
        "magnitude": positive,
        "relative": share if math.isfinite(share) else None,
        "p": float(pair["p_holm"]),
    }


def _turned(mark: Mark) -> Mark:
    return Mark(-mark.value, -mark.high, -mark.low)


def pair_fact(pair: Mapping[Any, Any], data: Compared) -> Fact:
    """Return which level of a pair with a significant difference is better, or that they differ."""
    outcome = data.comparison.outcome
    first, second, mark = pair["a"], pair["b"], mark_of(pair, "difference")
    if pair["favours"] == second:
        first, second, mark = second, first, _turned(mark)
    common = {"pair": described(pair, data), "mark": mark, "outcome": outcome}
    if not pair["favours"]:
        return fact("pair_differs", **common)
    return fact("pair_better", better=first, worse=second, **common)


def mark_of(row: Mapping[Any, Any] | pd.Series[Any], statistic: str) -> Mark:
    """Return the value of ``statistic`` in a row, with its interval if it has one."""
    low, high = (float(row.get(f"{statistic}_{end}", math.nan)) for end in ("low", "high"))
    return Mark(float(row[statistic]), low, high)


def lost(data: ReportData, outcome: str) -> Iterator[Fact]:
    """Yield the warnings about losses in the comparisons of ``outcome``, without duplicates."""
    warnings = (
        text
        for compared in data.comparisons
        if compared.comparison.outcome == outcome
        for text in compared.comparison.warnings
    )
    yield from (warning(text) for text in dict.fromkeys(warnings) if kind_of(text) == LOST)


def lost_runs(data: ReportData) -> Sentence | None:
    """Return the caution about runs without an outcome, or None if all runs have one."""
    counts = count_missing_runs(data.runs, data.outcomes)
    statuses = [f"{counts[status]:,} {status}" for status in ("failed", "missing") if counts[status]]
    infinite = [(name, counts[name]) for name in data.outcomes if counts[name]]
    if not statuses and not infinite:
        return None
    gone = counts["failed"] + counts["missing"]
    return worded(caution("lost_runs", gone=gone, runs=counts["runs"], statuses=statuses, infinite=infinite))


def count_tests(data: ReportData) -> Sentence | None:
    """Return the number of tests behind the answers, and whether they were planned; None without tests."""
    tested = [compared for compared in data.comparisons if "p" in compared.comparison.pairs]
    pairs = sum(int(compared.comparison.pairs["p"].notna().sum()) for compared in tested)
    indices = data.sensitivity
    f_tests = int(((indices["index"] == "p") & indices["value"].notna()).sum())
    if not pairs and not f_tests:
        return None
    factors = dict.fromkeys(compared.comparison.by for compared in tested)
    return worded(
        caution(
            "tests",
            pairs=pairs,
            by=[f"by {joined(names)}" for names in factors],
            outcomes=len({compared.comparison.outcome for compared in tested}),
            planned=bool(data.spec.analysis.compare),
            comparisons=len(tested),
            f_tests=f_tests,
            level=significance_level(data.spec.analysis.confidence),
        )
    )
