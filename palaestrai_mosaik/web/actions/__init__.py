"""The actions of the page, one module per topic; importing the package registers all of them.

An action is requested with POST and a body, and its answer describes its effect. The same modules have the resources
that list the possible actions.
"""

from . import designs as designs
from . import documents as documents
from . import runs as runs
from .registry import Refused, perform

__all__ = ["Refused", "perform"]
