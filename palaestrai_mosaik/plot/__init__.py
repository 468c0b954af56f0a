"""Pictures of runs and of learning, as files (Matplotlib)."""

from .figures import plot_learning, plot_run

__all__ = ["plot_learning", "plot_run"]
