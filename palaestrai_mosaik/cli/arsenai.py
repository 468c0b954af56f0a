"""The command ``arsenai``: designs of experiments. Its commands are not in this release."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from palaestrai_mosaik import __version__

_COMING = """\
arsenai: designs of experiments (generate, run, report) are not in this release.
Single run documents are executed by: palaestrai-mosaik start RUN.yml"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``arsenai`` with ``argv`` (default: the process's); return the exit code."""
    parser = argparse.ArgumentParser(
        prog="arsenai",
        description="Design experiments: one document makes many run documents. Not in this release.",
    )
    parser.add_argument("--version", action="version", version=f"arsenai {__version__}")
    try:
        parser.parse_known_args(argv)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2
    print(_COMING, file=sys.stderr)
    return 2
