"""The folder of a search: the folder of a design, to which rows are added as the search proposes them.

It equals the folder that generating a design with these rows would write, so all readers of folders can read it.
Documents are written before the tables that name them, and the manifest with the number of rows is written last, so
readers always see a consistent beginning of the search.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from palaestrai_mosaik.core import files

from . import folder
from .decode import decode
from .expansion import Expansion, RowName, Values
from .folder import PlannedRun, read_manifest, refuse
from .load import load
from .model import DesignSpec
from .rows import ExpandedRow, SampledRows
from .samplers.sampler import Sample
from .settings import FOLDER, JOURNAL
from .writer import Register, planned_runs, refuse_another


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of a search: its point of the unit cube, and the path of its seeds in the tree of seeds.

    ``first`` is the number of the first row with identical documents: usually its own, or that of an earlier proposal.
    """

    number: int
    unit: tuple[float, ...]
    name: RowName
    first: int


class GrowingFolder:
    """The folder of the search ``spec`` at ``path``. Several processes may add rows to it.

    Attributes:
        path: the folder.
        spec: the design.
        expansion: builds the documents.
        restored: the files of documents that were written again, because they were missing or had other bytes.
    """

    def __init__(self, spec: DesignSpec, path: Path):
        self.path, self.spec = path, spec
        self.expansion = Expansion(spec)
        self.restored: list[str] = []
        #: the number of rows in the folder before this process added any
        self._rows_before = 0
        self._unit: list[tuple[float, ...]] = []
        self._table = io.StringIO()
        self._register = Register(spec, self._table)
        self._written = -1

    @staticmethod
    def make(spec: DesignSpec, path: Path) -> Path:
        """Create the folder if it does not exist, and return its path without links.

        Raises:
            DocumentError: the path holds something other than this search, or cannot be written.
        """
        try:
            path = files.real_root(path)
            if os.path.lexists(path):
                _check_folder(spec, path)
            files.make_folder(path / folder.RUNS, parents=True)
        except OSError as error:
            refuse(path, f"the folder cannot be written: {error.strerror or error}")
        return path

    def begin(self) -> None:
        """Write the files of a folder without rows.

        If it has rows, only the design is written, which may have a larger budget.
        """
        files.write_text(self.path / folder.DESIGN, self._register.design, durable=False)
        if (self.path / folder.MANIFEST).exists():
            self._rows_before = read_manifest(self.path)["counts"]["rows"]
        else:
            self.write()

    @property
    def rows(self) -> int:
        """The number of added rows."""
        return len(self._unit)

    def values(self, unit: Sequence[float]) -> Values:
        """Return the values of the factors at a point of the unit cube."""
        return decode(self.spec, np.array([unit], dtype=np.float64))[0]

    def add(self, setting: Setting) -> None:
        """Add the next row, and write its documents if they do not exist yet.

        The tables include it after the next :meth:`write`.

        Raises:
            DocumentError: its documents are invalid.
            ValueError: it is not the next row.
        """
        if setting.number != self.rows:
            raise ValueError(f"row {setting.number} is not the next one, {self.rows}")
        files.make_folder(self.path / folder.RUNS)
        self._register.add(self._row(setting), self.expansion, self._put)
        self._unit.append(setting.unit)

    def write_documents(self, setting: Setting) -> list[PlannedRun]:
        """Write the documents of any row, not only the next one, and return its runs."""
        files.make_folder(self.path / folder.RUNS)
        runs = []
        for run, data in planned_runs(self.expansion, self._row(setting)):
            runs.append(run)
            if data is not None:
                self._put(run, data)
        return runs

    def _put(self, run: PlannedRun, data: bytes) -> None:
        if not _holds(self.path / run.file, data):
            if run.row < self._rows_before:
                self.restored.append(run.file)
            files.write_bytes(self.path / run.file, data, durable=False)

    def planned(self, setting: Setting) -> list[PlannedRun]:
        """Return the runs of a row."""
        return [run for run, _ in planned_runs(self.expansion, self._row(setting))]

    def _row(self, setting: Setting) -> ExpandedRow:
        values = self.values(setting.unit)
        documents = self.expansion.row(values, setting.number)
        return ExpandedRow(setting.number, values, documents, setting.name, setting.first)

    def write(self) -> None:
        """Write the tables, if rows have been added since the last time."""
        if self._written == self.rows:
            return
        unit = np.array(self._unit, dtype=np.float64).reshape(self.rows, len(self.spec.axes))
        sample = Sample(unit, np.arange(self.rows, dtype=np.int64))
        files.write_text(self.path / folder.TABLE, self._table.getvalue(), durable=False)
        self._register.write(self.path, SampledRows(sample, self.rows))
        self._written = self.rows


def _check_folder(spec: DesignSpec, path: Path) -> None:
    """Refuse a folder that does not belong to this search."""
    if not path.is_dir():
        refuse(path, "there is a file of this name; name a folder")
    if (path / folder.MANIFEST).exists():
        design = read_manifest(path)["design"]
    elif (path / FOLDER / JOURNAL).is_file() and (path / folder.DESIGN).is_file():
        # the journal has all that the manifest counts
        written = load(path / folder.DESIGN)
        design = {"uid": written.uid, "hash": written.hash}
    else:
        foreign = [
            name for name in os.listdir(path) if name not in folder.GENERATED and not name.startswith(".")
        ]
        if foreign:
            refuse(
                path,
                f"the folder is not empty and no search's folder ({', '.join(foreign[:5])}); name another one",
            )
        return
    refuse_another(
        path,
        design,
        spec,
        "A search goes on with a larger budget or another 'confirm'; all else makes another one: name another folder (-o)",
    )


def _holds(file: Path, data: bytes) -> bool:
    try:
        return files.read_bytes(file) == data
    except OSError:
        return False
