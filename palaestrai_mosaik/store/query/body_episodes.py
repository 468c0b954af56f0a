"""The outcome of each episode of each body, computed from the recorded steps.

The aggregates in SQL are per agent and episode of the phase. If environments restart
on their own, an episode of the phase holds many episodes of each body, which are computed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..parts import columns_of, damage_reported, open_parts, read_parts
from .members import Bodies, BodyGroup
from .trajectories import RowQueries, RowRange, StreamSelection

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_KEYS = ["worker", "episode", "body", "environment_episode"]
_ENDS = ["terminated", "truncated"]
# The number of rows in memory at once, before aggregation.
_AT_ONCE = 2**19

# by phase, evaluation and environment: the (worker, episode, incarnation, environment_episode) that ended
_Ended = Mapping[tuple[int, bool, str], set[tuple[int, int, int, int]]]


class BodyEpisodes(RowQueries):
    """Aggregates of the per-step data. Unknown names raise :class:`StoreError`."""

    def body_episodes(  # noqa: PLR0913  (independent filters, all optional)
        self,
        run: str,
        phase: int | str | None = None,
        agent: str | None = None,
        worker: int | None = None,
        episode: int | None = None,
        evaluation: bool | None = False,
        *,
        environment: str | None = None,
        body: Bodies | None = None,
        counts: bool = False,
    ) -> pd.DataFrame:
        """Return one row per episode of each body, those of an agent in the order in which they ended.

        Columns: ``phase`` (its number), ``agent``, ``environment`` (``None``: a body that spans several), ``worker``,
        ``episode`` (of the phase), ``evaluation``, ``body``, ``environment_episode`` (how often the body's environment
        had restarted), ``steps`` (rows), ``time`` (of the last one, in ticks), ``objective_sum``, ``objective_mean``,
        ``reward.NAME_sum`` of every reward, ``terminated``, ``truncated``, ``complete`` (its environment ended by
        itself; otherwise the phase's episode ended for another reason, or it still runs). Sums and means ignore steps
        without a value; they are NaN if there is no value at all.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            agent: name of an agent; ``None``: all.
            worker: number of a worker; ``None``: all.
            episode: number of an episode of the phase; ``None``: all.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both.
            environment: uid of an environment: only the bodies in it; ``None``: all.
            body: number or label of a body, or a list of them; ``None``: all.
            counts: add ``objective_count`` and ``reward.NAME_count``: how many steps have a value.

        Raises:
            StoreError: there is no such run, phase, agent, environment or body, or part files are damaged.
        """
        import pandas as pd

        groups = {group.key: group for group in self._body_groups(run, phase, agent, environment, body)}
        numbers = {key: group.selected for key, group in groups.items()}
        rows = RowRange(worker, episode)
        environments = StreamSelection("environment", evaluation=evaluation)
        ended = {
            (stream.phase, stream.evaluation, stream.name): _ended(stream.paths, rows)
            for stream in self._streams(run, phase, environments)
        }
        frames = []
        for stream in self._streams(run, phase, StreamSelection("agent", agent, evaluation, numbers)):
            group = groups[stream.key]
            frame = _episodes_of(stream.paths, replace(rows, numbers=stream.numbers), counts)
            frame["complete"] = _complete(frame, group, stream.evaluation, ended)
            owners: dict[str, Any] = {
                "phase": stream.phase,
                "agent": stream.name,
                "environment": group.environment,
            }
            for i, (column, value) in enumerate(owners.items()):
                frame.insert(i, column, value)
            frame.insert(5, "evaluation", stream.evaluation)
            frames.append(frame)
        if not frames:
            names = ["phase", "agent", "environment", "worker", "episode", "evaluation", "body"]
            names += ["environment_episode", "steps", "time", "objective_sum", "objective_mean"]
            names += ["objective_count"] * counts
            return pd.DataFrame(columns=[*names, *_ENDS, "complete"])
        result = pd.concat(frames, ignore_index=True)
        last = [*_ENDS, "complete"]
        result = result[[*(name for name in result if name not in last), *last]]
        ranks = {name: i for i, name in enumerate(dict.fromkeys(result["agent"]))}
        order = ["phase", "_agent", "evaluation", "episode", "time", "worker", "body", "environment_episode"]
        ranked = result.assign(_agent=result["agent"].map(ranks)).sort_values(order, kind="stable")
        return ranked.drop(columns="_agent").reset_index(drop=True)


def _episodes_of(paths: Sequence[Path], rows: RowRange, with_counts: bool) -> pd.DataFrame:
    """Aggregate the steps of one stream by episode, some parts at a time."""
    names = columns_of(paths)
    rewards = [name for name in names if name.startswith("reward.")]
    values = ["objective", *rewards]
    with damage_reported(paths):
        folded = [
            _fold(table, {name: [("sum", f"{name}_sum"), ("count", f"{name}_count")] for name in values})
            for table in _tables(paths, rows, [*_KEYS, "step", "time", *values, *_ENDS])
        ]
    import pyarrow as pa

    whole = _fold_again(pa.concat_tables(folded), values)
    result: pd.DataFrame = whole.to_pandas()
    counts = {name: result.pop(f"{name}_count") for name in values}
    for name in values:
        result[f"{name}_sum"] = result[f"{name}_sum"].astype(float)
    mean = result["objective_sum"] / counts["objective"].where(counts["objective"] > 0)
    result.insert(list(result).index("objective_sum") + 1, "objective_mean", mean)
    return result.assign(**{f"{name}_count": counts[name] for name in values}) if with_counts else result


def _tables(paths: Sequence[Path], rows: RowRange, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the selected rows, with null for NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    dataset = open_parts(paths)
    collected: list[Any] = []
    count = 0
    batches = dataset.to_batches(columns=list(columns), filter=rows.expression(dataset.schema.names))

    def joined() -> pa.Table:
        schema = pa.schema([dataset.schema.field(name) for name in columns])
        table = pa.Table.from_batches(collected, schema=schema)
        for i, name in enumerate(columns):
            if pa.types.is_floating(table.schema.field(name).type):
                column = table[name]
                table = table.set_column(
                    i, name, pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
                )
        return table

    for batch in batches:
        collected.append(batch)
        count += batch.num_rows
        if count >= _AT_ONCE:
            yield joined()
            collected, count = [], 0
    yield joined()


def _fold(table: pa.Table, values: Mapping[str, Sequence[tuple[str, str]]]) -> pa.Table:
    """Aggregate the rows of each episode of a body."""
    aggregates = [("step", "count", "steps"), ("time", "max", "time")]
    aggregates += [(name, how, as_) for name, hows in values.items() for how, as_ in hows]
    aggregates += [(name, "max", name) for name in _ENDS]
    return _grouped(table, aggregates)


def _fold_again(table: pa.Table, values: Sequence[str]) -> pa.Table:
    aggregates = [("steps", "sum", "steps"), ("time", "max", "time")]
    aggregates += [(f"{n}_{how}", "sum", f"{n}_{how}") for n in values for how in ("sum", "count")]
    aggregates += [(name, "max", name) for name in _ENDS]
    return _grouped(table, aggregates)


def _grouped(table: pa.Table, aggregates: Sequence[tuple[str, str, str]]) -> pa.Table:
    # a single thread, so that sums are always in the same order
    grouped = table.group_by(_KEYS, use_threads=False).aggregate([(name, how) for name, how, _ in aggregates])
    names = [f"{name}_{how}" for name, how, _ in aggregates]
    return grouped.select([*_KEYS, *names]).rename_columns([*_KEYS, *(as_ for _, _, as_ in aggregates)])


def _ended(paths: Sequence[Path], rows: RowRange) -> set[tuple[int, int, int, int]]:
    """Select the episodes of an environment that ended by themselves, according to its states."""
    import pyarrow.compute as pc

    keys = ["worker", "episode", "incarnation", "environment_episode"]
    condition = pc.field("terminated") | pc.field("truncated")
    row_filter = rows.expression(columns_of(paths))
    if row_filter is not None:
        condition &= row_filter
    table = read_parts(paths, lambda names: condition, keys)
    return set(zip(*(table[name].to_pylist() for name in keys), strict=True))


def _complete(frame: pd.DataFrame, group: BodyGroup, evaluation: bool, ended: _Ended) -> list[bool]:
    keys = frame[_KEYS].itertuples(index=False)
    environments = [(ended.get((group.phase, evaluation, uid), set()), uid) for uid in group.environments]
    return [
        any(
            (worker, episode, incarnation, turn) in ended_keys
            for ended_keys, uid in environments
            for incarnation in group.incarnations_of(uid, body)
        )
        for worker, episode, body, turn in keys
    ]
