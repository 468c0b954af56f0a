"""``python -m palaestrai_mosaik.cli.node FOLDER NUMBER TASK``: what a task of a cluster executes on its node.

A signal may come before all is imported that can take it. So those that mean something are held back,
first of all: they come when :func:`~palaestrai_mosaik.execution.cluster.node.main` takes them.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palaestrai_mosaik.execution.cluster.node import TaskOutcome


def main() -> int:
    """Execute the task; return the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT})

    from palaestrai_mosaik.execution.cluster import node

    return node.main(_search)


def _search(*arguments: Any, **options: Any) -> TaskOutcome:
    # (other tasks need none of it)
    from palaestrai_mosaik.search.task import execute_search_task

    return execute_search_task(*arguments, **options)


if __name__ == "__main__":
    sys.exit(main())
