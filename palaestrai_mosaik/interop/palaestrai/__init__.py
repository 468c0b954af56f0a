"""Adapters for palaestrAI classes, mosaik worlds made for palaestrai-mosaik, and import of palaestrAI's results.

A class in a document that derives from a palaestrAI class (``palaestrai.agent.Brain``,
``palaestrai.environment.Environment``, ...) runs unchanged: an adapter provides palaestrAI's information objects,
spaces, memory and dumpers. palaestrAI is only required if a document names such a class. Tested with palaestrAI 3.5.18.

==========================  ====================================================================
``adapters``                selection of the adapter for a class (:func:`adapted`)
``base``                    common parts of the adapters: base class, global random generators
``brain``, ``muscle``       brains and their dumpers; muscles and objectives
``filter``                  filters
``environment``             environments, rewards and state transformers
``condition``               termination conditions
``memory``                  palaestrAI's memory, with columns that are created on first access, and our memories, whose
                            rows are also appended to it
``translate``               palaestrAI's spaces, information objects and times
``mosaik_environment``      mosaik worlds that were made for palaestrai-mosaik
``results``                 import of a results database
==========================  ====================================================================
"""

from .adapters import adapted

__all__ = ["adapted"]
