"""Queries of the per-step data and of rendered frames as pandas frames."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, eq, ge, lt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..parts import columns_of, episodes_in, parts_so_far, read_parts, read_wall
from .lookup import inside, unknown
from .members import Bodies, BodyGroup, Members, is_one, numbers_of
from .runs import RunQueries

if TYPE_CHECKING:
    import pandas as pd


_KEYS = ("worker", "episode", "step", "time")
#: by kind of stream, the columns that identify a stream, and those that identify a row in it
_OWNERS = {
    "agent": (("agent", "group"), ("body", "environment_episode")),
    "environment": (("environment",), ("incarnation", "environment_episode")),
    "frames": (("environment",), ("environment_episode",)),
    "statistics": ((), ()),
}
#: the columns with the number of a body or an incarnation
NUMBERS = ("body", "incarnation")

#: phase, name and group of a stream
StreamKey = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class RowRange:
    """A selection of rows: ``None`` is all, ``start <= time < stop`` in ticks.

    ``numbers`` are bodies, or incarnations, of a stream with several.
    """

    worker: int | None = None
    episode: int | None = None
    start: int | None = None
    stop: int | None = None
    numbers: Sequence[int] | None = None

    def expression(self, columns: Iterable[str]) -> Any:
        """Build the pyarrow filter of a stream with these ``columns``; ``None`` if it selects all rows."""
        import pyarrow.dataset as ds

        limits = (
            ("worker", eq, self.worker),
            ("episode", eq, self.episode),
            ("time", ge, self.start),
            ("time", lt, self.stop),
        )
        terms = [compare(ds.field(name), value) for name, compare, value in limits if value is not None]
        number = next((name for name in columns if name in NUMBERS), None)
        if self.numbers is not None and number is not None:
            terms.append(ds.field(number).isin(list(self.numbers)))
        return reduce(and_, terms) if terms else None


@dataclass(frozen=True, slots=True)
class StreamSelection:
    """A selection of streams: a kind, one name or all, training or evaluation or both (``None``).

    ``numbers`` maps the key of each selected stream to its bodies or incarnations (``None``: all); without it, all
    streams are selected.
    """

    kind: str
    name: str | None = None
    evaluation: bool | None = None
    numbers: Mapping[StreamKey, Sequence[int] | None] | None = None


class StreamParts(NamedTuple):
    """A stream with its parts, and the selected bodies or incarnations in it (``None``: all)."""

    phase: int
    name: str
    group: int
    evaluation: bool
    paths: list[Path]
    numbers: Sequence[int] | None

    @property
    def key(self) -> StreamKey:
        return self.phase, self.name, self.group


class RowQueries(RunQueries, Members):
    """Base class of queries of the Parquet files."""

    def _streams(self, run: str, phase: int | str | None, selection: StreamSelection) -> list[StreamParts]:
        """Select the streams that have parts."""
        table = self.streams(run, phase)
        table = table[table["kind"] == selection.kind]
        if selection.name is not None:
            table = table[table["name"] == selection.name]
        if selection.evaluation is not None:
            table = table[table["evaluation"] == selection.evaluation]
        root = self.instance_directory(self.find_run(run))
        streams = []
        columns = ["phase", "name", "group", "evaluation", "folder", "parts"]
        for number, name, group, evaluation, folder, count in table[columns].itertuples(index=False):
            key = number, name, group
            if selection.numbers is None or key in selection.numbers:
                paths = parts_so_far(inside(root, folder), count)
                numbers = None if selection.numbers is None else selection.numbers[key]
                streams.append(StreamParts(*key, bool(evaluation), paths, numbers))
        return [stream for stream in streams if stream.paths]


class Trajectories(RowQueries):
    """Queries of the Parquet files. Unknown names raise :class:`StoreError`."""

    def steps(  # noqa: PLR0913  (independent filters, all optional)
        self,
        run: str,
        phase: int | str | None = None,
        agent: str | None = None,
        worker: int | None = None,
        episode: int | None = None,
        columns: Sequence[str] | None = None,
        start: int | None = None,
        stop: int | None = None,
        evaluation: bool | None = False,
        *,
        environment: str | None = None,
        body: Bodies | None = None,
    ) -> pd.DataFrame:
        """Return one row per step of the agents, agent after agent, in recorded order.

        Columns: ``phase`` and ``agent`` (each unless the argument picks one), ``worker``, ``episode``, ``step``,
        ``time`` (ticks), then ``reading.UID``, ``setpoint.UID`` (``reading.UID[i]`` if a value has several floats),
        ``proposed.UID`` (the set-points that the agent would have chosen, if its environment replays), ``reward.NAME``,
        ``terminated``, ``truncated``, ``objective``. An agent without a column of another agent has NaN there; so have
        bodies of one agent.

        There are further columns if an agent has several bodies, or if ``columns`` names them:
        ``environment``, unless all are in one (``None``: a body that spans several), ``body``, unless one
        number is picked, and ``environment_episode``, which counts how often the body's environment has
        restarted in this episode of the phase (also present if it is not always 0).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            agent: name of an agent; ``None``: all.
            worker: number of a worker; ``None``: all.
            episode: number of an episode; ``None``: all.
            columns: which of the columns from the readings on; ``None``: all. It may also name ``wall``: the
                seconds that the step took.
            start: the first tick; ``None``: from the beginning.
            stop: the tick before which the rows end (exclusive); ``None``: to the end.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.
            environment: uid of an environment: only the bodies in it; ``None``: all.
            body: number or label of a body, or a list of them; ``None``: all.

        Raises:
            StoreError: there is no such run, phase, agent, environment, body or column, or part files are
                damaged.
        """
        groups = {group.key: group for group in self._body_groups(run, phase, agent, environment, body)}
        numbers = {key: group.selected for key, group in groups.items()}
        selection = StreamSelection("agent", agent, evaluation, numbers)
        result = self._frames(run, phase, selection, RowRange(worker, episode, start, stop), columns)
        environments = {key: group.environment for key, group in groups.items()}
        several = any(group.several for group in groups.values())
        visible = set(columns or ()) | _unpicked(phase=phase, agent=agent)
        if several and not _picks_one(body):
            visible.add("body")
        if several and environment is None and len(set(environments.values())) > 1:
            visible.add("environment")
        if "environment" in visible:
            keys = zip(result["phase"], result["agent"], result["group"], strict=True)
            result.insert(2, "environment", _objects(environments[key] for key in keys))
        return _shown(result.drop(columns="group"), visible, several)

    def environment_states(  # noqa: PLR0913  (as above)
        self,
        run: str,
        phase: int | str | None = None,
        environment: str | None = None,
        worker: int | None = None,
        episode: int | None = None,
        columns: Sequence[str] | None = None,
        start: int | None = None,
        stop: int | None = None,
        evaluation: bool | None = False,
        *,
        agent: str | None = None,
        body: Bodies | None = None,
        incarnation: int | Sequence[int] | None = None,
    ) -> pd.DataFrame:
        """Return one row per state of the environments.

        Columns: ``phase`` and ``environment`` (each unless picked), ``worker``, ``episode``, ``step``,
        ``time``, ``reading.UID``, ``reward.NAME``, ``terminated``, ``truncated``, ``state`` (further data that
        the environment reported, or ``None``). A batched environment has the columns ``incarnation``, unless
        one number is picked, and ``environment_episode``, as in :meth:`steps`.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            environment: uid of an environment; ``None``: all.
            worker: number of a worker; ``None``: all.
            episode: number of an episode; ``None``: all.
            columns: which of the columns after ``time``; ``None``: all.
            start: the first tick; ``None``: from the beginning.
            stop: the tick before which the rows end (exclusive); ``None``: to the end.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.
            agent: name of an agent: only the environments, and the incarnations of batched ones, in which its
                bodies are; ``None``: all.
            body: number or label of a body, or a list of them: only the environments and incarnations in
                which these are; ``None``: all.
            incarnation: number of an incarnation of a batched environment, or several; ``None``: all.

        Raises:
            StoreError: there is no such run, phase, agent, environment, body, incarnation or column, or part
                files are damaged.
        """
        self._check_member(run, phase, "environment", environment)
        table = self.environments(run, phase)[["phase", "environment", "incarnations"]]
        counts: dict[StreamKey, int] = {
            (number, uid, 0): count
            for number, uid, count in table.itertuples(index=False)
            if environment in (None, uid)
        }
        groups = None
        if agent is not None or body is not None:
            groups = self._body_groups(run, phase, agent, environment, body)
        selected = _selected_incarnations(counts, groups, incarnation)
        selection = StreamSelection("environment", environment, evaluation, selected)
        result = self._frames(run, phase, selection, RowRange(worker, episode, start, stop), columns)
        if "state" in result:
            result["state"] = _objects(map(_from_json, result["state"]))
        several = any(counts[key] > 1 for key in selected)
        visible = set(columns or ()) | _unpicked(phase=phase, environment=environment)
        if several and not _picks_one(incarnation):
            visible.add("incarnation")
        return _shown(result, visible, several)

    def recorded_episodes(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return the range of episodes with recorded rows, including running ones.

        One row per phase, worker and kind of episode; columns: ``phase``, ``worker``, ``evaluation``,
        ``first`` and ``last`` (numbers of episodes).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.

        Raises:
            StoreError: there is no such run or phase, or part files are damaged.
        """
        import pandas as pd

        keys = ["phase", "worker", "evaluation"]
        rows = [
            (stream.phase, worker, stream.evaluation, *ends)
            for kind in ("agent", "environment")
            for stream in self._streams(run, phase, StreamSelection(kind))
            for path in stream.paths
            for worker, *ends in episodes_in(path)
        ]
        episodes = pd.DataFrame(rows, columns=[*keys, "first", "last"]).groupby(keys)
        result: pd.DataFrame = episodes.agg({"first": "min", "last": "max"}).reset_index()
        return result

    def statistics(
        self,
        run: str,
        phase: int | str | None = None,
        agent: str | None = None,
        worker: int | None = None,
        episode: int | None = None,
        key: str | None = None,
        evaluation: bool | None = False,
    ) -> pd.DataFrame:
        """Return the statistics that agents reported, in long format.

        Columns: ``phase`` (unless picked), ``agent``, ``worker``, ``episode``, ``step``, ``key``, ``value``.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            agent: name of an agent; ``None``: all.
            worker: number of a worker; ``None``: all.
            episode: number of an episode; ``None``: all.
            key: name of a statistic; ``None``: all.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.

        Raises:
            StoreError: there is no such run, phase or agent, or part files are damaged.
        """
        self._check_member(run, phase, "agent", agent)
        selection = StreamSelection("statistics", None, evaluation)
        result = self._frames(run, phase, selection, RowRange(worker, episode), None)
        if result.empty:
            distinguishing = ["evaluation"] if evaluation is None else []
            names = ["phase", "agent", "worker", "episode", *distinguishing, "step", "key", "value"]
            result = result.reindex(columns=names)
        for name, value in (("agent", agent), ("key", key)):
            if value is not None:
                result = result[result[name] == value]
        return result.drop(columns=[] if phase is None else ["phase"]).reset_index(drop=True)

    def frames(  # noqa: PLR0913  (independent filters, all optional)
        self,
        run: str,
        phase: int | str | None = None,
        environment: str | None = None,
        worker: int | None = None,
        episode: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        evaluation: bool | None = False,
        *,
        png: bool = True,
    ) -> pd.DataFrame:
        """Return the rendered frames of environments, one row per frame; without a row if none were requested.

        Columns: ``phase`` and ``environment`` (each unless the argument picks one), ``worker``, ``episode``,
        ``environment_episode`` (how often the environment had restarted in this episode of the phase; only present if
        it is not always 0), ``step``, ``time`` (ticks), ``png`` (``bytes``: a PNG image). A frame has the same keys as
        its state in :meth:`environment_states`.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            environment: uid of an environment; ``None``: all.
            worker: number of a worker; ``None``: all.
            episode: number of an episode; ``None``: all.
            start: the first tick; ``None``: from the beginning.
            stop: the tick before which the rows end (exclusive); ``None``: to the end.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.
            png: read the images; otherwise, there is no column ``png``.

        Raises:
            StoreError: there is no such run, phase or environment, or part files are damaged.
        """
        self._check_member(run, phase, "environment", environment)
        selection = StreamSelection("frames", environment, evaluation)
        rows = RowRange(worker, episode, start, stop)
        result = self._frames(run, phase, selection, rows, ["png"] if png else [])
        return _shown(result, _unpicked(phase=phase, environment=environment), several=False)

    def recorded_frames(
        self, run: str, phase: int | str | None = None, environment: str | None = None
    ) -> pd.DataFrame:
        """Return the number of frames of each episode that has any; images are not read.

        One row per phase, environment and episode; columns: ``phase``, ``environment``, ``worker``, ``episode``,
        ``evaluation``, ``frames`` (their number), ``bytes`` (of all images).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            environment: uid of an environment; ``None``: all.

        Raises:
            StoreError: there is no such run, phase or environment, or part files are damaged.
        """
        import pandas as pd

        self._check_member(run, phase, "environment", environment)
        keys = ["phase", "environment", "worker", "episode", "evaluation"]
        tables = [
            read_parts(stream.paths, columns=["worker", "episode", "bytes"])
            .to_pandas()
            .assign(phase=stream.phase, environment=stream.name, evaluation=stream.evaluation)
            for stream in self._streams(run, phase, StreamSelection("frames", environment))
        ]
        if not tables:
            return pd.DataFrame(columns=[*keys, "frames", "bytes"])
        sizes = pd.concat(tables, ignore_index=True).groupby(keys, sort=False)["bytes"]
        result: pd.DataFrame = sizes.agg(frames="count", bytes="sum").reset_index()
        return result

    def _frames(
        self,
        run: str,
        phase: int | str | None,
        selection: StreamSelection,
        rows: RowRange,
        columns: Sequence[str] | None,
    ) -> pd.DataFrame:
        """Read the selected rows of the selected streams, with all columns that identify them."""
        import pandas as pd

        streams = self._streams(run, phase, selection)
        if not streams:
            owners, numbers = _OWNERS[selection.kind]
            keys = ["worker", "episode", *(["evaluation"] if selection.evaluation is None else [])]
            names = [name for name in columns or () if name not in (*numbers, "environment")]
            return pd.DataFrame(columns=["phase", *owners, *keys, *numbers, "step", "time", *names])
        if columns is not None:
            _check_columns(columns, streams, selection.kind, run)
        tables = [_read_frame(stream, selection, rows, columns) for stream in streams]
        return pd.concat(tables, ignore_index=True)


def _check_columns(columns: Sequence[str], streams: Iterable[StreamParts], kind: str, run: str) -> None:
    """Raise :class:`StoreError` for a column that no stream has."""
    numbers = set(_OWNERS[kind][1])
    available = {name for stream in streams for name in columns_of(stream.paths)} - numbers
    allowed = available | numbers | ({"wall", "environment"} if kind == "agent" else set())
    for column in columns:
        if column not in allowed:
            raise unknown("column", column, (available - set(_KEYS)) | numbers, f"run {run!r}")


def _objects(values: Iterable[Any]) -> pd.Series[Any]:
    import pandas as pd

    return pd.Series(list(values), dtype=object)


def _from_json(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else None


def _unpicked(**choices: Any) -> set[str]:
    """Return the names of the choices that pick none."""
    return {name for name, choice in choices.items() if choice is None}


def _picks_one(selection: Any) -> bool:
    """Whether this is a single number; a label may select several."""
    return selection is not None and not isinstance(selection, str) and is_one(selection)


def _selected_incarnations(
    counts: Mapping[StreamKey, int],
    groups: Sequence[BodyGroup] | None,
    incarnation: int | Sequence[int] | None,
) -> dict[StreamKey, Sequence[int] | None]:
    """Select the incarnations of each environment (``None``: all); environments without any are left out.

    Args:
        counts: the number of incarnations of each environment.
        groups: only the incarnations in which their bodies are; ``None``: all.
        incarnation: only these.

    Raises:
        StoreError: no environment has this incarnation.
    """
    selected: dict[StreamKey, Sequence[int] | None] = dict.fromkeys(counts)
    if groups is not None:
        for phase, uid, _ in counts:
            of_phase = [group.incarnations(uid) for group in groups if group.phase == phase]
            selected[phase, uid, 0] = sorted(set().union(*of_phase))
    if incarnation is not None:
        picked = numbers_of(incarnation, max(counts.values(), default=1), "incarnation")
        for key, numbers in selected.items():
            available = range(counts[key]) if numbers is None else numbers
            selected[key] = [number for number in picked if number in available]
    return {key: numbers for key, numbers in selected.items() if numbers != []}


def _shown(frame: pd.DataFrame, visible: set[str], several: bool) -> pd.DataFrame:
    """Drop the columns with the owner of a row if it is unambiguous; those in ``visible`` stay."""
    owner = "agent" if "agent" in frame else "environment"
    hidden = [name for name in ("phase", owner, *NUMBERS) if name in frame]
    if not several and not frame["environment_episode"].any():
        hidden.append("environment_episode")
    return frame.drop(columns=[name for name in hidden if name not in visible])


def _read_frame(
    stream: StreamParts, selection: StreamSelection, rows: RowRange, columns: Sequence[str] | None
) -> pd.DataFrame:
    """Read the selected rows of a stream, after columns that say whose they are."""
    rows = replace(rows, numbers=stream.numbers)
    owners, numbers = _OWNERS[selection.kind]
    names = None
    if owners:
        available = dict.fromkeys(columns_of(stream.paths))
        chosen = available if columns is None else (name for name in columns if name in available)
        names = list(dict.fromkeys(("worker", "episode", *numbers, "step", "time", *chosen)))
    result = _read(stream.paths, rows, names)
    if columns is not None and "wall" in columns:
        # assignment by index drops rows that were written in the meantime
        result["wall"] = read_wall(stream.paths, rows.expression)["wall"].to_pandas()
    if selection.evaluation is None:
        result.insert(list(result).index("episode") + 1, "evaluation", stream.evaluation)
    key: tuple[Any, ...] = stream.key
    for i, name in enumerate(("phase", *owners)):
        result.insert(i, name, key[i])
    return result


def _read(paths: Sequence[Path], rows: RowRange, columns: Sequence[str] | None) -> pd.DataFrame:
    import pandas as pd

    if rows.stop is not None and rows.stop <= 0:
        # no tick is below 0, so only the columns are asked for
        return pd.DataFrame(columns=columns_of(paths) if columns is None else list(columns))
    result: pd.DataFrame = read_parts(paths, rows.expression, columns).to_pandas()
    return result
