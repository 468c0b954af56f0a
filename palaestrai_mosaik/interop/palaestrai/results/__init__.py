"""Import of palaestrAI's results into a store.

``database`` reads palaestrAI's tables, ``jsonpickle`` decodes the texts in them, ``phase`` converts the rows of a phase
to a recording, and ``importer`` imports whole instances and replaces earlier imports. palaestrAI need not be installed.
"""

from .importer import Imported, import_results

__all__ = ["Imported", "import_results"]
