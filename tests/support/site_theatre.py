"""The duel of the tutorial as one file, for the documentation's site: ``python -m tests.support.site_theatre FILE``.

``make docs`` writes it beside the pages. It is made by the commands that the tutorial shows, of the document that it shows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.pages import ROOT, blocks_of
from tests.support.pictures import DOCUMENTS, document_of

_PAGE = ROOT / DOCUMENTS["duel"]
#: what the tutorial's commands call the file; links of the site lead to it
NAME = "duel.html"


def script() -> str:
    """Return the commands of the tutorial that execute the duel and write its file."""
    blocks = [
        block.text for block in blocks_of(_PAGE.read_text(encoding="utf-8")) if block.language == "bash"
    ]
    chosen = [text for text in blocks if "start duel.yml" in text or NAME in text]
    if len(chosen) != 2:
        raise ValueError(f"{_PAGE.name}: expected a command that starts the duel and one that writes {NAME}")
    return "".join(chosen)


def write(file: Path) -> None:
    """Execute the duel and write its file."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "duel.yml").write_text(document_of("duel"), encoding="utf-8")
        # (make does not activate the environment)
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script()],
            cwd=place,
            env={**os.environ, "PATH": programs},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(Path(place, NAME).read_bytes())


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; print its name."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.site_theatre", description=__doc__.split("\n")[0]
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    write(options.file)
    print(options.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
