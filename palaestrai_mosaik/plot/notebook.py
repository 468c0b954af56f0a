"""A matplotlib figure that notebooks display."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that notebooks display without ``pyplot``, which would keep every figure in memory."""

    def _repr_png_(self) -> bytes:
        """Render the figure as PNG for IPython."""
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=110)
        return picture.getvalue()
