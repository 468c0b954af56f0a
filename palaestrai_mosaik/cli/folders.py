"""Which design folder a command is about."""

from __future__ import annotations

from pathlib import Path

from palaestrai_mosaik.design.folder import DESIGN, MANIFEST, OUTPUTS, DesignFolder
from palaestrai_mosaik.errors import PalaestraiMosaikError, listed

_LISTED = 20


def find_folder(folder: str | None) -> DesignFolder:
    """Open the design folder ``folder``, or the only one that there is here.

    Without a name it is the working directory, else the only one in it or in ``_outputs``.
    Raises :class:`PalaestraiMosaikError` where that is none, or several.
    """
    if folder is not None:
        return DesignFolder.open(folder)
    if _is_design(Path()):
        return DesignFolder.open(Path())
    places = (Path(OUTPUTS), Path())
    found = sorted(
        path
        for place in places
        if place.is_dir()
        for path in place.iterdir()
        if not path.name.startswith(".") and _is_design(path)
    )
    if len(found) == 1:
        return DesignFolder.open(found[0])
    if found:
        raise PalaestraiMosaikError(f"there are several design folders, name one: {listed(found, _LISTED)}")
    raise PalaestraiMosaikError(
        f"there is no design folder here or in {OUTPUTS}: name one, or make it with arsenai generate DESIGN.yml"
    )


def _is_design(path: Path) -> bool:
    return (path / MANIFEST).is_file() and (path / DESIGN).is_file()
