"""``serve`` and ``theatre``: pages of runs and designs, served or as single files."""

from __future__ import annotations

import html
import logging
import tempfile
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.design.expansion import slug
from palaestrai_mosaik.arsenai.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FINISHED, PalaestraiMosaikError, PrivateKeyError, did_you_mean
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.store.database import MissingStoreError
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web.access import is_loopback, lasting_token
from palaestrai_mosaik.web.resources import Source
from palaestrai_mosaik.web.theatre import MotionChoice, comparison_page, design_page, run_page, store_page
from palaestrai_mosaik.web.workplace import Workplace

from .common import find_folder, named_after
from .output import (
    answer,
    byte_size,
    count_progress,
    log_on_standard_error,
    quiet,
    say,
    say_unless_quiet,
    select,
    wants_json,
    warn,
)

if TYPE_CHECKING:
    from palaestrai_mosaik.core.pages import Page
    from palaestrai_mosaik.web.carried import EpisodeChoice


def serve(
    location: StoreLocation,
    *,
    folder: DesignFolder | None = None,
    host: str,
    port: int,
    read_only: bool,
    open_page: bool,
    allow_modules: Sequence[str] | None = None,
) -> int:
    """Serve the page of a store, or of a design ``folder``, until Ctrl-C or SIGTERM; return the exit code.

    Args:
        location: the store, which need not exist yet: its first run creates it.
        folder: the design that the page shows.
        host: the address to listen on.
        port: the port; if it is taken, the next free one; 0 for any.
        read_only: the page cannot start, cancel, check or label runs.
        open_page: open the page in the user's browser.
        allow_modules: the modules that documents in the page may name; ``None``: all.
    """
    try:
        from palaestrai_mosaik.web.server import listen
        from palaestrai_mosaik.web.server import serve as serve_page
    except ImportError as error:
        raise PalaestraiMosaikError(str(error)) from None
    if folder is None:
        _warn_if_missing(location, read_only)
    listening = listen(host, port)
    if port not in (0, listening.port):
        say_unless_quiet(f"port {port} is taken; using {listening.port}", error=True)
    if is_loopback(host):
        try:
            design = None if folder is None else folder.path
            token = lasting_token(
                location, design, listening.port, read_only=read_only, modules=allow_modules
            )
            listening = listening.with_token(token)
        except PrivateKeyError as error:
            warn(f"the page will have another address after a restart: {error}")
    else:
        # keep the random token, which ends with the server: others may read it
        _warn_of_others(host, read_only)
    workplace = None if read_only else Workplace(location, allow_modules)
    shown = location.shown if folder is None else f"{folder.path} (results in {location.shown})"

    def ready() -> None:
        if quiet():
            say(listening.address)
        else:
            say(f"{shown}: {listening.address}  (Ctrl-C ends the page; runs go on)")
        if open_page:
            threading.Thread(target=_open, args=(listening.address, temporary), daemon=True).start()

    with tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-") as temporary, log_on_standard_error():
        actions = logging.getLogger("palaestrai_mosaik.web.actions")
        actions.setLevel(logging.WARNING if quiet() else logging.INFO)
        serve_page(Source(location, folder, workplace), listening, ready)
    say_unless_quiet("the page has ended", error=True)
    return FINISHED


def serve_design(folder: str | None, store: str | None, **options: object) -> int:
    """Serve the page of a design folder; see :func:`serve`."""
    opened = find_folder(folder)
    return serve(StoreLocation.of(opened.path / RESULTS, store), folder=opened, **options)  # type: ignore[arg-type]


def _warn_if_missing(location: StoreLocation, read_only: bool) -> None:
    """Warn of a missing store, with the nearest name. Raises :class:`StoreError` if the store cannot be opened."""
    try:
        location.look().close()
    except MissingStoreError as error:
        near = others = ""
        if (folder := location.folder) is not None:
            stores = {str(folder.parent / name) for name in _stores_in(folder.parent)}
            near = did_you_mean(str(folder), stores)
            if stores and not near:
                listed = ", ".join(sorted(stores)[:8])
                others = f"; in {folder.parent.absolute()} there are: {listed}"
        run = f"palaestrai-mosaik start RUN.yml --store {location.shown}"
        creates = f"a run creates it: {run}" if read_only else "the first run that is started creates it"
        warn(f"{error}{near}{others}. The page shows no runs; {creates}")


def _stores_in(folder: Path) -> list[str]:
    try:
        stores = (path for path in folder.iterdir() if not path.is_symlink())
        return sorted(path.name for path in stores if (path / "store.db").is_file())
    except OSError:
        return []


def _warn_of_others(host: str, read_only: bool) -> None:
    may = (
        "read all results"
        if read_only
        else "read all results, and start, cancel and check runs with your rights"
    )
    warn(
        f"other machines reach the page on {host}: whoever has the address with the token can {may}. The connection is "
        "not encrypted, so others in the network may read the token. Safer: keep the default, and use ssh -L "
        "(docs/live-page.md)"
    )


def _open(address: str, folder: str) -> None:
    """Open the page in a browser, through a file, because all users can read the token on a command line."""
    page = Path(folder, "open.html")
    there = html.escape(address)
    files.write_bytes(
        page,
        f'<!DOCTYPE html><title>palaestrai-mosaik</title><meta http-equiv="refresh" content="0;url={there}">'.encode(),
        private=True,
    )
    if not webbrowser.open(page.as_uri()):
        warn("no browser was found; open the address yourself")


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
    single = len(runs) == 1
    unit = "phase" if single else "run"
    with location.look() as store, count_progress("theatre", "read", unit) as progress:
        if not runs:
            page, name = store_page(store, progress=progress), "runs.html"
        elif single:
            page = run_page(store, runs[0], choice, progress=progress)
            name = named_after(store, page.title, ".html")
        else:
            page, name = comparison_page(store, runs, progress=progress), "comparison.html"
    data = _write(page, output or name)
    if not wants_json():
        warn(*_warnings(page, len(runs)))
    run = page.title if single else None
    return _print_file({"run": run, **data, **select(page, "phases", "left_out", "thinned")})


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
    data = _write(page, output or f"{slug(page.title)}.html")
    return _print_file({"design": page.title, "folder": opened.path, **data})


def _write(page: Page, path: str) -> dict[str, Any]:
    """Write the file; return its runs, path and size in bytes."""
    content = page.html.encode("utf-8")
    files.write_bytes(path, content)
    return {"runs": page.runs, "file": path, "bytes": len(content)}


def _print_file(data: dict[str, Any]) -> int:
    say_unless_quiet(f"{data['file']} ({byte_size(data['bytes'])})")
    answer(data)
    return FINISHED
