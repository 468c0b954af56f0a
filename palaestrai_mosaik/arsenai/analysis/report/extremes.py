"""Single runs that a report links to: the best one, the worst one, or one by uid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from palaestrai_mosaik.core.errors import StoreError, did_you_mean

from .best import better_of
from .data import ReportData

BEST, WORST = "best", "worst"


def chosen_runs(data: ReportData, wanted: Sequence[str]) -> list[str]:
    """Return the uids of the executed runs for a selection, without duplicates.

    Args:
        data: the data of the report.
        wanted: ``"best"`` or ``"worst"``, by the first outcome with a better direction, or the uid of a run.

    Raises:
        StoreError: there is no such run, it has not finished, or no outcome has a better direction.
    """
    return list(dict.fromkeys(_runs(data, wanted)))


def _runs(data: ReportData, selection: Sequence[str]) -> Iterator[str]:
    columns = (map(str, data.runs[name]) for name in ("uid", "run", "status"))
    executed = {uid: (run, status) for uid, run, status in zip(*columns, strict=True)}
    for choice in selection:
        if choice in (BEST, WORST):
            yield _extreme(data, choice)
            continue
        if choice not in executed:
            near = did_you_mean(choice, [BEST, WORST, *executed])
            raise StoreError(
                f"the design has no run {choice!r}{near}; expected best, worst, or the uid of a run"
            )
        run, status = executed[choice]
        if status != "finished":
            raise StoreError(f"the run {choice!r} has not finished: it is {status}")
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
