"""A report on disk: each file is replaced at once, and only where it says something else."""

from __future__ import annotations

import html
import re
from pathlib import Path

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import StoreError

from .data import ReportData
from .page import GENERATOR, PAGE, render

_FILES = re.compile(r'<meta name="files" content="([^"]*)">')
_CSV = re.compile(r"[a-z0-9-]+\.csv")


def write_report(data: ReportData, directory: str | Path) -> Path:
    """Write the report into ``directory`` and return the path of its page.

    An earlier report there is replaced, its tables that are no longer written are removed;
    other files are left alone. Raises :class:`StoreError` where the directory holds something
    else, or cannot be written.
    """
    directory = Path(directory)
    files.add_root(directory)
    try:
        before = _files_of_report(directory)
        files.make_folder(directory, parents=True)
        new = render(data)
        # the page comes last: it never names a table that is not there yet
        for name in sorted(new, key=lambda name: name == PAGE):
            _write(directory / name, new[name])
        for name in sorted(before - set(new)):
            files.remove(directory / name, missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write the report into {directory}: {error.strerror or error}") from error
    return directory / PAGE


def _files_of_report(directory: Path) -> set[str]:
    """Return the tables of the report that the directory holds."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return set()
    page = directory / PAGE
    text = files.read_text(page, errors="replace") if page.is_file() else ""
    if f'content="{GENERATOR}' not in text[:2000]:
        raise StoreError(f"{directory} exists and holds no report: name another directory (--output)")
    found = _FILES.search(text)
    names = html.unescape(found[1]).split() if found else []
    return {name for name in names if _CSV.fullmatch(name)}


def _write(path: Path, text: str) -> None:
    content = text.encode("utf-8", "replace")
    # (a link to a file that says the same is no file of the report)
    if not path.is_symlink() and path.is_file() and files.read_bytes(path) == content:
        return
    files.write_bytes(path, content, durable=False)
