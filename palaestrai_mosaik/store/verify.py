"""Whether a store still holds what was recorded: files are read, and compared with the database.

Read are all parts (steps and frames against their digests, wall-clock times against their checksums), the dumps of
brains and the descriptions (against their SHA-256), the marker of a finished instance, and what episodes
gave agents (sums and means against the steps). Not checked: everything else in the database (lengths of episodes,
their dates, minimum and maximum of outcomes, documents, errors, warnings), and dumps of brains
that have no file any more.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import and_, select, update
from sqlalchemy.orm import Session

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.progress import PartsProgress, ProgressCallback

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
    StoredBrain,
    to_json,
    utc_now,
)
from .parts import UnreadableError, columns_of, read_parts, wall_folder, whole_parts, write_text
from .phase_recorder import digests_of
from .query.lookup import inside
from .query.runs import status_of
from .recorder import MARKER, put_marker, read_marker
from .shared import SharedDescription
from .stream_resume import count_rows, read_kept

if TYPE_CHECKING:
    from .store import Store

#: the kind of error that a finished instance has which was found damaged
DAMAGED = "Damaged"
#: how the file of a brain's dump begins (written by ``agent.dumper``, which the store does not import)
_DUMP_HEAD = re.compile(rb"palaestrai-mosaik-brain sha256=([0-9a-f]{64}) bytes=[0-9]+")
#: sums over the same steps in another order differ by less than this, relative to the largest of them
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found of an instance.

    ``run`` is its uid, ``document`` that of its document, ``status`` as in :meth:`Store.runs`.
    ``rows`` of all its streams were read. ``damage``: a sentence for each thing that is not as it was
    recorded, with its file. ``unread``: a sentence for each thing that is unknown, because it could not
    be read. ``absent``: its folder is not there, so nothing is known of its files, which may be elsewhere.
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
    """Read what the store holds of an instance, and compare it with what the database says of it.

    What is compared stands at the beginning of this module. Of phases that have not ended there is no
    digest: their parts are only read, and not even that as long as the run goes on. ``outcomes``: whether
    sums of the database are compared, too. ``progress`` is called with how many parts are read, and of how
    many; for the sums, those of agents are read again. Raises :class:`StoreError` for an unknown run.
    """
    return store.database.repeat(lambda _: _verify(store, store.find_run(run), outcomes, progress))


def _verify(store: Store, uid: str, outcomes: bool, progress: ProgressCallback | None) -> Verified:
    with store.database.reading() as session:
        where = select(Instance, RunDocument.uid).join(RunDocument).where(Instance.uid == uid)
        instance, document = session.execute(where).one()
        status = status_of(instance)
        damage: list[str] = []
        brains = select(StoredBrain.agent, StoredBrain.phase, StoredBrain.sha256, StoredBrain.dump)
        for agent, phase, digest, dump in session.execute(
            brains.where(StoredBrain.instance_id == instance.id)
        ):
            if hashlib.sha256(dump).hexdigest() != digest:
                damage.append(f"a dump of the brain of {agent!r} in phase {phase} is damaged")
        damage += _damage_of_descriptions(session, instance.id)
    directory = store.instance_directory(uid)
    if not os.path.isdir(directory):
        return Verified(uid, document, status, 0, tuple(damage), (f"{directory} is not there",), absent=True)
    table = store.streams(uid)
    streams = table[table["kind"] != "wall"][["folder", "kind", "rows", "parts", "digest"]]
    total = 0
    unread: list[str] = []
    recorded_streams: dict[str, dict[str, Any]] = {}
    known_parts = streams["parts"].where(streams["rows"].notna()).fillna(0).astype(int)
    again = known_parts[streams["kind"] == "agent"] if outcomes and status == "finished" else known_parts[:0]
    counted = PartsProgress(progress, int(known_parts.sum() + again.sum()))
    for folder, kind, rows, parts, digest in streams.itertuples(index=False):
        ended = hasattr(rows, "__index__")
        recorded_streams[folder] = {"rows": rows if ended else None, "digest": digest}
        if not ended and status == "running":
            continue
        try:
            recorded = (int(rows), parts, digest) if ended else None
            total += _read(inside(directory, folder), kind, recorded, counted)
            counted.end(int(parts) if ended and hasattr(parts, "__index__") else 0)
        except UnreadableError as error:
            unread.append(str(error))
        except StoreError as error:
            damage.append(str(error))
    if status == "finished":
        try:
            wrong = marker_damage(directory, uid, digests_of(recorded_streams))
            damage += [] if wrong is None else [wrong]
        except UnreadableError as error:
            unread.append(str(error))
    if status != "running":
        for path in _dumps(directory):
            try:
                damage += _damage_of_dump(path)
            except OSError as error:
                unread.append(f"{path} cannot be read: {error.strerror}")
    if outcomes and status == "finished" and not (damage or unread):
        damage += _other_outcomes(store, uid, counted)
    return Verified(uid, document, status, total, tuple(damage), tuple(unread))


def _damage_of_descriptions(session: Session, instance: int) -> Iterator[str]:
    """Yield a sentence for each topology or world of the instance that is not as it was recorded."""
    columns = (Phase.number, Description.kind, Description.hash, Description.id)
    phases = select(*columns).where(Phase.instance_id == instance)
    of_phase = phases.join(Description, Description.id == Phase.world_id)
    of_environment = phases.join(Environment, Environment.phase_id == Phase.id).join(
        Description, Description.id == Environment.topology_id
    )
    checked: set[int] = set()
    for asked in (of_phase, of_environment):
        for phase, kind, digest, row_id in session.execute(asked).all():
            if row_id in checked:
                continue
            checked.add(row_id)
            try:
                content = session.scalar(select(Description.content).where(Description.id == row_id))
            except ValueError:
                content = None
            if SharedDescription.of(kind, content).hash != digest:
                yield f"the {kind} of phase {phase} is damaged"


def _read(
    folder: Path, kind: str, recorded: tuple[int, Any, str | None] | None, progress: ProgressCallback
) -> int:
    """Return how many rows a stream holds. Raises :class:`StoreError` where it holds others than were recorded.

    ``recorded``: the number of rows and parts, and the digest, once the phase has ended.
    """
    number = len(whole_parts(folder, None if recorded is None else recorded[1]))
    try:
        kept = read_kept(kind, folder, number, None if recorded is None else progress)
    except (KeyError, ValueError) as error:
        raise StoreError(f"{folder} is damaged: its parts have other columns ({error})") from error
    if recorded is None:
        return kept.rows
    expected, _, digest = recorded
    counts = {folder: kept.rows}
    if kind == "agent":
        walls = wall_folder(folder)
        counts[walls] = count_rows(walls, number)
    for place, count in counts.items():
        if count != expected:
            raise StoreError(f"{place} is damaged: it holds {count} rows, {expected} were recorded")
    if digest is not None and kept.digest.hexdigest() != digest:
        raise StoreError(f"{folder} is damaged: its parts hold other values than were recorded")
    return kept.rows


def marker_damage(directory: Path, uid: str, digests: dict[str, str]) -> str | None:
    """Return what is wrong with the marker of the finished instance ``uid`` in ``directory``, if anything.

    ``digests`` are those of its streams in the database. Raises :class:`UnreadableError` where that is unknown.
    """
    path = directory / MARKER
    try:
        found = json.loads(read_marker(directory))
        as_written = (found["uid"], found["status"]) == (uid, "finished")
        if as_written and found["digests"] == digests:
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
    """Return the files of brains' dumps, but for those that were about to take the place of another."""
    return sorted(path for path in directory.glob("brains/**/brain*.bin") if "." not in path.parent.name)


def _damage_of_dump(path: Path) -> Iterator[str]:
    """Yield a sentence where the file of a brain's dump is not as it was written. Raises ``OSError``."""
    head, _, dump = files.read_bytes(path).partition(b"\n")
    written = _DUMP_HEAD.fullmatch(head)
    if written is None or hashlib.sha256(dump).hexdigest() != written[1].decode():
        yield f"{path} is damaged: it does not have the SHA-256 with which a brain's dump begins"


#: a value: phase, agent, whether an evaluation, worker, episode, column of the steps
_Value = tuple[int, str, bool, int, int, str]


def _other_outcomes(store: Store, uid: str, counted: PartsProgress) -> Iterator[str]:
    """Yield a sentence for each sum or mean of an episode that is another than its steps say."""
    columns = (Phase.number, Agent.name, Outcome.evaluation, Outcome.worker, Outcome.episode)
    values = (Outcome.kind, Outcome.name, Outcome.sum, Outcome.mean, Episode.phase_id)
    shared = ("phase_id", "worker", "episode", "evaluation")
    of_episode = and_(*(getattr(Episode, name) == getattr(Outcome, name) for name in shared))
    asked = select(*columns, *values).select_from(Outcome).join(Agent).outerjoin(Episode, of_episode)
    asked = asked.join(Phase, Phase.id == Outcome.phase_id).join(Instance)
    recorded: dict[_Value, tuple[float, float]] = {}
    with store.database.reading() as session:
        for *key, kind, name, total, mean, there in session.execute(asked.where(Instance.uid == uid)):
            if there is None:
                yield f"the database has outcomes of {_episode(*key)}, and not the episode itself"
            column = "objective" if kind == "objective" else f"reward.{name}"
            # (null is NaN, and so is what somebody has written there that is no number)
            moments = tuple(one if isinstance(one, int | float) else math.nan for one in (total, mean))
            recorded[*key, column] = moments  # type: ignore[assignment]
    steps = _sums_of_steps(store, uid, counted)
    nothing = (math.nan, math.nan)
    for value in sorted(steps.keys() | recorded.keys(), key=_place):
        said, mean = recorded.get(value, nothing)
        total, count, size = steps.get(value, (0.0, 0.0, 0.0))
        if count:
            limit = _ROUNDING * size
            # (both are infinite, or NaN because of infinities, or close)
            if all(_close(one, total, limit) for one in (said, mean * count)):
                continue
        elif math.isnan(said):
            continue
        *key, column = value
        yield (
            f"the database has the sum {said} and the mean {mean} of {column} of {_episode(*key)}; its steps "
            f"give the sum {total}, the mean {total / (count or 1)}"
        )


def _place(value: Iterable[Any]) -> list[tuple[str, Any]]:
    """Return what sorts values; a database that somebody has edited may have texts for numbers."""
    return [("" if isinstance(part, int | float) else type(part).__name__, part) for part in value]


def _episode(phase: int, agent: str, evaluation: bool, worker: int, episode: int) -> str:
    kind = "evaluation" if evaluation else "episode"
    return f"{agent!r} in phase {phase}, worker {worker}, {kind} {episode}"


def _close(one: float, other: float, limit: float) -> bool:
    if math.isfinite(one) and math.isfinite(other):
        return abs(one - other) <= limit
    return one == other or (math.isnan(other) and math.isnan(one))


def _sums_of_steps(
    store: Store, uid: str, counted: PartsProgress
) -> dict[_Value, tuple[float, float, float]]:
    """Return sum, number and sum of magnitudes of the values that are not NaN, if any, from all agents' steps."""
    found: dict[_Value, Any] = defaultdict(lambda: np.zeros(3))
    as_stored = partial(SafeText().process_bind_param, dialect=store.database.engine.dialect)
    streams = store.streams(uid)
    agents = streams[streams["kind"] == "agent"][["phase", "name", "evaluation", "folder", "parts"]]
    for phase, agent, evaluation, folder, parts in agents.itertuples(index=False):
        for path in whole_parts(inside(store.instance_directory(uid), folder), parts):
            wanted = [
                name for name in columns_of([path]) if name == "objective" or name.startswith("reward.")
            ]
            table = read_parts([path], lambda names: None, ["worker", "episode", *wanted])
            keys = np.stack([table[name].to_numpy() for name in ("worker", "episode")])
            episodes, where = np.unique(keys, axis=1, return_inverse=True)
            for name in wanted:
                values = table[name].to_numpy()
                there = ~np.isnan(values)
                values = np.where(there, values, 0.0)
                sums = [np.bincount(where.ravel(), weights) for weights in (values, there, np.abs(values))]
                for (worker, episode), moments in zip(episodes.T.tolist(), np.stack(sums, 1), strict=True):
                    found[phase, agent, bool(evaluation), worker, episode, str(as_stored(name))] += moments
            counted.end()
    return {value: tuple(moments.tolist()) for value, moments in found.items()}


def instances_to_verify(store: Store) -> list[str]:
    """Return the uids of all instances, oldest first, but for those that are known to be damaged."""
    known = select(Failure.instance_id).where(Failure.kind == DAMAGED)
    found = select(Instance.uid).where(Instance.id.not_in(known)).order_by(Instance.id)

    def ask(_: bool) -> list[str]:
        with store.database.reading() as session:
            return list(session.scalars(found))

    return store.database.repeat(ask)


def marked_damaged(session: Session, uids: Sequence[str]) -> set[str]:
    """Return those of the instances ``uids`` that :func:`mark_failed` has recorded as failed; few at a time."""
    marked = select(Instance.uid).join(Failure).where(Failure.kind == DAMAGED, Instance.uid.in_(uids))
    return set(session.scalars(marked))


def mark_failed(store: Store, verified: Verified) -> bool:
    """Record a finished instance as failed because of its damage; return whether it was finished.

    Its document then counts as not executed, wherever finished runs are asked for.
    :func:`instances_to_verify` leaves it out.
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
    # the file comes first: where this is killed in between, the damage is found and marked again, and whoever
    # collects the run does not take the damaged files for those of a whole one
    _mark_file(store.instance_directory(verified.run))
    return store.database.write(write, written)


def _mark_file(directory: Path) -> None:
    """Note in the marker of a finished instance, if it can be read, that it has failed."""
    put_marker(directory)
    try:
        found = json.loads(files.read_text(directory / MARKER))
    except (OSError, ValueError):
        return
    if isinstance(found, dict):
        write_text(directory / MARKER, to_json(found | {"status": "failed"}) + "\n")
