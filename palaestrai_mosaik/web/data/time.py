"""What the page shows of a run over simulated time: chosen columns of an episode, of one phase or of several."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.analysis.columns import (
    PREFIXES,
    Clock,
    Moment,
    RowSource,
    bare,
    clock_of,
    sources_of,
    unit_of,
)
from palaestrai_mosaik.analysis.curves import percentiles
from palaestrai_mosaik.analysis.learning import MOST_LINES
from palaestrai_mosaik.analysis.limits import Pair, bounds_of, in_sight, limits_of
from palaestrai_mosaik.analysis.series import (
    Curve,
    by_scale,
    by_unit,
    has_natural_scale,
    matching_curves,
    y_label_of,
)
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.store import BodyChoice, Store
from palaestrai_mosaik.text import joined

from ..extremes import places_of_extremes
from ..resources import Query, ResourceError, Source, resource

if TYPE_CHECKING:
    import pandas as pd

#: percentiles of a band, and what they are called in the answer
_LEVELS = {"min": 0, "low": 5, "median": 50, "high": 95, "max": 100}
#: of single columns, so many are suggested beside the patterns
_MOST_NAMES = 300
# numbers within a name: those of a bus, or the places within a vector
_NUMBERS = re.compile(r"\[[\d, ]+\]|\d+")
_NUMBERED = re.compile(r"(?<=[-._])\d+|\[[\d, ]+\]")


@dataclass(frozen=True)
class _Chosen:
    """An episode that is shown, and what belongs to it; ``last`` is the newest one of its worker."""

    moment: Moment
    last: int
    sources: Sequence[RowSource]
    clock: Clock | None
    bounds: dict[str, Pair]


@resource("run/{run}/time")
def time(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return what there is to choose from: phases, workers, episodes, bodies, and patterns of columns."""
    store = source.store
    uid = store.find_run(run)
    recorded = store.recorded_episodes(uid)
    phases: list[dict[str, Any]] = []
    offered: dict[str, None] = {}
    row: Any
    for row in store.phases(uid).itertuples(index=False):
        own = recorded[recorded["phase"] == row.phase]
        sources = sources_of(store, uid, int(row.phase), BodyChoice())
        offered |= dict.fromkeys(name for one in sources for name in one.columns)
        bodies = store.bodies(uid, row.phase).groupby("agent")["count"].sum()
        incarnations = store.environments(uid, row.phase)["incarnations"]
        phases.append(
            {
                **{"phase": row.phase, "name": row.name, "mode": row.mode},
                "bodies": int(bodies.max()) if len(bodies) else 0,
                "incarnations": int(incarnations.max()) if len(incarnations) else 0,
                "episodes": [
                    {"worker": one.worker, "evaluation": bool(one.evaluation), "last": one.last}
                    for one in own.itertuples(index=False)
                ],
            }
        )
    suggested = suggestions(list(offered))
    return {"phases": phases, "suggestions": suggested, "patterns": default_patterns(suggested)}


@resource("run/{run}/series")
def series(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return chosen columns over an episode, as panels of lines or of percentiles.

    The query has ``phases`` (numbers, separated by commas; default: the last one with rows), ``worker`` (default:
    the first), ``episode`` (default: the last), ``evaluation`` (``1``: evaluation episodes), ``body`` or
    ``incarnation`` (default: all, as a band), ``patterns`` (one a line), and a window of ticks, ``start`` (the
    first) and ``stop`` (behind the last). Lines are sent with some 2,000 points, among them their lowest and
    highest values.
    """
    store = source.store
    uid = store.find_run(run)
    start, stop = query.integer("start"), query.integer("stop")
    recorded = store.recorded_episodes(uid)
    newest = int(recorded["phase"].max()) if len(recorded) else None
    chosen = _chosen(store, uid, query, recorded)
    # columns of other phases count: a link shows the same panels for all of them
    names = list(dict.fromkeys(name for one in chosen for two in one.sources for name in two.columns))
    patterns = [text for text in query.get("patterns", "").split("\n") if text]
    patterns = patterns or default_patterns(suggestions(names))
    clock, same_start = _common_clock([one.clock for one in chosen])
    complete: dict[int, int] = {}
    panels: list[dict[str, Any]] = []
    problems = []
    for place, pattern in enumerate(patterns):
        found: list[tuple[int, Curve, str]] = []
        lacking = []
        for i, one in enumerate(chosen):
            try:
                curves = matching_curves(one.sources, one.moment, pattern, None, start, stop)
            except StoreError as error:
                lacking.append({"pattern": place, "message": str(error)})
                continue
            found += [(i, curve, name) for curve, name in curves]
            ends = [int(curve.x[-1]) for curve, _ in curves if len(curve.x)]
            complete[i] = min([complete.get(i, max(ends)), *ends]) if ends else complete.get(i, -1)
        problems += lacking if not found else []
        panels += [{"pattern": place, **panel} for panel in _panels(found, chosen)]
    ends = [
        end
        for panel in panels
        for one in panel["lines"]
        for end in (one["x"][[0, -1]] if len(one["x"]) else ())
    ]
    return {
        "patterns": patterns,
        "phases": [
            {
                **{"phase": one.moment.phase, "name": one.moment.phase_name, "worker": one.moment.worker},
                **{"episode": one.moment.episode, "evaluation": one.moment.evaluation},
                **{"last": one.last, "complete": complete.get(i, -1)},
            }
            for i, one in enumerate(chosen)
        ],
        # (of a run that goes on, a later phase may have begun)
        "newest": newest,
        "seconds_per_tick": None if clock is None else clock.seconds_per_tick,
        "start": None if clock is None or not same_start else str(clock.start),
        "span": [int(min(ends)), int(max(ends))] if ends else None,
        "panels": panels,
        "problems": problems,
    }


def _chosen(store: Store, uid: str, query: Query, recorded: pd.DataFrame) -> list[_Chosen]:
    """Return the episodes that a query means."""
    evaluation, worker, episode = query.flag("evaluation"), query.integer("worker"), query.integer("episode")
    choice, incarnation = BodyChoice(body=query.integer("body")), query.integer("incarnation")
    names = store.phases(uid).set_index("phase")["name"]
    recorded = recorded[recorded["evaluation"].astype(bool) == evaluation]
    wanted = query.texts("phases") or ([str(recorded["phase"].max())] if len(recorded) else [])
    chosen = []
    for text in dict.fromkeys(wanted):
        phase = int(text) if text.isdecimal() else -1
        if phase not in names.index:
            known = ", ".join(f"{number} {name!r}" for number, name in names.items())
            raise ResourceError(f"phases: there is no phase {text}; there are: {known or 'none'}")
        own = recorded[recorded["phase"] == phase]
        of = int(own["worker"].min()) if worker is None and len(own) else worker or 0
        own = own[own["worker"] == of]
        what = "evaluation episode" if evaluation else "episode"
        if own.empty:
            raise StoreError(f"phase {phase} {names[phase]!r} has no {what} of worker {of} that was recorded")
        first, last = int(own["first"].iloc[0]), int(own["last"].iloc[0])
        number = last if episode is None else episode
        if not first <= number <= last:
            raise StoreError(
                f"phase {phase} {names[phase]!r} has no {what} {number} of worker {of}: it has {first} to {last}"
            )
        chosen.append(
            _Chosen(
                Moment(phase, str(names[phase]), of, number, evaluation),
                last,
                sources_of(store, uid, phase, choice, incarnation),
                clock_of(store, uid, phase),
                bounds_of(store, uid, phase),
            )
        )
    return chosen


def _common_clock(clocks: Sequence[Clock | None]) -> tuple[Clock | None, bool]:
    """Return a clock that counts seconds as all do, if there is one, and whether all begin at its date."""
    first = clocks[0] if clocks else None
    if first is None or any(one is None or one.seconds_per_tick != first.seconds_per_tick for one in clocks):
        return None, False
    return first, all(one == first for one in clocks)


def _panels(found: Sequence[tuple[int, Curve, str]], chosen: Sequence[_Chosen]) -> Iterable[dict[str, Any]]:
    """Yield a panel for each unit of the curves that one pattern means, in all phases."""
    phase_of = {id(curve): i for i, curve, _ in found}
    for named in by_unit([(curve, name) for _, curve, name in found]):
        columns = dict.fromkeys((curve.label, name) for curve, name in named)
        shown = [(phase_of[id(curve)], curve, name) for curve, name in named if np.isfinite(curve.y).any()]
        # (whether or not they have values: the same in every window of the episode)
        many = len(columns) > MOST_LINES
        there = {phase_of[id(curve)] for curve, _ in named}
        without = [repr(one.moment.phase_name) for i, one in enumerate(chosen) if i not in there]
        missing = len(named) - len(shown)
        bands = any(curve.low is not None for _, curve, _ in shown)
        notes = [
            "mean over the bodies; band: lowest to highest" if bands and not many else "",
            f"{missing:,} without any value left out" if missing else "",
            f"not in {joined(without)}" if without else "",
        ]
        lines = _bands(shown) if many else _lines(shown, list(columns))
        limits = limits_of([name for *_, name in shown], chosen[0].bounds, True, several=False)
        yield {
            "y_label": y_label_of(name for _, name in named),
            "unit": unit_of(named[0][1]),
            "kind": "percentiles" if many else "lines",
            "columns": len(columns),
            "note": "; ".join(note for note in notes if note),
            "limits": [
                {"value": one.value, "name": one.name}
                for one in in_sight(limits, [curve.y for _, curve, _ in shown])
            ],
            "lines": lines,
        }


def _lines(
    shown: Sequence[tuple[int, Curve, str]], columns: Sequence[tuple[str, str]]
) -> list[dict[str, Any]]:
    coloured = [
        (i, replace(curve, colour=columns.index((curve.label, name))), name) for i, curve, name in shown
    ]
    right = on_right_axis(
        [curve for _, curve, _ in coloured], natural=any(has_natural_scale(n) for *_, n in shown)
    )
    lines = []
    for i, curve, name in coloured:
        low = curve.y if curve.low is None else curve.low
        places = places_of_extremes(low, curve.high)
        band = {} if curve.low is None or curve.high is None else {"low": curve.low, "high": curve.high}
        lines.append(
            {
                **{"phase": i, "label": curve.label, "column": name, "place": curve.colour},
                **{"steps": curve.steps, "right": curve.colour in right, "points": len(curve.x)},
                **{key: values[places] for key, values in {"x": curve.x, "y": curve.y, **band}.items()},
            }
        )
    return lines


def _bands(shown: Sequence[tuple[int, Curve, str]]) -> list[dict[str, Any]]:
    bands = []
    for i in dict.fromkeys(i for i, _, _ in shown):
        own = [curve for phase, curve, _ in shown if phase == i]
        x, values = percentiles(own, list(_LEVELS.values()))
        places = places_of_extremes(values[0], values[-1])
        of_levels = dict(zip(_LEVELS, values, strict=True))
        bands.append(
            {
                **{"phase": i, "label": f"{len(own):,} columns", "place": 0, "right": False, "steps": False},
                **{"points": len(x), "x": x[places]},
                **{name: level[places] for name, level in of_levels.items()},
            }
        )
    return bands


def on_right_axis(curves: Sequence[Curve], *, natural: bool) -> set[int]:
    """Return the colours of the curves that get an axis of their own, on the right: others would be flat beside them.

    They are the fewer ones, and of as many those with the larger values. ``natural``: all have one scale.
    """
    groups = [] if natural else [{curve.colour for curve in group} for _, group in by_scale(curves, 2)]
    if len(groups) < 2:
        return set()
    large, small = groups
    return {one for one in (large if len(large) <= len(small) else small) if one is not None}


def suggestions(columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return patterns that mean columns of one quantity, and single columns.

    Each has ``pattern``, ``kind`` (``reading``, ``setpoint``, ``reward``, or the column's name), ``unit`` and
    ``count``: of how many columns.
    """
    kinds: dict[str, dict[str, int]] = {}
    quantities: dict[tuple[str, str], set[str]] = {}
    for column in columns:
        kind = next((one[:-1] for one in PREFIXES if column.startswith(one)), column)
        name = bare(column) if kind == "reading" else column
        pattern = _NUMBERED.sub(lambda found: "[*]" if found[0].startswith("[") else "*", name)
        own = kinds.setdefault(kind, {})
        own[pattern] = own.get(pattern, 0) + 1
        if "." in bare(column):
            before = "" if kind == "reading" else f"{kind}."
            quantities.setdefault((kind, f"{before}*.{pattern.rpartition('.')[2]}"), set()).add(pattern)
    for (kind, wider), patterns in quantities.items():
        if len(patterns) > 1:
            kinds[kind][wider] = sum(kinds[kind][one] for one in patterns)
    for kind, own in kinds.items():
        if len(own) > 1 and kind != "reading":
            own[f"{kind}.*"] = len([one for one in columns if one.startswith(f"{kind}.")])
    found = [
        {"pattern": pattern, "kind": kind, "unit": unit_of(pattern.replace("*", "0")), "count": count}
        for kind, own in kinds.items()
        for pattern, count in own.items()
    ]
    grouped = {one["pattern"] for one in found}
    single = [
        name for name in columns if (bare(name) if name.startswith("reading.") else name) not in grouped
    ]
    for name in single[:_MOST_NAMES]:
        shown = bare(name) if name.startswith("reading.") else name
        found.append({"pattern": shown, "kind": name.partition(".")[0], "unit": unit_of(name), "count": 1})
    return found


def default_patterns(suggested: Sequence[dict[str, Any]]) -> list[str]:
    """Return what is shown before anybody chooses: voltages or other readings, set-points, and the objective."""

    def first(kind: str) -> list[str]:
        own = [one for one in suggested if one["kind"] == kind]
        # of a grid, its voltages; then what has a unit
        order = {"p.u.": 0, None: 2}
        own.sort(key=lambda one: order.get(one["unit"], 1))
        return [one["pattern"] for one in own[:1]]

    return [*first("reading"), *first("setpoint"), *(first("objective") or first("reward"))]
