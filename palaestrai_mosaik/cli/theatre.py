"""``palaestrai-mosaik theatre`` and ``arsenai theatre``: pages of runs and designs as single files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from palaestrai_mosaik.arsenai.design.folder import RESULTS
from palaestrai_mosaik.arsenai.design.run_names import slug
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FINISHED, PalaestraiMosaikError
from palaestrai_mosaik.core.text import count
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.web.theatre import MotionChoice, comparison_page, design_page, run_page, store_page

from .answers import answer
from .common import find_folder, named_after
from .output import count_progress, say_unless_quiet, wants_json, warn
from .tables import byte_size

if TYPE_CHECKING:
    from palaestrai_mosaik.core.pages import Page
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
    """Write one run, a comparison of several runs, or all runs of a store as a single file; print its name.

    Args:
        location: the store.
        runs: the runs; all of the store if empty.
        output: the file; ``None``: named after the run, ``comparison.html`` or ``runs.html``.
        phases: of a single run, as for :class:`~palaestrai_mosaik.web.theatre.MotionChoice`.
        episode: of a single run, likewise.
        beside: of a single run, likewise.
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
        lists = {name: list(getattr(page, name)) for name in ("phases", "left_out", "thinned")}
        run = page.title if len(runs) == 1 else None
        answer({"run": run, "runs": page.runs, "file": path, "bytes": size, **lists})
        return FINISHED
    for warning in _warnings(page, len(runs)):
        warn(warning)
    return _print_file(path, size)


def _warnings(page: Page, runs: int) -> Iterator[str]:
    """Yield the parts of ``runs`` runs, or of all for 0, that the page lacks."""
    left_out = count(len(page.left_out), "run")
    if runs == 1 and not page.phases:
        yield f"run {page.title} has recorded neither a topology nor frames: the file shows nothing in motion"
    if page.left_out and runs == 1:
        yield f"left out, to keep the file small: {', '.join(page.left_out)} (--phase names phases)"
    elif page.left_out and runs:
        yield f"to keep the file small, not all of their phases are in motion: {left_out}"
    elif page.left_out:
        yield f"to keep the file small, the file has no page: {left_out}"
    if page.thinned:
        yield f"not all states or frames are in the file: {', '.join(page.thinned)}"


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
    return _print_file(path, size)


def _write(page: Page, path: str) -> tuple[str, int]:
    """Write the file; return its path and its size in bytes."""
    data = page.html.encode("utf-8")
    files.write_bytes(path, data)
    return path, len(data)


def _print_file(path: str, size: int) -> int:
    say_unless_quiet(f"{path} ({byte_size(size)})")
    return FINISHED
