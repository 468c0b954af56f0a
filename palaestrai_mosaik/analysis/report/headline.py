"""The answer in sentences: what matters, how sure that is, and what is better than what.

Estimates of shares are not bound to lie between 0 and 1, and their intervals less so; what a
sentence says of a factor is never less careful than its interval.

A factor is said to matter where the interval of its index lies above zero, and to matter more
than another where their intervals do not overlap. That is careful: intervals that overlap a
little may still differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from palaestrai_mosaik.analysis.comparison.resampling import distinct
from palaestrai_mosaik.design.methods import MethodDisplay
from palaestrai_mosaik.design.model import SamplerSpec

from .bars import Mark
from .data import ReportData
from .indices import IRRELEVANT, leading_method, marks, method_of, pair_marks, players, ranked
from .markup import Caution, Name, Sentence, listed, number, percent
from .verdict import caution, constant, lost, verdicts

if TYPE_CHECKING:
    import pandas as pd

#: a share of the variance that is not worth a sentence
SMALL = 0.05
#: wider intervals tell too little of a share, which lies between 0 and 1 anyway
WIDE = 0.5
#: how wide they should be
_WANTED = 0.2
_MOST_NAMED = 3
# this far outside of 0 and 1 is rounding
_ROUNDING = 0.0005


def shares(
    outcome: str, alone: Mapping[str, Mark], found: Mapping[str, Mark], order: Sequence[str]
) -> Iterator[Sentence]:
    """Yield what each of the first factors of ``order`` explains; ``alone``: without its interactions."""
    named = [factor for i, factor in enumerate(order[:_MOST_NAMED]) if not i or found[factor].value >= SMALL]
    for i, factor in enumerate(named):
        mark = found[factor]
        of = (" of the variance of ", Name(outcome)) if i == 0 else ()
        first = alone.get(factor)
        if not sure(mark):
            what = "share, with its interactions," if first is not None else "share"
            yield Name(factor), f": no {what} can be told apart from none ({_told(mark)})."
        elif first is None or not first.known:
            yield Name(factor), f" explains {share(mark)}", *of, "."
        elif sure(first):
            yield (
                Name(factor),
                f" explains {share(first)}",
                *of,
                f" on its own, {share(mark)} with its interactions.",
            )
        else:
            own = f"no share of its own can be told apart from none ({_told(first)})."
            yield Name(factor), f" explains {share(mark)}", *of, f" with its interactions; {own}"
    shown = chain(found[factor] for factor in named), (alone[factor] for factor in named if factor in alone)
    if any(map(beyond, chain(*shown))):
        text = "What lies below 0 or above 100 % is sampling error: shares lie between."
        yield Caution((text,))


def sure(mark: Mark) -> bool:
    """Return whether a share can be told apart from none."""
    return mark.value > 0 and not mark.low <= 0


def beyond(mark: Mark) -> bool:
    """Return whether an estimate, or an end of its interval, is none that a share can have."""
    return any(end < -_ROUNDING or end > 1 + _ROUNDING for end in (mark.value, mark.low, mark.high))


def share(mark: Mark) -> str:
    """Return a share as per cent, with its interval."""
    return f"nearly all ({_told(mark)})" if mark.value > 1 else _percent(mark, "")


def _told(mark: Mark) -> str:
    """Return estimate and interval for brackets."""
    return _percent(mark, ", interval ")


def _percent(mark: Mark, between: str) -> str:
    if not mark.spread:
        return f"{percent(mark.value)}\xa0%"
    ends = f"{percent(mark.low)} to {percent(mark.high)}\xa0%"
    return f"{percent(mark.value)} %" + (f"{between}{ends}" if between else f" ({ends})")


def too_small(marks: Iterable[Mark], sampler: SamplerSpec, rows: int) -> Iterator[Sentence]:
    """Yield that intervals are too wide for shares, where they are, and how large a sample would do."""
    widths = [mark.high - mark.low for mark in marks if math.isfinite(mark.high - mark.low)]
    widest = max(widths, default=0.0)
    if widest <= WIDE:
        return
    what, now = ("n", sampler.n) if sampler.n is not None else ("rows", rows)
    needed = now * (widest / _WANTED) ** 2
    # the sequence of Sobol' is balanced at powers of two
    more = 2 ** math.ceil(math.log2(needed)) if sampler.name == "sobol" else float(f"{needed:.1e}")
    yield Caution(
        (
            f"The sample is too small for shares of the variance: intervals are up to {percent(widest)} percentage "
            "points wide. They shrink with the square root of the sample: half as wide takes four times as many "
            f"({what} = {4 * now:,} instead of {now:,}), {percent(_WANTED)} points about {what} = {number(more, 6)}.",
        )
    )


def headline(data: ReportData) -> list[tuple[str, list[Sentence]]]:
    """Return, for each outcome, what the results say."""
    answers = []
    for outcome in data.outcomes:
        values = data.finite(outcome)[outcome].to_numpy(float)
        if len(values) > 1 and distinct(values) == 1:
            same = constant(outcome, data.counted(outcome), float(values[0]))
            answers.append((outcome, [*lost(data, outcome), same]))
            continue
        found = [*_sensitivity(data, outcome), *verdicts(data, outcome)]
        if not found and len(values):
            found.append(_spread(data, outcome))
        if not found:
            found.append(("No run has told a value of ", Name(outcome), " yet."))
        answers.append((outcome, found))
    return answers


def _spread(data: ReportData, outcome: str) -> Sentence:
    values = data.finite(outcome)[outcome]
    low, high, mean = (number(float(v), 3) for v in (values.min(), values.max(), values.mean()))
    told = f"It lies between {low} and {high}, with a mean of {mean} over {data.runs_of(outcome)}. "
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
    if method.share:
        indices = (found, _alone(method, own))
        seen = [index[factor] for index in indices for factor in order if factor in index]
        yield from too_small(seen, data.spec.sampler, len(data.values))
    yield from _ranking(outcome, name, method, own, order)
    tests = marks(own, "p")
    if tests:
        yield from _tested(tests, order, 1 - data.spec.analysis.confidence)
    yield from map(caution, data.remarks.get((outcome, name), ()))


def _ranking(
    outcome: str, name: str, method: MethodDisplay, own: pd.DataFrame, order: list[str]
) -> Iterator[Sentence]:
    """Say in which order factors matter, as far as that is settled."""
    found, alone = marks(own, method.leading), _alone(method, own)
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
        yield from shares(outcome, alone, found, order)
    else:
        yield from _sizes(outcome, method, found, order)
    by_chance = found.get(IRRELEVANT)
    if by_chance is not None:
        yield from _by_chance(found, order, by_chance)
    elif name != "anova":
        yield from _order(found, order)
    yield from _small(method, found, order)
    if method.share and method.pairs:
        yield from _interactions(pair_marks(own, method.pairs))


def _alone(method: MethodDisplay, own: pd.DataFrame) -> dict[str, Mark]:
    """Return what factors explain without their interactions, where the leading index has these."""
    return marks(own, "S1") if method.leading == "ST" else {}


def _sizes(
    outcome: str, method: MethodDisplay, found: Mapping[str, Mark], order: list[str]
) -> Iterator[Sentence]:
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
            "By the F test, chance alone could explain the effect of ",
            *named(quiet),
            f" (p above {level:.2g}), which does not say that there is none.",
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


def _small(method: MethodDisplay, found: Mapping[str, Mark], order: list[str]) -> Iterator[Sentence]:
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
        yield Name(a), " and ", Name(b), f" interact: together they explain a further {share(pairs[pair])}."


def _value(mark: Mark) -> str:
    return str(mark)
