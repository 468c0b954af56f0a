"""A figure of matplotlib that a notebook shows by itself."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """Made without ``pyplot``, which keeps every figure in memory and which alone teaches notebooks to show one."""

    def _repr_png_(self) -> bytes:
        """Return the picture for IPython."""
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=110)
        return picture.getvalue()
