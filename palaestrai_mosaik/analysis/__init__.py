"""From the store to pictures: objective and rewards of a run, its sensors, how agents learned."""

from .learning import LearningChoice
from .plot import plot_learning, plot_run

__all__ = ["LearningChoice", "plot_learning", "plot_run"]
