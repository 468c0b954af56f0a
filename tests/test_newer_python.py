"""``tests/services/python.sh`` finds an interpreter of a version, and says clearly that there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "services" / "python.sh"
HERE = "{}.{}".format(*sys.version_info)
#: what passes the call on to this interpreter, and a shim that knows of one elsewhere
REAL = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
SHIM = "#!/bin/sh\necho 'command not found; it exists in these versions:' >&2\nexit 127\n"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def find(tmp_path: Path, *versions: str) -> subprocess.CompletedProcess[str]:
    places = {"PYENV_ROOT": str(tmp_path / "pyenv"), "UV_PYTHON_INSTALL_DIR": str(tmp_path / "uv")}
    (tmp_path / "bin").mkdir(exist_ok=True)
    for tool in ("bash", "sed"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or "/nowhere")
    command = [str(tmp_path / "bin" / "bash"), SCRIPT, *versions]
    environment = {"PATH": str(tmp_path / "bin"), **places}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_interpreter_on_the_path_is_found(tmp_path):
    program(tmp_path / "bin" / f"python{HERE}", REAL)
    assert find(tmp_path, "2.4", HERE).stdout.strip() == sys.executable


@pytest.mark.parametrize("place", ["pyenv/versions/{}.99/bin/python", "uv/cpython-{}.99-linux/bin/python"])
def test_a_shim_that_fails_is_passed_over(tmp_path, place):
    program(tmp_path / "bin" / f"python{HERE}", SHIM)
    program(tmp_path / place.format(HERE), REAL)
    assert find(tmp_path, HERE).stdout.strip() == sys.executable


def test_that_there_is_none_is_said(tmp_path):
    program(tmp_path / "bin" / "python3.0", SHIM)
    program(tmp_path / "pyenv" / "versions" / "3.0.1" / "bin" / "python", REAL)  # another than its name says
    found = find(tmp_path, "3.0", "2.4")
    assert (found.returncode, found.stdout) == (1, "")
    assert "there is no Python 3.0 or 2.4 on this machine" in found.stderr
