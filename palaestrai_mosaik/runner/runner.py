"""Executes a run document: phase by phase, recorded, reproducibly."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from palaestrai_mosaik import seeding
from palaestrai_mosaik.errors import CheckpointError, RunInterrupted, RunPruned, SimulationError
from palaestrai_mosaik.experiment import AnyDocument, RunDocument, as_document, content_digest, modules_of
from palaestrai_mosaik.store import InstanceRecorder, Store
from palaestrai_mosaik.types import SimulationFlowControl

from .checkpoint import INTERVAL, Checkpoints, reopen, versions
from .interrupt import Interrupt
from .learners import check_sources
from .phase import PhaseResult, PhaseRunner
from .preflight import Inspection
from .progress import Progress
from .recorded_sessions import StoredSessions
from .run_log import RunLog
from .scalars import RunName, Scalars, check_sinks
from .worker_pool import RunContext
from .worker_process import ProcessPool

logger = logging.getLogger(__name__)

GLOBAL_RANDOMNESS = (
    "code of this phase used a global random generator (random or numpy.random); results may differ from "
    "execution to execution; use the rng of the environment, muscle or brain"
)


#: what a disk says that is full: it may not be so next time
_FOR_A_MOMENT = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass
class RunResult:
    """How a run went.

    Attributes:
        uid: the uid of the document.
        instance: the uid of the execution in the store; ``None`` without a store.
        directory: the folder of its files in the store; ``None`` without a store.
        phases: how each phase went.
        warnings: what the run warned of.
    """

    uid: str
    instance: str | None
    directory: Path | None
    phases: list[PhaseResult] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@contextmanager
def open_store(
    store: Store | str | os.PathLike[str] | None, *, create: bool = False
) -> Iterator[Store | None]:
    """Open the store at a location, to be read only unless ``create``; one that is open already stays so."""
    if store is None or isinstance(store, Store):
        yield store
        return
    with Store(os.fspath(store), create=create, read_only=not create) as opened:
        yield opened


def execute(
    document: AnyDocument,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    interrupt: Interrupt | None = None,
    resume: str | None = None,
    checkpoint_every: float = INTERVAL,
    scalars: Sequence[str] = (),
) -> RunResult:
    """Run a document: phase by phase, recorded, reproducibly.

    A run that does not finish stays in the store, with the traceback and all that was recorded until then.

    Args:
        document: the path of a file, a mapping, or what :func:`palaestrai_mosaik.experiment.load` returned.
        store: an open store, or the folder or URL of one, which is created if it is missing; ``None``: the
            run is not recorded.
        progress: is called with what happens; ``None``: nothing is shown.
        interrupt: lets you request the end of the run (``request()``), as SIGINT and SIGTERM do; ``None``: only
            these do.
        resume: the uid of an instance of ``document`` in ``store`` that did not finish
            (:func:`~palaestrai_mosaik.runner.checkpoint.earlier_run`). It resumes from its last whole
            checkpoint, with the result that it would have had without the interruption. ``None``: a new run.
        checkpoint_every: seconds between two checkpoints of a train phase, or more where writing one takes
            long; 0 writes none.
        scalars: sinks of live scalars, such as ``tensorboard:runs`` (:mod:`.scalars`).

    Raises:
        DocumentError: the document cannot be run; nothing was recorded.
        StoreError: the store cannot be opened.
        RunInterrupted: the user ended the run; the record says so.
        RunPruned: ``interrupt`` asked for its end (``prune()``), and there would have been more episodes.
        Exception: what an agent or an environment raised; the record has it, with the traceback.
    """
    check_sinks(scalars)
    document = as_document(document)
    with open_store(store, create=True) as found:
        options = _Options(resume, checkpoint_every, scalars)
        return _execute(document, found, progress or Progress(), interrupt, options)


@dataclass(frozen=True, slots=True)
class _Options:
    """What is said to :func:`execute` of how a document is run."""

    resume: str | None
    checkpoint_every: float
    scalars: Sequence[str]


def _execute(
    document: RunDocument,
    store: Store | None,
    progress: Progress,
    interrupt: Interrupt | None,
    options: _Options,
) -> RunResult:
    with ExitStack() as stack:
        interrupt = stack.enter_context(interrupt or Interrupt())
        log = RunLog(modules_of(document))
        if store is not None:
            stack.enter_context(log)
        began = time.perf_counter()
        inspection = Inspection(document, StoredSessions.of(store))
        inspection.raise_problems()
        logger.info("document %s checked in %.2f s", document.source, time.perf_counter() - began)
        stack.callback(inspection.close)
        check_sources(inspection.phases, document, store)
        recorder, state = None, None
        if store is not None:
            recorder, state = _recorder(document, store, options.resume)
            directory = recorder.directory
            log.open(directory)
            logger.info("run %s begins, recorded in %s", recorder.uid, directory)
            progress.begin_run(recorder.uid)
        else:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-")))
        result = RunResult(
            document.uid,
            recorder.uid if recorder else None,
            directory if recorder else None,
            warnings=[str(warning) for warning in (*document.warnings, *inspection.warnings)],
        )
        with _ending(recorder, log):
            for warning in result.warnings:
                log.say(logging.WARNING, warning)
                if recorder is not None and state is None:
                    recorder.warning(warning)
            loop = asyncio.new_event_loop()
            stack.callback(loop.close)
            pool = ProcessPool()
            stack.callback(pool.close)
            context = RunContext(
                document, inspection, directory, store, recorder, progress, interrupt, loop, pool, log
            )
            checkpoints = None
            if recorder is not None:
                checkpoints = Checkpoints(directory, document.hash, versions(), options.checkpoint_every)
            try:
                _Phases(context, result, checkpoints).run(state, options.scalars)
            except RunPruned:
                # it will not be resumed
                if checkpoints is not None:
                    checkpoints.clear()
                raise
        if recorder is not None:
            # before the marker is written, which says that the folder is complete
            log.say(logging.INFO, f"run {recorder.uid} has finished")
            recorder.finish("finished")
        if checkpoints is not None:
            checkpoints.clear()
    return result


def _recorder(
    document: RunDocument, store: Store, resume: str | None
) -> tuple[InstanceRecorder, dict[str, Any] | None]:
    """Return the recorder of a new run, or of the one to ``resume``, with the state of its checkpoint."""
    if resume is not None:
        return reopen(document, store, resume)
    recorder = store.begin_run(
        uid=document.uid,
        document=document.canonical,
        text=document.text,
        hash=document.hash,
        seed=document.seed,
        version=document.version,
        experiment_uid=document.experiment_uid,
        content=content_digest(document.canonical),
    )
    return recorder, None


@contextmanager
def _ending(recorder: InstanceRecorder | None, log: RunLog) -> Iterator[None]:
    """Record how the run has ended that the block raises out of."""
    try:
        yield
    except (RunInterrupted, KeyboardInterrupt) as error:
        log.say(logging.WARNING, str(error) or "interrupted")
        if recorder is not None:
            recorder.finish("interrupted", error)
        raise
    except RunPruned as error:
        log.say(logging.INFO, str(error))
        if recorder is not None:
            recorder.finish("pruned")
        raise
    except BaseException as error:
        log.failure(error)
        if recorder is not None:
            try:
                recorder.finish("failed", error)
            except Exception as second:
                error.add_note(f"the failure could not be recorded: {second!r}")
        if isinstance(error, SystemExit):
            # else users' code could end a run that failed with the exit code 0
            raise SimulationError(f"the code of an agent or environment raised {error!r}") from error
        raise


class _Phases:
    """Runs the phases of a document one after the other, and writes the checkpoints."""

    def __init__(self, context: RunContext, result: RunResult, checkpoints: Checkpoints | None):
        self.context = context
        self.result = result
        self.checkpoints = checkpoints
        #: why the last checkpoint was not written
        self._missed = ""

    def run(self, state: dict[str, Any] | None, scalars: Sequence[str]) -> None:
        """Run all phases, or those that a checkpoint's ``state`` leaves; tell the sinks of ``scalars``."""
        if not scalars:
            self._run(state)
            return
        name = RunName(self.result.uid, self.result.instance or "")
        with closing(Scalars(scalars, name, self.result.directory, self._warn)) as self.context.scalars:
            self._run(state)

    def _run(self, state: dict[str, Any] | None) -> None:
        first, inside = 0, None
        if state is not None:
            first, inside, self.result.phases = state["phase"], state["inside"], state["results"]
            for done in self.result.phases:
                self.context.progress.carry(done.name, done.episodes, done.steps, done.reason)
        for phase in self.context.inspection.phases[first:]:
            before = seeding.global_state_digest()
            runner = PhaseRunner(self.context, phase)
            runner.on_round = partial(self._save, phase.index, runner)
            began = time.perf_counter()
            outcome = runner.run(inside)
            logger.info(
                "phase %r ended (%s): %d episodes and %d steps in %.2f s",
                *(phase.name, outcome.reason, outcome.episodes, outcome.steps, time.perf_counter() - began),
            )
            inside = None
            self.result.phases.append(outcome)
            if outcome.globals_used or seeding.global_state_digest() != before:
                self._warn(f"phase {phase.name!r}: {GLOBAL_RANDOMNESS}")
            for name in outcome.silent:
                self._warn(
                    f"phase {phase.name!r}: the brain of agent {name!r} never returned an update (only None counts as none), so "
                    "Muscle.update was never called"
                )
            if outcome.flow is SimulationFlowControl.SHUTDOWN:
                break
            self._save(phase.index + 1, None)

    def _save(self, phase: int, runner: PhaseRunner | None) -> None:
        checkpoints, recorder = self.checkpoints, self.context.recorder
        if checkpoints is None or recorder is None or not checkpoints.due:
            return
        started = time.monotonic()
        if self.context.scalars is not None:
            # episodes in the checkpoint do not run again, so their scalars must be written now
            self.context.scalars.commit()
        try:
            inside = None if runner is None else runner.state()
            state = {"phase": phase, "inside": inside, "results": self.result.phases}
            checkpoints.write(state, recorder.mark(), started)
            logger.info("checkpoint written in %.2f s", time.monotonic() - started)
            self._missed = ""
        except CheckpointError as error:
            cause = error.__cause__
            if not (isinstance(cause, OSError) and cause.errno in _FOR_A_MOMENT):
                checkpoints.stop()
                self._warn(
                    f"no more checkpoints are written, so the run cannot be resumed from now on: {error}"
                )
            elif str(error) != self._missed:
                self._missed = str(error)
                self._warn(
                    f"the checkpoint was skipped; until the next one, the run can only be resumed from the previous one: {error}"
                )

    def _warn(self, warning: str) -> None:
        self.result.warnings.append(warning)
        self.context.log.say(logging.WARNING, warning)
        if self.context.recorder is not None:
            self.context.recorder.warning(warning)
