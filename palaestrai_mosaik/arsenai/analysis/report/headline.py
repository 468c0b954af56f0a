"""The headline: the important factors, their uncertainty, and the better levels.

Estimates of shares can lie outside 0 and 1, and their intervals even more so. A sentence about a factor is never less
cautious than its interval.

A factor matters if its effect is more than noise (``p_adjusted``) and the interval of its index lies above zero. It
matters more than another one if their intervals do not overlap. This is cautious: factors whose intervals overlap
slightly may still differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from palaestrai_mosaik.arsenai.analysis.comparison.aggregates import distinct
from palaestrai_mosaik.arsenai.design.few import significance_level
from palaestrai_mosaik.arsenai.design.methods.significance import P_ADJUSTED
from palaestrai_mosaik.arsenai.design.model import SamplerSpec
from palaestrai_mosaik.arsenai.design.remark import INSEPARABLE, kind_of

from ..moments import Moments
from .data import ReportData
from .indices import LeadingIndices, index_in_words, leading_indices, marks, pair_marks
from .numbers import Mark
from .verdict import constant, lost, verdicts, warning
from .wording import Fact, Sentence, caution, fact, worded

#: shares of the variance below this are not worth a sentence
SMALL = 0.05
#: wider intervals are uninformative for a share, which lies between 0 and 1 anyway
WIDE = 0.5
#: recommended width of intervals
_WANTED = 0.2
_MOST_NAMED = 3
# Tolerance for rounding errors outside 0 and 1.
_ROUNDING = 0.0005


def headline(data: ReportData) -> list[tuple[str, list[Sentence]]]:
    """Return the sentences of each outcome, in order."""
    return [(outcome, [worded(item) for item in facts(data, outcome)]) for outcome in data.outcomes]


def facts(data: ReportData, outcome: str) -> list[Fact]:
    """Return the facts about an outcome, in order."""
    values = data.finite(outcome)[outcome].to_numpy(float)
    if len(values) > 1 and distinct(values) == 1:
        return [*lost(data, outcome), constant(outcome, data.counted(outcome), float(values[0]))]
    results = [*_sensitivity(data, outcome), *verdicts(data, outcome)]
    if data.spec.analysis.compare:
        results = [*verdicts(data, outcome), *_sensitivity(data, outcome)]
    if not results and len(values):
        of_runs = Moments.of(values)
        common = {"outcome": outcome, "mean": of_runs.mean, "runs": data.runs_of(outcome)}
        kind = "spread" if data.spec.search is None else "spread_of_search"
        results.append(fact(kind, low=of_runs.min, high=of_runs.max, **common))
    return results or [fact("no_value", outcome=outcome)]


def shares(
    outcome: str,
    alone: Mapping[str, Mark],
    total: Mapping[str, Mark],
    order: Sequence[str],
    noise: bool = False,
) -> Iterator[Fact]:
    """Yield the shares of the leading factors in ``order``.

    Args:
        outcome: its name.
        alone: the shares without interactions.
        total: the shares.
        order: the factors, the most important one first.
        noise: whether the shares contain noise that nothing can separate.
    """
    named = [factor for i, factor in enumerate(order[:_MOST_NAMED]) if not i or total[factor].value >= SMALL]
    for i, factor in enumerate(named):
        mark, first = total[factor], alone.get(factor)
        common = {"factor": factor, "mark": mark, "outcome": outcome if i == 0 else None}
        if not sure(mark):
            yield fact("no_share", factor=factor, mark=mark, interactions=first is not None)
        elif first is None or not first.known:
            yield fact("share_only", **common)
        elif sure(first):
            yield fact("share_alone", first=first, noise=noise, **common)
        else:
            yield fact("share_with_interactions", first=first, noise=noise, **common)
    used_marks = (
        chain(total[factor] for factor in named),
        (alone[factor] for factor in named if factor in alone),
    )
    if any(map(beyond, chain(*used_marks))):
        yield caution("beyond")


def sure(mark: Mark) -> bool:
    """Whether a share is significantly above 0."""
    return mark.value > 0 and not mark.low <= 0


def beyond(mark: Mark) -> bool:
    """Whether an estimate, or an end of its interval, is outside the range of a share."""
    return any(end < -_ROUNDING or end > 1 + _ROUNDING for end in (mark.value, mark.low, mark.high))


def too_small(marks: Iterable[Mark], sampler: SamplerSpec, rows: int) -> Iterator[Fact]:
    """Yield a caution if intervals are too wide for shares, with the sample size that would be enough."""
    widths = [mark.high - mark.low for mark in marks if math.isfinite(mark.high - mark.low)]
    widest = max(widths, default=0.0)
    if widest <= WIDE:
        return
    what, now = ("n", sampler.n) if sampler.n is not None else ("rows", rows)
    needed = now * (widest / _WANTED) ** 2
    # Sobol' sequences are balanced at powers of two.
    more = 2.0 ** math.ceil(math.log2(needed)) if sampler.name == "sobol" else float(f"{needed:.1e}")
    yield caution("too_small", widest=widest, what=what, now=now, wanted=_WANTED, needed=more)


def _sensitivity(data: ReportData, outcome: str) -> Iterator[Fact]:
    leading = leading_indices(data.spec, data.sensitivity[data.sensitivity["outcome"] == outcome])
    if leading is None:
        return
    if not leading.order:
        why = data.refused.get((outcome, leading.method), "too few runs are left")
        yield fact("nothing_known", title=leading.display.title, why=why)
        return
    if leading.display.share:
        indices = (leading.marks, _alone(leading))
        shown = [index[factor] for index in indices for factor in leading.order if factor in index]
        yield from too_small(shown, data.spec.sampler, len(data.values))
    remarks = data.remarks.get((outcome, leading.method), ())
    yield from _effects(data, outcome, leading, any(kind_of(text) == INSEPARABLE for text in remarks))
    yield from map(warning, remarks)


def _effects(data: ReportData, outcome: str, leading: LeadingIndices, noise: bool) -> Iterator[Fact]:
    """Yield the factors with an effect, those without, and the interactions.

    Args:
        data: the data of the report.
        outcome: name of the outcome.
        leading: its indices.
        noise: whether shares contain noise that nothing can separate.
    """
    display, order = leading.display, leading.order
    tests, level = marks(leading.rows, P_ADJUSTED), significance_level(data.spec.analysis.confidence)
    named = [factor for factor in order if factor in tests and tests[factor].value <= level]
    of_pairs = pair_marks(leading.rows, display.pairs) if display.pairs else {}
    if named:
        yield from _ranking(outcome, leading, named, noise)
    else:
        largest = {"factor": order[0], "mark": leading.marks[order[0]], "pairs": bool(of_pairs)}
        common = {"outcome": outcome, "index": index_in_words(display), **largest}
        yield fact("all_by_noise", level=level, **common) if tests else fact("no_test", **common)
    yield from _small(leading)
    if named:
        yield _noise(named, [factor for factor in order if factor not in named], level)
        if display.share:
            yield from _interactions(of_pairs)


def _ranking(outcome: str, leading: LeadingIndices, order: list[str], noise: bool) -> Iterator[Fact]:
    """Yield the ranking of the factors in ``order``, as far as it is certain."""
    index, top = leading.display.leading, leading.marks[order[0]]
    if math.isfinite(top.low) and top.low <= 0:
        words = index_in_words(leading.display)
        yield fact("size_unknown", factors=order, outcome=outcome, index=words, factor=order[0], mark=top)
        return
    sizes = [(factor, leading.marks[factor]) for factor in order[:_MOST_NAMED]]
    if leading.display.share:
        yield from shares(outcome, _alone(leading), leading.marks, order, noise)
    elif index == "mu_star":
        yield fact("moves", outcome=outcome, marks=sizes)
    else:
        display = leading.display
        yield fact(
            "matters", outcome=outcome, index=index_in_words(display), scale=display.scale, marks=sizes
        )
    if leading.method != "anova":
        yield from _order(leading.marks, order)


def _alone(leading: LeadingIndices) -> dict[str, Mark]:
    """Return the shares of factors without interactions, if the leading index includes these."""
    return marks(leading.rows, "S1") if leading.display.leading == "ST" else {}


def _noise(named: Sequence[str], unnamed: Sequence[str], level: float) -> Fact:
    """Say which effects noise could explain, or that it explains none."""
    if unnamed:
        return fact("by_noise", factors=unnamed, level=level)
    return fact("none_by_noise", factors=named, level=level)


def _order(leading_marks: Mapping[str, Mark], order: list[str]) -> Iterator[Fact]:
    """Yield a fact if it is open which factor is the first."""
    top = leading_marks[order[0]]
    if len(order) < 2:
        return
    if not math.isfinite(top.low):
        yield fact("order_unknown")
        return
    rivals = [
        f for f in order[1:] if math.isfinite(leading_marks[f].high) and leading_marks[f].high >= top.low
    ]
    if rivals:
        yield fact("order_open", factors=[order[0], *rivals])


def _small(leading: LeadingIndices) -> Iterator[Fact]:
    """Yield the factors that are negligible."""
    if not leading.display.share or leading.display.leading == "S1":
        return
    small = [factor for factor in leading.order if -math.inf < leading.marks[factor].high < SMALL]
    if len(small) > 2 * _MOST_NAMED:
        yield fact("many_small", small=len(small), all=len(leading.order), limit=SMALL)
    elif small:
        yield fact("few_small", factors=small, limit=SMALL)


def _interactions(pairs: Mapping[tuple[str, str], Mark]) -> Iterator[Fact]:
    candidates = [(m.value, pair) for pair, m in pairs.items() if m.known and m.low > 0 and m.value >= SMALL]
    for _, (a, b) in sorted(candidates, key=lambda candidate: (-candidate[0], candidate[1]))[:1]:
        yield fact("interact", a=a, b=b, mark=pairs[a, b])
