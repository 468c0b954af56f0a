"""``python -m palaestrai_mosaik.cli.node FOLDER NUMBER TASK``: the program of a cluster task on its node.

Signals may arrive before their handlers are imported. Therefore, they are blocked first of all, and delivered once
:func:`~palaestrai_mosaik.arsenai.execution.cluster.node.main` unblocks them.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palaestrai_mosaik.arsenai.execution.cluster.node import TaskOutcome


def main() -> int:
    """Execute the task; return the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT})

    from palaestrai_mosaik.arsenai.execution.cluster import node

    return node.main(_search)


def _search(*arguments: Any, **options: Any) -> TaskOutcome:
    # imported here because other tasks do not need it
    from palaestrai_mosaik.arsenai.search.task import execute_search_task

    return execute_search_task(*arguments, **options)


if __name__ == "__main__":
    sys.exit(main())
