"""The store of results: it records runs, resumes them, and answers queries about them."""

from __future__ import annotations

import logging
import os
import platform
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, wraps
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from sqlalchemy import URL, select
from sqlalchemy.orm import Session

from palaestrai_mosaik import __version__, files
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.locations import DEFAULT_STORE, default_store
from palaestrai_mosaik.pages import HEIGHT, Page

from .database import Database, Journal
from .models import Instance
from .process import process_started
from .query.body_episodes import BodyEpisodes
from .query.brains import BrainQueries
from .query.descriptions import DescriptionQueries
from .query.export import Export
from .query.frames import FrameQueries
from .query.lookup import Lookup
from .query.many_runs import ManyRunsQueries
from .query.members import Members
from .query.pace import PaceQueries
from .query.run_rows import RunRowQueries
from .query.runs import RunQueries
from .query.trajectories import Trajectories
from .recorder import InstanceRecorder
from .resume import resume
from .shared import document_id, experiment_id
from .urls import is_database

logger = logging.getLogger(__name__)

#: what a notebook shows of a store: how many runs, and which of their columns
_SHOWN = 10
_SHOWN_COLUMNS = (
    *("run", "document", "status", "seed", "started"),
    *("duration", "phases", "episodes", "steps", "error"),
)

P = ParamSpec("P")
T = TypeVar("T")

#: packages of extras that results depend on
_OPTIONAL = ("pandapower", "simbench", "lightsim2grid", "scipy", "gymnasium", "stable-baselines3", "torch")


def _answered_by(part: str, method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Return a method of the store, with the signature and docstring of ``method``, which its ``part`` runs."""

    @wraps(method)
    def ask(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(getattr(self, part), *args, **kwargs)

    return ask


class Store:
    """Results of runs: metadata in SQL, per-step data in Parquet files.

    Many processes may write to one store at the same time. A store of an older release is upgraded.

    Args:
        location: a directory, which holds ``store.db`` and ``instances/``; the SQLAlchemy URL of a database;
            or where that URL is kept: ``@FILE`` (its first line; only its owner may read a file with a
            password) or ``env:NAME``. The default is the directory that ``PALAESTRAI_MOSAIK_STORE`` names, or
            ``palaestrai-results`` in the working directory.
        directory: where the Parquet files go if ``location`` is the URL of a database (default:
            ``palaestrai-results``). A store in a directory takes none.
        create: make a new store where it is missing. Otherwise a missing store is an error.
        journal: how SQLite journals a new store. A store on a file system that several machines share needs
            ``"delete"``, and one machine at a time.
        read_only: nothing can be recorded. This works on a disk that is full and where nothing may be
            written.

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
        if isinstance(location, str) and is_database(location):
            self.directory = Path(directory or DEFAULT_STORE).absolute()
            files.add_root(self.directory)
            self.database = Database(location, create=create, journal=journal, read_only=read_only)
        else:
            if directory is not None:
                raise StoreError(
                    "directory= (--files) goes with a database URL; a store in a directory has all in it"
                )
            self.directory = Path(location).absolute()
            files.add_root(self.directory)
            if self.directory.exists() and not self.directory.is_dir():
                raise StoreError(f"the store {self.directory} is a file, not a directory")
            if create and not read_only:
                try:
                    files.make_folder(self.directory, parents=True)
                except OSError as error:
                    raise StoreError(f"cannot make the store {self.directory}: {error}") from error
            url = URL.create("sqlite", database=str(self.directory / "store.db"))
            self.database = Database(url, create=create, journal=journal, read_only=read_only)
        logger.debug("store %s opened, files in %s", self.database.name, self.directory)
        #: finds runs by name; the queries share it
        self.lookup = Lookup(self.database, self.directory)
        self._runs = RunQueries(self.lookup)
        self._members = Members(self.lookup)
        self._trajectories = Trajectories(self.lookup, self._runs, self._members)
        self._body_episodes = BodyEpisodes(self.lookup, self._runs, self._members)
        self._frames = FrameQueries(self.lookup, self._runs, self._members)
        self._many_runs = ManyRunsQueries(self.lookup)
        self._run_rows = RunRowQueries(self.lookup)
        self._paces = PaceQueries(self.lookup, self._run_rows)
        self._brains = BrainQueries(self.lookup)
        self._descriptions = DescriptionQueries(self.lookup)
        self._export = Export(self.lookup, self._runs, self._members, self._brains, self._descriptions)

    instance_directory = _answered_by("lookup", Lookup.instance_directory)
    find_run = _answered_by("lookup", Lookup.find_run)
    find_instance = _answered_by("lookup", Lookup.find_instance)
    document_of = _answered_by("lookup", Lookup.document_of)

    runs = _answered_by("_runs", RunQueries.runs)
    phases = _answered_by("_runs", RunQueries.phases)
    outcomes = _answered_by("_runs", RunQueries.outcomes)
    episodes = _answered_by("_runs", RunQueries.episodes)
    errors = _answered_by("_runs", RunQueries.errors)
    warnings = _answered_by("_runs", RunQueries.warnings)
    log = _answered_by("_runs", RunQueries.log)
    document = _answered_by("_runs", RunQueries.document)
    document_text = _answered_by("_runs", RunQueries.document_text)
    evaluate_every = _answered_by("_runs", RunQueries.evaluate_every)
    streams = _answered_by("_runs", RunQueries.streams)

    environments = _answered_by("_members", Members.environments)
    agents = _answered_by("_members", Members.agents)
    channels = _answered_by("_members", Members.channels)
    bodies = _answered_by("_members", Members.bodies)
    topology = _answered_by("_descriptions", DescriptionQueries.topology)
    world = _answered_by("_descriptions", DescriptionQueries.world)

    steps = _answered_by("_trajectories", Trajectories.steps)
    environment_states = _answered_by("_trajectories", Trajectories.environment_states)
    recorded_episodes = _answered_by("_trajectories", Trajectories.recorded_episodes)
    statistics = _answered_by("_trajectories", Trajectories.statistics)
    body_episodes = _answered_by("_body_episodes", BodyEpisodes.body_episodes)
    frames = _answered_by("_frames", FrameQueries.frames)
    recorded_frames = _answered_by("_frames", FrameQueries.recorded_frames)
    export = _answered_by("_export", Export.export)

    newest_runs = _answered_by("_many_runs", ManyRunsQueries.newest_runs)
    agents_across = _answered_by("_many_runs", ManyRunsQueries.agents_across)
    bodies_across = _answered_by("_many_runs", ManyRunsQueries.bodies_across)
    episodes_across = _answered_by("_many_runs", ManyRunsQueries.episodes_across)
    outcomes_across = _answered_by("_many_runs", ManyRunsQueries.outcomes_across)
    steps_across = _answered_by("_many_runs", ManyRunsQueries.steps_across)
    reward_names_across = _answered_by("_many_runs", ManyRunsQueries.reward_names_across)
    phases_across = _answered_by("_many_runs", ManyRunsQueries.phases_across)
    streams_across = _answered_by("_many_runs", ManyRunsQueries.streams_across)

    run_rows = _answered_by("_run_rows", RunRowQueries.run_rows)
    changed_runs = _answered_by("_run_rows", RunRowQueries.changed_runs)
    count_runs = _answered_by("_run_rows", RunRowQueries.count_runs)
    run_ids = _answered_by("_run_rows", RunRowQueries.run_ids)
    objective_curves = _answered_by("_run_rows", RunRowQueries.objective_curves)
    paces = _answered_by("_paces", PaceQueries.paces)

    keep_brain = _answered_by("_brains", BrainQueries.keep_brain)
    brain = _answered_by("_brains", BrainQueries.brain)
    brains = _answered_by("_brains", BrainQueries.brains)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database's connections. Runs that were begun should be finished before."""
        self.database.close()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the newest runs."""
        runs = self.runs()
        shown = runs.tail(_SHOWN).iloc[::-1][list(_SHOWN_COLUMNS)]
        more = f", the newest {_SHOWN} of {len(runs):,}" if len(runs) > _SHOWN else ""
        title = f"<p>Runs in <code>{escape(self.database.name)}</code>{more}</p>"
        return title + shown.to_html(index=False, float_format="{:.2f}".format)

    def view(self, *runs: str, height: int = HEIGHT) -> Page:
        """Return a page of the runs, which a notebook shows; see :func:`palaestrai_mosaik.view`.

        Args:
            runs: which runs, as :meth:`find_run` takes them: one is shown by itself, several are compared. Without any,
                all runs are listed.
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

    def begin_run(  # noqa: PLR0913 (what a document says of itself)
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
        """Record that an execution of a run document begins; return its recorder.

        Args:
            uid: the uid of the document.
            document: its canonical form.
            text: what the user wrote.
            hash: the hash of the canonical form.
            seed: the seed of the document.
            version: the version of the document.
            experiment_uid: the uid of the experiment that the run belongs to; ``None``: it belongs to none.
            content: the hash of what the document computes, by which documents with other names find this
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
                # (it is there where this is done again)
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

        What was recorded after the mark is removed, and this process runs the instance now. Phases that had
        ended at the mark stay; for the one that had not, :meth:`InstanceRecorder.reopen_phase` gives the
        recorder. What is recorded from then on has the digests that it would have had without the
        interruption.

        Args:
            run: which run, as :meth:`find_run` takes it.
            mark: what :meth:`InstanceRecorder.mark` gave.

        Raises:
            StoreError: there is no such instance, the mark is of another one, it has finished, its process
                still runs on this host, or parts are missing or damaged. Then nothing is changed.
        """
        return resume(self.lookup, run, mark)


@cache
def package_versions() -> dict[str, str]:
    """Return the versions of what results depend on, as far as it is installed."""
    found = {
        "palaestrai_mosaik": __version__,
        "mosaik": metadata.version("mosaik"),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    for name in _OPTIONAL:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
