"""Executes run documents."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import CheckpointError, RunInterrupted, RunPruned, SimulationError
from palaestrai_mosaik.experiment import (
    AnyDocument,
    PhaseSpec,
    RunDocument,
    as_document,
    content_digest,
    modules_of,
)
from palaestrai_mosaik.store import InstanceRecorder, Store
from palaestrai_mosaik.store.labels import NO_CHANGE, LabelChange
from palaestrai_mosaik.types import SimulationFlowControl

from .checkpoint import INTERVAL, Checkpoints, reopen, versions
from .interrupt import Interrupt
from .learners import check_executions
from .phase import PhaseResult, PhaseRunner
from .preflight import Inspection
from .progress import Progress
from .recorded_sessions import StoredSessions
from .run_context import RunContext
from .run_log import RunLog
from .scalars import RunName, Scalars, check_sinks
from .worker_process import ProcessPool

logger = logging.getLogger(__name__)

GLOBAL_RANDOMNESS = (
    "code of this phase used a global random generator (random or numpy.random); results may differ from "
    "execution to execution; use the rng of the environment, muscle or brain"
)


#: errors of a full disk, which may have space again for the next checkpoint
_FOR_A_MOMENT = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass
class RunResult:
    """The result of a run.

    Attributes:
        uid: the uid of the document.
        instance: the uid of the execution in the store; ``None`` without a store.
        directory: the instance's directory in the store; ``None`` without a store.
        phases: the results of the phases.
        warnings: the warnings of the run.
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
    """Open the store at a location, read-only unless ``create``. An already open store stays open afterwards."""
    if store is None or isinstance(store, Store):
        yield store
        return
    with Store(os.fspath(store), create=create, read_only=not create) as opened:
        yield opened


def execute(  # noqa: PLR0913 (the options of a run)
    document: AnyDocument,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    interrupt: Interrupt | None = None,
    resume: str | None = None,
    checkpoint_every: float = INTERVAL,
    scalars: Sequence[str] = (),
    labels: LabelChange = NO_CHANGE,
) -> RunResult:
    """Run the phases of a document, and record them.

    An unfinished run stays in the store, with the traceback and everything recorded so far.

    Args:
        document: the path of a file, a mapping, or the result of :func:`palaestrai_mosaik.experiment.load`.
        store: an open store, or the folder or URL of a store, which is created if missing. If ``None``, the run is
            not recorded.
        progress: callbacks for the progress. If ``None``, nothing is shown.
        interrupt: an object to end the run from other code with ``request()``. SIGINT, SIGTERM and SIGHUP also end
            the run.
        resume: the uid of an unfinished instance of ``document`` in ``store``
            (:func:`~palaestrai_mosaik.runner.checkpoint.earlier_run`). The run continues from its last undamaged
            checkpoint, and has the same result as without the interruption. If ``None``, a new run begins.
        checkpoint_every: seconds between two checkpoints in train phases, more if writing takes long; 0 disables
            checkpoints.
        scalars: destinations of live scalars, such as ``tensorboard:runs`` (:mod:`.scalars`).
        labels: the name, tags and note that the recorded run gets at its start.

    Returns:
        The result of the run.

    Raises:
        DocumentError: if the document cannot be run. Nothing was recorded.
        StoreError: if the store cannot be opened.
        RunInterrupted: if the user ended the run. The store has this status.
        RunPruned: if ``interrupt.prune()`` ended the run before its last episode.
        Exception: an error of an agent or environment. The store has the traceback.
    """
    check_sinks(scalars)
    document = as_document(document)
    progress = progress or Progress()
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(store, create=True))
        interrupt = stack.enter_context(interrupt or Interrupt())
        log = RunLog(modules_of(document))
        if opened is not None:
            stack.enter_context(log)
        inspection = _inspect(document, opened)
        stack.callback(inspection.environments.close)
        check_executions(inspection.phases, document, opened)
        recorder, state, checkpoints = None, None, None
        result = RunResult(document.uid, None, None)
        if opened is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-")))
        else:
            recorder, state = _recorder(document, opened, resume)
            directory = recorder.directory
            log.open(directory)
            logger.info("run %s begins, recorded in %s", recorder.uid, directory)
            progress.begin_run(recorder.uid)
            result = RunResult(document.uid, recorder.uid, directory)
        result.warnings += [str(warning) for warning in (*document.warnings, *inspection.warnings)]
        with _ending(recorder, log):
            if opened is not None and recorder is not None and labels:
                opened.change_labels([recorder.uid], labels)
            for warning in result.warnings:
                log.say(logging.WARNING, warning)
                if recorder is not None and state is None:
                    recorder.warning(warning)
            loop, pool = asyncio.new_event_loop(), ProcessPool()
            stack.callback(loop.close)
            stack.callback(pool.close)
            context = RunContext(
                document=document,
                phases=inspection.phases,
                environments=inspection.environments,
                directory=directory,
                store=opened,
                recorder=recorder,
                progress=progress,
                interrupt=interrupt,
                loop=loop,
                pool=pool,
                log=log,
            )
            if recorder is not None:
                checkpoints = Checkpoints(directory, document.hash, versions(), checkpoint_every)
            _Phases(context, result, checkpoints).run(state, scalars)
        if recorder is not None and checkpoints is not None:
            # logged first, because 'finish' writes the marker of a complete directory
            log.say(logging.INFO, f"run {recorder.uid} has finished")
            recorder.finish("finished")
            checkpoints.clear()
    return result


def _inspect(document: RunDocument, store: Store | None) -> Inspection:
    """Set up the document's environments. Raises :class:`DocumentError` if the document cannot be run."""
    began = time.perf_counter()
    inspection = Inspection(document, StoredSessions.of(store))
    inspection.raise_problems()
    logger.info("document %s checked in %.2f s", document.source, time.perf_counter() - began)
    return inspection


def _recorder(
    document: RunDocument, store: Store, resume: str | None
) -> tuple[InstanceRecorder, dict[str, Any] | None]:
    """Create the recorder of a new run, or reopen the one to ``resume``; return it and the checkpoint's state."""
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
    """Record the run's status if the block raises."""
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
            # otherwise, user code could end a failed run with exit code 0
            raise SimulationError(f"the code of an agent or environment raised {error!r}") from error
        raise


class _Phases:
    """Runs the phases of a document one after the other, and writes checkpoints."""

    def __init__(self, context: RunContext, result: RunResult, checkpoints: Checkpoints | None):
        self.context = context
        self.result = result
        self.checkpoints = checkpoints
        #: the error of the last failed checkpoint
        self._missed = ""

    def run(self, state: dict[str, Any] | None, scalars: Sequence[str]) -> None:
        """Run all phases, or those after a checkpoint's ``state``, and write ``scalars``."""
        with ExitStack() as stack:
            if scalars:
                name = RunName(self.result.uid, self.result.instance or "")
                destinations = Scalars(scalars, name, self.result.directory, self._warn)
                self.context.scalars = stack.enter_context(closing(destinations))
            first, inside = 0, None
            if state is not None:
                first, inside, self.result.phases = state["phase"], state["inside"], state["results"]
                for done in self.result.phases:
                    self.context.progress.carry(done.name, done.episodes, done.steps, done.reason)
            for phase in self.context.phases[first:]:
                outcome = self._run(phase, inside)
                inside = None
                if outcome.flow is SimulationFlowControl.SHUTDOWN:
                    break
                self._save(phase.index + 1, None)

    def _run(self, phase: PhaseSpec, state: Mapping[str, Any] | None) -> PhaseResult:
        """Run a phase, from its beginning or from a checkpoint's ``state``; keep its result and its warnings."""
        before = seeding.global_state_digest()
        runner = PhaseRunner(self.context, phase)
        runner.on_round = partial(self._save, phase.index, runner)
        began = time.perf_counter()
        try:
            outcome = runner.run(state)
        except BaseException as error:
            try:
                self._warn_of_values(runner)
            except Exception as second:
                error.add_note(f"a warning could not be recorded: {second!r}")
            if isinstance(error, RunPruned) and self.checkpoints is not None:
                # a pruned run will not be resumed
                self.checkpoints.clear()
            raise
        logger.info(
            "phase %r ended (%s): %d episodes and %d steps in %.2f s",
            *(phase.name, outcome.reason, outcome.episodes, outcome.steps, time.perf_counter() - began),
        )
        self.result.phases.append(outcome)
        if outcome.globals_used or seeding.global_state_digest() != before:
            self._warn(f"phase {phase.name!r}: {GLOBAL_RANDOMNESS}")
        self._warn_of_values(runner)
        self._warn_of_updates(outcome)
        return outcome

    def _warn_of_updates(self, outcome: PhaseResult) -> None:
        """Warn of brains that returned no updates, or false values instead, once for each agent."""
        for name in outcome.silent:
            self._warn(
                f"phase {outcome.name!r}: the brain of agent {name!r} never returned an update, so Muscle.update was never called"
            )
        warned = {name for earlier in self.result.phases[:-1] for name in earlier.refused}
        for name, warning in outcome.refused.items():
            if name not in warned:
                self._warn(f"phase {outcome.name!r}: {warning}")

    def _save(self, phase: int, runner: PhaseRunner | None) -> None:
        checkpoints, recorder = self.checkpoints, self.context.recorder
        if checkpoints is None or recorder is None:
            return
        if not checkpoints.is_due(ending=self.context.interrupt.requested):
            return
        started = time.monotonic()
        if self.context.scalars is not None:
            # the checkpoint's episodes will not run again, so their scalars must be written now
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

    def _warn_of_values(self, runner: PhaseRunner) -> None:
        for sentence in runner.values_outside():
            self._warn(f"phase {runner.phase.name!r}: {sentence}")

    def _warn(self, warning: str) -> None:
        self.result.warnings.append(warning)
        self.context.log.say(logging.WARNING, warning)
        if self.context.recorder is not None:
            self.context.recorder.warning(warning)
