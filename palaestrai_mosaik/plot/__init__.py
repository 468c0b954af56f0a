"""Pictures of runs and of learning, as files (Matplotlib)."""

from .figures import plot_learning, plot_run
from .learning import Fold, LearningChoice

__all__ = ["Fold", "LearningChoice", "plot_learning", "plot_run"]
