"""Queries of the per-step data: what agents and environments did, as pandas frames."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .lookup import unknown
from .parts import part_files, wall_folder
from .query import Queries

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_KEYS = ("worker", "episode", "step", "time")
_PLACE = ["phase", "name", "evaluation", "folder"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows are wanted: ``None`` is all, ``start <= time < stop`` in ticks."""

    worker: int | None = None
    episode: int | None = None
    start: int | None = None
    stop: int | None = None

    def expression(self) -> Any:
        """Return the filter for pyarrow, ``None`` if all rows are wanted."""
        import pyarrow.dataset as ds

        terms = []
        if self.worker is not None:
            terms.append(ds.field("worker") == self.worker)
        if self.episode is not None:
            terms.append(ds.field("episode") == self.episode)
        if self.start is not None:
            terms.append(ds.field("time") >= self.start)
        if self.stop is not None:
            terms.append(ds.field("time") < self.stop)
        result = None
        for term in terms:
            result = term if result is None else result & term
        return result


@dataclass(frozen=True, slots=True)
class Source:
    """Whose rows are wanted: a kind of stream, one name or all, training or evaluation or both."""

    kind: str
    name: str | None
    evaluation: bool | None


def read_parts(paths: Sequence[Path], rows: Rows, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the wanted rows and columns of some parts of one stream, in order."""
    import pyarrow.dataset as ds

    dataset = ds.dataset([str(path) for path in paths], format="parquet")
    names = dataset.schema.names if columns is None else list(columns)
    return dataset.to_table(columns=names, filter=rows.expression())


def columns_of(paths: Sequence[Path]) -> list[str]:
    """Return the columns of a stream, of which ``paths`` are the parts."""
    import pyarrow.parquet as pq

    names: list[str] = pq.read_schema(paths[0]).names if paths else []
    return names


class Trajectories(Queries):
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
    ) -> pd.DataFrame:
        """Return one row per step of the agents, agent after agent, in recorded order.

        Columns: ``phase`` and ``agent`` (each unless the argument picks one), ``worker``,
        ``episode``, ``step``, ``time`` (ticks), then ``reading.UID``, ``setpoint.UID``
        (``reading.UID[i]`` where a value has several floats), ``reward.NAME``,
        ``terminated``, ``truncated``, ``objective``. ``columns`` chooses among these from
        the readings on; it may also name ``wall``: the seconds that the step took.
        ``start <= time < stop`` limits the ticks. ``evaluation=True`` means the evaluation
        episodes, ``None`` both: then a column ``evaluation`` follows ``episode``. An agent without a column that another
        one has shows NaN there.
        """
        self._check_member(run, phase, "agent", agent)
        rows = Rows(worker, episode, start, stop)
        return self._frames(run, phase, Source("agent", agent, evaluation), rows, columns)

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
    ) -> pd.DataFrame:
        """Return one row per state of the environments; arguments as for :meth:`steps`.

        Columns: ``phase`` and ``environment`` (each unless picked), ``worker``,
        ``episode``, ``step``, ``time``, ``reading.UID``, ``reward.NAME``, ``terminated``,
        ``truncated``, ``state`` (whatever else the environment told, or ``None``).
        """
        import pandas as pd

        self._check_member(run, phase, "environment", environment)
        rows = Rows(worker, episode, start, stop)
        result = self._frames(run, phase, Source("environment", environment, evaluation), rows, columns)
        if "state" in result:
            states = [json.loads(text) if isinstance(text, str) else None for text in result["state"]]
            result["state"] = pd.Series(states, dtype=object)
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
        """Return what agents told about themselves, in long format.

        Columns: ``phase`` (unless picked), ``agent``, ``worker``, ``episode``, ``step``,
        ``key``, ``value``. ``evaluation`` as for :meth:`steps`.
        """
        self._check_member(run, phase, "agent", agent)
        result = self._frames(run, phase, Source("statistics", "", evaluation), Rows(worker, episode), None)
        if result.empty:
            first = [] if phase is not None else ["phase"]
            told_apart = ["evaluation"] if evaluation is None else []
            names = [*first, "agent", "worker", "episode", *told_apart, "step", "key", "value"]
            return result.reindex(columns=names)
        for name, wanted in (("agent", agent), ("key", key)):
            if wanted is not None:
                result = result[result[name] == wanted]
        return result.reset_index(drop=True)

    def export(self, run: str, directory: str | Path, format: str = "parquet") -> list[Path]:
        """Write all of a run as files into a new or empty folder; return their paths.

        ``format`` is ``"parquet"`` or ``"csv"``. Every table becomes a file, and so does
        every stream of steps, whose parts are joined.
        """
        from .export import export_run

        return export_run(self, run, Path(directory), format)

    def _frames(
        self,
        run: str,
        phase: int | str | None,
        source: Source,
        rows: Rows,
        columns: Sequence[str] | None,
    ) -> pd.DataFrame:
        import pandas as pd

        kind, name = source.kind, source.name
        streams = self.streams(run, phase)
        streams = streams[streams["kind"] == kind]
        if name is not None:
            streams = streams[streams["name"] == name]
        if source.evaluation is not None:
            streams = streams[streams["evaluation"] == source.evaluation]
        root = self.instance_directory(self.find_run(run))
        found = [
            (number, owner, flag, root / folder, part_files(root / folder))
            for number, owner, flag, folder in streams[_PLACE].itertuples(index=False)
        ]
        found = [entry for entry in found if entry[4]]
        if columns is not None and found:
            known = {name for entry in found for name in columns_of(entry[4])}
            for wanted in columns:
                if wanted not in known and not (wanted == "wall" and kind == "agent"):
                    raise unknown("column", wanted, known - set(_KEYS), f"run {run!r}")
        frames = []
        for number, owner, evaluation, folder, paths in found:
            part = _read_frame(folder, paths, rows, columns)
            if source.evaluation is None:
                part.insert(list(part).index("episode") + 1, "evaluation", evaluation)
            if name is None:
                part.insert(0, kind, owner)
            if phase is None:
                part.insert(0, "phase", number)
            frames.append(part)
        if frames:
            return pd.concat(frames, ignore_index=True)
        owners = ([] if phase is not None else ["phase"]) + ([] if name is not None else [kind])
        keys = list(_KEYS)
        if source.evaluation is None:
            keys.insert(keys.index("episode") + 1, "evaluation")
        return pd.DataFrame(columns=[*owners, *keys, *(columns or ())])


def _read_frame(
    folder: Path, paths: Sequence[Path], rows: Rows, columns: Sequence[str] | None
) -> pd.DataFrame:
    chosen = None
    if columns is not None:
        there = set(columns_of(paths))
        chosen = list(_KEYS) + [name for name in columns if name in there and name not in _KEYS]
    result: pd.DataFrame = read_parts(paths, rows, chosen).to_pandas()
    if columns is not None and "wall" in columns:
        # The folder beside it, whose parts hold the same rows.
        walls = wall_folder(folder)
        result["wall"] = read_parts([walls / path.name for path in paths], rows, ["wall"])["wall"].to_pandas()
    return result
