"""What comparisons say, in sentences: which level is best, where, by how much, and what weakens that.

Sizes of effects come before p values; levels that are not told apart are never called equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.analysis.comparison.cautions import ALONE, ALONE_ROW, IDENTICAL
from palaestrai_mosaik.analysis.comparison.hypothesis_tests import NO_DIFFERENCE, ONE_ROW
from palaestrai_mosaik.analysis.comparison.resampling import distinct
from palaestrai_mosaik.text import count

from .bars import Mark
from .compared import TITLES, Compared
from .data import ReportData
from .markup import Caution, Name, Sentence, listed, number, percent

if TYPE_CHECKING:
    import pandas as pd

_MOST_PAIRS = 3
_MOST_SETTINGS = 2
# how a comparison begins to tell of losses, which belong before all results
_LOST = "lost runs"
# how it begins to tell what is a sentence here
_SAID = (IDENTICAL, ALONE, ALONE_ROW)


def verdicts(data: ReportData, outcome: str) -> Iterator[Sentence]:
    """Yield what the comparisons of ``outcome`` say; a caution that holds for several, once."""
    said: set[Sentence] = set()
    for one in data.comparisons:
        if one.comparison.outcome != outcome:
            continue
        for sentence in _comparison(one):
            if not isinstance(sentence, Caution) or sentence not in said:
                yield sentence
            said.add(sentence)


def _comparison(data: Compared) -> Iterator[Sentence]:
    told = data.comparison
    ordered = data.ordered()
    if ordered.empty:
        return
    cautions = {text: caution(text) for text in told.warnings}
    yield from (found for text, found in cautions.items() if text.startswith(_LOST))
    if told.constant is not None:
        yield constant(told.outcome, count(int(told.levels["n"].sum()), "run"), told.constant)
        return
    if told.equal_settings:
        yield from _first(data, ordered)
    else:
        yield _unranked(data)
    yield from _pairs(data)
    yield from (found for text, found in cautions.items() if not text.startswith((_LOST, *_SAID)))


def constant(outcome: str, runs: str, value: float) -> Sentence:
    """Return that all ``runs`` (``36 runs``) gave one value: nothing can be said of what it depends on."""
    return (
        f"All {runs} gave the same ",
        Name(outcome),
        f", {number(value, 6)}: there is nothing to compare or to explain.",
    )


def _first(data: Compared, ordered: pd.DataFrame) -> Iterator[Sentence]:
    """Say which level is the first, or which are."""
    told, statistic = data.comparison, data.statistic
    best = ordered.iloc[0]
    level = str(best["level"])
    word = "best" if told.options.better else "highest"
    of = f" {TITLES[statistic]} of ", Name(told.outcome)
    values = ordered[statistic].to_numpy(float)
    leaders = ordered["level"].astype(str)[[distinct(values[[0, i]]) == 1 for i in range(len(values))]]
    if len(leaders) > 1:
        same = f": {number(float(values[0]), 3)}. None of them is ahead."
        if len(leaders) == len(ordered):
            yield f"All {len(ordered)} levels of {' and '.join(told.by)} have the same", *of, same
        else:
            names = listed([Name(name) for name in leaders])
            yield f"Of {' and '.join(told.by)}, ", *names, f" share the {word}", *of, same
        return
    seeds = count(data.seeds(level), "seed")
    value = f"{mark_of(best, statistic)} over {count(int(best['n']), 'run')} of {seeds}"
    if best["n"] > 1 and best["distinct"] == 1:
        value = f"{number(float(best[statistic]), 3)} in all {count(int(best['n']), 'run')} of {seeds}"
    if not told.crossed:
        value += ", though each level was run in settings of its own"
    if len(ordered) == 1 < len(told.levels):
        yield f"Of {' and '.join(told.by)}, only ", Name(level), " has runs:", *of, f" {value}."
        return
    yield f"Of {' and '.join(told.by)}, ", Name(level), f" has the {word}", *of, f": {value}."
    yield from _missing_runs(data, level)
    yield from _by_setting(data, level)


def _unranked(data: Compared) -> Sentence:
    """Say that levels with runs in unequal settings have no order."""
    told = data.comparison
    shared = len(told.shared_settings)
    return Caution(
        (
            f"The levels of {' and '.join(told.by)} have runs in unequal settings, of which {shared} of "
            f"{len(data.settings)} are common to all of them: their {TITLES[data.statistic]}s of ",
            Name(told.outcome),
            " do not compare, so none is called the best. Pairs are compared in the settings that both have.",
        )
    )


def caution(text: str) -> Caution:
    """Return a warning as a sentence."""
    return Caution((f"Caution: {text.rstrip('.')}.",))


def _missing_runs(data: Compared, level: str) -> Iterator[Sentence]:
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
    rival, name = max(known, key=lambda one: (data.sign * one[0], one[1]))
    start = "In the worst case (its lost runs as bad as the worst of their setting, those of others as good as the best) "
    means = (
        "the mean of ",
        Name(level),
        f" is {number(own, 3)}, that of ",
        Name(name),
        f" {number(rival, 3)}",
    )
    if data.sign * own > data.sign * rival:
        yield start, *means, ": ", Name(level), " is still first."
    else:
        yield Caution((start, *means, ": what was lost decides."))


def _by_setting(data: Compared, level: str) -> Iterator[Sentence]:
    """Say whether the first level is first in every setting of the other factors."""
    best = data.best_by_setting(level)
    if len(data.settings) < 2 or not best:
        return
    turned = [f"{setting}: {name}" for setting, name in best.items() if name not in ("", level)]
    word = "better" if data.comparison.options.better else "higher"
    all_ = count(len(best), "setting")
    ties = sum(name == "" for name in best.values())
    if not turned:
        same = f"; in {ties} of them, another has the same" if ties else ""
        yield (f"Another level has a {word} mean in none of the {all_} in which it can be compared{same}.",)
        return
    more = f"; and {len(turned) - _MOST_SETTINGS} more" if len(turned) > _MOST_SETTINGS else ""
    text = f"Not everywhere: in {len(turned)} of {all_} another level has the {word} mean"
    yield Caution((f"{text} ({'; '.join(turned[:_MOST_SETTINGS])}{more}).",))


def _pairs(data: Compared) -> Iterator[Sentence]:
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
        yield (f"{told.sum() - _MOST_PAIRS} more of {len(pairs)} pairs differ; see the table.",)
    alike = ordered[~told].to_dict("records")
    if not alike:
        return
    parts: list[Sentence] = []
    for pair in alike[:_MOST_PAIRS]:
        difference = mark_of(pair, "difference")
        parts.append((Name(pair["a"]), " less ", Name(pair["b"]), f" is {difference}{_relative(pair, data)}"))
    least = f"smallest p\xa0{_p(alike[0])}" if len(alike) > 1 else f"p\xa0{_p(alike[0])}"
    yield (
        f"Not told apart ({least} after Holm's correction), which is not the same as equal: ",
        *_joined(parts, len(alike)),
        ".",
    )


def _untested(pairs: pd.DataFrame, data: Compared) -> Iterator[Sentence]:
    """Say which pairs are identical, and which have one seed or one row only."""
    rows = pairs[pairs["p_holm"].isna()].to_dict("records") if len(pairs) else []
    same = [row for row in rows if row["test"] == NO_DIFFERENCE]
    if same:
        names = [(Name(row["a"]), " and ", Name(row["b"])) for row in same[:_MOST_PAIRS]]
        yield "No test, because their runs gave the same: ", *_joined(names, len(same)), "."
    for what, others in (
        ("seed", [row for row in rows if row["test"] not in (NO_DIFFERENCE, ONE_ROW)]),
        ("row", [row for row in rows if row["test"] == ONE_ROW]),
    ):
        if not others:
            continue
        parts: list[Sentence] = [
            (Name(row["a"]), " less ", Name(row["b"]), f" is {mark_of(row, 'difference')}")
            for row in others[:_MOST_PAIRS]
        ]
        text = f"No test, because one {what} cannot tell what a level does from what the {what} does: "
        yield Caution((text, *_joined(parts, len(others)), "."))


def _joined(parts: Sequence[Sentence], count: int) -> Sentence:
    """Return the first parts, and how many more there are."""
    rest = (f"; and {count - len(parts)} more",) if count > len(parts) else ()
    return *(text for i, part in enumerate(parts) for text in ((("; ",) if i else ()) + part)), *rest


def _pair(pair: Mapping[Any, Any], data: Compared) -> Sentence:
    first, second = pair["a"], pair["b"]
    outcome, better = data.comparison.outcome, data.comparison.options.better
    mark = mark_of(pair, "difference")
    if pair["favours"] == second:
        first, second, mark = second, first, Mark(-mark.value, -mark.high, -mark.low)
    higher = "higher" if mark.value > 0 else "lower"
    told = (
        f" is {higher} by {_magnitude(mark)}{_relative(pair, data)} (p\xa0{_p(pair)} after Holm's correction)"
    )
    if not pair["favours"]:
        return Name(first), " and ", Name(second), " differ: ", Name(outcome), " of the first", f"{told}."
    # tests look at ranks: single runs can turn the difference of the means
    against = "" if higher == better else ", in ranks; its mean tells the opposite"
    return Name(first), " is better than ", Name(second), ": ", Name(outcome), f"{told}{against}."


def _p(pair: Mapping[Any, Any]) -> str:
    p = float(pair["p_holm"])
    return "<\xa00.001" if p < 0.001 else f"=\xa0{number(p, 2)}"


def _relative(pair: Mapping[Any, Any], data: Compared) -> str:
    """Return what the difference is of the mean of the pair's second level, the baseline if there is one."""
    share = abs(float(pair["difference"])) * data.unit(pair)
    return f", {percent(share)}\xa0% of the mean of {pair['b']}" if math.isfinite(share) else ""


def _magnitude(mark: Mark) -> str:
    """Return the size of a difference whose direction is said in words."""
    if mark.value >= 0:
        return str(mark)
    return str(Mark(-mark.value, -mark.high, -mark.low))


def mark_of(row: Mapping[Any, Any] | pd.Series[Any], statistic: str) -> Mark:
    """Return the value of ``statistic`` of a row with its interval, where it has one."""
    low, high = (float(row.get(f"{statistic}_{end}", math.nan)) for end in ("low", "high"))
    return Mark(float(row[statistic]), low, high)


def lost(data: ReportData, outcome: str) -> Iterator[Sentence]:
    """Yield what the comparisons of ``outcome`` lost, each once."""
    told = (
        text
        for one in data.comparisons
        if one.comparison.outcome == outcome
        for text in one.comparison.warnings
    )
    yield from (caution(text) for text in dict.fromkeys(told) if text.startswith(_LOST))


def count_tests(data: ReportData) -> str | None:
    """Return how many tests stand behind the answers, and whether they were planned; nothing if none."""
    tested = [one for one in data.comparisons if "p" in one.comparison.pairs]
    pairs = sum(int(one.comparison.pairs["p"].notna().sum()) for one in tested)
    indices = data.sensitivity
    others = int(((indices["index"] == "p") & indices["value"].notna()).sum())
    level = f"{percent(1 - data.spec.analysis.confidence)}\xa0%"
    parts = []
    if pairs:
        factors = " and ".join(
            "".join(listed(names)) for names in dict.fromkeys(one.comparison.by for one in tested)
        )
        outcomes = len({one.comparison.outcome for one in tested})
        plan = (
            "as the design plans (analysis.compare)"
            if data.spec.analysis.compare
            else "not planned: the design names nothing to compare (analysis.compare), so that all choices "
            "were; what they find is a guess that new runs should test"
        )
        parts.append(
            f"{count(pairs, 'pair')} of levels tested in all ({factors}; {count(outcomes, 'outcome')}), {plan}. "
            f"Holm's correction holds within a comparison: each of the {count(len(tested), 'comparison')} has a chance of up to {level} "
            "to name a difference where there is none"
            if len(tested) > 1
            else f"{count(pairs, 'pair')} of levels tested in all ({factors}), {plan}. Holm's correction is for all of them"
        )
    if others:
        parts.append(
            f"{count(others, 'F test')} of the analysis of variance, not corrected for their number: of "
            f"effects that are none, {level} are taken for more than chance"
        )
    return f"{'. '.join(parts)}." if parts else None
