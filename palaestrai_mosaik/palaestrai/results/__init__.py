"""Results of palaestrAI, imported into a store beside our own.

``database`` reads palaestrAI's tables, ``jsonpickle`` the texts in them, ``phase`` turns the rows of a
phase into a recording, and ``importer`` does so for whole instances and puts each of them in place of an
earlier import. palaestrAI need not be installed.
"""

from .importer import Imported, import_results

__all__ = ["Imported", "import_results"]
