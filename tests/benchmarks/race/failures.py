"""Planted errors, and what each side makes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from . import documents
from .contestants import CLOCK, Contestant, Results, last_words
from .session import Session

#: long enough that a run is in its midst when it is killed, so many seconds after its first step
_LONG, _MIDST = 1_000_000, 5.0


@dataclass(frozen=True)
class Outcome:
    """What came of a planted error: ``noticed`` means an exit code other than 0."""

    case: str
    side: str
    noticed: bool
    exit_code: int
    seconds: float
    message: str
    status: str
    rows: int
    left: tuple[str, ...]

    def told(self) -> dict[str, Any]:
        """Return it as a mapping."""
        return asdict(self)


def planted(session: Session, side: Contestant, steps: int) -> list[Outcome]:
    """Run all planted errors on one side."""
    found = []
    plans: dict[str, Callable[[int], dict[str, Any]]] = {
        "a muscle raises at every step": documents.raising,
        "a sensor that is not there": documents.bad_sensor,
    }
    for case, make in plans.items():
        found.append(_outcome(session, side, case, make(steps)))
    found.append(_outcome(session, side, "the main process is killed", documents.dummy(_LONG), kill=True))
    return found


def _outcome(
    session: Session, side: Contestant, case: str, document: dict[str, Any], kill: bool = False
) -> Outcome:
    folder = session.folder(side, case)
    clock = folder / CLOCK

    def midst() -> bool:
        return clock.is_file() and time.time() > clock.stat().st_mtime + _MIDST

    usage = session.execute(side, folder, document, stored=True, kill=midst if kill else None)
    results: Results = side.results(folder)
    return Outcome(
        case=case,
        side=side.name,
        noticed=usage.returncode != 0,
        exit_code=usage.returncode,
        seconds=usage.seconds,
        message="" if kill else last_words(usage.output),
        status=results.status,
        rows=results.rows,
        left=usage.left,
    )


def same_seed(side: Contestant, digests: list[str]) -> dict[str, Any]:
    """Compare the trajectories of several runs of one document."""
    found = "equal" if len(set(digests)) == 1 else "different"
    if len(digests) < 2 or "" in digests:
        found = "not known"
    return {"side": side.name, "runs": len(digests), "trajectories": found}
