"""A run over simulated time in the page: chosen columns of an episode, from one or several phases."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.printing import joined
from palaestrai_mosaik.plot.columns import (
    PREFIXES,
    Clock,
    Moment,
    RowSource,
    bare,
    clock_of,
    sources_of,
    unit_of,
)
from palaestrai_mosaik.plot.curves import percentiles
from palaestrai_mosaik.plot.learning import MOST_LINES
from palaestrai_mosaik.plot.limits import Pair, bounds_of, in_sight, limits_of
from palaestrai_mosaik.plot.series import (
    BODY_BAND,
    Curve,
    by_scale,
    by_unit,
    has_natural_scale,
    matching_curves,
    y_label_of,
)
from palaestrai_mosaik.store import BodyChoice, Store

from ..encoding import places_of_extremes
from ..resources import Query, ResourceError, Source, resource

if TYPE_CHECKING:
    import pandas as pd

#: names of a band's values in the answer, with their percentiles
_LEVELS = {"min": 0, "low": 5, "median": 50, "high": 95, "max": 100}
#: maximum number of single columns that are suggested beside the patterns
_MOST_NAMES = 300
# numbers within a name, such as those of a bus, or indices within a vector
_NUMBERED = re.compile(r"(?<=[-._])\d+|\[[\d, ]+\]")


@dataclass(frozen=True)
class _Chosen:
    """An episode that is shown, with its sources, clock and bounds; ``last`` is the newest episode of its worker."""

    moment: Moment
    last: int
    sources: Sequence[RowSource]
    clock: Clock | None
    bounds: dict[str, Pair]

    def matches(
        self, pattern: str, start: int | None, stop: int | None
    ) -> tuple[Sequence[tuple[Curve, str]], str]:
        """Return the columns that match a pattern, and the reason if there are none."""
        try:
            return matching_curves(self.sources, self.moment, pattern, None, start, stop), ""
        except StoreError as error:
            return (), str(error)


#: index of the episode, curve, and name of the column
_Match = tuple[int, Curve, str]


@resource("run/{run}/time", fixed=True)
def time(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the possible choices: phases, workers, episodes, bodies, and patterns of columns."""
    store = source.store
    uid = store.find_run(run)
    recorded = store.recorded_episodes(uid)
    phases: list[dict[str, Any]] = []
    offered: dict[str, None] = {}
    row: Any
    counts = store.bodies(uid).groupby(["phase", "agent"])["count"].sum()
    environments = store.environments(uid).set_index("phase")["incarnations"]
    for row in store.phases(uid).itertuples(index=False):
        phase_episodes = recorded[recorded["phase"] == row.phase]
        sources = sources_of(store, uid, int(row.phase), BodyChoice())
        offered |= dict.fromkeys(name for entry in sources for name in entry.columns)
        bodies, incarnations = (
            table.loc[table.index.get_level_values("phase") == row.phase] for table in (counts, environments)
        )
        phases.append(
            {
                **{"phase": row.phase, "name": row.name, "mode": row.mode},
                "bodies": int(bodies.max()) if len(bodies) else 0,
                "incarnations": int(incarnations.max()) if len(incarnations) else 0,
                "episodes": [
                    {"worker": entry.worker, "evaluation": bool(entry.evaluation), "last": entry.last}
                    for entry in phase_episodes.itertuples(index=False)
                ],
            }
        )
    suggested = suggestions(list(offered))
    return {"phases": phases, "suggestions": suggested, "patterns": default_patterns(suggested)}


@resource("run/{run}/series", fixed=True)
def series(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return chosen columns over an episode, as panels of lines or percentiles.

    The query has ``phases`` (numbers, separated by commas; default: the last phase with rows), ``worker`` (default: the
    first), ``episode`` (default: the last), ``evaluation`` (``1``: evaluation episodes), ``body`` or ``incarnation``
    (default: all, as a band), ``patterns`` (one per line), and a window of ticks, ``start`` (inclusive) and ``stop``
    (exclusive). Lines are sent with about 2,000 points, including their lowest and highest values.
    """
    store = source.store
    uid = store.find_run(run)
    window = query.integer("start"), query.integer("stop")
    recorded = store.recorded_episodes(uid)
    chosen = _chosen(store, uid, query, recorded)
    patterns = _patterns_of(query, chosen)
    complete: dict[int, int] = {}
    panels: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    for index, pattern in enumerate(patterns):
        answers = [item.matches(pattern, *window) for item in chosen]
        matches = [(i, curve, name) for i, (curves, _) in enumerate(answers) for curve, name in curves]
        complete |= _last_ticks(matches, complete)
        panels += [{"pattern": index, **panel} for panel in _panels(matches, chosen)]
        if not matches:
            problems += [{"pattern": index, "message": message} for _, message in answers if message]
    return {
        "patterns": patterns,
        "phases": [
            {
                **{"phase": item.moment.phase, "name": item.moment.phase_name, "worker": item.moment.worker},
                **{"episode": item.moment.episode, "evaluation": item.moment.evaluation},
                **{"last": item.last, "complete": complete.get(i, -1)},
            }
            for i, item in enumerate(chosen)
        ],
        # a running run may have started a later phase
        "newest": int(recorded["phase"].max()) if len(recorded) else None,
        **common_clock([item.clock for item in chosen]),
        "span": _span(line["x"] for panel in panels for line in panel["lines"]),
        "panels": panels,
        "problems": problems,
    }


def _patterns_of(query: Query, chosen: Sequence[_Chosen]) -> list[str]:
    """Return the patterns of a query, or those of the initial view."""
    # use the columns of all phases, so that a link shows the same panels for all of them
    names = dict.fromkeys(name for item in chosen for entry in item.sources for name in entry.columns)
    patterns = [text for text in query.get("patterns", "").split("\n") if text]
    return patterns or default_patterns(suggestions(list(names)))


def _chosen(store: Store, uid: str, query: Query, recorded: pd.DataFrame) -> list[_Chosen]:
    """Return the episodes that a query selects, by default one of the last phase.

    Raises:
        ResourceError: a phase does not exist.
        StoreError: the episode was not recorded.
    """
    choice = BodyChoice(body=query.integer("body"))
    chosen = []
    for moment, last in moments_of(store, uid, query, recorded):
        phase = moment.phase
        sources = sources_of(store, uid, phase, choice, query.integer("incarnation"))
        chosen.append(
            _Chosen(moment, last, sources, clock_of(store, uid, phase), bounds_of(store, uid, phase))
        )
    return chosen


def moments_of(
    store: Store, uid: str, query: Query, recorded: pd.DataFrame | None = None, *, every: bool = False
) -> Iterator[tuple[Moment, int]]:
    """Yield the episode that a query selects in each of its ``phases``, and the newest one of its worker.

    Args:
        store: the store.
        uid: uid of the run.
        query: the query: ``phases``, ``worker``, ``episode`` and ``evaluation``.
        recorded: the result of :meth:`Store.recorded_episodes`, if it has been read already.
        every: select all phases with rows if the query names none; otherwise the last one.

    Raises:
        ResourceError: a phase does not exist.
        StoreError: the episode was not recorded.
    """
    evaluation = query.flag("evaluation")
    names = store.phases(uid).set_index("phase")["name"]
    recorded = store.recorded_episodes(uid) if recorded is None else recorded
    recorded = recorded[recorded["evaluation"].astype(bool) == evaluation]
    numbers = query.texts("phases")
    if not numbers:
        existing = sorted(set(recorded["phase"]))
        numbers = [str(number) for number in (existing if every else existing[-1:])]
    if len(numbers) > 1:
        # read them for all phases at once
        store.bodies(uid)
        store.channels(uid)
    for text in dict.fromkeys(numbers):
        phase = int(text) if text.isdecimal() else -1
        if phase not in names.index:
            listed = ", ".join(f"{number} {name!r}" for number, name in names.items())
            raise ResourceError(f"phases: there is no phase {text}; there are: {listed or 'none'}")
        yield _moment(recorded[recorded["phase"] == phase], phase, str(names[phase]), query)


def _moment(rows: pd.DataFrame, phase: int, name: str, query: Query) -> tuple[Moment, int]:
    """Return the episode of a phase that a query selects, and the number of the newest one of its worker.

    Raises:
        StoreError: the episode was not recorded.
    """
    evaluation, worker, number = query.flag("evaluation"), query.integer("worker"), query.integer("episode")
    if worker is None:
        worker = int(rows["worker"].min()) if len(rows) else 0
    rows = rows[rows["worker"] == worker]
    what = "evaluation episode" if evaluation else "episode"
    if rows.empty:
        raise StoreError(f"phase {phase} {name!r} has no {what} of worker {worker} that was recorded")
    first, last = int(rows["first"].iloc[0]), int(rows["last"].iloc[0])
    number = last if number is None else number
    if not first <= number <= last:
        raise StoreError(
            f"phase {phase} {name!r} has no {what} {number} of worker {worker}: it has {first} to {last}"
        )
    return Moment(phase, name, worker, number, evaluation), last


def _last_ticks(matches: Sequence[_Match], before: Mapping[int, int]) -> dict[int, int]:
    """Return the last tick at which all columns of each phase have values, for these columns and those ``before``."""
    ticks: dict[int, list[int]] = {}
    for i, curve, _ in matches:
        ticks.setdefault(i, []).extend(int(x) for x in curve.x[-1:])
    return {i: min(before.get(i, ends[0]), *ends) if ends else before.get(i, -1) for i, ends in ticks.items()}


def _span(lines: Iterable[np.ndarray[Any, Any]]) -> list[int] | None:
    """Return the first and the last tick of lines; ``None`` without any."""
    ticks = [int(end) for x in lines if len(x) for end in x[[0, -1]]]
    return [min(ticks), max(ticks)] if ticks else None


def common_clock(clocks: Sequence[Clock | None]) -> dict[str, Any]:
    """Return the seconds per tick and the date of tick 0, each ``None`` unless all clocks agree on it."""
    pairs = {
        (None, None) if clock is None else (clock.seconds_per_tick, str(clock.start)) for clock in clocks
    }
    seconds = {tick for tick, _ in pairs}
    return {
        "seconds_per_tick": seconds.pop() if len(seconds) == 1 else None,
        "start": pairs.pop()[1] if len(pairs) == 1 else None,
    }


def _panels(matches: Sequence[_Match], chosen: Sequence[_Chosen]) -> Iterator[dict[str, Any]]:
    """Yield a panel for each unit among the columns of one pattern, over all phases."""
    phase_of = {id(curve): i for i, curve, _ in matches}
    for named in by_unit([(curve, name) for _, curve, name in matches]):
        columns = list(dict.fromkeys((curve.label, name) for curve, name in named))
        finite = [(phase_of[id(curve)], curve, name) for curve, name in named if np.isfinite(curve.y).any()]
        # count columns without values, too, so that every window of the episode gives the same kind
        many = len(columns) > MOST_LINES
        limits = limits_of([name for *_, name in finite], chosen[0].bounds, True, several=False)
        yield {
            "y_label": y_label_of(named),
            "unit": named[0][0].unit,
            "kind": "percentiles" if many else "lines",
            "columns": len(columns),
            "note": "; ".join(
                _notes(finite, many, [(phase_of[id(curve)], curve) for curve, _ in named], chosen)
            ),
            "limits": [
                {"value": limit.value, "name": limit.name}
                for limit in in_sight(limits, [curve.y for _, curve, _ in finite])
            ],
            "lines": _bands(finite) if many else _lines(finite, columns),
        }


def _notes(
    finite: Sequence[_Match], many: bool, every: Sequence[tuple[int, Curve]], chosen: Sequence[_Chosen]
) -> Iterator[str]:
    """Describe a panel: its bands, the number of columns without values, and the phases without its columns."""
    if not many and any(curve.low is not None for _, curve, _ in finite):
        yield BODY_BAND
    if len(every) > len(finite):
        yield f"{len(every) - len(finite):,} without any value left out"
    phases = {i for i, _ in every}
    without = [repr(item.moment.phase_name) for i, item in enumerate(chosen) if i not in phases]
    if without:
        yield f"not in {joined(without)}"


def _lines(shown: Sequence[_Match], columns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    coloured = [
        (i, replace(curve, colour=columns.index((curve.label, name))), name) for i, curve, name in shown
    ]
    right = on_right_axis(
        [curve for _, curve, _ in coloured], natural=any(has_natural_scale(curve) for _, curve, _ in shown)
    )
    owners = {(curve.label, name): curve.identity for _, curve, name in shown}
    # agents keep their colours in panels with one column of each
    by_owner = None not in owners.values() and len(set(owners.values())) == len(owners)
    lines = []
    for i, curve, name in coloured:
        place = owners[curve.label, name] if by_owner else curve.colour
        low = curve.y if curve.low is None else curve.low
        indices = places_of_extremes(low, curve.high)
        band = {} if curve.low is None or curve.high is None else {"low": curve.low, "high": curve.high}
        lines.append(
            {
                **{"phase": i, "label": curve.label, "column": name, "place": place},
                **{"steps": curve.steps, "right": curve.colour in right, "points": len(curve.x)},
                **{key: values[indices] for key, values in {"x": curve.x, "y": curve.y, **band}.items()},
            }
        )
    return lines


def _bands(shown: Sequence[_Match]) -> list[dict[str, Any]]:
    bands = []
    for i in dict.fromkeys(i for i, _, _ in shown):
        curves = [curve for phase, curve, _ in shown if phase == i]
        x, values = percentiles(curves, list(_LEVELS.values()))
        indices = places_of_extremes(values[0], values[-1])
        band = {"phase": i, "label": f"{len(curves):,} columns", "place": 0, "right": False, "steps": False}
        band |= {"points": len(x), "x": x[indices]}
        bands.append(band | {name: level[indices] for name, level in zip(_LEVELS, values, strict=True)})
    return bands


def on_right_axis(curves: Sequence[Curve], *, natural: bool) -> set[int]:
    """Return the colours of the curves that get a second axis, on the right, because they would look flat otherwise.

    These are the smaller group of curves; of equal groups, the one with the larger values. ``natural``: all have one
    scale.
    """
    groups = [] if natural else [{curve.colour for curve in group} for _, group in by_scale(curves, 2)]
    if len(groups) < 2:
        return set()
    large, small = groups
    return {colour for colour in (large if len(large) <= len(small) else small) if colour is not None}


def suggestions(columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return patterns for all columns of one quantity, and single columns.

    Each has ``pattern``, ``kind`` (``reading``, ``setpoint``, ``reward``, or the column's name), ``unit`` and
    ``count``, the number of columns.
    """
    suggested = [
        {"pattern": pattern, "kind": kind, "unit": unit_of(pattern.replace("*", "0")), "count": count}
        for kind, counts in _patterns(columns).items()
        for pattern, count in counts.items()
    ]
    patterns = {item["pattern"] for item in suggested}
    single = [name for name in columns if _short(name) not in patterns]
    return suggested + [
        {"pattern": _short(name), "kind": name.partition(".")[0], "unit": unit_of(name), "count": 1}
        for name in single[:_MOST_NAMES]
    ]


def _patterns(columns: Sequence[str]) -> dict[str, Counter[str]]:
    """Count the columns of each pattern by kind: numbered columns, the columns of a quantity, and all of a kind."""
    kinds: dict[str, Counter[str]] = {}
    quantities: dict[tuple[str, str], set[str]] = {}
    for column in columns:
        kind = next((prefix[:-1] for prefix in PREFIXES if column.startswith(prefix)), column)
        pattern = _NUMBERED.sub(lambda match: "[*]" if match[0].startswith("[") else "*", _short(column))
        kinds.setdefault(kind, Counter())[pattern] += 1
        if "." in bare(column):
            wider = _short(f"{kind}.*.{pattern.rpartition('.')[2]}")
            quantities.setdefault((kind, wider), set()).add(pattern)
    for (kind, wider), patterns in quantities.items():
        if len(patterns) > 1:
            kinds[kind][wider] = sum(kinds[kind][pattern] for pattern in patterns)
    for kind, counts in kinds.items():
        if len(counts) > 1 and kind != "reading":
            counts[f"{kind}.*"] = sum(column.startswith(f"{kind}.") for column in columns)
    return kinds


def _short(column: str) -> str:
    """Return the name of a column as in patterns: readings without their prefix."""
    return column.removeprefix("reading.")


def default_patterns(suggested: Sequence[dict[str, Any]]) -> list[str]:
    """Return the patterns of the initial view: voltages or other readings, set-points, and the objective."""
    # voltages first, then other columns with a unit
    order = {"p.u.": 0, None: 2}

    def first(kind: str) -> list[str]:
        matching = [item for item in suggested if item["kind"] == kind]
        return [item["pattern"] for item in sorted(matching, key=lambda item: order.get(item["unit"], 1))[:1]]

    return [*first("reading"), *first("setpoint"), *(first("objective") or first("reward"))]
