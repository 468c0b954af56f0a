"""Sessions from a store: recorded episodes of earlier runs and phases, for replaying environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError, StoreError
from palaestrai_mosaik.core.importing import limit
from palaestrai_mosaik.environment.environment import World
from palaestrai_mosaik.environment.replay import SessionPool, SessionPoolEnvironment
from palaestrai_mosaik.environment.replay.sessions import ENDS
from palaestrai_mosaik.environment.replay.sources import (
    ANY_BODY,
    STORE_KEYS,
    Channel,
    RecordedRows,
    check_keys,
    plain_name,
)
from palaestrai_mosaik.experiment.model import BODY_NUMBER, ReplaySpec
from palaestrai_mosaik.types import Space

from .replay import described, find_instance, recorded_phases

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import InstanceRecorder, Store

#: the columns that identify a session, in sort order
_SESSION = ("phase", "evaluation", "worker", "episode", "body", "environment_episode")


@dataclass(frozen=True)
class StoredSessions:
    """Reads the sessions of sources that refer to a store. It can be sent to other processes.

    Args:
        location: the location of the :class:`Store` for sources that name none; ``None`` for the default store.
        directory: its directory.
        instance: the current execution, for sources that name no run.
        phase: the current phase's number; only earlier phases of ``instance`` are read.
    """

    # not in the repr, because it may contain a password
    location: str | None = field(default=None, repr=False)
    directory: str | None = None
    instance: str | None = None
    phase: int | None = None

    @classmethod
    def of(
        cls, store: Store | None, recorder: InstanceRecorder | None = None, phase: int | None = None
    ) -> StoredSessions:
        """Create a reader of ``store`` for the execution that ``recorder`` records."""
        instance = None if recorder is None else recorder.uid
        if store is None:
            return cls(instance=instance, phase=phase)
        location = store.database.engine.url.render_as_string(hide_password=False)
        return cls(location, str(store.directory), instance, phase)

    def __call__(self, source: Mapping[str, Any]) -> SessionPool:
        """Read the sessions of ``source``: see :func:`read_sessions`."""
        from palaestrai_mosaik.store import Store

        check_keys(source, STORE_KEYS)
        query = {key: value for key, value in source.items() if key != "store"}
        if "run" not in query and "instance" not in query:
            if self.instance is None:
                raise StoreError(
                    "source: it names neither run nor instance, so it means an earlier phase of the run itself; declare "
                    "observations and actions, so that it is not read before that phase has been recorded"
                )
            query |= {"instance": self.instance, "before": self.phase}
        location, directory = self.location, self.directory
        if source.get("store") is not None:
            location, directory = _location_of(source), None
        with Store(location, directory=directory, read_only=True) as store:
            return read_sessions(store, **query)


#: for use outside of runs, such as checking a document
DEFAULT_STORE = StoredSessions()


def connect(domain: World, stored: StoredSessions) -> None:
    """Let ``domain`` read from stores if it replays sessions."""
    if isinstance(domain, SessionPoolEnvironment):
        domain.read_store = stored


def check_sessions(domain: World) -> None:
    """Raise :class:`ContractError` if ``domain`` replays sessions but its source cannot be used."""
    if isinstance(domain, SessionPoolEnvironment):
        if isinstance(domain.source, Mapping) and domain.source.get("store") is not None:
            _location_of(domain.source)
        domain.check_sessions()


def _location_of(source: Mapping[str, Any]) -> str:
    """Return the store of ``source``, without a password, because documents are copied to stores and reports."""
    from palaestrai_mosaik.store.urls import check_named, holds_password, shown

    location = str(source["store"])
    if holds_password(location):
        raise ContractError(
            f"source: store: {shown(location)} holds a password, which must not stand in a document: keep the URL in "
            "a file (store: '@FILE') or an environment variable (store: 'env:NAME')"
        )
    if limit() is not None:
        check_named(location)
    return location


def read_sessions(  # noqa: PLR0913  (independent filters, all optional)
    store: Store,
    run: str | None = None,
    instance: str | None = None,
    phase: int | str | None = None,
    agent: str | None = None,
    body: int | str | Sequence[int | str] | None = None,
    mode: str | None = None,
    evaluation: bool | None = False,
    before: int | None = None,
) -> SessionPool:
    """Read the recorded episodes of an agent. Each episode of each of its bodies becomes a session.

    Observations and actions have the names of the agent's sensors and actuators (without the number of an incarnation
    if several bodies share a name), and their spaces. All values are float64. If all sensors belong to one
    environment, a session ends with the environment's state after the last action. Sessions are sorted by phase,
    worker, episode and body; a phase's evaluations follow its training episodes.

    Args:
        store: the open store.
        run: the uid of a document; its newest finished execution is read.
        instance: the uid of an execution, instead of ``run`` or in addition to it.
        phase: only this phase (number or name).
        agent: the agent; may be omitted if there was only one.
        body: only these bodies (a number, a label, or several).
        mode: only phases in this mode, ``train`` or ``test``.
        evaluation: whether to read evaluations or training episodes; ``None`` for both.
        before: only phases with a smaller number.

    Raises:
        StoreError: if the execution, phase, agent or body does not exist, or the bodies' channels differ.
    """
    if run is None and instance is None:
        raise StoreError("name a run or an instance")
    uid = find_instance(ReplaySpec(experiment_run=run, instance=instance), "", store)
    name, phases = recorded_phases(store, uid, agent, phase, mode, before)
    both = [False, True] if evaluation is None else [evaluation]
    pieces = [_Piece(store, uid, number, name, body, flag) for number in phases for flag in both]
    pieces = [piece for piece in pieces if len(piece.frame)]
    if not pieces:
        raise StoreError(f"agent {name!r} has no steps in {described(uid, phases)}")
    for piece in pieces[1:]:
        if piece.channels() != pieces[0].channels():
            raise StoreError(
                f"agent {name!r} has other channels in phase {piece.phase} than in phase {pieces[0].phase}: name "
                "one phase"
            )
    rows = _joined([piece.rows() for piece in pieces])
    pool = rows.pool()
    finals: dict[tuple[Any, ...], npt.NDArray[np.float64]] = {}
    for piece in pieces:
        finals.update(piece.last_states())
    return _with_finals(pool, [finals.get(key) for key in rows.session_keys()])


class _Piece:
    """The steps of one agent in one phase, either of training or of evaluation."""

    def __init__(
        self,
        store: Store,
        run: str,
        phase: int,
        agent: str,
        body: int | str | Sequence[int | str] | None,
        evaluation: bool,
    ):
        self.phase = phase
        self._store, self._run, self._agent, self._evaluation = store, run, agent, evaluation
        columns = ["body", "environment_episode"]
        everything = store.steps(run, phase, agent, evaluation=evaluation, body=body)
        numbers = store.steps(run, phase, agent, evaluation=evaluation, body=body, columns=columns)
        self.frame = everything.assign(
            phase=phase, evaluation=evaluation, **{name: numbers[name] for name in columns}
        )
        present = set(self.frame["body"])
        groups = store.bodies(run, phase, agent)
        stop = groups["first"] + groups["count"]
        self._groups = groups[
            [any(a <= b < z for b in present) for a, z in zip(groups["first"], stop, strict=True)]
        ]
        channels = store.channels(run, phase)
        self._offered = channels[channels["environment"].notna()]
        self._owned = channels[channels["agent"] == agent]

    def channels(self) -> dict[str, list[tuple[str, str, int]]]:
        """Return name, space and size of the agent's channels by kind."""
        kinds = []
        for group in self._groups["group"]:
            group_channels = self._owned[self._owned["group"] == group]
            kinds.append(
                {
                    kind: list(
                        group_channels.loc[
                            group_channels["kind"] == kind, ["uid", "space", "size"]
                        ].itertuples(index=False, name=None)
                    )
                    for kind in ("sensor", "actuator", "reward")
                }
            )
        for other in kinds[1:]:
            if other != kinds[0]:
                firsts = ", ".join(map(str, self._groups["first"]))
                raise StoreError(
                    f"the bodies of agent {self._agent!r} in phase {self.phase} have different channels: pick some that "
                    f"are identical with 'body' (they begin with {firsts})"
                )
        return kinds[0]

    def rows(self) -> RecordedRows:
        """Return the steps as rows of sessions."""
        channels = self.channels()
        observed, acted = (
            [_channel(prefix, *channel) for channel in channels[kind]]
            for prefix, kind in (("reading", "sensor"), ("setpoint", "actuator"))
        )
        rewards = {plain_name(uid): f"reward.{uid}" for uid, _, _ in channels["reward"]}
        columns = [c for channel in (*observed, *acted) for c in channel.columns]
        columns += [*rewards.values(), *_SESSION, "step", *ENDS]
        return RecordedRows(
            {name: self.frame[name].to_numpy() for name in columns},
            *(observed, acted, rewards),
            _SESSION,
            "step",
            *ENDS,
        )

    def last_states(self) -> dict[tuple[Any, ...], npt.NDArray[np.float64]]:
        """Return the readings after the last action of each session, if recorded."""
        result: dict[tuple[Any, ...], npt.NDArray[np.float64]] = {}
        lasts = self.frame.groupby(list(_SESSION))["time"].max()
        group: Any
        for group in self._groups.itertuples(index=False):
            # bodies may share an incarnation, but a body in several environments has no single state
            owner, uids, incarnation_named = self._observed(group)
            if owner is None:
                result |= self._last_by_body(group, lasts)
                continue
            seats = group.incarnations or [0] * group.count
            seats = seats if incarnation_named is None else [incarnation_named] * group.count
            bodies: dict[int, list[int]] = {}
            for index, seat in enumerate(seats if len(seats) == group.count else []):
                bodies.setdefault(seat, []).append(int(group.first) + index)
            for key, row in self._states_of(group, owner, uids).items():
                worker, episode, incarnation, turn = key
                for body in bodies.get(incarnation, ()):
                    session = (self.phase, self._evaluation, worker, episode, body, turn)
                    if session in lasts.index and row[0] > lasts[session]:
                        result[session] = row[1:]
        return result

    def _last_by_body(self, group: Any, lasts: pd.Series) -> dict[tuple[Any, ...], npt.NDArray[np.float64]]:
        """Return the last states of bodies with separate channels in an ordinary environment."""
        result: dict[tuple[Any, ...], npt.NDArray[np.float64]] = {}
        offered = self._offered[self._offered["kind"] == "sensor"]
        owners = dict(zip(offered["uid"], offered["environment"], strict=True))
        group_channels = self._owned[
            (self._owned["group"] == group.group) & (self._owned["kind"] == "sensor")
        ]
        for index in range(group.count):
            uids = [uid.replace(BODY_NUMBER, str(group.number + index)) for uid in group_channels["uid"]]
            candidates = {owners.get(uid) for uid in uids}
            owner = candidates.pop() if len(candidates) == 1 else None
            if owner is None:
                break
            for (worker, episode, _, turn), row in self._states_of(group, owner, uids).items():
                session = (self.phase, self._evaluation, worker, episode, int(group.first) + index, turn)
                if session in lasts.index and row[0] > lasts[session]:
                    result[session] = row[1:]
        return result

    def _observed(self, group: Any) -> tuple[str | None, list[str], int | None]:
        """Find the environment with all sensors of a group's bodies.

        Returns:
            the environment, or ``None`` if there are several; the sensors' uids in all its incarnations; the
            incarnation in the sensors' names, or ``None``.
        """
        offered = self._offered[self._offered["kind"] == "sensor"]
        owners = dict(zip(offered["uid"], offered["environment"], strict=True))
        group_channels = self._owned[
            (self._owned["group"] == group.group) & (self._owned["kind"] == "sensor")
        ]
        sensors = [_place_of(uid, owners) for uid in group_channels["uid"]]
        if len({(owner, number) for owner, _, number in sensors}) != 1:
            return None, [], None
        return sensors[0][0], [uid for _, uid, _ in sensors], sensors[0][2]

    def _states_of(
        self, group: Any, owner: str, uids: Sequence[str]
    ) -> dict[tuple[int, ...], npt.NDArray[np.float64]]:
        """Return time and readings of the last state of each episode in the environment ``owner``."""
        group_channels = self._owned[
            (self._owned["group"] == group.group) & (self._owned["kind"] == "sensor")
        ]
        columns = [
            c
            for uid, size in zip(uids, group_channels["size"], strict=True)
            for c in _channel("reading", uid, "", size).columns
        ]
        extra_keys = ["incarnation", "environment_episode"]
        states = self._store.environment_states(
            *(self._run, self.phase, owner),
            evaluation=self._evaluation,
            columns=[*columns, *extra_keys],
        )
        keys = ["worker", "episode", *extra_keys]
        last = states.sort_values("step", kind="stable").groupby(keys).tail(1)
        values = last[["time", *columns]].to_numpy(np.float64)
        return {tuple(key): row for key, row in zip(last[keys].to_numpy().tolist(), values, strict=True)}


def _place_of(uid: str, owners: Mapping[str, str]) -> tuple[str | None, str, int | None]:
    """Return a channel's environment, its uid there, and the incarnation in its name, or ``None``."""
    if uid in owners:
        return owners[uid], uid, None
    for owner in dict.fromkeys(owners.values()):
        number, _, name = uid.removeprefix(f"{owner}.").partition(".")
        common = f"{owner}{ANY_BODY}{name}"
        if uid.startswith(f"{owner}.") and number.isdecimal() and owners.get(common) == owner:
            return owner, common, int(number)
    return None, uid, None


def _channel(prefix: str, uid: str, space: str, size: int) -> Channel:
    from palaestrai_mosaik.store import ChannelRecord
    from palaestrai_mosaik.store.records import channel_columns

    columns = channel_columns(prefix, [ChannelRecord(uid, space, size)])
    return Channel(plain_name(uid), tuple(columns), Space.from_string(space) if space else None)


def _joined(pieces: Sequence[RecordedRows]) -> RecordedRows:
    first = pieces[0]
    return replace(
        first,
        columns={name: np.concatenate([piece.columns[name] for piece in pieces]) for name in first.columns},
    )


def _with_finals(pool: SessionPool, finals: Sequence[npt.NDArray[np.float64] | None]) -> SessionPool:
    """Add the known final observations to the sessions of a pool."""
    sessions = pool.sessions
    recorded = {i: final for i, final in enumerate(finals) if final is not None}
    if not recorded:
        return pool
    # all observations are float64, so they are in one column
    after = sessions.by_session["final.0"].copy()
    after[list(recorded)] = np.stack(list(recorded.values()))
    return SessionPool.of(
        pool.signature, replace(sessions, by_session={**sessions.by_session, "final.0": after})
    )
