"""What the page can do, one module for each topic; importing the package registers all of it.

An action is asked for with POST and a body, and says what it did. The same modules have the resources that say which
actions are possible.
"""

from . import designs as designs
from . import documents as documents
from . import runs as runs
from .registry import Refused, perform

__all__ = ["Refused", "perform"]
