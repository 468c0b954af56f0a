"""``PALAESTRAI_MOSAIK_REQUIRE`` (tests/conftest.py) makes skips of what was set up fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

TESTS = {
    "test_marked.py": (
        "import pytest\n@pytest.mark.skipif(True, reason='no URL of a PostgreSQL')\ndef test(): pass\n"
    ),
    "test_module.py": "import pytest\npytest.importorskip('simbench_is_not_here')\ndef test(): pass\n",
    "test_browser.py": (
        "import pytest\n@pytest.mark.skipif(True, reason='no browser: chromium.sh installs one')\ndef test(): pass\n"
    ),
    "test_other.py": "import pytest\ndef test(): pytest.skip('needs a full moon')\n",
    "test_expected.py": (
        "import pytest\n@pytest.mark.xfail(reason='PostgreSQL')\ndef test(): raise ValueError\n"
    ),
}


def outcome(tmp_path: Path, required: str) -> str:
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--noconftest",
            "-p",
            "conftest",
            "-p",
            "no:cacheprovider",
            ".",
        ],
        cwd=tmp_path,
        env={**os.environ, "PALAESTRAI_MOSAIK_REQUIRE": required, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout + done.stderr).strip().split("\n")[-1]


@pytest.mark.parametrize(
    ("required", "counts"),
    [
        ("", ["4 skipped", "1 xfailed"]),
        ("postgresql", ["1 error", "3 skipped", "1 xfailed"]),
        ("browser", ["1 error", "3 skipped", "1 xfailed"]),
        ("grid", ["1 error"]),  # of collection, so nothing else is run
    ],
)
def test_skips_of_required_parts_fail(tmp_path: Path, required: str, counts: list[str]) -> None:
    line = outcome(tmp_path, required)
    assert all(count in line for count in counts), line


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    assert "unknown part 'postgres'; allowed are postgresql, grid" in outcome(tmp_path, "grid,postgres")
