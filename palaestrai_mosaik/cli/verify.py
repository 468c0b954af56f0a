"""``palaestrai-mosaik verify``: is what was recorded still there, and unchanged?"""

from __future__ import annotations

from collections.abc import Sequence

from palaestrai_mosaik.errors import PalaestraiMosaikError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.verify import instances_to_verify, mark_failed
from palaestrai_mosaik.store.verify import verify as verify_run

from .common import FAILED, FINISHED, say
from .tables import count


def verify(store: str, runs: Sequence[str], *, everything: bool = False, mark: bool = False) -> int:
    """Tell what is damaged of ``runs``, or of all in the ``store``; return the exit code.

    ``mark``: finished runs that are damaged are recorded as failed.
    """
    if everything == bool(runs):
        raise PalaestraiMosaikError("say which runs are to be verified: name them, or --all")
    damaged = marked = rows = 0
    with Store(store, create=False) as opened:
        if everything:
            runs = instances_to_verify(opened)
        for run in runs:
            found = verify_run(opened, run)
            rows += found.rows
            for line in found.damage:
                say(f"{found.run} ({found.document}): {line}", error=True)
            if found.damage:
                damaged += 1
                marked += mark and mark_failed(opened, found)
    say(f"{count(len(runs), 'run')} with {count(rows, 'row')} read, {damaged:,} damaged")
    if marked:
        say(
            f"{count(marked, 'run')} recorded as failed: arsenai resume FOLDER executes what a design needs"
        )
    elif damaged and not mark:
        say("to have them executed again: the same with --mark-failed, then arsenai resume FOLDER")
    return FAILED if damaged else FINISHED
