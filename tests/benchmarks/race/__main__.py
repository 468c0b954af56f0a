"""The race as one command: ``python tests/benchmarks/race/__main__.py --help``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # run by its path: the folder above holds the package
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from race.command import main

    sys.exit(main())
