"""``palaestrai-mosaik verify``: is what was recorded still there, and unchanged?"""

from __future__ import annotations

from collections.abc import Sequence

from palaestrai_mosaik.errors import PalaestraiMosaikError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.store.lookup import INSTANCES
from palaestrai_mosaik.store.verify import instances_to_verify, mark_failed
from palaestrai_mosaik.store.verify import verify as verify_run

from .common import FAILED, FINISHED, say
from .tables import count


def verify(store: StoreLocation, runs: Sequence[str], *, everything: bool = False, mark: bool = False) -> int:
    """Tell what is damaged of ``runs``, or of all in the ``store``; return the exit code.

    ``mark``: finished runs that are damaged are recorded as failed. Where ``store`` is a database, its folder
    of files must have those of some of the runs.
    """
    if everything == bool(runs):
        raise PalaestraiMosaikError("say which runs are to be verified: name them, or --all")
    damaged = marked = rows = 0
    with store.open() as opened:
        runs = instances_to_verify(opened) if everything else [opened.find_run(run) for run in runs]
        _check_files(opened, runs, of_database=store.folder is None)
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
        say(f"{count(marked, 'run')} recorded as failed: arsenai resume FOLDER executes what a design needs")
        say("(of runs on a cluster, arsenai collect FOLDER first: what they were copied from may be whole)")
    elif damaged and not mark:
        say("to have them executed again: the same with --mark-failed, then arsenai resume FOLDER")
    return FAILED if damaged else FINISHED


def _check_files(store: Store, runs: Sequence[str], *, of_database: bool) -> None:
    """Refuse to call runs damaged because their files are looked for in the wrong place."""
    folder = store.directory / INSTANCES
    there = folder.is_dir()
    if there and of_database:
        there = any(store.instance_directory(run).is_dir() for run in runs)
    if runs and not there:
        hint = (
            "say where they are: --files FOLDER/results"
            if of_database
            else "was it moved, or is it not mounted?"
        )
        raise PalaestraiMosaikError(f"{folder} has no files of these runs; {hint}")
