"""``palaestrai-mosaik theatre`` and ``arsenai theatre``: what a page shows, as one file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import RESULTS
from palaestrai_mosaik.design.run_names import slug
from palaestrai_mosaik.errors import FINISHED, PalaestraiMosaikError
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.text import count
from palaestrai_mosaik.web.theatre import MotionChoice, comparison_page, design_page, run_page, store_page

from .answers import answer
from .common import find_folder, named_after
from .output import count_progress, say_unless_quiet, wants_json, warn
from .tables import byte_size

if TYPE_CHECKING:
    from palaestrai_mosaik.pages import Page
    from palaestrai_mosaik.web.motions import EpisodeChoice


def theatre(
    location: StoreLocation,
    runs: Sequence[str],
    output: str | None,
    *,
    phases: Sequence[int | str],
    episode: EpisodeChoice,
    beside: int | str | None,
) -> int:
    """Write one run, several runs compared, or without ``runs`` all runs of a store as one file; print what it has.

    Args:
        location: the store.
        runs: which runs.
        output: the file; ``None``: named after the run, ``comparison.html`` or ``runs.html``.
        phases: of a single run, as for :class:`~palaestrai_mosaik.web.theatre.MotionChoice`.
        episode: likewise.
        beside: likewise.
    """
    choice = MotionChoice(tuple(phases), episode, beside)
    if len(runs) != 1 and choice != MotionChoice():
        raise PalaestraiMosaikError("--phase, --episode and --beside go with a single RUN")
    unit = "phase" if len(runs) == 1 else "run"
    with location.look() as store, count_progress("theatre", "read", unit) as progress:
        if not runs:
            page, name = store_page(store, progress=progress), "runs.html"
        elif len(runs) == 1:
            page = run_page(store, runs[0], choice, progress=progress)
            name = named_after(store, page.title, ".html")
        else:
            page, name = comparison_page(store, runs, progress=progress), "comparison.html"
    path, size = _write(page, output or name)
    if wants_json():
        told = {name: list(getattr(page, name)) for name in ("phases", "left_out", "thinned")}
        run = page.title if len(runs) == 1 else None
        answer({"run": run, "runs": page.runs, "file": path, "bytes": size, **told})
        return FINISHED
    if len(runs) == 1:
        if not page.phases:
            warn(
                f"run {page.title} has recorded neither a topology nor frames: the file shows nothing in motion"
            )
        if page.left_out:
            warn(f"left out, to keep the file small: {', '.join(page.left_out)} (--phase names phases)")
    elif page.left_out:
        what = "not all of their phases are in motion" if runs else "the file has no page"
        warn(f"to keep the file small, {what}: {count(len(page.left_out), 'run')}")
    if page.thinned:
        warn(f"not all states or frames are in the file: {', '.join(page.thinned)}")
    return _said(path, size)


def theatre_of_design(folder: str | None, *, store: str | None, output: str | None) -> int:
    """Write the page of the design in ``folder`` as one file (default: named after the design); print its name."""
    opened = find_folder(folder)
    location = StoreLocation.of(opened.path / RESULTS, store)
    with (
        count_progress("analyse", "drawn", "resample") as analysing,
        count_progress("theatre", "read", "run") as progress,
    ):
        page = design_page(opened, location, analysing=analysing, progress=progress)
    path, size = _write(page, output or f"{slug(page.title)}.html")
    if wants_json():
        answer({"design": page.title, "folder": opened.path, "runs": page.runs, "file": path, "bytes": size})
        return FINISHED
    return _said(path, size)


def _write(page: Page, path: str) -> tuple[str, int]:
    """Write the file; return its path and its bytes."""
    data = page.html.encode("utf-8")
    files.write_bytes(path, data)
    return path, len(data)


def _said(path: str, size: int) -> int:
    say_unless_quiet(f"{path} ({byte_size(size)})")
    return FINISHED
