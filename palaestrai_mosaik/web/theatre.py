"""Pages in one file, without server and network: a run, several runs compared, all runs of a store, a design."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.pages import HEIGHT, Page
from palaestrai_mosaik.progress import ProgressCallback
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.text import joined

from .carried import Carried, reserved
from .data.design_analysis import analysis_of
from .films import Films
from .motions import EpisodeChoice, Motions, phase_number, phases_in_motion
from .page import single_file
from .resources import ResourceError, Source
from .run_parts import TIME, add_overview, add_overview_if_small, add_record, add_time

#: of so many runs, the newest, the page of a store has small curves
_MOST_CURVES = 2_000
#: of so many runs, the newest of a store, or the best and worst of a design, a file has the overview
_MOST_OVERVIEWS = 50
#: with overviews, the file of a store or a design has at most so many bytes
_OVERVIEWS = 3_000_000


@dataclass(frozen=True)
class MotionChoice:
    """What the page of a run shows in motion.

    Args:
        phases: numbers or names of phases. Without any: all, but phases are left out, the last ones first, for which
            the file would be larger than :data:`.carried.SIZE`. Rendered frames take what is left of that size: of
            longer episodes, every second, third, ... frame.
        episode: which episode of each phase. Of an episode without frames, those of the newest one with frames are
            shown.
        beside: number or name of the phase that is shown beside the first one when the file is opened.
    """

    phases: Sequence[int | str] = ()
    episode: EpisodeChoice = "newest"
    beside: int | str | None = None


def run_page(
    store: Store,
    run: str,
    choice: MotionChoice | None = None,
    *,
    height: int = HEIGHT,
    progress: ProgressCallback | None = None,
) -> Page:
    """Return a run as one file.

    Args:
        store: the store that has the run.
        run: which run, as :meth:`Store.find_run` takes it.
        choice: what is shown in motion; ``None``: the newest episode of all phases.
        height: of the page in a notebook, in pixels.
        progress: called with the number of phases that have been read, and of all.

    Raises:
        StoreError: there is no such run, phase or episode.
    """
    choice = choice or MotionChoice()
    carried = Carried(Source(store))
    uid = store.find_run(run)
    index, films = carried.get(f"run/{uid}/grid"), Films(carried.source, uid)
    moving = phases_in_motion(index)
    named = [phase_number(index, uid, one, moving | {*films.phases}) for one in choice.phases]
    second = (
        None if choice.beside is None else phase_number(index, uid, choice.beside, moving | {*films.phases})
    )
    wanted = [*named, *([] if second is None else [second])]
    facts = carried.get(f"run/{uid}")
    add_overview(carried, uid)
    add_record(carried, uid)
    motions = Motions(carried, uid, index, choice.episode)
    with reserved(carried, TIME):
        motions.add(
            [phase for phase in wanted if phase in moving], others=not choice.phases, progress=progress
        )
    timed = add_time(carried, uid, motions.shown)
    films.add(
        wanted if choice.phases else [*wanted, *films.phases],
        {phase: one["episode"] for phase, one in motions.shown.items()},
        choice.episode,
        max(0, carried.limit - carried.size),
    )
    carried.add(films.carried)
    home = f"#/run/{quote(uid)}"
    if motions.shown:
        first = next((phase for phase in named if phase in motions.shown), motions.first(second))
        opened = {"at": motions.key(first)}
        if second in motions.shown:
            opened["beside"] = motions.key(second)
        home += f"/grid?{urlencode(opened)}"
        carried.add({f"run/{uid}/grid": motions.index()})
    elif films.shown:
        home += f"/frames?{urlencode(films.opened(named, second))}"
    _add_head(carried, uid, facts, _views(timed, motions, films))
    names = {int(one["phase"]): str(one["name"]) for one in index["phases"]}
    shown = sorted({*motions.shown, *(one["phase"] for one in films.shown)})
    return Page(
        title=uid,
        html=single_file(str(facts["document"]), home, carried.resources),
        runs=(uid,),
        phases=tuple(names[phase] for phase in shown),
        left_out=tuple(names[phase] for phase in motions.left_out if phase not in shown),
        thinned=tuple(names[phase] for phase in sorted({*motions.thinned, *films.thinned})),
        height=height,
    )


def comparison_page(
    store: Store,
    runs: Sequence[str],
    *,
    height: int = HEIGHT,
    progress: ProgressCallback | None = None,
) -> Page:
    """Return several runs side by side as one file, and each of them as :func:`run_page` shows it, as far as it stays small.

    Args:
        store: the store that has the runs.
        runs: which runs, as :meth:`Store.find_run` takes them.
        height: of the page in a notebook, in pixels.
        progress: called with the number of runs that have been read, and of all.

    Raises:
        StoreError: there is no such run, or these are one run.
        ResourceError: these are more runs than can be told apart.
    """
    uids = list(dict.fromkeys(store.find_run(run) for run in runs))
    if len(uids) < 2:
        raise StoreError(
            f"{joined([repr(run) for run in runs])} are one run, {uids[0]}: name several to compare them"
        )
    carried = Carried(Source(store))
    asked = ",".join(uids)
    carried.take("compare", {"runs": asked})
    for uid in uids:
        add_overview(carried, uid, statistics=False)
    shown: list[str] = []
    thinned: list[str] = []
    left_out: list[str] = []
    for done, uid in enumerate(uids):
        if progress is not None:
            progress(done, len(uids))
        # each run gets its share of what is left
        left = max(0, carried.limit - carried.size)
        with reserved(carried, left - left // (len(uids) - done)):
            add_record(carried, uid)
            index = carried.get(f"run/{uid}/grid")
            motions = Motions(carried, uid, index, "newest")
            with reserved(carried, TIME // len(uids)):
                motions.add([], others=True, least=0)
            timed = add_time(carried, uid, motions.shown)
        if motions.shown:
            carried.add({f"run/{uid}/grid": motions.index()})
        _add_head(carried, uid, carried.get(f"run/{uid}"), _views(timed, motions))
        names = {int(one["phase"]): str(one["name"]) for one in index["phases"]}
        shown += [names[phase] for phase in motions.shown]
        thinned += [names[phase] for phase in motions.thinned]
        left_out += [uid] if motions.left_out else []
    if progress is not None:
        progress(len(uids), len(uids))
    home = f"#/compare/{quote(asked)}"
    title = f"{len(uids)} runs compared"
    html = single_file(title, home, carried.resources, "Comparison")
    return Page(
        title,
        html,
        runs=tuple(uids),
        phases=tuple(dict.fromkeys(shown)),
        left_out=tuple(left_out),
        thinned=tuple(dict.fromkeys(thinned)),
        height=height,
    )


def store_page(store: Store, *, height: int = HEIGHT, progress: ProgressCallback | None = None) -> Page:
    """Return the list of all runs of a store as one file, with the overviews of the newest ones.

    Args:
        store: the store.
        height: of the page in a notebook, in pixels.
        progress: called with the number of overviews that have been read, and of all.
    """
    carried = Carried(Source(store))
    rows = carried.get("runs")
    # (in single precision, times would be off by minutes)
    times = {name: rows[name].tolist() for name in ("started", "ended")}
    if not np.isnan(times["ended"]).any():
        # the same runs give the same file, whenever it is written
        times["now"] = max(times["ended"], default=0.0)
    carried.add({"runs": {**rows, **times}})
    uids = rows["run"][::-1]
    carried.add({"sparklines": store.objective_curves(uids[:_MOST_CURVES])})
    shown = _add_overviews(carried, uids[:_MOST_OVERVIEWS], progress)
    name = store.directory.name
    html = single_file(f"Runs in {name}", "#/runs", carried.resources, "All runs")
    return Page(name, html, runs=tuple(shown), left_out=tuple(uids[len(shown) :]), height=height)


def design_page(
    folder: DesignFolder,
    store: Store | StoreLocation,
    *,
    height: int = HEIGHT,
    analysing: ProgressCallback | None = None,
    progress: ProgressCallback | None = None,
) -> Page:
    """Return a design as one file: states of its runs, outcomes, indices and comparisons, its best and worst runs.

    Args:
        folder: the folder of the design.
        store: where its results are; there need not be any.
        height: of the page in a notebook, in pixels.
        analysing: called with the number of resamples that have been drawn for intervals, and of all.
        progress: called with the number of runs of which an overview has been read, and of all.

    Raises:
        StoreError: the store cannot be opened.
    """
    source = Source(store, folder)
    try:
        carried = Carried(source)
        # (states first: a search may add rows in between)
        states = carried.take("design/states")
        facts = carried.get("design")
        # (where the folder is, stays with its user)
        carried.add({"design": {**facts, "folder": folder.path.name}})
        outcomes = carried.take("design/outcomes")
        if facts["search"]:
            # (its version names times of files)
            carried.add({"design/search": {**carried.get("design/search"), "version": ""}})
        analysis_of(source)[1].listener = analysing
        try:
            carried.take("design/analysis")
        except ResourceError as error:
            carried.add({"design/analysis": {"refused": str(error)}})
        shown = _add_overviews(carried, _extreme_runs(facts, states, outcomes), progress)
    finally:
        if isinstance(store, StoreLocation):
            source.close()
    uid = folder.spec.uid
    html = single_file(uid, "#/design", carried.resources, "Design")
    return Page(uid, html, runs=tuple(shown), height=height)


def _views(timed: Collection[int], motions: Motions, films: Films | None = None) -> list[str]:
    shown = {
        "time": timed,
        "grid": motions.shown,
        "frames": None if films is None else films.shown,
    }
    return ["overview", *(name for name, found in shown.items() if found), "record"]


def _add_head(carried: Carried, uid: str, facts: dict[str, Any], views: list[str]) -> None:
    carried.add({f"run/{uid}": {**facts, "views": views}})


def _add_overviews(
    carried: Carried, uids: Sequence[str], progress: ProgressCallback | None = None
) -> list[str]:
    """Carry the overviews of runs, as long as the file stays small; return which."""
    shown: list[str] = []
    for done, uid in enumerate(uids):
        if progress is not None:
            progress(done, len(uids))
        with reserved(carried, carried.limit - _OVERVIEWS):
            if not add_overview_if_small(carried, uid):
                break
        add_record(carried, uid)
        _add_head(carried, uid, carried.get(f"run/{uid}"), ["overview", "record"])
        shown.append(uid)
    if progress is not None:
        progress(len(uids), len(uids))
    return shown


def _extreme_runs(facts: dict[str, Any], states: dict[str, Any], outcomes: dict[str, Any]) -> list[str]:
    """Return the instances with the best and the worst values of an outcome, then those that failed."""
    changed = states["changed"]
    instance = dict(zip(np.asarray(changed["run"]).tolist(), changed["instance"], strict=True))
    failed = [run for run, *_ in changed["errors"]]
    cells = np.asarray(facts["cells"])
    found: Iterable[int] = ()
    if outcomes["outcomes"]:
        # of those with a direction the first one, the best runs first
        first = next((one for one in outcomes["outcomes"] if one["better"]), outcomes["outcomes"][0])
        values = np.asarray(first["values"], dtype=float) * (-1 if first["better"] == "higher" else 1)
        order = np.argsort(values, kind="stable")
        ordered = cells[order[np.isfinite(values[order])]].tolist()
        half = _MOST_OVERVIEWS // 2
        # best, worst, second best, second worst, ...
        found = [run for pair in zip(ordered[:half], ordered[::-1][:half], strict=True) for run in pair]
    wanted = dict.fromkeys([*found, *failed])
    return [str(instance[run]) for run in wanted if instance.get(run) is not None][:_MOST_OVERVIEWS]
