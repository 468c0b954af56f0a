"""Installing: advice fits the installation, other packages are noticed, and POSIX is not needed to start."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from palaestrai_mosaik.core import installation
from palaestrai_mosaik.core.installation import install_extra, install_packages, neighbours

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_name_is_that_of_the_distribution() -> None:
    assert PROJECT["name"] == installation.DISTRIBUTION
    assert {target.partition(":")[0] for target in PROJECT["scripts"].values()} == {"mosaik_agents"}


def test_a_checkout_is_installed_again_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert install_extra("grid").endswith(f'pip install -e "{ROOT}[grid]"')
    monkeypatch.chdir(ROOT)
    assert install_extra("grid", upgrade=True).endswith('pip install --upgrade -e ".[grid]"')


def test_beside_a_wheel_the_distribution_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installation, "_CHECKOUT", tmp_path)
    assert install_extra("rl").endswith('pip install "mosaik-agents[rl]"')
    assert install_packages("wandb").endswith("pip install wandb")


def test_the_command_is_that_of_the_interpreter_that_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("pip", "python"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(installation, "find_spec", lambda name: object())
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert install_packages("x") == "pip install x"
    monkeypatch.setattr(sys, "executable", "/opt/my python/bin/python")
    assert install_packages("x") == '"/opt/my python/bin/python" -m pip install x'
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "executable", "/opt/python")
    assert install_packages("x") == "uv pip install --python /opt/python x"


@pytest.mark.parametrize("folder", ["plain", "with space", "a $HOME `b` \"c\" 'd'"])
def test_a_shell_reads_the_folder_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str
) -> None:
    checkout = tmp_path / folder
    checkout.mkdir()
    (checkout / "pyproject.toml").write_text("")
    monkeypatch.setattr(installation, "_CHECKOUT", checkout)
    monkeypatch.chdir(tmp_path)
    printed = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {install_extra('grid')}"], capture_output=True, text=True, check=True
    )
    assert printed.stdout.splitlines()[-1] == f"{checkout}[grid]"


def test_no_page_and_no_message_names_the_other_package() -> None:
    wrong = re.compile(r"palaestrai-mosaik\[|pip install [\"']?palaestrai-mosaik|pip install [^\n`]*'")
    texts = [*(ROOT / "palaestrai_mosaik").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    texts += [*(ROOT / "scenarios").glob("*.yml"), *(ROOT / "designs").glob("*.yml")]
    texts.remove(ROOT / "CHANGELOG.md")
    assert [path for path in texts if wrong.search(path.read_text(encoding="utf-8"))] == []


def test_the_page_lists_the_extras() -> None:
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8").split("## Extras")[1].split("## ")[0]
    listed = {
        name
        for row in re.findall(r"^\| (`.+?`) \|", page, flags=re.M)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert listed == set(PROJECT["optional-dependencies"])


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment with the programs of this package, and nothing else."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "bin" / "arsenai").write_text("from mosaik_agents import arsenai\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    paths = {"scripts": str(tmp_path / "bin")}
    monkeypatch.setattr(
        installation.sysconfig, "get_path", lambda name: paths.get(name, str(tmp_path / "lib"))
    )
    return tmp_path


def test_neighbours_are_noticed(environment: Path) -> None:
    assert neighbours() == []
    (environment / "lib" / "mosaik_agents-0.1.0.dist-info").mkdir()
    earlier = environment / "lib" / "palaestrai_mosaik-0.1.0.dist-info"
    earlier.mkdir()
    (earlier / "entry_points.txt").write_text("[console_scripts]\nx = palaestrai_mosaik.cli.main:main\n")
    assert neighbours() == []
    (environment / "bin" / "arsenai").write_text("from arsenai.cli import main\n")
    (environment / "lib" / "palaestrai_mosaik-3.5.9.dist-info").mkdir()
    program, package = neighbours()
    assert "use: python -m palaestrai_mosaik arsenai" in program
    assert "uninstall palaestrai-mosaik, then install mosaik-agents again" in package


def test_a_command_warns_of_neighbours(environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from palaestrai_mosaik.cli.common import warn_of_neighbours

    (environment / "bin" / "arsenai").write_text("from arsenai.cli import main\n")
    warn_of_neighbours()
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("warning: ") and err.count("\n") == 1


@pytest.mark.parametrize("program", [["-m", "palaestrai_mosaik"], ["-m", "palaestrai_mosaik", "arsenai"]])
def test_commands_are_there_as_modules(program: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *program, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wanted = "generate" if program[-1] == "arsenai" else "start"
    assert re.search(rf"^ +{wanted} ", done.stdout, flags=re.M)
    assert done.stdout.startswith(f"usage: palaestrai-mosaik{' arsenai' if program[-1] == 'arsenai' else ''}")


def test_a_package_that_took_the_place_of_this_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "palaestrai_mosaik").mkdir()
    (tmp_path / "palaestrai_mosaik" / "__init__.py").write_text("'''OFFIS's.'''\n")
    (tmp_path / "mosaik_agents.py").write_text((ROOT / "mosaik_agents.py").read_text(encoding="utf-8"))
    for name in ("main", "arsenai"):
        done = subprocess.run(
            [sys.executable, "-c", f"import mosaik_agents; mosaik_agents.{name}()"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert str(tmp_path / "palaestrai_mosaik" / "__init__.py") in done.stderr
        assert "uninstall palaestrai-mosaik" in done.stderr


#: a system without what only POSIX has
WITHOUT_POSIX = """
import os, signal, sys
import asyncio, multiprocessing.util, psutil, subprocess  # they have other code elsewhere

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "resource", "pwd", "grp", "termios"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
for name in ("fork", "forkpty", "killpg", "getpgid", "setsid", "geteuid", "getuid", "fchmod", "getpgrp"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD"):
    if hasattr(signal, name):
        delattr(signal, name)
from palaestrai_mosaik.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "command",
    [
        ["check", str(ROOT / "scenarios" / "dummy.yml")],
        ["start", str(ROOT / "scenarios" / "dummy.yml"), "--quiet"],
        ["arsenai", "plan", str(ROOT / "designs" / "ishigami_slurm.yml")],
    ],
    ids=lambda command: command[0],
)
def test_a_system_that_is_not_posix_starts_the_commands(tmp_path: Path, command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, shlex.join(command) + "\n" + done.stdout + done.stderr
