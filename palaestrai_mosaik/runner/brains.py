"""Where a run stores dumps of brains, and from where ``load`` reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeGuard

from palaestrai_mosaik.agent.dumper import BrainDumper, FileBrainDumper
from palaestrai_mosaik.errors import BrainDumpError, StoreError, did_you_mean
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.store import Store

#: the folder of an instance's directory that holds the dumps of brains
BRAINS = "brains"
#: makes the dumper for a snapshot ("": none); it can be pickled
Place = Callable[[str], BrainDumper]


@dataclass(frozen=True)
class StoreBrainDumper(BrainDumper):
    """Keeps the dumps of ``agent`` in phase number ``phase`` of an instance (its uid).

    ``location`` and ``directory`` are those of the :class:`Store`. A ``snapshot`` has dumps
    of its own. The store is opened for each dump, so this object can be pickled and sent
    to other processes.
    """

    # it may hold a password
    location: str = field(repr=False)
    directory: str | None
    instance: str
    phase: int
    agent: str
    snapshot: str = ""

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        with Store(self.location, directory=self.directory, create=False) as store:
            store.keep_brain(
                self.instance, self.phase, self.agent, dump.read(), snapshot=self.snapshot, tag=tag
            )

    def load(self, tag: str = "") -> BinaryIO:
        try:
            with Store(self.location, directory=self.directory, read_only=True) as store:
                kept = store.brain(self.instance, self.phase, self.agent, snapshot=self.snapshot, tag=tag)
        except StoreError as error:
            raise BrainDumpError(str(error)) from error
        return BytesIO(kept)


class BrainKeeper(BrainDumper):
    """Saves to several places and loads from others. It can be sent to other processes.

    It may know the password of a database: :class:`Dumpers` keep it out of checkpoints.
    """

    def __init__(self, save_at: Sequence[Place], load_from: Sequence[BrainDumper], snapshot: str = ""):
        self._save_at = save_at
        self._save_to = [place(snapshot) for place in save_at]
        self._load_from = load_from
        #: the model that a brain of palaestrAI hands to its muscles before a test, as there
        self.model: Any = None

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.store_brain_dump(dump, self._save_to, tag)

    def save_all(self, dumps: Mapping[str, bytes]) -> None:
        for dumper in self._save_to:
            dumper.save_all(dumps)

    def load(self, tag: str = "") -> BinaryIO:
        return self.load_brain_dump(self._load_from, tag)

    def snapshot(self, name: str) -> BrainKeeper:
        """Return the keeper that saves under the snapshot ``name``, beside what else is kept."""
        return BrainKeeper(self._save_at, self._load_from, name)


class Dumpers(list[BrainDumper]):
    """The dumpers that a brain or muscle gets. A pickle of them is empty.

    So a checkpoint does not say where brains are stored; what is restored from it gets new dumpers.
    """

    def __reduce__(self) -> tuple[type[Dumpers], tuple[()]]:
        return Dumpers, ()


class _InInstance(FileBrainDumper):
    """Stores dumps in the directory of an instance, which is never created again: without it, the store is gone."""

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self._refuse_if_gone()
        super().save(dump, tag)

    def save_all(self, dumps: Mapping[str, bytes]) -> None:
        self._refuse_if_gone()
        super().save_all(dumps)

    def _refuse_if_gone(self) -> None:
        if not self.base.parent.is_dir():
            raise BrainDumpError(
                f"{self.base.parent} is gone: the store was moved or deleted while the run went on"
            )


def brain_keeper(
    agent: AgentSpec, phase: PhaseSpec, document: RunDocument, directory: Path, store: Store | None
) -> BrainKeeper:
    """Return the keeper for ``agent`` in ``phase``.

    Every brain is saved below ``directory`` (that of the instance), below the brain's ``store_path``, if it
    has that parameter, and in the database of ``store``, unless that is a file beside the instances.

    ``load`` in the document may have the keys ``agent``, ``experiment_run``, ``instance``, ``phase`` (index or
    name), ``phase_name``, ``snapshot`` and ``base``. The defaults are the same agent, this execution, the
    previous phase, and the brain at the end of that phase. Of another run, the newest finished execution is
    used, else the newest. Files are preferred to the database.

    Raises :class:`BrainDumpError` where ``load`` points to what is missing.
    """
    save_at: list[Place] = [partial(_InInstance, directory / BRAINS, document.uid, phase.name, agent.name)]
    path = agent.brain.params.get("store_path") if agent.brain is not None else None
    if isinstance(path, str):
        save_at.append(partial(FileBrainDumper, Path(path).absolute(), document.uid, phase.name, agent.name))
    if _has_database(store):
        kept = _in_database(store, directory.name, phase.index, agent.name)
        save_at.append(partial(_of_snapshot, kept))
    load_from = [] if agent.load is None else list(_load_from(agent, phase, document, directory, store))
    return BrainKeeper(save_at, load_from)


def _load_from(
    agent: AgentSpec, phase: PhaseSpec, document: RunDocument, directory: Path, store: Store | None
) -> Iterator[BrainDumper]:
    load = agent.load or {}
    name, snapshot = load.get("agent", agent.name), load.get("snapshot", "")
    source = find_source(agent, phase, document, store)
    base = load.get("base")
    if base is not None:
        if not Path(base).is_dir():
            raise BrainDumpError(f"agent {agent.name!r}: 'load' has the base {base!r}, which is not a folder")
        yield FileBrainDumper(Path(base).absolute(), source.run, source.phase, name, snapshot)
    if not source.known:
        return
    root = directory
    if source.instance is not None and store is not None:
        root = store.instance_directory(source.instance)
    yield FileBrainDumper(root / BRAINS, source.run, source.phase, name, snapshot)
    if source.number is not None and _has_database(store):
        yield _of_snapshot(_in_database(store, root.name, source.number, name), snapshot)


class Source(NamedTuple):
    """What ``load`` points to: a phase (its number, where it is known) of an experiment run.

    ``instance`` is the execution (``None``: this one). ``known`` is false where there is no
    store that could know the run.
    """

    run: str
    phase: str
    number: int | None
    instance: str | None
    known: bool


def find_source(agent: AgentSpec, phase: PhaseSpec, document: RunDocument, store: Store | None) -> Source:
    """Return what ``load`` of ``agent``, in ``phase`` of ``document``, points to.

    Raises :class:`BrainDumpError` for an experiment run, an instance, or a phase of theirs that
    is not there.
    """
    load = agent.load or {}
    who, run, instance, known = f"agent {agent.name!r}: 'load'", load.get("experiment_run"), None, True
    names: list[str] = []
    if run in (None, document.uid) and "instance" not in load:
        names = [one.name for one in document.phases]
    elif store is not None:
        try:
            found = store.find_instance(run, load.get("instance"))
            run = found[1]
            names = list(store.phases(found.uid)["name"])
        except StoreError as error:
            # what lies in 'base' needs no store that knows of it
            run = run or document.uid
            if not _in_base(agent, run):
                beside = ", and its 'base' has no such model (name the phase)" if "base" in load else ""
                raise BrainDumpError(f"{who} points to another execution: {error}{beside}") from error
            known = False
        else:
            instance = found.uid
    elif "base" not in load:
        raise BrainDumpError(f"{who} points to another execution, and a run without a store knows none")
    else:
        known = False
    run = run or document.uid
    wanted = load.get("phase_name", load.get("phase", phase.index - 1))
    listed = ", ".join(f"{i}: {name!r}" for i, name in enumerate(names)) or "no phase that is known here"
    if isinstance(wanted, int):
        if not 0 <= wanted < len(names):
            raise BrainDumpError(f"{who} names phase {wanted}, but run {run!r} has {listed}")
        return Source(run, names[wanted], wanted, instance, known)
    if wanted in names:
        return Source(run, wanted, names.index(wanted), instance, known)
    if "base" not in load:
        hint = did_you_mean(wanted, names)
        raise BrainDumpError(f"{who} names the phase {wanted!r}{hint}, but run {run!r} has {listed}")
    return Source(run, wanted, None, instance, known)


def _in_base(agent: AgentSpec, run: str) -> bool:
    """Whether ``base`` of ``load`` has the model of ``run`` that is asked for, in the phase that is named."""
    load = agent.load or {}
    base, phase = load.get("base"), load.get("phase_name")
    if base is None or phase is None:
        return False
    place = FileBrainDumper(base, run, phase, load.get("agent", agent.name), load.get("snapshot", ""))
    return place.directory.is_dir()


def _has_database(store: Store | None) -> TypeGuard[Store]:
    """Whether ``store`` has a database that others may see who do not see its files."""
    if store is None:
        return False
    url = store.database.engine.url
    if url.get_backend_name() != "sqlite":
        return True
    # a database in memory is not visible to other processes
    return bool(url.database) and url.database not in (":memory:", str(store.directory / "store.db"))


def _in_database(store: Store, instance: str, phase: int, agent: str) -> StoreBrainDumper:
    location = store.database.engine.url.render_as_string(hide_password=False)
    return StoreBrainDumper(location, str(store.directory), instance, phase, agent)


def _of_snapshot(dumper: StoreBrainDumper, snapshot: str) -> StoreBrainDumper:
    return replace(dumper, snapshot=snapshot)


def keep_brain(directory: Path, run: str, phase: str, agent: str, dump: bytes, tag: str) -> None:
    """Keep the ``dump`` of an agent's brain in the folder of an instance, as a run keeps its own."""
    FileBrainDumper(directory / BRAINS, run, phase, agent).save(BytesIO(dump), tag)
