"""``python -m palaestrai_mosaik.cli.node FOLDER NUMBER TASK``: what a task of a cluster executes on its node.

A signal may come before all is imported that can take it. So those that mean something are held back,
first of all: they come when :func:`~palaestrai_mosaik.execution.cluster.node.main` takes them.
"""

import signal
import sys


def main() -> int:
    """Execute the task; return the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT})

    from palaestrai_mosaik.execution.cluster import node

    return node.main()


if __name__ == "__main__":
    sys.exit(main())
