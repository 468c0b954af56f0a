"""``palaestrai-mosaik import``: results of palaestrAI, brought into the store."""

from __future__ import annotations

import sys
from collections import Counter

from palaestrai_mosaik.run.imported_brains import keep_brain
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.store.palaestrai_results import Imported, import_results

from .common import FAILED, FINISHED, say
from .progress import CountProgress
from .tables import count


def import_palaestrai(source: str, location: StoreLocation, experiment_run: str | None) -> int:
    """Import the database at ``source``; return the exit code (1: an instance could not be imported)."""
    outcomes: Counter[str] = Counter()
    with (
        location.open(create=True) as store,
        CountProgress(sys.stderr, "import", "imported", unit="row") as progress,
    ):
        for one in import_results(
            source, store, keep_brain, experiment_run=experiment_run, progress=progress
        ):
            outcomes[one.outcome] += 1
            _tell(one)
        say(_summary(outcomes, str(store.directory)))
    return FAILED if outcomes["failed"] else FINISHED


def _tell(one: Imported) -> None:
    if one.problem is not None:
        say(f"{one.run}  {one.document}: not imported: {one.problem}", error=True)
        return
    if one.outcome == "known":
        return
    say(f"{one.run}  {one.document}: {one.status}, {count(one.rows, 'row')}")
    for note in one.notes:
        say(f"  {note}", error=True)


def _summary(outcomes: Counter[str], directory: str) -> str:
    parts = [f"{count(outcomes['imported'], 'run')} imported into {directory}"]
    parts += [f"{outcomes['renewed']} brought up to date"] if outcomes["renewed"] else []
    parts += [f"{outcomes['known']} were there already"] if outcomes["known"] else []
    parts += [f"{outcomes['failed']} could not be imported"] if outcomes["failed"] else []
    return ", ".join(parts)
