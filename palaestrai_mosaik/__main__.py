"""``python -m palaestrai_mosaik`` is the command ``palaestrai-mosaik``."""

import sys

from palaestrai_mosaik.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
