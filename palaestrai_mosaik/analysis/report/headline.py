"""The answer: what matters, how sure that is, and what is better than what.

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

from .data import ReportData
from .indices import IRRELEVANT, leading_method, marks, method_of, pair_marks, players, ranked
from .numbers import Mark
from .verdict import constant, lost, verdicts, warning
from .wording import Fact, Sentence, caution, fact, worded

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


def headline(data: ReportData) -> list[tuple[str, list[Sentence]]]:
    """Return, for each outcome, what the results say, the first sentence first."""
    return [(outcome, [worded(one) for one in facts(data, outcome)]) for outcome in data.outcomes]


def facts(data: ReportData, outcome: str) -> list[Fact]:
    """Return what the results say about an outcome."""
    values = data.finite(outcome)[outcome].to_numpy(float)
    if len(values) > 1 and distinct(values) == 1:
        return [*lost(data, outcome), constant(outcome, data.counted(outcome), float(values[0]))]
    found = [*_sensitivity(data, outcome), *verdicts(data, outcome)]
    if not found and len(values):
        low, high, mean = float(values.min()), float(values.max()), float(values.mean())
        kind = "spread" if data.spec.search is None else "spread_of_search"
        found.append(fact(kind, outcome=outcome, low=low, high=high, mean=mean, runs=data.runs_of(outcome)))
    return found or [fact("no_value", outcome=outcome)]


def first_fact(data: ReportData, outcome: str) -> Fact:
    """Return the one fact of an outcome that is told first: a planned comparison's, else that of the sensitivity."""
    found = facts(data, outcome)
    if data.spec.analysis.compare:
        for one in found:
            if one.kind in ("first_level", "some_tie", "all_tie", "only_level"):
                return one
    return next((one for one in found if not one.caution), found[0])


def shares(
    outcome: str, alone: Mapping[str, Mark], found: Mapping[str, Mark], order: Sequence[str]
) -> Iterator[Fact]:
    """Yield what each of the first factors of ``order`` explains; ``alone``: without its interactions."""
    named = [factor for i, factor in enumerate(order[:_MOST_NAMED]) if not i or found[factor].value >= SMALL]
    for i, factor in enumerate(named):
        mark, first = found[factor], alone.get(factor)
        given = {"factor": factor, "mark": mark, "outcome": outcome if i == 0 else None}
        if not sure(mark):
            yield fact("no_share", factor=factor, mark=mark, interactions=first is not None)
        elif first is None or not first.known:
            yield fact("share_only", **given)
        elif sure(first):
            yield fact("share_alone", first=first, **given)
        else:
            yield fact("share_with_interactions", first=first, **given)
    shown = chain(found[factor] for factor in named), (alone[factor] for factor in named if factor in alone)
    if any(map(beyond, chain(*shown))):
        yield caution("beyond")


def sure(mark: Mark) -> bool:
    """Return whether a share can be told apart from none."""
    return mark.value > 0 and not mark.low <= 0


def beyond(mark: Mark) -> bool:
    """Return whether an estimate, or an end of its interval, is none that a share can have."""
    return any(end < -_ROUNDING or end > 1 + _ROUNDING for end in (mark.value, mark.low, mark.high))


def too_small(marks: Iterable[Mark], sampler: SamplerSpec, rows: int) -> Iterator[Fact]:
    """Yield that intervals are too wide for shares, where they are, and how large a sample would do."""
    widths = [mark.high - mark.low for mark in marks if math.isfinite(mark.high - mark.low)]
    widest = max(widths, default=0.0)
    if widest <= WIDE:
        return
    what, now = ("n", sampler.n) if sampler.n is not None else ("rows", rows)
    needed = now * (widest / _WANTED) ** 2
    # the sequence of Sobol' is balanced at powers of two
    more = 2.0 ** math.ceil(math.log2(needed)) if sampler.name == "sobol" else float(f"{needed:.1e}")
    yield caution("too_small", widest=widest, what=what, now=now, wanted=_WANTED, needed=more)


def _sensitivity(data: ReportData, outcome: str) -> Iterator[Fact]:
    rows = data.sensitivity[data.sensitivity["outcome"] == outcome]
    name = leading_method(rows)
    if name is None:
        return
    own = rows[rows["method"] == name]
    method = method_of(name, own)
    found = marks(own, method.leading)
    real = players(data.spec)
    order = [factor for factor in ranked(found) if factor in real and found[factor].known]
    if not order:
        why = data.refused.get((outcome, name), "too few runs are left")
        yield fact("nothing_known", title=method.title, why=why)
        return
    if method.share:
        indices = (found, _alone(method, own))
        seen = [index[factor] for index in indices for factor in order if factor in index]
        yield from too_small(seen, data.spec.sampler, len(data.values))
    tests, level = marks(own, "p"), 1 - data.spec.analysis.confidence
    known = [factor for factor in order if factor in tests and tests[factor].known]
    if known and all(tests[factor].value > level for factor in known):
        yield fact("all_by_chance", outcome=outcome, factor=order[0], mark=found[order[0]], level=level)
    else:
        yield from _ranking(outcome, name, method, own, order)
        yield from _tested({factor: tests[factor] for factor in known}, level)
    yield from map(warning, data.remarks.get((outcome, name), ()))


def _ranking(
    outcome: str, name: str, method: MethodDisplay, own: pd.DataFrame, order: list[str]
) -> Iterator[Fact]:
    """Say in which order factors matter, as far as that is settled."""
    found, alone = marks(own, method.leading), _alone(method, own)
    top = found[order[0]]
    if math.isfinite(top.low) and top.low <= 0:
        yield fact("none_stands_out", index=method.leading, factor=order[0], mark=top)
        return
    if method.share:
        yield from shares(outcome, alone, found, order)
    else:
        sizes = [(factor, found[factor]) for factor in order[:_MOST_NAMED]]
        if method.leading == "mu_star":
            yield fact("moves", outcome=outcome, marks=sizes)
        else:
            yield fact("matters", outcome=outcome, index=method.leading, marks=sizes)
    by_chance = found.get(IRRELEVANT)
    if by_chance is not None:
        quiet = [factor for factor in order if found[factor].value <= by_chance.value]
        if quiet:
            yield fact("by_chance", factors=quiet, mark=by_chance)
    elif name != "anova":
        yield from _order(found, order)
    yield from _small(method, found, order)
    if method.share and method.pairs:
        yield from _interactions(pair_marks(own, method.pairs))


def _alone(method: MethodDisplay, own: pd.DataFrame) -> dict[str, Mark]:
    """Return what factors explain without their interactions, where the leading index has these."""
    return marks(own, "S1") if method.leading == "ST" else {}


def _tested(tests: Mapping[str, Mark], level: float) -> Iterator[Fact]:
    """Say which effects the repetitions cannot tell from chance."""
    quiet = [factor for factor, p in tests.items() if p.value > level]
    if quiet:
        yield fact("not_tested", factors=quiet, level=level)
    elif tests:
        yield fact("all_tested", level=level)


def _order(found: Mapping[str, Mark], order: list[str]) -> Iterator[Fact]:
    """Say whether it is settled which factor is the first."""
    top = found[order[0]]
    if len(order) < 2:
        return
    if not math.isfinite(top.low):
        yield fact("order_unknown")
        return
    rivals = [f for f in order[1:] if math.isfinite(found[f].high) and found[f].high >= top.low]
    if rivals:
        yield fact("order_open", factors=[order[0], *rivals])


def _small(method: MethodDisplay, found: Mapping[str, Mark], order: list[str]) -> Iterator[Fact]:
    """Say which factors can be left alone."""
    if not method.share or method.leading == "S1":
        return
    small = [f for f in order if math.isfinite(found[f].high) and found[f].high < SMALL]
    if len(small) > 2 * _MOST_NAMED:
        yield fact("many_small", small=len(small), all=len(order), limit=SMALL)
    elif small:
        yield fact("few_small", factors=small, limit=SMALL)


def _interactions(pairs: Mapping[tuple[str, str], Mark]) -> Iterator[Fact]:
    known = [(m.value, pair) for pair, m in pairs.items() if m.known and m.low > 0 and m.value >= SMALL]
    for _, (a, b) in sorted(known, key=lambda one: (-one[0], one[1]))[:1]:
        yield fact("interact", a=a, b=b, mark=pairs[a, b])
