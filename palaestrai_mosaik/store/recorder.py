"""The recorder of one execution of a run document; each phase has its own recorder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError, format_traceback
from palaestrai_mosaik.core.text import abridge

from .database import reads
from .models import Failure, Instance, Phase, Warned, to_json, utc_now
from .parts import write_text
from .phase_recorder import PhaseRecorder, digests_of
from .records import AgentRecord, EnvironmentRecord
from .run_lock import RunLock

if TYPE_CHECKING:
    from .database import Database
    from .stream_resume import Kept


#: the file in an instance's directory that marks that the run has ended, whatever its status
MARKER = "complete.json"
#: the marker's name until the end is in the database; if the process is killed in between, the file keeps it. It
#: counts only if the database says how the run ended.
PENDING_MARKER = f"{MARKER}.pending"

Status = Literal["finished", "failed", "interrupted", "pruned", "lost"]


def wait_for_others(session: Session, instance: int) -> None:
    """Wait until no other transaction writes rows of the instance.

    After a lost connection, the server may still be executing the transaction.
    """
    session.execute(select(Instance.id).where(Instance.id == instance).with_for_update())


def read_marker(directory: Path) -> str:
    """Read the marker of an instance that has ended according to the database. Raises ``OSError``."""
    try:
        return files.read_text(directory / MARKER)
    except FileNotFoundError:
        return files.read_text(directory / PENDING_MARKER)


def put_marker(directory: Path) -> None:
    """Rename the pending marker, if there is one, after the end is in the database. Raises :class:`StoreError`."""
    try:
        with suppress(FileNotFoundError):
            files.move(directory / PENDING_MARKER, directory / MARKER)
    except OSError as error:
        raise StoreError(f"cannot write {directory / MARKER}: {error}") from error


class InstanceRecorder:
    """Records one execution of a run document.

    :meth:`Store.begin_run` and :meth:`Store.resume_run` create it. For a resumed run, ``marked`` has the phases that
    had begun at the mark, and ``kept`` the contents of the streams, by folder.
    """

    def __init__(
        self,
        database: Database,
        row_id: int,
        uid: str,
        hash: str,
        directory: Path,
        *,
        marked: Sequence[dict[str, Any]] = (),
        kept: Mapping[str, Kept] | None = None,
    ):
        #: the instance's uid; uids sort by time
        self.uid = uid
        #: the folder of this instance; other modules may add files, such as brain dumps
        self.directory = directory
        self.database = database
        self._id = row_id
        self._hash = hash
        self._phases: list[PhaseRecorder] = []
        # Phases of the mark, by number, that have ended or are not reopened yet.
        self._marked = {phase["phase"]: phase for phase in marked}
        self._kept = kept or {}
        self._finished = False
        self._lock = RunLock(directory)

    def begin_phase(  # noqa: PLR0913  (the phase's row)
        self,
        index: int,
        name: str,
        *,
        mode: str,
        workers: int,
        episodes: int | None,
        controller: str,
        environments: Sequence[EnvironmentRecord],
        agents: Sequence[AgentRecord],
    ) -> PhaseRecorder:
        """Record the start of a phase and its members; return its recorder.

        Args:
            index: number of the phase in the schedule, from 0.
            name: name of the phase.
            mode: ``"train"`` or ``"test"``.
            workers: number of workers.
            episodes: number of episodes of each worker; ``None``: no limit.
            controller: name of the simulation controller.
            environments: the environments, in order.
            agents: the agents, in order.

        Raises:
            StoreError: the run has been finished, or the database cannot be written to.
        """
        self._refuse_if_finished()
        phase = PhaseRecorder(self.database, self.directory, index, environments, agents)
        row = {"name": name, "mode": mode, "workers": workers, "episodes": episodes, "controller": controller}
        phase._begin({"instance_id": self._id, "number": index, "started": utc_now(), **row})
        self._phases.append(phase)
        return phase

    def reopen_phase(
        self, index: int, environments: Sequence[EnvironmentRecord], agents: Sequence[AgentRecord]
    ) -> PhaseRecorder:
        """Return a recorder that continues the phase that was open at the mark.

        Args:
            index: number of the phase in the schedule, from 0.
            environments: the environments, as in :meth:`begin_phase`.
            agents: the agents, as in :meth:`begin_phase`.

        Raises:
            StoreError: no phase with this number was open, or its environments or agents have changed.
        """
        self._refuse_if_finished()
        marked = self._marked.get(index)
        if marked is None or marked["finished"]:
            open_ones = [str(number) for number, phase in self._marked.items() if not phase["finished"]]
            raise StoreError(
                f"phase {index} of the run {self.uid} was not open at the mark; open was "
                f"{', '.join(open_ones) or 'none'}"
            )
        row_id = self._phase_id(index)
        phase = PhaseRecorder(self.database, self.directory, index, environments, agents)
        phase._go_on(row_id, marked, self._kept)
        del self._marked[index]
        self._phases.append(phase)
        return phase

    def mark(self) -> dict[str, Any]:
        """Flush the memory, and return the state of the recording as plain JSON data.

        :meth:`Store.resume_run` continues from here.

        Raises:
            StoreError: the run is finished, or the data cannot be written.
        """
        self._refuse_if_finished()
        phases = [*self._marked.values(), *(phase.mark() for phase in self._phases)]
        return {"instance": self.uid, "warnings": self._count_warnings(), "phases": phases}

    def warning(self, text: str) -> None:
        """Record a warning.

        Args:
            text: its text; a very long one is abridged.

        Raises:
            StoreError: the database cannot be written to.
        """
        text, time = abridge(text), utc_now()

        def write(session: Session) -> bool:
            session.add(Warned(instance_id=self._id, text=text, time=time))
            return True

        def written(session: Session) -> bool | None:
            wait_for_others(session, self._id)
            same = (Warned.instance_id == self._id, Warned.time == time, Warned.text == text)
            return True if session.scalar(select(Warned.id).where(*same)) is not None else None

        self.database.write(write, written)

    def finish(self, status: Status, error: BaseException | None = None) -> None:
        """Write all that is still in memory, the pending marker, the status and the error; then rename the marker.

        With this order, a run that has ended in the database has a marker, even if the process is killed.

        Args:
            status: how the run ended.
            error: the error that ended it, which is recorded with its traceback.

        Raises:
            StoreError: the data cannot be written; the run is then recorded as failed, with both errors, if the
                database still accepts it.
        """
        self._refuse_if_finished()
        self._finished = True
        try:
            self._finish(status, error)
        finally:
            self._lock.release()

    def _finish(self, status: Status, error: BaseException | None) -> None:
        failures = [] if error is None else [error]
        problem: StoreError | None = None
        open_phases = [phase for phase in self._phases if not phase.finished]
        failed_in = open_phases[-1].row_id if open_phases else None
        for phase in open_phases:
            try:
                phase.finish(status)
            except StoreError as write_error:
                problem, status = write_error, "failed"
                failures.append(write_error)
        if problem is None:
            try:
                self._write_marker(status)
            except StoreError as write_error:
                problem, status = write_error, "failed"
                failures.append(write_error)
        self._end(status, failures, failed_in)
        if problem is not None:
            raise problem
        put_marker(self.directory)

    def _write_marker(self, status: Status) -> None:
        digests: dict[str, str] = {}
        for marked in self._marked.values():
            digests |= digests_of(marked["streams"])
        for phase in self._phases:
            digests |= phase.digests()
        marker = {"uid": self.uid, "hash": self._hash, "status": status, "digests": digests}
        write_text(self.directory / PENDING_MARKER, to_json(marker) + "\n")

    def _end(self, status: Status, failures: Sequence[BaseException], phase: int | None) -> None:
        ended = utc_now()

        def write(session: Session) -> bool:
            values = {"status": status, "ended": ended}
            session.execute(update(Instance).where(Instance.id == self._id).values(values))
            for failure in failures:
                session.add(
                    Failure(
                        instance_id=self._id,
                        phase_id=phase,
                        kind=type(failure).__qualname__,
                        message=abridge(str(failure)),
                        traceback=format_traceback(failure),
                        time=ended,
                    )
                )
            return True

        def written(session: Session) -> bool | None:
            wait_for_others(session, self._id)
            recorded = session.scalar(select(Instance.ended).where(Instance.id == self._id))
            return True if recorded == ended else None

        self.database.write(write, written)

    @reads
    def _phase_id(self, number: int) -> int:
        with self.database.reading() as session:
            numbered = (Phase.instance_id == self._id, Phase.number == number)
            return session.scalars(select(Phase.id).where(*numbered)).one()

    @reads
    def _count_warnings(self) -> int:
        with self.database.reading() as session:
            warnings = select(func.count()).select_from(Warned).where(Warned.instance_id == self._id)
            return session.scalar(warnings) or 0

    def _refuse_if_finished(self) -> None:
        if self._finished:
            raise StoreError(f"the run {self.uid} is finished: nothing can be recorded any more")
