"""The context of one execution of a run document: what its phases and workers share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from palaestrai_mosaik.experiment import PhaseSpec, RunDocument

from .environment_supply import EnvironmentSupply
from .interrupt import Interrupt
from .progress import Progress
from .run_log import RunLog
from .worker_process import ProcessPool

if TYPE_CHECKING:
    from palaestrai_mosaik.store import InstanceRecorder, Store

    from .scalars import Scalars


@dataclass
class RunContext:
    """One execution of the ``phases`` of a run document; without ``store`` and ``recorder``, it is not recorded."""

    document: RunDocument
    phases: Sequence[PhaseSpec]
    environments: EnvironmentSupply
    directory: Path
    store: Store | None
    recorder: InstanceRecorder | None
    progress: Progress
    interrupt: Interrupt
    loop: asyncio.AbstractEventLoop
    pool: ProcessPool
    log: RunLog
    scalars: Scalars | None = None
