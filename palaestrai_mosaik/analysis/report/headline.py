"""The answer in sentences: what matters, how sure that is, and what is better than what.

A factor is said to matter where the interval of its index lies above zero, and to matter more
than another where their intervals do not overlap. That is careful: intervals that overlap a
little may still differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .bars import Mark
from .data import ReportData
from .indices import IRRELEVANT, Method, leading_method, marks, method_of, pair_marks, players, ranked
from .markup import Name, Sentence, count, listed, number, percent

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.analysis.comparison import Comparison

#: below that, seeds are few for a comparison
FEW_SEEDS = 10
#: a share of the variance that is not worth a sentence
SMALL = 0.05
_MOST_NAMED = 3
_MOST_PAIRS = 3


def headline(data: ReportData) -> list[tuple[str, list[Sentence]]]:
    """Return, for each outcome, what the results say."""
    answers = []
    for outcome in data.outcomes:
        found = [*_sensitivity(data, outcome)]
        for comparison in data.comparisons:
            if comparison.outcome == outcome:
                found += _comparison(comparison, data.better(outcome))
        found += _few_seeds([one for one in data.comparisons if one.outcome == outcome])
        if not found and data.runs[outcome].notna().any():
            found.append(_spread(data.runs[outcome].dropna()))
        if not found:
            found.append(("No run has told a value of ", Name(outcome), " yet."))
        answers.append((outcome, found))
    return answers


def _spread(values: pd.Series[float]) -> Sentence:
    low, high, mean = (number(float(v), 3) for v in (values.min(), values.max(), values.mean()))
    told = f"It lies between {low} and {high}, with a mean of {mean} over {count(len(values), 'run')}. "
    return (told + "No analysis was made of what it depends on.",)


def _sensitivity(data: ReportData, outcome: str) -> Iterator[Sentence]:
    rows = data.sensitivity[data.sensitivity["outcome"] == outcome]
    name = leading_method(list(dict.fromkeys(rows["method"])))
    if name is None:
        return
    own = rows[rows["method"] == name]
    method = method_of(name, own)
    found = marks(own, method.leading)
    real = players(data.spec)
    order = [factor for factor in ranked(found) if factor in real and found[factor].known]
    if not order:
        why = data.refused.get((outcome, name), "too few runs are left")
        yield (f"{method.title}: nothing can be said, {why}.",)
        return
    top = found[order[0]]
    if math.isfinite(top.low) and top.low <= 0:
        start: Sentence = (
            "No factor stands out: the largest ",
            f"{method.leading} is that of ",
            Name(order[0]),
        )
        yield *start, f", {_value(top)}, and its interval holds 0. More rows would tell more."
        return
    if method.share:
        yield from _shares(outcome, method, own, found, order)
    else:
        yield from _sizes(outcome, method, found, order)
    by_chance = found.get(IRRELEVANT)
    tests = marks(own, "p")
    if by_chance is not None:
        yield from _by_chance(found, order, by_chance)
    elif tests:
        yield from _tested(tests, order, 1 - data.spec.analysis.confidence)
    elif name != "anova":
        yield from _order(found, order)
    yield from _small(method, found, order)
    if method.share and method.pairs:
        yield from _interactions(pair_marks(own, method.pairs))


def _shares(
    outcome: str, method: Method, rows: pd.DataFrame, found: Mapping[str, Mark], order: list[str]
) -> Iterator[Sentence]:
    alone = marks(rows, "S1") if method.leading == "ST" else {}
    for i, factor in enumerate(order[:_MOST_NAMED]):
        mark = found[factor]
        if i and mark.value < SMALL:
            break
        of = ("of the variance of ", Name(outcome)) if i == 0 else ("",)
        first = alone.get(factor)
        if first is not None and first.known:
            yield (
                Name(factor),
                f" explains {_share(first)} ",
                *of,
                f"{' ' if i == 0 else ''}on its own, {_share(mark)} with its interactions.",
            )
        elif i == 0:
            yield Name(factor), f" explains {_share(mark)} ", *of, "."
        else:
            yield Name(factor), f" explains {_share(mark)}."


def _sizes(outcome: str, method: Method, found: Mapping[str, Mark], order: list[str]) -> Iterator[Sentence]:
    first, *others = order[:_MOST_NAMED]
    if method.leading == "mu_star":
        what = " by a mean of " + _value(found[first])
        start: Sentence = (Name(first), " moves ", Name(outcome), " most: across its range", what)
    else:
        start = (
            Name(first),
            " matters most to ",
            Name(outcome),
            f": {method.leading} {_value(found[first])}",
        )
    for factor in others:
        start += ("; ", Name(factor), f" {_value(found[factor])}")
    yield *start, "."


def _by_chance(found: Mapping[str, Mark], order: list[str], level: Mark) -> Iterator[Sentence]:
    """Say which factors show no more than one without any influence would."""
    quiet = [factor for factor in order if found[factor].value <= level.value]
    if quiet:
        parts = named(quiet)
        yield *parts, f" cannot be told from a factor without any influence (at most {_value(level)})."


def _tested(tests: Mapping[str, Mark], order: list[str], level: float) -> Iterator[Sentence]:
    """Say which effects the repetitions cannot tell from chance."""
    known = [factor for factor in order if factor in tests and tests[factor].known]
    quiet = [factor for factor in known if tests[factor].value > level]
    if known and not quiet:
        yield (f"By the F test, all of these effects are more than chance (p at most {level:.2g} each).",)
    elif quiet:
        yield (
            "By the F test, chance alone would explain the effect of ",
            *named(quiet),
            f" (p above {level:.2g}).",
        )


def named(names: Sequence[str]) -> Sentence:
    """Return the first names, and how many more there are."""
    if len(names) <= _MOST_NAMED + 1:
        return listed([Name(name) for name in names])
    return *(
        part for name in names[:_MOST_NAMED] for part in (Name(name), ", ")
    ), f"and {len(names) - _MOST_NAMED} others"


def _order(found: Mapping[str, Mark], order: list[str]) -> Iterator[Sentence]:
    """Say whether it is settled which factor is the first."""
    top = found[order[0]]
    if len(order) < 2:
        return
    if not math.isfinite(top.low):
        yield ("There are no intervals, so how sure this order is cannot be told.",)
        return
    rivals = [f for f in order[1:] if math.isfinite(found[f].high) and found[f].high >= top.low]
    if rivals:
        names = named([order[0], *rivals])
        yield "The intervals of ", *names, " overlap: which of them matters most is not settled."


def _small(method: Method, found: Mapping[str, Mark], order: list[str]) -> Iterator[Sentence]:
    """Say which factors can be left alone."""
    if not method.share or method.leading == "S1":
        return
    small = [f for f in order if math.isfinite(found[f].high) and found[f].high < SMALL]
    limit = f"less than {percent(SMALL)}\xa0% each"
    if len(small) > 2 * _MOST_NAMED:
        yield (
            f"{len(small)} of {len(order)} factors explain {limit}, with the upper ends of their intervals.",
        )
    elif small:
        verb = "explains" if len(small) == 1 else "explain"
        end = limit.removesuffix(" each") if len(small) == 1 else limit
        yield *listed([Name(f) for f in small]), f" {verb} {end}, even at the upper end of the interval."


def _interactions(pairs: Mapping[tuple[str, str], Mark]) -> Iterator[Sentence]:
    sure = [(m.value, pair) for pair, m in pairs.items() if m.known and m.low > 0 and m.value >= SMALL]
    for _, pair in sorted(sure, key=lambda one: (-one[0], one[1]))[:1]:
        a, b = pair
        yield Name(a), " and ", Name(b), f" interact: together they explain a further {_share(pairs[pair])}."


def _comparison(data: Comparison, better: str | None) -> Iterator[Sentence]:
    if data.levels.empty:
        return
    statistic = "iqm" if "iqm" in data.levels else "mean"
    rows = data.levels.dropna(subset=[statistic])
    if rows.empty:
        return
    ordered = rows.sort_values([statistic, "level"], ascending=[better == "lower", True], kind="stable")
    best = ordered.iloc[0]
    title = {"iqm": "interquartile mean", "mean": "mean"}[statistic]
    word = "best" if better else "highest"
    yield (
        f"Of {' and '.join(data.by)}, ",
        Name(best["level"]),
        f" has the {word} {title} of ",
        Name(data.outcome),
        f": {_value(mark_of(best, statistic))} over {count(int(best['n']), 'run')}.",
    )
    yield from _pairs(data, better)


def _few_seeds(comparisons: Sequence[Comparison]) -> Iterator[Sentence]:
    fewest = min(
        (int(one.levels["seeds"].min()) for one in comparisons if len(one.levels)), default=FEW_SEEDS
    )
    if fewest < FEW_SEEDS:
        few = f"With {count(fewest, 'seed')} a level, take comparisons as hints: below {FEW_SEEDS}, "
        yield (few + "intervals are rough.",)


def _pairs(data: Comparison, better: str | None) -> Iterator[Sentence]:
    """Say which levels differ; the verdict is that of the test, corrected for all pairs."""
    pairs = data.pairs.dropna(subset=["difference", "p_holm"]) if len(data.pairs) else data.pairs
    if pairs.empty:
        return
    ordered = pairs.sort_values(["p_holm", "a", "b"], kind="stable")
    apart = ordered[ordered["p_holm"] <= 1 - data.options.confidence]
    for _, pair in apart.head(_MOST_PAIRS).iterrows():
        yield _pair(pair, data.outcome, better)
    if len(apart) > _MOST_PAIRS:
        yield (f"{len(apart) - _MOST_PAIRS} more of {len(pairs)} pairs differ; see the table.",)
    if apart.empty:
        least = number(float(ordered["p_holm"].min()), 2)
        start = (
            ("The one pair does not differ",)
            if len(pairs) == 1
            else (f"None of the {len(pairs)} pairs differs",)
        )
        rest = f" by more than chance would explain (smallest p {least} after Holm's correction); "
        yield *start, rest, "that is no proof that they are equal."


def _pair(pair: pd.Series[Any], outcome: str, better: str | None) -> Sentence:
    first, second = pair["a"], pair["b"]
    mark = mark_of(pair, "difference")
    if pair["favours"] == second:
        first, second, mark = second, first, Mark(-mark.value, -mark.high, -mark.low)
    p = float(pair["p_holm"])
    chance = "p < 0.001" if p < 0.001 else f"p = {number(p, 2)}"
    higher = "higher" if mark.value > 0 else "lower"
    told = f" is {higher} by {_magnitude(mark)} ({chance} after Holm's correction)"
    if not pair["favours"]:
        return Name(first), " and ", Name(second), " differ: ", Name(outcome), " of the first", f"{told}."
    # tests look at ranks: single runs can turn the difference of the means
    against = "" if higher == better else ", in ranks; its mean tells the opposite"
    return Name(first), " is better than ", Name(second), ": ", Name(outcome), f"{told}{against}."


def _magnitude(mark: Mark) -> str:
    """Return the size of a difference whose direction is said in words."""
    if mark.value >= 0:
        return str(mark)
    return str(Mark(-mark.value, -mark.high, -mark.low))


def mark_of(row: Mapping[Any, Any] | pd.Series[Any], statistic: str) -> Mark:
    """Return the value of ``statistic`` of a row with its interval, where it has one."""
    low, high = (float(row.get(f"{statistic}_{end}", math.nan)) for end in ("low", "high"))
    return Mark(float(row[statistic]), low, high)


def _share(mark: Mark) -> str:
    if not (math.isfinite(mark.low) and math.isfinite(mark.high)):
        return f"{percent(mark.value)}\xa0%"
    return f"{percent(mark.value)} % ({percent(mark.low)} to {percent(mark.high)}\xa0%)"


def _value(mark: Mark) -> str:
    return str(mark)
