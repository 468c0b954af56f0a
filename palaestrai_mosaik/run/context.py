"""What all phases of a run share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from palaestrai_mosaik.experiment import RunDocument

from .interrupt import Interrupt
from .preflight import Inspection
from .progress import Progress
from .worker_process import ProcessPool

if TYPE_CHECKING:
    from palaestrai_mosaik.store import InstanceRecorder, Store

    from .scalars import Scalars


@dataclass
class RunContext:
    """One execution of a run document."""

    document: RunDocument
    inspection: Inspection
    directory: Path
    store: Store | None
    recorder: InstanceRecorder | None
    progress: Progress
    interrupt: Interrupt
    loop: asyncio.AbstractEventLoop
    pool: ProcessPool
    scalars: Scalars | None = None
