"""Parts that are written for palaestrAI, unchanged: thin adapters to our contracts.

A class of a document that derives from one of palaestrAI's own (``palaestrai.agent.Brain``,
``palaestrai.environment.Environment``, ...) is wrapped, and is given what it expects: palaestrAI's
information objects, spaces, memory and dumpers. palaestrAI itself is not needed, unless a document
names such a class. Tried with palaestrAI 3.5.18.
"""

from .adapting import adapted, is_adapted

__all__ = ["adapted", "is_adapted"]
