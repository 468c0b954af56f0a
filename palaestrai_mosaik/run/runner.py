"""Executes a run document: phase by phase, recorded, reproducibly."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from palaestrai_mosaik import seeding
from palaestrai_mosaik.errors import RunInterrupted
from palaestrai_mosaik.experiment import RunDocument
from palaestrai_mosaik.types import SimulationFlowControl

from .inspect import Inspection
from .interrupt import Interrupt
from .phase import Context, PhaseResult, PhaseRunner
from .progress import Progress

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store

GLOBAL_RANDOMNESS = (
    "code of this phase used a global random generator (random or numpy.random); results may differ from "
    "execution to execution; use the rng of the environment, muscle or brain"
)


@dataclass
class RunResult:
    """How a run went. ``instance`` is its id in the store (``None`` without a store)."""

    uid: str
    instance: str | None
    directory: Path | None
    phases: list[PhaseResult] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def execute(
    document: RunDocument,
    *,
    store: Store | None = None,
    progress: Progress | None = None,
    interrupt: Interrupt | None = None,
) -> RunResult:
    """Run ``document`` and record it in ``store`` (nowhere if there is none).

    Raises :class:`DocumentError` before anything runs if the document cannot be run,
    :class:`RunInterrupted` if the user ended it, and else whatever stopped it. In the
    last two cases the instance is marked in the store, with the traceback, and what was
    recorded is kept.
    """
    progress = progress or Progress()
    with ExitStack() as stack:
        interrupt = stack.enter_context(interrupt or Interrupt())
        inspection = Inspection(document)
        inspection.raise_problems()
        stack.callback(inspection.close)
        recorder = None
        if store is not None:
            recorder = store.begin_run(
                uid=document.uid,
                document=document.canonical,
                text=document.text,
                hash=document.hash,
                seed=document.seed,
                version=document.version,
            )
            directory = recorder.directory
            progress.begin_run(recorder.uid)
        else:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-")))
        result = RunResult(
            document.uid,
            recorder.uid if recorder else None,
            directory if recorder else None,
            warnings=[str(warning) for warning in document.warnings],
        )
        try:
            for warning in result.warnings:
                if recorder is not None:
                    recorder.warning(warning)
            loop = event_loop()
            stack.callback(loop.close)
            context = Context(document, inspection, directory, store, recorder, progress, interrupt, loop)
            _phases(context, result)
        except (RunInterrupted, KeyboardInterrupt) as error:
            if recorder is not None:
                recorder.finish("interrupted", error)
            raise
        except BaseException as error:
            if recorder is not None:
                try:
                    recorder.finish("failed", error)
                except Exception as second:
                    error.add_note(f"the failure could not be recorded: {second!r}")
            raise
        if recorder is not None:
            recorder.finish("finished")
    return result


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, the fastest that there is."""
    # uvloop makes mosaik's scheduler about an eighth faster; it does not exist on Windows
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _phases(context: Context, result: RunResult) -> None:
    for phase in context.inspection.phases:
        before = seeding.global_state_digest()
        outcome = PhaseRunner(context, phase).run()
        result.phases.append(outcome)
        if seeding.global_state_digest() != before:
            warning = f"phase {phase.name!r}: {GLOBAL_RANDOMNESS}"
            result.warnings.append(warning)
            if context.recorder is not None:
                context.recorder.warning(warning)
        if outcome.flow is SimulationFlowControl.SHUTDOWN:
            break
