"""The store of results: it records runs, resumes them, and answers queries about them."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import platform
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import numpy as np
from sqlalchemy import URL, select
from sqlalchemy.orm import Session

from palaestrai_mosaik import __version__
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.installation import DEFAULT_STORE, default_store
from palaestrai_mosaik.core.pages import HEIGHT, Page
from palaestrai_mosaik.core.printing import count

from .database import Database, MissingStoreError
from .labels import LabelQueries
from .models import Instance, document_id, experiment_id
from .process import process_started
from .query.body_episodes import BodyEpisodes
from .query.columns import ColumnQueries
from .query.export import Export
from .query.lookup import INSTANCES
from .query.many_runs import ManyRunsQueries
from .query.run_rows import PaceQueries
from .query.trajectories import Trajectories
from .recorder import InstanceRecorder
from .resume import resume
from .sqlite_files import Journal
from .urls import absolute, is_database, shown

logger = logging.getLogger(__name__)

#: in a notebook: the number of runs shown, and their columns
_SHOWN = 10
_SHOWN_COLUMNS = (
    *("run", "document", "status", "seed", "started"),
    *("duration", "phases", "episodes", "steps", "error"),
)

#: advice for a missing database
_RESTORE = "put a copy of the database in its place, or execute the runs again: arsenai resume, or start"

#: packages of extras that results depend on
_OPTIONAL = ("pandapower", "simbench", "lightsim2grid", "scipy", "gymnasium", "stable-baselines3", "torch")


def _open_in_folder(directory: Path, create: bool, journal: Journal, read_only: bool) -> Database:
    """Open the database in the folder of a store; create both if needed."""
    if str(directory).encode(errors="replace").decode() != str(directory):
        # neither SQLAlchemy nor pyarrow takes such a name
        raise StoreError(f"the name of the store's folder is not UTF-8: {str(directory)!r}; choose another")
    if directory.exists() and not directory.is_dir():
        raise StoreError(f"the store {directory} is a file, not a directory")
    if create and not read_only:
        try:
            files.make_folder(directory, parents=True)
        except OSError as error:
            raise StoreError(f"cannot make the store {directory}: {error}") from error
    url = URL.create("sqlite", database=str(directory / "store.db"))
    without = _runs_without_database(directory)
    try:
        database = Database(url, create=create, journal=journal, read_only=read_only)
    except MissingStoreError as error:
        if not without:
            raise
        raise MissingStoreError(f"{error}, but {without}; {_RESTORE}") from error
    if without:
        logger.warning("%s had no database, but %s; a new one was made", directory, without)
    return database


class Store(Trajectories, BodyEpisodes, ManyRunsQueries, PaceQueries, ColumnQueries, LabelQueries, Export):
    """Results of runs: metadata in SQL, per-step data in Parquet files.

    Many processes may write to one store at the same time. A store with an earlier schema is upgraded.

    Args:
        location: a directory, which holds ``store.db`` and ``instances/``; the SQLAlchemy URL of a database;
            or a reference to such a URL: ``@FILE`` (its first line; only its owner may read a file with a
            password) or ``env:NAME``. The default is the directory that ``PALAESTRAI_MOSAIK_STORE`` names, or
            ``palaestrai-results`` in the working directory.
        directory: the folder of the Parquet files if ``location`` is the URL of a database (default:
            ``palaestrai-results``). A store in a directory takes none.
        create: create the store if it is missing. Otherwise a missing store is an error.
        journal: the SQLite journal mode of a new store. A store on a file system that several machines share needs
            ``"delete"``, and one machine at a time.
        read_only: nothing can be recorded. This works on a full disk and without write permission.

    Raises:
        StoreError: the store cannot be opened, is missing, or was written by a newer release.
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        directory: str | Path | None = None,
        create: bool = False,
        journal: Journal = "wal",
        read_only: bool = False,
    ):
        location = location or default_store()
        self._read_only = read_only
        if isinstance(location, str) and is_database(location):
            directory = _trusted(directory or DEFAULT_STORE)
            self._location = absolute(location)
            database = Database(location, create=create, journal=journal, read_only=read_only)
        else:
            if directory is not None:
                raise StoreError(
                    "directory= (--files) goes with a database URL; a store in a directory has all in it"
                )
            directory = _trusted(location)
            self._location = str(directory)
            database = _open_in_folder(directory, create, journal, read_only)
        logger.debug("store %s opened, files in %s", database.name, directory)
        super().__init__(database, directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database's connections. Finish the recorded runs first."""
        self.database.close()

    def __copy__(self) -> Self:
        """Open the store once more."""
        return self._open_again(self._read_only)

    def writable(self) -> Self:
        """Open the store once more, for reading and writing.

        Returns:
            The store, to be closed by the caller.

        Raises:
            StoreError: it cannot be opened.
        """
        return self._open_again(False)

    def _open_again(self, read_only: bool) -> Self:
        folder = self.directory if is_database(self._location) else None
        return type(self)(self._location, directory=folder, read_only=read_only)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the location of the store; unpickling opens it.

        Raises:
            pickle.PicklingError: the location is a URL with a password.
        """
        if shown(self._location) != self._location:
            raise pickle.PicklingError(
                f"the URL of {shown(self._location)} holds a password, which would stand in the pickle; name the store by "
                "@FILE or env:NAME"
            )
        folder = self.directory if is_database(self._location) else None
        return partial(type(self), directory=folder, read_only=self._read_only), (self._location,)

    def _repr_html_(self) -> str:
        """Format the newest runs for a notebook."""
        runs = self.runs()
        shown = runs.tail(_SHOWN).iloc[::-1][list(_SHOWN_COLUMNS)]
        more = f", the newest {_SHOWN} of {len(runs):,}" if len(runs) > _SHOWN else ""
        title = f"<p>Runs in <code>{escape(self.database.name)}</code>{more}</p>"
        return title + shown.to_html(index=False, float_format="{:.2f}".format)

    def view(self, *runs: str, height: int = HEIGHT) -> Page:
        """Build a page of the runs, which a notebook shows; see :func:`palaestrai_mosaik.view`.

        Args:
            runs: which runs, as :meth:`find_run` takes them: a single run is shown by itself, several are compared.
                Without any, all runs are listed.
            height: of the page in the notebook, in pixels.

        Raises:
            StoreError: there is no such run.
        """
        from palaestrai_mosaik import view

        return view(self, *runs, height=height)

    @property
    def schema_version(self) -> str:
        """The revision of the database's schema."""
        return self.database.schema_version() or ""

    def begin_run(  # noqa: PLR0913 (the fields of a document)
        self,
        *,
        uid: str,
        document: dict[str, Any],
        text: str,
        hash: str,
        seed: int,
        version: str,
        experiment_uid: str | None = None,
        content: str | None = None,
    ) -> InstanceRecorder:
        """Record the start of an execution of a run document; return its recorder.

        Args:
            uid: the uid of the document.
            document: its canonical form.
            text: the text that the user wrote.
            hash: the hash of the canonical form.
            seed: the seed of the document.
            version: the version of the document.
            experiment_uid: the uid of the run's experiment, or ``None``.
            content: the hash of the document's computation, by which documents with other names find this
                execution; ``None``: they do not.
        """
        instance_uid = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
        directory = self.instance_directory(instance_uid)
        started = datetime.now(UTC)

        def begin(session: Session) -> int:
            instance = Instance(
                uid=instance_uid,
                run_document_id=document_id(session, uid, document, text, hash, content),
                experiment_id=None if experiment_uid is None else experiment_id(session, experiment_uid),
                seed=seed,
                version=str(version),
                status="running",
                started=started,
                host=socket.gethostname(),
                pid=os.getpid(),
                pid_started=process_started(),
                packages=package_versions(),
            )
            session.add(instance)
            session.flush()
            try:
                # in a retry, the folder exists
                files.make_folder(directory, parents=True)
            except OSError as error:
                raise StoreError(f"cannot make {directory}: {error}") from error
            return instance.id

        def begun(session: Session) -> int | None:
            return session.scalar(select(Instance.id).where(Instance.uid == instance_uid))

        row_id = self.database.write(begin, begun)
        return InstanceRecorder(self.database, row_id, instance_uid, hash, directory)

    def resume_run(self, run: str, mark: Mapping[str, Any]) -> InstanceRecorder:
        """Resume an instance from a mark.

        All that was recorded after the mark is removed, and this process runs the instance from now on. Phases that had
        ended at the mark stay; :meth:`InstanceRecorder.reopen_phase` returns the recorder of an open
        phase. The further recording has the same digests as without the
        interruption.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            mark: the result of :meth:`InstanceRecorder.mark`.

        Raises:
            StoreError: there is no such instance, the mark belongs to another one, it has finished, its process
                still runs on this host, or parts are missing or damaged. Then nothing is changed.
        """
        return resume(self, run, mark)


def _trusted(directory: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a store's folder; no link below it is followed from now on."""
    try:
        return files.add_root(Path(directory))
    except OSError as error:
        raise StoreError(f"cannot open the store {Path(directory)}: {error.strerror}") from error


def _runs_without_database(directory: Path) -> str:
    """Describe how many runs have files although the store's database is missing or empty; "" for none."""
    file = directory / "store.db"
    with suppress(OSError):
        if not file.exists() or not file.stat().st_size:
            runs = [name for name in files.list_names(directory / INSTANCES) if not name.startswith(".")]
            return f"{directory / INSTANCES} has files of {count(len(runs), 'run')}" if runs else ""
    return ""


@cache
def package_versions() -> dict[str, str]:
    """Return the installed versions of Python and of the packages that results depend on."""
    versions = {
        "palaestrai_mosaik": __version__,
        "mosaik": metadata.version("mosaik"),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    for name in _OPTIONAL:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


@dataclass(frozen=True, slots=True, repr=False)
class StoreLocation:
    """The location of a store: a folder or database, and a database's folder of files.

    ``location`` may contain a password, so use it only to open the store; print and write
    :attr:`shown` instead.
    """

    location: str
    directory: str | None = None

    @classmethod
    def of(cls, results: Path, store: str | Path | None = None) -> Self:
        """Locate ``store``, or else the folder ``results``, which also holds the files of a database.

        ``store`` is as for :class:`Store`.
        """
        files = str(results.absolute())
        if store is None:
            return cls(files)
        if isinstance(store, str) and is_database(store):
            # it may be opened from another working directory
            return cls(absolute(store), files)
        return cls(str(Path(store).absolute()))

    def __repr__(self) -> str:
        return f"StoreLocation({self.shown!r}, {self.directory!r})"

    @property
    def folder(self) -> Path | None:
        """The folder of the store; ``None`` for a database."""
        return None if is_database(self.location) else Path(self.location)

    @property
    def shown(self) -> str:
        """The location without a password."""
        return shown(self.location)

    def open(self, *, create: bool = False, journal: Journal = "wal") -> Store:
        """Open the store; a new one gets ``journal``. Raises :class:`~palaestrai_mosaik.core.errors.StoreError`."""
        return Store(self.location, directory=self.directory, create=create, journal=journal)

    def look(self) -> Store:
        """Open the store read-only. Raises :class:`~palaestrai_mosaik.core.errors.StoreError`."""
        return Store(self.location, directory=self.directory, read_only=True)
