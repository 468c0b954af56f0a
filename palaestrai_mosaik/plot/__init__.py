"""Pictures of runs and of learning, as files (Matplotlib)."""

from palaestrai_mosaik.store.query.lookup import Fold

from .figures import plot_learning, plot_run
from .learning import LearningChoice

__all__ = ["Fold", "LearningChoice", "plot_learning", "plot_run"]
