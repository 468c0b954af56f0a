"""Single runs that a report leads to: the best one, the worst one, or one that is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from palaestrai_mosaik.errors import StoreError, did_you_mean

from .best import better_of
from .data import ReportData

BEST, WORST = "best", "worst"


def chosen_runs(data: ReportData, wanted: Sequence[str]) -> list[str]:
    """Return the uids of the executed runs that are meant, each once.

    Args:
        data: what the report is made of.
        wanted: ``"best"`` or ``"worst"``, by the first outcome of which the design says which direction is better, or the
            uid of a run.

    Raises:
        StoreError: there is no such run, it has not finished, or nothing says what is better.
    """
    return list(dict.fromkeys(_runs(data, wanted)))


def _runs(data: ReportData, wanted: Sequence[str]) -> Iterator[str]:
    columns = (map(str, data.runs[name]) for name in ("uid", "run", "status"))
    known = {uid: (run, status) for uid, run, status in zip(*columns, strict=True)}
    for one in wanted:
        if one in (BEST, WORST):
            yield _extreme(data, one)
            continue
        if one not in known:
            near = did_you_mean(one, [BEST, WORST, *known])
            raise StoreError(
                f"the design has no run {one!r}{near}; expected best, worst, or the uid of a run"
            )
        run, status = known[one]
        if status != "finished":
            raise StoreError(f"the run {one!r} has not finished: it is {status}")
        yield run


def _extreme(data: ReportData, which: str) -> str:
    outcome = next((name for name in data.outcomes if better_of(data, name) is not None), None)
    if outcome is None:
        raise StoreError(
            f"which run is {which}? No outcome of the design {data.spec.uid!r} says which direction is better: add "
            "'better: higher' or 'better: lower' to one"
        )
    finite = data.finite(outcome)
    if finite.empty:
        raise StoreError(f"no run of the design {data.spec.uid!r} has a finite {outcome!r} yet")
    values = finite[outcome].to_numpy(float)
    highest = (better_of(data, outcome) == "higher") == (which == BEST)
    return str(finite["run"].iloc[int(np.argmax(values) if highest else np.argmin(values))])
