"""How the runs of a design and their files are called."""

from __future__ import annotations

import hashlib
import re

#: the document of a run, relative to the folder
_RUN_FILE = re.compile(r"runs/[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.yml")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
#: characters of a uid that a file name keeps; file systems take 255 bytes with all suffixes
_LONGEST = 100


def slug(uid: str) -> str:
    """Return ``uid`` as a name for a file or folder, safe on every file system.

    A uid that is such a name already is kept. Any other is cut down to letters, digits,
    ``._-``, and ends with a digest of the whole, so that two uids never share a name.
    """
    name = _UNSAFE.sub("_", uid).strip("._-")[:_LONGEST]
    if name == uid:
        return name
    digest = hashlib.sha256(uid.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{name}-{digest}" if name else digest


def run_uid(design: str, row: int, repetition: int) -> str:
    """Return the uid of a run of the design with the uid ``design``, both numbers from 0."""
    return f"{design}-{row}-r{repetition}"


def is_run_file(name: str) -> bool:
    """Whether ``name`` could be that of a run's document, as :func:`run_file` makes it.

    Names of files of the run are made of it, so it must lead nowhere else.
    """
    return _RUN_FILE.fullmatch(name) is not None


def run_file(design: str, row: int, repetition: int) -> str:
    """Return the document of a run, relative to the folder."""
    return f"runs/{run_uid(slug(design), row, repetition)}.yml"
