"""Shares of the variance in sentences: what is sure, what is not, and what a larger sample would do.

Estimates of shares are not bound to lie between 0 and 1, and their intervals less so; what a
sentence says of a factor is never less careful than its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from palaestrai_mosaik.design.model import SamplerSpec

from .bars import Mark
from .markup import Caution, Name, Sentence, number, percent

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
