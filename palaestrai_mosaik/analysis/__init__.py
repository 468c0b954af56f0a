"""From the store to pictures: objective and rewards of a run, its sensors over time."""

from .plot import plot_run

__all__ = ["plot_run"]
