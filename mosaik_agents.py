"""Entry points of the commands of the distribution ``mosaik-agents``.

OFFIS's distribution palaestrai-mosaik has a package ``palaestrai_mosaik``, too, and replaces this one when it is
installed beside it. This module is outside of the package, so that it can report that.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = "palaestrai_mosaik"
#: stands in the package's ``__init__.py``
_MARK = "mosaik-agents"
_ADVICE = f"""\
the package {_PACKAGE!r} that Python finds is not the one of {_MARK}, but
  {{origin}}
OFFIS's palaestrai-mosaik has a package of the same name; the two cannot share an environment. To use {_MARK}:
  {{pip}} uninstall palaestrai-mosaik
and then install {_MARK} again. Its MosaikEnvironment runs worlds that were made for palaestrai-mosaik."""


def main() -> int:
    """Run ``palaestrai-mosaik``."""
    _check()
    from palaestrai_mosaik.cli.main import main as command

    return command()


def arsenai() -> int:
    """Run ``arsenai``."""
    _check()
    from palaestrai_mosaik.cli.arsenai import main as command

    return command()


def _check() -> None:
    """Exit with advice if the package is another one than that of this distribution."""
    spec = find_spec(_PACKAGE)
    file = Path(spec.origin) if spec is not None and spec.origin is not None else None
    if file is not None and _MARK in file.read_text(encoding="utf-8", errors="replace"):
        return
    origin = "nothing" if spec is None else file or ", ".join(spec.submodule_search_locations or ())
    sys.exit(_ADVICE.format(origin=origin, pip=f'"{sys.executable}" -m pip'))
