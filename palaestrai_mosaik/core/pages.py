"""Pages as single files, for a notebook's cell or a browser. Their content comes from ``web``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path

from palaestrai_mosaik.core import files

#: the height of a page in a notebook, in pixels
HEIGHT = 720


@dataclass(frozen=True, repr=False)
class Page:
    """A page as one file: a notebook shows it, and a browser opens the file of :meth:`save`.

    Attributes:
        title: the subject of the page: the uid of a run or of a design, or the location of a store.
        html: the file.
        runs: uids of the runs on the page.
        phases: names of the phases that can be seen in motion, in the order of the runs.
        left_out: names of phases, or uids of runs, that would make the file too large.
        thinned: names of phases with only some of their states.
        height: the page's height in a notebook, in pixels.
    """

    title: str
    html: str
    runs: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    thinned: tuple[str, ...] = ()
    height: int = HEIGHT

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, and return its path."""
        files.write_text(os.fspath(path), self.html)
        return Path(path)

    def __repr__(self) -> str:
        return f"<Page of {self.title}: {len(self.html) / 1e6:.1f} MB>"

    def _repr_html_(self) -> str:
        """Return a frame with the page. Its scripts cannot access anything outside of it."""
        return (
            f'<iframe title="{escape(self.title)}" sandbox="allow-scripts" srcdoc="{escape(self.html)}" '
            f'style="box-sizing: border-box; width: 100%; height: {int(self.height)}px; border: 1px solid #8884"></iframe>'
        )
