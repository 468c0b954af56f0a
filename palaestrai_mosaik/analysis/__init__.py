"""From the store to pictures: objective and rewards of a run, its sensors, how agents learned."""

from .learning import Fold, LearningChoice
from .plot import plot_learning, plot_run

__all__ = ["Fold", "LearningChoice", "plot_learning", "plot_run"]
