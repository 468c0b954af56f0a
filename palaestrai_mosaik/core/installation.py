"""This installation: the default store, the commands that install an extra, and other packages in the way.

All messages that advise to install something use these commands, so that they fit a checkout as well as an
installed wheel, and the environment of the running interpreter. Arguments are in double quotes, which sh, PowerShell
and cmd read the same way.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

#: the environment variable with another default location
STORE_VARIABLE = "PALAESTRAI_MOSAIK_STORE"
#: a folder in the working directory
DEFAULT_STORE = "palaestrai-results"


def default_store() -> str:
    """Return the folder or URL of the default store."""
    return os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


#: the name of the distribution; ``palaestrai-mosaik`` is another package on the registry
DISTRIBUTION = "mosaik-agents"
#: every program of this package contains one of these
_OUR_MODULES = (b"mosaik_agents", b"palaestrai_mosaik.cli")
#: the metadata of the other package that is imported as ``palaestrai_mosaik``
_OTHER = re.compile(r"palaestrai_mosaik-.*\.(dist|egg)-info")
_CHECKOUT = Path(__file__).parents[2]
#: text that no shell changes, with or without quotes
_PLAIN = re.compile(r"[\w./\\:+=-]+")
#: characters that sh changes within double quotes
_EXPANDED = re.compile(r'["$`!%\\]')


def install_extra(extra: str, *, upgrade: bool = False) -> str:
    """Build the command that installs the requirements of the extra ``extra`` of this package."""
    if (_CHECKOUT / "pyproject.toml").is_file():
        here = "." if Path.cwd() == _CHECKOUT else str(_CHECKOUT)
        what = ["-e", _quoted(f"{here}[{extra}]")]
    else:
        # pip finds the package itself installed, wherever it came from
        what = [_quoted(f"{DISTRIBUTION}[{extra}]")]
    return " ".join([_installer(), *(["--upgrade"] if upgrade else []), *what])


def install_packages(*names: str) -> str:
    """Build the command that installs other packages."""
    return " ".join([_installer(), *names])


def neighbours() -> list[str]:
    """List files of this package that other packages in this environment have replaced, or will, each with advice.

    This runs at every start of a command, so it reads names of files and the program's own, and no metadata.
    """
    messages = []
    program = _program("arsenai")
    if program is not None and not any(name in program.read_bytes() for name in _OUR_MODULES):
        messages.append(
            f"{program} is not the command arsenai of {DISTRIBUTION}, but that of another package (palaestrAI has one); "
            "use: python -m palaestrai_mosaik arsenai"
        )
    for folder in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
        for name in _names(folder):
            if _OTHER.fullmatch(name) and not _is_ours(Path(folder, name)):
                messages.append(
                    f"{Path(folder, name)}: another distribution, palaestrai-mosaik, has files of the same names as "
                    f"{DISTRIBUTION}: uninstall palaestrai-mosaik, then install {DISTRIBUTION} again"
                )
    return messages


def _program(name: str) -> Path | None:
    """Find the program of this name in the environment of the running interpreter."""
    for folder in dict.fromkeys((os.path.dirname(sys.executable), sysconfig.get_path("scripts"))):
        for suffix in ("", ".exe"):
            path = Path(folder, name + suffix)
            if path.is_file():
                return path
    return None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_ours(metadata: Path) -> bool:
    """Whether this metadata belongs to a checkout of this package from before it was called :data:`DISTRIBUTION`."""
    try:
        return "palaestrai_mosaik.cli" in (metadata / "entry_points.txt").read_text(encoding="utf-8")
    except OSError:
        return False


def _installer() -> str:
    """Build the command that installs into the environment of the running interpreter."""
    interpreter = sys.executable or "python"
    if not _PLAIN.fullmatch(interpreter):
        interpreter = _quoted(interpreter)
    if find_spec("pip") is None:  # uv makes environments without it
        return f"uv pip install --python {interpreter}"
    pip = shutil.which("pip")
    # not resolved: the interpreter of a virtual environment is a link to another folder
    if pip is not None and os.path.dirname(pip) == os.path.dirname(sys.executable):
        return "pip install"
    return f"{interpreter} -m pip install"


def _quoted(text: str) -> str:
    return shlex.quote(text) if os.name == "posix" and _EXPANDED.search(text) else f'"{text}"'
