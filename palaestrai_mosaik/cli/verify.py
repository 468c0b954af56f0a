"""``palaestrai-mosaik verify``: checks recorded runs for damage."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core.errors import FAILED, FINISHED, PalaestraiMosaikError
from palaestrai_mosaik.core.printing import count, listed
from palaestrai_mosaik.core.progress import PartsProgress
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.query.lookup import INSTANCES
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.store.verify import Verified, instances_to_verify, mark_failed
from palaestrai_mosaik.store.verify import verify as verify_run

from .output import answer, compose, count_progress, say, say_unless_quiet, select, status

# maximum number of printed runs without files
_LISTED = 5


def verify(
    location: StoreLocation, runs: Sequence[str], *, everything: bool = False, mark: bool = False
) -> int:
    """Print the damage of runs in the store; return the exit code.

    Args:
        location: the location of the store.
        runs: the runs to check.
        everything: check all runs instead.
        mark: mark damaged finished runs as failed. Runs without a directory are excluded, because their files may be
            elsewhere, as with several folders that share a database. At least one run must have a directory.
    """
    if everything == bool(runs):
        raise PalaestraiMosaikError("name the runs to verify, or use --all")
    checked: list[Verified] = []
    marked = 0
    with location.open() if mark else location.look() as opened:
        runs = instances_to_verify(opened) if everything else [opened.find_run(run) for run in runs]
        _check_files(opened, runs, of_database=location.folder is None)
        for verified in _verified(opened, runs):
            checked.append(verified)
            if mark and verified.damage:
                marked += mark_failed(opened, verified)
        folder = opened.directory / INSTANCES
    states = Counter(map(_state, checked))
    answer(
        {
            "runs": [_verified_data(verified) for verified in checked],
            "rows": sum(verified.rows for verified in checked),
            "damaged": states["damaged"],
            "marked_failed": marked,
        }
    )
    of_others = everything and location.folder is None
    _print_states(checked, states, folder, of_others=of_others)
    _print_repair(states["damaged"], mark, marked)
    faults = {"damaged", "unread"} if of_others else {"damaged", "unread", "absent"}
    return FAILED if faults & states.keys() else FINISHED


def _print_repair(damaged: int, mark: bool, marked: int) -> None:
    """Print how to execute damaged runs again."""
    if marked:
        say_unless_quiet(
            f"{count(marked, 'run')} recorded as failed: arsenai resume FOLDER executes what a design needs",
            "(of runs on a cluster, arsenai collect FOLDER first: what they were copied from may be whole)",
        )
    elif damaged and not mark:
        say_unless_quiet("to execute them again: repeat with --mark-failed, then arsenai resume FOLDER")


def _print_states(
    checked: Sequence[Verified], states: Counter[str], folder: Path, *, of_others: bool
) -> None:
    """Print the numbers of runs that were read, damaged, unreadable, or without files in ``folder``."""
    damaged, rows = states["damaged"], sum(verified.rows for verified in checked)
    damaged_text = status(f"{damaged:,} damaged", "damaged" if damaged else "")
    read = count(damaged + states["whole"], "run")
    say_unless_quiet(compose(f"{read} with {count(rows, 'row')} read, ", damaged_text))
    if states["unread"]:
        say(f"{count(states['unread'], 'run')} could not be read: their state is unknown", error=True)
    if states["absent"]:
        absent = [verified.run for verified in checked if _state(verified) == "absent"]
        _print_absent(folder, absent, of_others=of_others)


def _state(verified: Verified) -> str:
    if verified.damage:
        return "damaged"
    if verified.absent:
        return "absent"
    return "unread" if verified.unread else "whole"


def _verified_data(verified: Verified) -> dict[str, Any]:
    return {
        **select(verified, "run", "document", "status", "rows"),
        "whole": not (verified.damage or verified.unread),
        **select(verified, "damage", "unread", "absent"),
    }


def _verified(store: Store, runs: Sequence[str]) -> Iterator[Verified]:
    """Verify runs and print their faults; show the progress, of a single run by its parts."""
    is_single = len(runs) == 1
    with count_progress("verify", "read", "part" if is_single else "run") as progress:
        counted = PartsProgress(None if is_single else progress, len(runs))
        for run in runs:
            verified = verify_run(store, run, progress=progress if is_single else None)
            for fault in (*verified.damage, *(() if verified.absent else verified.unread)):
                say(f"{verified.run} ({verified.document}): {fault}", error=True)
            yield verified
            counted.end()


def _print_absent(folder: Path, runs: Sequence[str], *, of_others: bool) -> None:
    """Print the runs without a directory in ``folder``; ``of_others`` if that is normal for a shared database."""
    not_read = f"not read: {count(len(runs), 'run')} of which {folder} has no files"
    if of_others:
        say_unless_quiet(
            not_read, "(those of another folder that shares the database: repeat with --files OTHER/results)"
        )
        return
    say(
        not_read,
        f"  {listed(runs, _LISTED)}",
        "where they are lost: make such a folder, empty, and verify it with --mark-failed; then its run is damaged",
        error=True,
    )


def _check_files(store: Store, runs: Sequence[str], *, of_database: bool) -> None:
    """Raise an error if none of the runs has files, because the location of the files is probably wrong."""
    if runs and not any(os.path.isdir(store.instance_directory(run)) for run in runs):
        hint = (
            "say where they are: --files FOLDER/results"
            if of_database
            else "was it moved, or is it not mounted?"
        )
        raise PalaestraiMosaikError(f"{store.directory / INSTANCES} has no files of these runs; {hint}")
