"""Names of the runs of a design, and of their files."""

from __future__ import annotations

import hashlib
import re

#: path of a run's document, relative to the folder
_RUN_FILE = re.compile(r"runs/[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.yml")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
#: largest number of characters of a uid in a file name; file systems allow 255 bytes with all suffixes
_LONGEST = 100


def slug(uid: str) -> str:
    """Convert ``uid`` to a name for a file or folder, safe on every file system.

    A safe uid is kept. Any other is reduced to letters, digits and
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
    """Return whether ``name`` could be a result of :func:`run_file`.

    Other files of the run are named after it, so it must not lead out of its folder.
    """
    return _RUN_FILE.fullmatch(name) is not None


def run_file(design: str, row: int, repetition: int) -> str:
    """Return the path of a run's document, relative to the folder."""
    return f"runs/{run_uid(slug(design), row, repetition)}.yml"
