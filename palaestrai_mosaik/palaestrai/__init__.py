"""Everything that exists for palaestrAI: adapters for its classes, mosaik worlds made for it, its results.

A class of a document that derives from one of palaestrAI's own (``palaestrai.agent.Brain``,
``palaestrai.environment.Environment``, ...) runs unchanged: an adapter gives it palaestrAI's information
objects, spaces, memory and dumpers. palaestrAI itself is only needed where a document names such a
class. Tried with palaestrAI 3.5.18.

==========================  ====================================================================
``adapters``                which adapter a class gets (:func:`adapted`)
``base``                    what the adapters share: base class, global random generators
``brain``, ``muscle``       brains and their dumpers; muscles and objectives
``filter``                  filters
``environment``             environments, rewards and state transformers
``condition``               termination conditions
``memory``, ``translate``   palaestrAI's memory; its spaces, information objects and times
``mosaik_environment``      mosaik worlds that were made for palaestrai-mosaik
``results``                 import of a results database
==========================  ====================================================================
"""

from .adapters import adapted

__all__ = ["adapted"]
