"""The main loop of a worker process, which executes messages from the main process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import queue
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import IO, Any

from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import ContractError, format_traceback
from palaestrai_mosaik.core.importing import only_modules
from palaestrai_mosaik.core.printing import (
    abridge,
    unclaimed_log_printed,
    use_null_device,
    use_standard_streams,
)
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.simulation.mosaik_internals import children_of_this_process

from .factory import all_conditions, make_handles
from .interrupt import Interrupt
from .run_log import RunLog
from .worker import EpisodeReport, Worker
from .worker_messages import Answer, Batch, Continue, End, Rebuild, Restore, Save, Start, Warned, WorkerBuffer
from .worker_process import read_frame, write_frame

#: seconds to release environments and muscles after the main process is gone; the main process waits slightly longer
_GRACE = 1.5


class _ParentGone(Exception):
    """The main process has closed the connection."""


class _WorkerMain:
    def __init__(self, stream_in: IO[bytes], stream_out: IO[bytes], interrupt: Interrupt):
        self._in, self._out = stream_in, stream_out
        self._interrupt = interrupt
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        #: set when everything has been closed
        self._over = threading.Event()
        self._report: EpisodeReport | None = None
        self._conditions: list[TerminationCondition] = []
        self.worker: Worker | None = None
        #: warnings for the main process
        self.warned = Warned()
        self.start: Start
        self.buffer: WorkerBuffer
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            frame = read_frame(self._in)
            if frame is None:
                self._leave()
            self._inbox.put(frame)

    def _leave(self) -> None:
        """End this process even if it is busy, because the main process is gone or has failed."""
        self._interrupt.request()
        self._inbox.put(None)
        self._over.wait(_GRACE)
        _end_children()
        os._exit(1)

    def _receive(self) -> Any:
        frame = self._inbox.get()
        if frame is None:
            raise _ParentGone
        return pickle.loads(frame)

    def _send(self, answer: Answer) -> None:
        answer.warned = self.warned.take()
        try:
            frame = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise ContractError(
                f"worker {self.start.plan.index}: what a muscle sends to its brain in another process must be "
                f"something that can be pickled: {error}"
            ) from error
        write_frame(self._out, frame)

    def run(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            while True:
                start = self._receive()
                # import restrictions of the main process also apply here
                with only_modules(start.modules), _logging(start):
                    self._phase(start, loop)
        except _ParentGone:
            pass
        except BaseException as error:
            self._send_failure(error)
        finally:
            if self.worker is not None:
                with contextlib.suppress(Exception):
                    self.worker.close()
            loop.close()
            _end_children()
            self._over.set()

    def _phase(self, start: Start, loop: Any) -> None:
        before = seeding.global_state_digest()
        self.start = start
        self.buffer = WorkerBuffer(start.learning, start.recorded)
        # a restart creates new environments and muscles, but keeps the conditions
        plan = start.plan
        of_phase, of_run = all_conditions(plan.phase, plan.conditions)
        self._conditions = [*of_phase, *of_run]
        self._make()
        self._send(Answer())
        while not isinstance(message := self._receive(), End):
            self._send(self._handle_message(message, loop))
        assert self.worker is not None
        self._report = None
        self.worker.close()
        self.worker = None
        self._send(Answer(globals_used=seeding.global_state_digest() != before))

    def _handle_message(self, message: Any, loop: Any) -> Answer:
        worker = self.worker
        assert worker is not None
        self._report = None
        if isinstance(message, Continue):
            assert message.task is not None
            self._take(message)
            report = worker.run_episode(message.task, loop)
            return Answer(batch=self._batch(report.number, report.steps, over=True), report=report)
        if isinstance(message, Rebuild):
            worker.close()
            self._make()
            return Answer()
        if isinstance(message, Restore):
            worker.restore(pickle.loads(message.state))
            self._conditions = list(worker.coordinator.conditions)
            return Answer()
        assert isinstance(message, Save)
        try:
            return Answer(state=pickle.dumps(worker.state(), pickle.HIGHEST_PROTOCOL))
        except Exception as error:
            # user objects may raise anything, and the run can continue without checkpoints
            return Answer(problem=str(error))

    def _make(self) -> None:
        plan = self.start.plan
        handles = make_handles(plan.phase.environments, plan.stored)
        recording = self.buffer if self.start.recorded else None
        self.worker = Worker(plan, handles, self.buffer.brains, self._conditions, self._interrupt, recording)
        self.worker.on_step = self._stepped
        self.worker.on_report = self._reported

    def _stepped(self, episode: int, steps: int) -> None:
        every = self.start.plan.phase.sync_every
        assert self.worker is not None
        if steps and steps % every == 0 and not self.worker.coordinator.over:
            self._send(Answer(batch=self._batch(episode, steps, over=False)))
            self._take(self._receive())

    def _reported(self, report: EpisodeReport) -> None:
        self._report = report

    def _batch(self, episode: int, steps: int, *, over: bool) -> Batch:
        assert self.worker is not None
        filters: dict[str, list[FilterChain]] = {}
        for body in self.worker.bodies:
            if body.learns and body.filters is not None:
                filters.setdefault(body.agent, []).append(body.filters)
        return self.buffer.take(episode, steps, filters, over=over)

    def _take(self, message: Continue) -> None:
        assert self.worker is not None
        for body in self.worker.bodies:
            if body.agent in message.filters and body.filters is not None:
                body.filters.set_state(message.filters[body.agent])
            shared = message.updates.get(("agent", body.agent))
            if shared is not None:
                body.muscle.update(pickle.loads(shared))
            for uid in body.muscles:
                update = message.updates.get(("muscle", uid))
                if update is not None:
                    body.update_of(uid, pickle.loads(update))

    def _send_failure(self, error: BaseException) -> None:
        trace = format_traceback(error)
        try:
            pickled: bytes | None = pickle.dumps(error)
            pickle.loads(pickled or b"")
        except Exception:
            pickled = None
        # built from the exception, because the traceback may end with a note
        summary = f"{type(error).__name__}: {abridge(str(error))}"
        answer = Answer(error=pickled, trace=trace, said=summary, report=self._report)
        with contextlib.suppress(OSError):
            try:
                if self.worker is not None and self._report is not None:
                    answer.batch = self._batch(self._report.number, self._report.steps, over=True)
                self._send(answer)
            except OSError:
                raise
            except Exception as second:
                answer.batch = None
                answer.trace = f"{trace}(what was left to record could not be sent: {second!r})\n"
                self._send(answer)


@contextlib.contextmanager
def _logging(start: Start) -> Iterator[None]:
    """Copy this process's log records to the run's log, if there is one."""
    if start.log is None:
        yield
        return
    directory, modules = start.log
    with RunLog(modules, f"worker {start.plan.index}") as log:
        log.open(directory)
        yield


def _end_children() -> None:
    # otherwise, simulators started by this process would be orphaned
    for process in children_of_this_process():
        with contextlib.suppress(Exception):
            process.kill()


class _InterruptRequest(Interrupt):
    """An interrupt that tolerates repeated signals, from the terminal and from the main process."""

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


def main() -> None:
    """Run a worker process, which reads frames from standard input and writes frames to standard output."""
    # output of user code must not mix with the frames
    stream_in, stream_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    use_null_device(0)
    os.dup2(2, 1)
    use_standard_streams()
    # flush each line, because the process may be killed at any time
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with contextlib.suppress(KeyboardInterrupt), _InterruptRequest() as interrupt:
        main_loop = _WorkerMain(stream_in, stream_out, interrupt)
        # the main process prints what several workers warn of once
        with unclaimed_log_printed(main_loop.warned):
            main_loop.run()
