"""Pages in one file, without server and network: a run, a comparison of runs, all runs of a store, a design."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from palaestrai_mosaik.arsenai.analysis.moments import Better, best_first, worst_first
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.pages import HEIGHT, Page
from palaestrai_mosaik.core.printing import joined
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.store import StoreLocation

from .carried import (
    TIME,
    Carried,
    EpisodeChoice,
    Films,
    Motions,
    add_overview,
    add_record,
    add_time,
    phase_number,
    phases_in_motion,
    reserved,
)
from .data.design_analysis import analysis_of
from .page import single_file
from .resources import ResourceError, Source, address

#: maximum number of runs, newest first, with small curves in the page of a store
_MOST_CURVES = 2_000
#: maximum number of runs with an overview: the newest of a store, or the best and worst of a design
_MOST_OVERVIEWS = 50
#: maximum size of the file of a store or a design with overviews, in bytes
_OVERVIEWS = 3_000_000


@dataclass(frozen=True)
class MotionChoice:
    """The phases and episodes that the page of a run shows in motion.

    Args:
        phases: numbers or names of phases. If empty, all phases, but the last ones are left out if the file would
            become larger than :data:`.carried.SIZE`. Rendered frames take the rest of that size; of longer episodes,
            only every second, third, ... frame is carried.
        episode: the episode of each phase. If it has no frames, those of the newest episode with frames are shown.
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
        run: the run, as in :meth:`Store.find_run`.
        choice: the phases and episodes in motion; ``None``: the newest episode of all phases.
        height: the height of the page in a notebook, in pixels.
        progress: called with the number of phases that have been read, and their total.

    Raises:
        StoreError: the run, phase or episode does not exist.
    """
    choice = choice or MotionChoice()
    carried = Carried(Source(store))
    uid = store.find_run(run)
    index, films = carried.get(f"run/{uid}/grid"), Films(carried.source, uid)
    moving = phases_in_motion(index)
    beside = [] if choice.beside is None else [choice.beside]
    chosen = [
        phase_number(index, uid, phase, moving | {*films.phases}) for phase in (*choice.phases, *beside)
    ]
    named, second = chosen[: len(choice.phases)], chosen[-1] if beside else None
    facts = carried.get(f"run/{uid}")
    add_overview(carried, uid)
    add_record(carried, uid)
    motions = Motions(carried, uid, index, choice.episode)
    with reserved(carried, TIME):
        motions.add(
            [phase for phase in chosen if phase in moving], others=not choice.phases, progress=progress
        )
    timed = add_time(carried, uid, motions.shown)
    films.add(
        chosen if choice.phases else [*chosen, *films.phases],
        {phase: entry["episode"] for phase, entry in motions.shown.items()},
        choice.episode,
        max(0, carried.limit - carried.size),
    )
    carried.add(films.carried)
    home = f"#/run/{quote(uid)}"
    if motions.shown:
        home += f"/grid?{urlencode(motions.opened(named, second))}"
        carried.add({f"run/{uid}/grid": motions.index()})
    elif films.shown:
        home += f"/frames?{urlencode(films.opened(named, second))}"
    _add_head(carried, uid, facts, _views(timed, motions, films))
    names = {int(entry["phase"]): str(entry["name"]) for entry in index["phases"]}
    phases = sorted({*motions.shown, *(entry["phase"] for entry in films.shown)})
    return Page(
        title=uid,
        html=single_file(str(facts["document"]), home, carried.resources),
        runs=(uid,),
        phases=tuple(names[phase] for phase in phases),
        left_out=tuple(names[phase] for phase in motions.left_out if phase not in phases),
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
    """Return a comparison of runs as one file, with each run's page as in :func:`run_page` as long as it stays small.

    Args:
        store: the store that has the runs.
        runs: the runs, as in :meth:`Store.find_run`.
        height: the height of the page in a notebook, in pixels.
        progress: called with the number of runs that have been read, and their total.

    Raises:
        StoreError: a run does not exist, or all are the same run.
        ResourceError: there are too many runs to distinguish their lines.
    """
    uids = list(dict.fromkeys(store.find_run(run) for run in runs))
    if len(uids) < 2:
        raise StoreError(
            f"{joined([repr(run) for run in runs])} are one run, {uids[0]}: name several to compare them"
        )
    carried = Carried(Source(store))
    joined_uids = ",".join(uids)
    carried.take("compare", {"runs": joined_uids})
    for uid in uids:
        add_overview(carried, uid, statistics=False)
    phases: list[str] = []
    thinned: list[str] = []
    left_out: list[str] = []
    counted = PartsProgress(progress, len(uids))
    for done, uid in enumerate(uids):
        # each run gets an equal share of the remaining size
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
        names = {int(row["phase"]): str(row["name"]) for row in index["phases"]}
        phases += [names[phase] for phase in motions.shown]
        thinned += [names[phase] for phase in motions.thinned]
        left_out += [uid] if motions.left_out else []
        counted.end()
    home = f"#/compare/{quote(joined_uids)}"
    title = f"{len(uids)} runs compared"
    html = single_file(title, home, carried.resources, "Comparison")
    return Page(
        title,
        html,
        runs=tuple(uids),
        phases=tuple(dict.fromkeys(phases)),
        left_out=tuple(left_out),
        thinned=tuple(dict.fromkeys(thinned)),
        height=height,
    )


def store_page(store: Store, *, height: int = HEIGHT, progress: ProgressCallback | None = None) -> Page:
    """Return the list of all runs of a store as one file, with the overviews of the newest runs.

    Args:
        store: the store.
        height: the height of the page in a notebook, in pixels.
        progress: called with the number of overviews that have been read, and their total.
    """
    carried = Carried(Source(store))
    rows = carried.get("runs")
    # lists keep double precision; in single precision, times would be off by minutes
    times = {name: rows[name].tolist() for name in ("started", "ended")}
    if not np.isnan(times["ended"]).any():
        # the same runs give the same file, independent of the time of writing
        times["now"] = max(times["ended"], default=0.0)
    carried.add({"runs": {**rows, **times}})
    uids = rows["run"][::-1]
    carried.add({"sparklines": store.objective_curves(uids[:_MOST_CURVES])})
    overviews = _add_overviews(carried, uids[:_MOST_OVERVIEWS], progress)
    name = store.directory.name
    html = single_file(f"Runs in {name}", "#/runs", carried.resources, "All runs")
    return Page(name, html, runs=tuple(overviews), left_out=tuple(uids[len(overviews) :]), height=height)


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
        store: the store or location of its results, which need not exist.
        height: the height of the page in a notebook, in pixels.
        analysing: called with the number of resamples drawn for intervals, and their total.
        progress: called with the number of overviews that have been read, and their total.

    Raises:
        StoreError: the store cannot be opened.
    """
    source = Source(store, folder)
    try:
        carried = Carried(source)
        # read the states first, because a search may add rows in between
        states = carried.take("design/states")
        facts = carried.get("design")
        # the location of the folder is private
        carried.add({"design": {**facts, "folder": folder.path.name}})
        outcomes = carried.take("design/outcomes")
        if facts["search"]:
            _add_search(carried, [factor["name"] for factor in facts["factors"]])
        analysis_of(source)[1].listener = analysing
        try:
            carried.take("design/analysis")
        except ResourceError as error:
            carried.add({"design/analysis": {"refused": str(error)}})
        overviews = _add_overviews(carried, _extreme_runs(facts, states, outcomes), progress)
    finally:
        if isinstance(store, StoreLocation):
            source.close()
    uid = folder.spec.uid
    html = single_file(uid, "#/design", carried.resources, "Design")
    return Page(uid, html, runs=tuple(overviews), height=height)


def _add_search(carried: Carried, factors: Sequence[str]) -> None:
    """Carry the settings of a search, their pictures, and each objective over the first two factors."""
    # the version would contain modification times of files
    search = {**carried.get("design/search"), "version": ""}
    carried.add({"design/search": search})
    for path in ("design/search/slices", "design/search/course"):
        carried.add({path: {**carried.get(path), "version": ""}})
    for objective in search["objectives"] if len(factors) > 1 else []:
        path, query = (
            "design/search/contour",
            {"x": factors[0], "y": factors[1], "objective": objective["name"]},
        )
        carried.add({address(path, query): {**carried.get(path, query), "version": ""}})


def _views(timed: Collection[int], motions: Motions, films: Films | None = None) -> list[str]:
    by_view = {"time": timed, "grid": motions.shown, "frames": films and films.shown}
    return ["overview", *(name for name, content in by_view.items() if content), "record"]


def _add_head(carried: Carried, uid: str, facts: dict[str, Any], views: list[str]) -> None:
    carried.add({f"run/{uid}": {**facts, "views": views}})


def _add_overviews(
    carried: Carried, uids: Sequence[str], progress: ProgressCallback | None = None
) -> list[str]:
    """Carry the overviews of runs as long as the file stays small; return their uids."""
    added: list[str] = []
    counted = PartsProgress(progress, len(uids))
    for uid in uids:
        with reserved(carried, carried.limit - _OVERVIEWS):
            if not add_overview(carried, uid, required=False):
                break
        add_record(carried, uid)
        _add_head(carried, uid, carried.get(f"run/{uid}"), ["overview", "record"])
        added.append(uid)
        counted.end()
    counted.end(len(uids) - len(added))
    return added


def _extreme_runs(facts: dict[str, Any], states: dict[str, Any], outcomes: dict[str, Any]) -> list[str]:
    """Return the instances with the best and the worst values of an outcome, then failed ones."""
    changed = states["changed"]
    instance = dict(zip(np.asarray(changed["run"]).tolist(), changed["instance"], strict=True))
    failed = [run for run, *_ in changed["errors"]]
    cells = np.asarray(facts["cells"])
    extremes: list[int] = []
    if outcomes["outcomes"]:
        # the first outcome with a direction
        first = next(
            (outcome for outcome in outcomes["outcomes"] if outcome["better"]), outcomes["outcomes"][0]
        )
        values = np.asarray(first["values"], dtype=float)
        better: Better = first["better"] or "lower"
        half = _MOST_OVERVIEWS // 2
        best, worst = (order(values, better)[:half] for order in (best_first, worst_first))
        # best, worst, second best, second worst, ...
        extremes = cells[np.column_stack([best, worst]).ravel()].tolist()
    numbers = dict.fromkeys([*extremes, *failed])
    return [str(instance[run]) for run in numbers if instance.get(run) is not None][:_MOST_OVERVIEWS]
