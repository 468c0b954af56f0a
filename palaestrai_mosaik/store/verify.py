"""Verification: read a store's files, and compare them with the database.

This reads all parts (steps and frames against their digests, wall-clock times against their checksums), the dumps of
brains and the descriptions (against their SHA-256), the marker of a finished instance, and the outcomes of agents'
episodes (sums and means against the steps). It does not check the rest of the database (lengths of episodes,
their dates, minimum and maximum of outcomes, documents, errors, warnings), nor dumps of brains
that no longer have a file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sqlalchemy import and_, select, update
from sqlalchemy.orm import Session

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback

from .database import reads
from .models import (
    Agent,
    Description,
    Environment,
    Episode,
    Failure,
    Instance,
    Outcome,
    Phase,
    RunDocument,
    SafeText,
    SharedDescription,
    StoredBrain,
    to_json,
    utc_now,
)
from .parts import UnreadableError, columns_of, read_parts, wall_folder, whole_parts, write_text
from .query.lookup import inside
from .query.runs import status_of
from .recorder import MARKER, digests_of, put_marker, read_marker
from .resume import count_rows, read_kept

if TYPE_CHECKING:
    from .store import Store

#: the kind of error recorded for a finished instance that is damaged
DAMAGED = "Damaged"
#: the first line of a brain's dump file (written by ``agent.dumper``, which the store does not import)
_DUMP_HEAD = re.compile(rb"palaestrai-mosaik-brain sha256=([0-9a-f]{64}) bytes=[0-9]+")
#: bound on the difference of sums in another order, relative to the sum of magnitudes
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of verifying an instance.

    ``run`` is its uid, ``document`` its document's uid, ``status`` as in :meth:`Store.runs`, and ``rows`` the number of
    rows read, over all streams. ``damage`` has a sentence for each difference from the recording, with its file;
    ``unread`` has a sentence for each file that could not be read, and so is unknown. ``absent``: the instance's folder
    is missing, so its files are unknown; they may be elsewhere.
    """

    run: str
    document: str
    status: str
    rows: int
    damage: tuple[str, ...]
    unread: tuple[str, ...] = ()
    absent: bool = False


def verify(
    store: Store, run: str, *, outcomes: bool = True, progress: ProgressCallback | None = None
) -> Verified:
    """Read an instance's files, and compare them with the database.

    The module's docstring lists the comparisons. Phases that have not ended have no digest: their parts are only read,
    and only if the run is over.

    Args:
        store: the store.
        run: the run, in any form that :meth:`Store.find_run` accepts.
        outcomes: compare the sums in the database, too, which reads the agents' parts twice.
        progress: called with the number of parts read, and the total.

    Raises:
        StoreError: there is no such run.
    """
    return store.database.repeat(lambda _: _verify(store, store.find_run(run), outcomes, progress))


class _Findings:
    """Sentences about the files of an instance: damaged ones, and ones that cannot be read."""

    def __init__(self) -> None:
        self.damage: list[str] = []
        self.unread: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.damage or self.unread)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note an error instead of raising it."""
        try:
            yield
        except UnreadableError as error:
            self.unread.append(str(error))
        except StoreError as error:
            self.damage.append(str(error))


class _StreamRow(NamedTuple):
    """The row of a stream in the database; before the phase has ended, ``rows`` is ``None``."""

    folder: str
    kind: str
    rows: int | None
    parts: Any
    digest: str | None

    @property
    def part_count(self) -> int:
        """The number of parts, or 0 if it is unknown."""
        return int(self.parts) if self.rows is not None and hasattr(self.parts, "__index__") else 0


def _verify(store: Store, uid: str, outcomes: bool, progress: ProgressCallback | None) -> Verified:
    findings = _Findings()
    with store.database.reading() as session:
        where = select(Instance, RunDocument.uid).join(RunDocument).where(Instance.uid == uid)
        instance, document = session.execute(where).one()
        status = status_of(instance)
        findings.damage += _damage_of_stored_brains(session, instance.id)
        findings.damage += _damage_of_descriptions(session, instance.id)
    directory = store.instance_directory(uid)
    if not os.path.isdir(directory):
        unread = (f"{directory} is not there",)
        return Verified(uid, document, status, 0, tuple(findings.damage), unread, absent=True)
    streams = _stream_rows(store, uid)
    outcomes = outcomes and status == "finished"
    again = [stream for stream in streams if outcomes and stream.kind == "agent"]
    counted = PartsProgress(progress, sum(stream.part_count for stream in (*streams, *again)))
    total = 0
    for stream in streams:
        if stream.rows is None and status == "running":
            continue
        with findings.collecting():
            total += _read(inside(directory, stream.folder), stream, counted)
            counted.end(stream.part_count)
    if status == "finished":
        digests = digests_of({stream.folder: stream._asdict() for stream in streams})
        with findings.collecting():
            damage = marker_damage(directory, uid, digests)
            findings.damage += [] if damage is None else [damage]
    if status != "running":
        for path in _dumps(directory):
            with findings.collecting():
                findings.damage += _damage_of_dump(path)
    if outcomes and not findings:
        findings.damage += _other_outcomes(store, uid, counted)
    return Verified(uid, document, status, total, tuple(findings.damage), tuple(findings.unread))


def _stream_rows(store: Store, uid: str) -> list[_StreamRow]:
    """Select the streams of the instance, but those of wall-clock times."""
    table = store.streams(uid)
    columns = table[table["kind"] != "wall"][list(_StreamRow._fields)]
    return [
        _StreamRow(folder, kind, int(rows) if hasattr(rows, "__index__") else None, parts, digest)
        for folder, kind, rows, parts, digest in columns.itertuples(index=False)
    ]


def _damage_of_stored_brains(session: Session, instance: int) -> Iterator[str]:
    """Yield a sentence for each dump of a brain in the database that differs from its SHA-256."""
    columns = (StoredBrain.agent, StoredBrain.phase, StoredBrain.sha256, StoredBrain.dump)
    for agent, phase, digest, dump in session.execute(
        select(*columns).where(StoredBrain.instance_id == instance)
    ):
        if hashlib.sha256(dump).hexdigest() != digest:
            yield f"a dump of the brain of {agent!r} in phase {phase} is damaged"


def _damage_of_descriptions(session: Session, instance: int) -> Iterator[str]:
    """Yield a sentence for each topology or world of the instance that differs from its hash."""
    columns = (Phase.number, Description.kind, Description.hash, Description.id)
    phases = select(*columns).where(Phase.instance_id == instance)
    of_phase = phases.join(Description, Description.id == Phase.world_id)
    of_environment = phases.join(Environment, Environment.phase_id == Phase.id).join(
        Description, Description.id == Environment.topology_id
    )
    checked: set[int] = set()
    for query in (of_phase, of_environment):
        for phase, kind, digest, row_id in session.execute(query).all():
            if row_id in checked:
                continue
            checked.add(row_id)
            try:
                content = session.scalar(select(Description.content).where(Description.id == row_id))
            except ValueError:
                content = None
            if SharedDescription.of(kind, content).hash != digest:
                yield f"the {kind} of phase {phase} is damaged"


def _read(folder: Path, stream: _StreamRow, progress: ProgressCallback) -> int:
    """Count the rows of a stream. Raises :class:`StoreError` if they differ from its row in the database."""
    has_ended = stream.rows is not None
    number = len(whole_parts(folder, stream.parts if has_ended else None))
    try:
        kept = read_kept(stream.kind, folder, number, progress if has_ended else None)
    except (KeyError, ValueError) as error:
        raise StoreError(f"{folder} is damaged: its parts have other columns ({error})") from error
    if not has_ended:
        return kept.rows
    counts = {folder: kept.rows}
    if stream.kind == "agent":
        walls = wall_folder(folder)
        counts[walls] = count_rows(walls, number)
    for path, count in counts.items():
        if count != stream.rows:
            raise StoreError(f"{path} is damaged: it holds {count} rows, {stream.rows} were recorded")
    if stream.digest is not None and kept.digest.hexdigest() != stream.digest:
        raise StoreError(f"{folder} is damaged: its parts hold other values than were recorded")
    return kept.rows


def marker_damage(directory: Path, uid: str, digests: dict[str, str]) -> str | None:
    """Check the marker of the finished instance ``uid`` in ``directory``.

    Args:
        directory: the instance's folder.
        uid: the instance's uid.
        digests: its streams' digests in the database.

    Returns:
        A sentence about the damage, or ``None``.

    Raises:
        UnreadableError: the marker cannot be read.
    """
    path = directory / MARKER
    try:
        marker = json.loads(read_marker(directory))
        as_written = (marker["uid"], marker["status"]) == (uid, "finished")
        if as_written and marker["digests"] == digests:
            return None
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        return f"{path} is damaged: {type(error).__name__}: {error}"
    other = "digests than the database" if as_written else "instance, or another end than the database"
    return f"{path} names {'other' if as_written else 'another'} {other}"


def _dumps(directory: Path) -> list[Path]:
    """List the dump files of brains, without those that were about to replace another."""
    return sorted(path for path in directory.glob("brains/**/brain*.bin") if "." not in path.parent.name)


def _damage_of_dump(path: Path) -> Iterator[str]:
    """Yield a sentence if the dump file of a brain differs from its SHA-256. Raises :class:`UnreadableError`."""
    try:
        head, _, dump = files.read_bytes(path).partition(b"\n")
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from error
    written = _DUMP_HEAD.fullmatch(head)
    if written is None or hashlib.sha256(dump).hexdigest() != written[1].decode():
        yield f"{path} is damaged: it does not have the SHA-256 with which a brain's dump begins"


#: the key of a sum: phase, agent, whether an evaluation, worker, episode, column of the steps
_Value = tuple[int, str, bool, int, int, str]


def _other_outcomes(store: Store, uid: str, counted: PartsProgress) -> Iterator[str]:
    """Yield a sentence for each sum or mean of an episode that differs from its steps."""
    recorded, orphans = _recorded_outcomes(store, uid)
    for orphan in orphans:
        yield f"the database has outcomes of {_episode(*orphan)}, and not the episode itself"
    steps = _sums_of_steps(store, uid, counted)
    for value in sorted(steps.keys() | recorded.keys(), key=_sort_key):
        sum_, mean = recorded.get(value, (math.nan, math.nan))
        total, count, size = steps.get(value, (0.0, 0.0, 0.0))
        if count:
            # both infinite, or NaN because of infinities, or close
            is_same = all(_close(moment, total, _ROUNDING * size) for moment in (sum_, mean * count))
        else:
            is_same = math.isnan(sum_)
        if not is_same:
            yield (
                f"the database has the sum {sum_} and the mean {mean} of {value[5]} of {_episode(*value[:5])}; its steps "
                f"give the sum {total}, the mean {total / (count or 1)}"
            )


def _recorded_outcomes(
    store: Store, uid: str
) -> tuple[dict[_Value, tuple[float, float]], list[tuple[Any, ...]]]:
    """Select sum and mean of each outcome, and the keys of those without an episode."""
    columns = (Phase.number, Agent.name, Outcome.evaluation, Outcome.worker, Outcome.episode)
    values = (Outcome.kind, Outcome.name, Outcome.sum, Outcome.mean, Episode.phase_id)
    shared = ("phase_id", "worker", "episode", "evaluation")
    of_episode = and_(*(getattr(Episode, name) == getattr(Outcome, name) for name in shared))
    query = select(*columns, *values).select_from(Outcome).join(Agent).outerjoin(Episode, of_episode)
    query = query.join(Phase, Phase.id == Outcome.phase_id).join(Instance).where(Instance.uid == uid)
    recorded: dict[_Value, tuple[float, float]] = {}
    orphans: list[tuple[Any, ...]] = []
    with store.database.reading() as session:
        for *key, kind, name, total, mean, phase_id in session.execute(query):
            if phase_id is None:
                orphans.append(tuple(key))
            column = "objective" if kind == "objective" else f"reward.{name}"
            recorded[*key, column] = _as_number(total), _as_number(mean)
    return recorded, orphans


def _as_number(value: Any) -> float:
    """Return ``value``, or NaN if it is null or no number."""
    return value if isinstance(value, int | float) else math.nan


def _sort_key(value: Iterable[Any]) -> list[tuple[str, Any]]:
    """Build a sort key; an edited database may have text instead of numbers."""
    return [("" if isinstance(part, int | float) else type(part).__name__, part) for part in value]


def _episode(phase: int, agent: str, evaluation: bool, worker: int, episode: int) -> str:
    kind = "evaluation" if evaluation else "episode"
    return f"{agent!r} in phase {phase}, worker {worker}, {kind} {episode}"


def _close(a: float, b: float, limit: float) -> bool:
    return math.isclose(a, b, rel_tol=0, abs_tol=limit) or (math.isnan(a) and math.isnan(b))


def _sums_of_steps(
    store: Store, uid: str, counted: PartsProgress
) -> dict[_Value, tuple[float, float, float]]:
    """Compute the sum, count and sum of magnitudes of each episode's values from all agents' steps, ignoring NaN."""
    totals: dict[_Value, Any] = defaultdict(lambda: np.zeros(3))
    as_stored = partial(SafeText().process_bind_param, dialect=store.database.engine.dialect)
    streams = store.streams(uid)
    agents = streams[streams["kind"] == "agent"][["phase", "name", "evaluation", "folder", "parts"]]
    for phase, agent, evaluation, folder, parts in agents.itertuples(index=False):
        for path in whole_parts(inside(store.instance_directory(uid), folder), parts):
            columns = [
                name for name in columns_of([path]) if name == "objective" or name.startswith("reward.")
            ]
            table = read_parts([path], columns=["worker", "episode", *columns])
            keys = np.stack([table[name].to_numpy() for name in ("worker", "episode")])
            episodes, groups = np.unique(keys, axis=1, return_inverse=True)
            for name in columns:
                values = table[name].to_numpy()
                present = ~np.isnan(values)
                values = np.where(present, values, 0.0)
                sums = [np.bincount(groups.ravel(), weights) for weights in (values, present, np.abs(values))]
                for (worker, episode), moments in zip(episodes.T.tolist(), np.stack(sums, 1), strict=True):
                    totals[phase, agent, bool(evaluation), worker, episode, str(as_stored(name))] += moments
            counted.end()
    return {value: tuple(moments.tolist()) for value, moments in totals.items()}


@reads
def instances_to_verify(store: Store) -> list[str]:
    """List the uids of all instances, oldest first, without those already marked as damaged."""
    damaged = select(Failure.instance_id).where(Failure.kind == DAMAGED)
    query = select(Instance.uid).where(Instance.id.not_in(damaged)).order_by(Instance.id)
    with store.database.reading() as session:
        return list(session.scalars(query))


def marked_damaged(session: Session, uids: Sequence[str]) -> set[str]:
    """Select those of the instances ``uids`` that :func:`mark_failed` has recorded as failed; few at a time."""
    marked = select(Instance.uid).join(Failure).where(Failure.kind == DAMAGED, Instance.uid.in_(uids))
    return set(session.scalars(marked))


def mark_failed(store: Store, verified: Verified) -> bool:
    """Record a finished instance as failed because of its damage; return whether it was finished.

    Queries for finished runs then ignore it, so its document counts as not executed.
    :func:`instances_to_verify` skips it.
    """
    time = utc_now()

    def write(session: Session) -> bool:
        finished = (Instance.uid == verified.run, Instance.status == "finished")
        changed = update(Instance).where(*finished).values(status="failed").returning(Instance.id)
        row = session.execute(changed).scalar()
        if row is None:
            return False
        text = "\n".join(verified.damage)
        session.add(Failure(instance_id=row, kind=DAMAGED, message=text, traceback=text, time=time))
        return True

    def written(session: Session) -> bool | None:
        mine = select(Failure.id).join(Instance).where(Instance.uid == verified.run, Failure.time == time)
        return True if session.scalar(mine) is not None else None

    if verified.status != "finished":
        return False
    # The marker comes first: if this is killed in between, the damage is found and marked again, and
    # a collection of the run does not take the damaged files for complete ones.
    _mark_file(store.instance_directory(verified.run))
    return store.database.write(write, written)


def _mark_file(directory: Path) -> None:
    """Mark a finished instance as failed in its marker file, if that can be read."""
    put_marker(directory)
    try:
        marker = json.loads(files.read_text(directory / MARKER))
    except (OSError, ValueError):
        return
    if isinstance(marker, dict):
        write_text(directory / MARKER, to_json(marker | {"status": "failed"}) + "\n")
