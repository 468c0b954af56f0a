"""Where runs save brain dumps, and where ``load`` finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeGuard

from palaestrai_mosaik.agent.dumper import BrainDumper, FileBrainDumper
from palaestrai_mosaik.core.errors import BrainDumpError, StoreError, did_you_mean
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.store import Store

#: the folder with brain dumps, in the instance's directory
BRAINS = "brains"
#: picklable function that creates the dumper of a snapshot, or of the current brain for ``""``
DumperOfSnapshot = Callable[[str], BrainDumper]


@dataclass(frozen=True)
class StoreBrainDumper(BrainDumper):
    """Keeps the dumps of ``agent`` in phase number ``phase`` of an instance, in a store.

    ``location`` and ``directory`` are those of the :class:`Store`. Each ``snapshot`` has separate dumps. The store is
    opened for each dump, so this object can be pickled and sent to other processes.
    """

    # not in the repr, because it may contain a password
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
    """Saves to several dumpers and loads from others. It can be sent to other processes.

    It may contain the password of a database. :class:`Dumpers` keeps it out of checkpoints.
    """

    def __init__(
        self, save_at: Sequence[DumperOfSnapshot], load_from: Sequence[BrainDumper], snapshot: str = ""
    ):
        self._save_at = save_at
        self._save_to = [make(snapshot) for make in save_at]
        self._load_from = load_from
        #: the model that a palaestrAI brain passes to its muscles before a test
        self.model: Any = None

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.store_brain_dump(dump, self._save_to, tag)

    def save_all(self, dumps: Mapping[str, bytes]) -> None:
        for dumper in self._save_to:
            dumper.save_all(dumps)

    def load(self, tag: str = "") -> BinaryIO:
        return self.load_brain_dump(self._load_from, tag)

    def snapshot(self, name: str) -> BrainKeeper:
        """Create a keeper that saves under the snapshot ``name``, separate from other dumps."""
        return BrainKeeper(self._save_at, self._load_from, name)


class Dumpers(list[BrainDumper]):
    """The dumpers of a brain or muscle, pickled as an empty list.

    Thus a checkpoint does not contain locations of brains, and a restored brain gets new dumpers.
    """

    def __reduce__(self) -> tuple[type[Dumpers], tuple[()]]:
        return Dumpers, ()


class _InInstance(FileBrainDumper):
    """Stores dumps in an instance's directory, but never recreates it: if it is missing, the store is gone."""

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
    """Create the keeper for ``agent`` in ``phase``.

    Every brain is saved below ``directory``, below the ``store_path`` in the brain's parameters, if any, and in the
    database of ``store`` unless that is a file beside the instances.

    ``load`` in the document may have the keys ``agent``, ``experiment_run``, ``instance``, ``phase`` (index or
    name), ``phase_name``, ``snapshot`` and ``base``. The defaults are the same agent, this execution, the previous
    phase, and the brain at the end of that phase. For another run, the newest finished execution is used, or the newest
    if none has finished. Files take precedence over the database.

    Args:
        agent: the agent.
        phase: the phase in which the agent acts.
        document: the document of the run.
        directory: the instance's directory.
        store: the open store, or ``None`` if the run is not recorded.

    Raises:
        BrainDumpError: if the target of ``load`` does not exist.
    """
    names = (document.uid, phase.name, agent.name)
    save_at: list[DumperOfSnapshot] = [partial(_InInstance, directory / BRAINS, *names, number=phase.index)]
    path = agent.brain.params.get("store_path") if agent.brain is not None else None
    if isinstance(path, str):
        save_at.append(partial(FileBrainDumper, Path(path).absolute(), *names, number=phase.index))
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
    if not source.recorded:
        return
    root = directory
    if source.instance is not None and store is not None:
        root = store.instance_directory(source.instance)
    yield FileBrainDumper(root / BRAINS, source.run, source.phase, name, snapshot)
    if source.number is not None and _has_database(store):
        yield _of_snapshot(_in_database(store, root.name, source.number, name), snapshot)


class Source(NamedTuple):
    """The target of ``load``: a phase of an experiment run.

    ``number`` is the phase's number, or ``None`` if unknown. ``instance`` is the execution, or ``None`` for the current
    one. ``recorded`` is false if only ``base`` has the run.
    """

    run: str
    phase: str
    number: int | None
    instance: str | None
    recorded: bool


def find_source(agent: AgentSpec, phase: PhaseSpec, document: RunDocument, store: Store | None) -> Source:
    """Find the phase that ``load`` of ``agent`` refers to, in ``phase`` of ``document``.

    Raises :class:`BrainDumpError` if the experiment run, the instance or the phase does not exist.
    """
    load = agent.load or {}
    run, instance, phases = _find_execution(agent, document, store)
    names = phases or []
    wanted = load.get("phase_name", load.get("phase", phase.index - 1))
    who = f"agent {agent.name!r}: 'load' names"
    listed = ", ".join(f"{i}: {name!r}" for i, name in enumerate(names)) or "no phase that is known here"
    if not isinstance(wanted, int):
        if wanted not in names and "base" not in load:
            hint = did_you_mean(wanted, names)
            raise BrainDumpError(f"{who} the phase {wanted!r}{hint}, but run {run!r} has {listed}")
        number = names.index(wanted) if wanted in names else None
        return Source(run, wanted, number, instance, phases is not None)
    if phases is None:
        return _source_in_base(load["base"], run, wanted, who)
    if not 0 <= wanted < len(phases):
        raise BrainDumpError(f"{who} phase {wanted}, but run {run!r} has {listed}")
    return Source(run, phases[wanted], wanted, instance, True)


def _source_in_base(base: str, run: str, number: int, who: str) -> Source:
    """Find the phase with a number among the files below ``base``; ``who`` begins the message if it is not unique."""
    numbered = FileBrainDumper.phases_with_number(base, run, number)
    if len(numbered) != 1:
        there = " and ".join(map(repr, numbered)) or "none"
        raise BrainDumpError(
            f"{who} phase {number} of run {run!r}, but the phases of its 'base' with this number are: {there}. "
            "Give the phase by name"
        )
    return Source(run, numbered[0], None, None, False)


def _find_execution(
    agent: AgentSpec, document: RunDocument, store: Store | None
) -> tuple[str, str | None, list[str] | None]:
    """Return the experiment run of ``load``, its instance, and its phases.

    The instance is ``None`` for the current execution; the phases are ``None`` if only ``base`` has the run.
    """
    load = agent.load or {}
    who, run = f"agent {agent.name!r}: 'load' points to another execution", load.get("experiment_run")
    if run in (None, document.uid) and "instance" not in load:
        return document.uid, None, [phase.name for phase in document.phases]
    if store is None:
        if "base" not in load:
            raise BrainDumpError(f"{who}, and a run without a store knows none")
        return run or document.uid, None, None
    try:
        execution = store.find_instance(run, load.get("instance"))
        return execution[1], execution.uid, list(store.phases(execution.uid)["name"])
    except StoreError as error:
        # 'base' may have the model of a run that the store does not have
        run = run or document.uid
        if not _in_base(agent, run):
            beside = ", and its 'base' has no such model" if "base" in load else ""
            raise BrainDumpError(f"{who}: {error}{beside}") from error
        return run, None, None


def _in_base(agent: AgentSpec, run: str) -> bool:
    """Return whether ``base`` of ``load`` has the requested model of ``run``."""
    load = agent.load or {}
    base, phase, number = load.get("base"), load.get("phase_name"), load.get("phase")
    if base is None:
        return False
    if phase is None:
        return number is not None and bool(FileBrainDumper.phases_with_number(base, run, number))
    dumper = FileBrainDumper(base, run, phase, load.get("agent", agent.name), load.get("snapshot", ""))
    return dumper.directory.is_dir()


def _has_database(store: Store | None) -> TypeGuard[Store]:
    """Return whether ``store`` has a database that other processes can reach without its files."""
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
    """Save the ``dump`` of an agent's brain in an instance's directory, as a run saves its own brains."""
    FileBrainDumper(directory / BRAINS, run, phase, agent).save(BytesIO(dump), tag)
