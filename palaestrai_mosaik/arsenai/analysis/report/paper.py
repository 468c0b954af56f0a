"""The report as PDF, printed by a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import PalaestraiMosaikError

#: programs that print a page without a window, the first of which is used
BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
#: seconds after which a browser is ended
LONGEST = 300.0


def find_browser() -> str:
    """Return the path of a browser that can print.

    Raises:
        PalaestraiMosaikError: there is none.
    """
    for name in BROWSERS:
        program = shutil.which(name)
        if program is not None:
            return program
    raise PalaestraiMosaikError(
        "no browser that can print the report as PDF: install Chromium or Google Chrome (Debian: apt-get install "
        "chromium), or print the HTML report from a browser of yours"
    )


def print_page(page: Path, file: Path, browser: str) -> None:
    """Print a page of this machine as PDF.

    Args:
        page: the HTML file.
        file: the PDF file to write.
        browser: the path of the browser.

    Raises:
        PalaestraiMosaikError: the browser fails, or takes too long.
    """
    with TemporaryDirectory(prefix="palaestrai-mosaik-") as directory:
        printed = Path(directory) / "report.pdf"
        command = [
            browser,
            "--headless=new",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            "--no-pdf-header-footer",
            f"--user-data-dir={directory}/profile",
            f"--print-to-pdf={printed}",
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            # Chromium's sandbox does not start for root.
            command.append("--no-sandbox")
        try:
            done = subprocess.run(
                [*command, page.absolute().as_uri()],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LONGEST,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PalaestraiMosaikError(f"{browser} does not print {page}: {error}") from error
        if done.returncode or not printed.is_file():
            raise PalaestraiMosaikError(f"{browser} does not print {page}: it ended with {done.returncode}")
        files.write_bytes(file, printed.read_bytes(), durable=False)
