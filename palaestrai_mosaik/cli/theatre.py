"""``palaestrai-mosaik theatre``: a run as one file that a browser shows without a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import FINISHED
from palaestrai_mosaik.web.theatre import EpisodeChoice, run_page

from .answers import answer
from .common import named_after
from .output import count_progress, say_unless_quiet, wants_json, warn
from .tables import byte_size

if TYPE_CHECKING:
    from palaestrai_mosaik.store.location import StoreLocation


def theatre(
    location: StoreLocation,
    run: str,
    output: str | None,
    *,
    phases: Sequence[int | str],
    episode: EpisodeChoice,
    beside: int | str | None,
) -> int:
    """Write a run as one file into ``output``, or a file named after its document; print what it has.

    Arguments as for :func:`~palaestrai_mosaik.web.theatre.run_page`.
    """
    with location.look() as store, count_progress("theatre", "read", "phase") as progress:
        page = run_page(store, run, phases=phases, episode=episode, beside=beside, progress=progress)
        path = output or named_after(store, page.run, ".html")
    data = page.html.encode("utf-8")
    files.write_bytes(path, data)
    if wants_json():
        told = {name: list(getattr(page, name)) for name in ("phases", "left_out", "thinned")}
        answer({"run": page.run, "file": path, "bytes": len(data), **told})
        return FINISHED
    if not page.phases:
        warn(f"run {page.run} has recorded neither a topology nor frames: the file shows nothing in motion")
    if page.left_out:
        warn(f"left out, to keep the file small: {', '.join(page.left_out)} (--phase names phases)")
    if page.thinned:
        warn(f"not all states or frames are in the file: {', '.join(page.thinned)}")
    say_unless_quiet(f"{path} ({byte_size(len(data))})")
    return FINISHED
