"""``arsenai collect``: the results of runs on a cluster, from their own stores into one."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack

from palaestrai_mosaik.design.folder import RESULTS, STORES, DesignFolder
from palaestrai_mosaik.execution import StoreLocation
from palaestrai_mosaik.execution.cluster.collect import Collected, collect_folder

from .common import FAILED, FINISHED, say, store_option
from .folders import find_folder
from .progress import CountProgress
from .run_lists import short_path
from .tables import byte_size, count

_LISTED = 20


def collect(folder: str | None, *, store: str | None, remove: bool, quiet: bool) -> int:
    """Copy what runs of ``folder`` have recorded on a cluster into ``store``; return the exit code.

    It is 1 where the own store of a run cannot be read, or removed. ``remove``: the own stores of
    finished runs are removed once they are copied, and the copy was read.
    """
    opened = find_folder(folder)
    location = StoreLocation.of(opened.path / RESULTS, store)
    with ExitStack() as stack:
        progress = None if quiet else stack.enter_context(CountProgress(sys.stderr, "collect", "looked at"))
        found = collect_folder(opened, location, remove=remove, progress=progress)
    tell(opened, found)
    # (what has not ended is collected by another call)
    then, option = "status" if found.going_on or found.damaged else "analyse", store_option(store)
    say(f"next: arsenai {then} {shlex.quote(short_path(opened.path))}{option}")
    if option and (found.runs or found.before):
        say(f"the results are there from now on: status, resume and all others need{option}, too")
    return FAILED if found.damaged or found.kept else FINISHED


def tell(folder: DesignFolder, found: Collected) -> None:
    """Print what was collected, and what could not be."""
    for line in _lines(folder, found):
        say(line)
    # what is on standard output comes first where both streams are one
    sys.stdout.flush()
    for what, reasons in (("not collected", found.damaged), ("not removed", found.kept)):
        for path, reason in list(reasons.items())[:_LISTED]:
            say(f"{what}: {path.name}: {reason}", error=True)
        if len(reasons) > _LISTED:
            say(f"and {len(reasons) - _LISTED:,} more", error=True)


def _lines(folder: DesignFolder, found: Collected) -> Iterator[str]:
    new = found.runs.total()
    words = ", ".join(f"{n:,} {status}" for status, n in sorted(found.runs.items()))
    yield f"collected: {count(new, 'run')}" + (f" ({words})" if new else "")
    left = [
        (found.before, "collected before"),
        (found.going_on, "not ended yet (arsenai status)"),
        (found.empty, "without anything recorded"),
        (len(found.damaged), "whose store cannot be read"),
    ]
    for number, which in left:
        if number:
            yield f"left out: {count(number, 'run')} {which}"
    if found.removed:
        yield (
            f"removed: {count(found.removed, 'store')} of finished runs in {folder.path / STORES} "
            f"({count(found.files, 'file')}, {byte_size(found.freed)} are free now)"
        )
