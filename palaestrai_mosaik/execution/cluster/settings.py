"""What is said about a cluster: on the command line, in the design, in the user's configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How runs are executed as job arrays of Slurm; what is not given is left to the cluster.

    ``time``: the time limit of a task, as Slurm writes it (``30``, ``2:30:00``, ``1-00:00``).
    ``memory``: of a task, such as ``4G``. ``cpus``: cores of a task, which executes ``processes`` runs at
    the same time (default: as many). ``runs_per_task``: how many runs a task executes in all (default: so
    many that a task takes minutes, by what runs of the folder took). ``throttle``: tasks of an array at
    the same time. ``requeue``: how often a task that reached its time limit goes on where it stopped (0:
    never). ``warning``: seconds before the time limit at which runs are told to end.
    ``directives``: more of them, without ``#SBATCH`` (``--constraint=fast``). ``prologue``: shell lines
    before the runs begin, such as ``module load python``. ``python``: the interpreter on the nodes.
    """

    partition: str | None = None
    time: str | None = None
    memory: str | None = None
    cpus: int = 1
    account: str | None = None
    qos: str | None = None
    throttle: int | None = None
    processes: int | None = None
    runs_per_task: int | None = None
    requeue: int = 0
    warning: int = 120
    directives: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    python: str | None = None


@dataclass(frozen=True, slots=True)
class ParslSettings:
    """How runs are executed by Parsl's pilot jobs.

    ``provider``: who starts pilots (``local``, ``slurm``, ``pbspro``, ``torque``, ``lsf``, ``kubernetes``, ``grid_engine``,
    ``cobalt`` where Parsl has them); ``options`` are handed to it as they are. A pilot (Parsl: block) has
    ``nodes`` nodes with ``workers`` workers each; at least ``min_blocks`` and at most ``max_blocks`` live.
    ``walltime``: of a pilot, ``HH:MM:SS``. ``runs_per_task``: runs that a worker is handed at once.
    ``retries``: how often a task whose worker died is tried again. ``prologue``, ``directives``, ``account``,
    ``partition``: as in :class:`SlurmSettings`.
    """

    provider: str = "local"
    options: dict[str, Any] | None = None
    workers: int | None = None
    nodes: int = 1
    min_blocks: int = 0
    max_blocks: int = 1
    walltime: str | None = None
    runs_per_task: int = 1
    retries: int = 2
    partition: str | None = None
    account: str | None = None
    directives: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
