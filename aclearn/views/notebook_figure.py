"""Figures that notebooks show. Imports matplotlib: only what draws imports this module."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure without pyplot, which would need a display and keep every figure."""

    def _repr_png_(self) -> bytes:
        """The picture that IPython shows for the last value of a cell."""
        picture = io.BytesIO()
        self.savefig(picture, dpi=100, format="png")
        return picture.getvalue()
