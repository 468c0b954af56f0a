"""What comparisons say: which level is best, where, by how much, and what weakens that.

Sizes of effects come before p values; levels that are not told apart are never called equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.analysis.comparison.cautions import ALONE, ALONE_ROW, IDENTICAL
from palaestrai_mosaik.analysis.comparison.hypothesis_tests import NO_DIFFERENCE, ONE_ROW
from palaestrai_mosaik.analysis.comparison.resampling import distinct
from palaestrai_mosaik.text import count, joined

from ..missing_runs import count_missing_runs
from .compared import TITLES, Compared
from .data import ReportData
from .numbers import Mark
from .wording import Fact, Sentence, caution, fact, worded

if TYPE_CHECKING:
    import pandas as pd

_MOST_PAIRS = 3
_MOST_SETTINGS = 2
# how a comparison begins to tell of losses, which belong before all results
_LOST = "lost runs"
# how it begins to tell what is a sentence here
_SAID = (IDENTICAL, ALONE, ALONE_ROW)


def verdicts(data: ReportData, outcome: str) -> Iterator[Fact]:
    """Yield what the comparisons of ``outcome`` say; a caution that holds for several, once."""
    said: list[Fact] = []
    for one in data.comparisons:
        if one.comparison.outcome != outcome:
            continue
        for told in _comparison(one):
            if not told.caution or told not in said:
                yield told
            said.append(told)


def _comparison(data: Compared) -> Iterator[Fact]:
    told = data.comparison
    ordered = data.ordered()
    if ordered.empty:
        return
    yield from (warning(text) for text in told.warnings if text.startswith(_LOST))
    if told.constant is not None:
        yield constant(told.outcome, count(int(told.levels["n"].sum()), "run"), told.constant)
        return
    if told.equal_settings:
        yield from _first(data, ordered)
    else:
        yield caution(
            "unranked",
            by=told.by,
            shared=len(told.shared_settings),
            settings=len(data.settings),
            statistic=TITLES[data.statistic],
            outcome=told.outcome,
        )
    yield from _pairs(data)
    yield from (warning(text) for text in told.warnings if not text.startswith((_LOST, *_SAID)))


def constant(outcome: str, runs: str, value: float) -> Fact:
    """Return that all ``runs`` (``36 runs``) gave one value: nothing can be said of what it depends on."""
    return fact("constant", outcome=outcome, runs=runs, value=value)


def warning(text: str) -> Fact:
    """Return a text that weakens what is told."""
    return caution("warning", text=text.rstrip("."))


def _first(data: Compared, ordered: pd.DataFrame) -> Iterator[Fact]:
    """Say which level is the first, or which are."""
    told, statistic = data.comparison, data.statistic
    best = ordered.iloc[0]
    level = str(best["level"])
    word = "best" if told.options.better else "highest"
    given: dict[str, Any] = {"by": told.by, "statistic": TITLES[statistic], "outcome": told.outcome}
    values = ordered[statistic].to_numpy(float)
    leaders = ordered["level"].astype(str)[[distinct(values[[0, i]]) == 1 for i in range(len(values))]]
    if len(leaders) == len(ordered) > 1:
        yield fact("all_tie", levels=len(ordered), value=float(values[0]), **given)
        return
    if len(leaders) > 1:
        yield fact("some_tie", levels=list(leaders), word=word, value=float(values[0]), **given)
        return
    given |= {
        "level": level,
        "mark": mark_of(best, statistic),
        "same": bool(best["n"] > 1 and best["distinct"] == 1),
        "runs": int(best["n"]),
        "seeds": data.seeds(level),
        "crossed": told.crossed,
    }
    if len(ordered) == 1 < len(told.levels):
        yield fact("only_level", **given)
        return
    yield fact("first_level", word=word, **given)
    yield from _missing_runs(data, level)
    yield from _by_setting(data, level)


def _missing_runs(data: Compared, level: str) -> Iterator[Fact]:
    """Say whether the first level would be first if lost runs had gone as badly for it as runs do."""
    if not data.uneven:
        return
    own = data.extremes(level).worst
    others = [
        (data.extremes(str(one)).best, str(one)) for one in data.comparison.levels["level"] if one != level
    ]
    known = [(value, name) for value, name in others if math.isfinite(value)]
    if not known or not math.isfinite(own):
        return
    other, name = max(known, key=lambda one: (data.sign * one[0], one[1]))
    given = {"level": level, "own": own, "rival": name, "other": other}
    if data.sign * own > data.sign * other:
        yield fact("worst_case_same", **given)
    else:
        yield caution("worst_case_turned", **given)


def _by_setting(data: Compared, level: str) -> Iterator[Fact]:
    """Say whether the first level is first in every setting of the other factors."""
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
    """Say which levels differ; the verdict is that of the test, corrected for the pairs of the comparison."""
    pairs = data.comparison.pairs
    pairs = pairs.dropna(subset=["difference"]) if len(pairs) else pairs
    yield from _untested(pairs, data)
    pairs = pairs.dropna(subset=["p_holm"]) if len(pairs) else pairs
    if pairs.empty:
        return
    ordered = pairs.sort_values(["p_holm", "a", "b"], kind="stable")
    told = ordered["p_holm"] <= 1 - data.comparison.options.confidence
    for pair in ordered[told].head(_MOST_PAIRS).to_dict("records"):
        yield _pair(pair, data)
    if told.sum() > _MOST_PAIRS:
        yield fact("more_pairs", more=int(told.sum()) - _MOST_PAIRS, all=len(pairs))
    alike = ordered[~told].to_dict("records")
    if alike:
        shown = [_described(pair, data) for pair in alike[:_MOST_PAIRS]]
        yield fact("not_told_apart", pairs=shown, all=len(alike), p=float(alike[0]["p_holm"]))


def _untested(pairs: pd.DataFrame, data: Compared) -> Iterator[Fact]:
    """Say which pairs are identical, and which have one seed or one row only."""
    rows = pairs[pairs["p_holm"].isna()].to_dict("records") if len(pairs) else []
    same = [(row["a"], row["b"]) for row in rows if row["test"] == NO_DIFFERENCE]
    if same:
        yield fact("identical", pairs=same[:_MOST_PAIRS], all=len(same))
    for what, others in (
        ("seed", [row for row in rows if row["test"] not in (NO_DIFFERENCE, ONE_ROW)]),
        ("row", [row for row in rows if row["test"] == ONE_ROW]),
    ):
        if others:
            shown = [_described(row, data) for row in others[:_MOST_PAIRS]]
            yield caution("alone", what=what, pairs=shown, all=len(others))


def _described(pair: Mapping[Any, Any], data: Compared) -> dict[str, Any]:
    """Return the levels of a pair, their difference, and what share it is of the second one's mean."""
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


def _pair(pair: Mapping[Any, Any], data: Compared) -> Fact:
    outcome, better = data.comparison.outcome, data.comparison.options.better
    first, second, mark = pair["a"], pair["b"], mark_of(pair, "difference")
    if pair["favours"] == second:
        first, second, mark = second, first, _turned(mark)
    given = {"pair": _described(pair, data), "mark": mark, "outcome": outcome}
    if not pair["favours"]:
        return fact("pair_differs", **given)
    # tests look at ranks: single runs can turn the difference of the means
    against = ("higher" if mark.value > 0 else "lower") != better
    return fact("pair_better", better=first, worse=second, against=against, **given)


def mark_of(row: Mapping[Any, Any] | pd.Series[Any], statistic: str) -> Mark:
    """Return the value of ``statistic`` of a row with its interval, where it has one."""
    low, high = (float(row.get(f"{statistic}_{end}", math.nan)) for end in ("low", "high"))
    return Mark(float(row[statistic]), low, high)


def lost(data: ReportData, outcome: str) -> Iterator[Fact]:
    """Yield what the comparisons of ``outcome`` lost, each once."""
    told = (
        text
        for one in data.comparisons
        if one.comparison.outcome == outcome
        for text in one.comparison.warnings
    )
    yield from (warning(text) for text in dict.fromkeys(told) if text.startswith(_LOST))


def lost_runs(data: ReportData) -> Sentence | None:
    """Return how many runs have no outcome; nothing if all have."""
    counts = count_missing_runs(data.runs, data.outcomes)
    statuses = [f"{counts[status]:,} {status}" for status in ("failed", "missing") if counts[status]]
    infinite = [(name, counts[name]) for name in data.outcomes if counts[name]]
    if not statuses and not infinite:
        return None
    gone = counts["failed"] + counts["missing"]
    return worded(caution("lost_runs", gone=gone, runs=counts["runs"], statuses=statuses, infinite=infinite))


def count_tests(data: ReportData) -> Sentence | None:
    """Return how many tests stand behind the answers, and whether they were planned; nothing if none."""
    tested = [one for one in data.comparisons if "p" in one.comparison.pairs]
    pairs = sum(int(one.comparison.pairs["p"].notna().sum()) for one in tested)
    indices = data.sensitivity
    f_tests = int(((indices["index"] == "p") & indices["value"].notna()).sum())
    if not pairs and not f_tests:
        return None
    factors = dict.fromkeys(one.comparison.by for one in tested)
    return worded(
        caution(
            "tests",
            pairs=pairs,
            by=[f"by {joined(names)}" for names in factors],
            outcomes=len({one.comparison.outcome for one in tested}),
            planned=bool(data.spec.analysis.compare),
            comparisons=len(tested),
            f_tests=f_tests,
            level=1 - data.spec.analysis.confidence,
        )
    )
