"""Where the brains of a run are kept, and where ``load`` takes them from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeGuard

from palaestrai_mosaik.agent.dumper import BrainDumper, FileBrainDumper
from palaestrai_mosaik.errors import BrainDumpError, StoreError
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store

BRAINS = "brains"


#: makes the dumper for a snapshot ("": none); it can be pickled
Place = Callable[[str], BrainDumper]


class BrainKeeper(BrainDumper):
    """Saves to several places and loads from others. It can be sent to other processes."""

    def __init__(self, save_at: Sequence[Place], load_from: Sequence[BrainDumper], snapshot: str = ""):
        self._save_at = save_at
        self._save_to = [place(snapshot) for place in save_at]
        self._load_from = load_from

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.store_brain_dump(dump, self._save_to, tag)

    def load(self, tag: str = "") -> BinaryIO:
        return self.load_brain_dump(self._load_from, tag)

    def snapshot(self, name: str) -> BrainKeeper:
        """Return the keeper that saves under the snapshot ``name``, beside what else is kept."""
        return BrainKeeper(self._save_at, self._load_from, name)


def brain_keeper(
    agent: AgentSpec, phase: PhaseSpec, document: RunDocument, directory: Path, store: Store | None
) -> BrainKeeper:
    """Return the keeper for ``agent`` in ``phase``.

    Every brain is saved below ``directory`` (that of the instance), below the brain's
    ``store_path``, where it has that parameter, and in the database of ``store``, unless
    that is a file beside the instances. ``load`` in the document names ``agent``,
    ``experiment_run``, ``phase`` (index or name), ``phase_name``, ``snapshot`` and
    ``base``; what it leaves out is the same agent, the same run, the previous phase, and
    the brain as it was when the phase ended. Files go before the database.
    """
    save_at: list[Place] = [
        partial(FileBrainDumper, directory / BRAINS, document.uid, phase.name, agent.name)
    ]
    path = agent.brain.params.get("store_path") if agent.brain is not None else None
    if isinstance(path, str):
        save_at.append(partial(FileBrainDumper, Path(path).absolute(), document.uid, phase.name, agent.name))
    if _has_database(store):
        save_at.append(partial(_in_database, *_location(store), directory.name, phase.index, agent.name))
    load_from = [] if agent.load is None else _load_from(agent, phase, document, directory, store)
    return BrainKeeper(save_at, load_from)


def _load_from(
    agent: AgentSpec, phase: PhaseSpec, document: RunDocument, directory: Path, store: Store | None
) -> list[BrainDumper]:
    load = agent.load or {}
    run = str(load.get("experiment_run") or document.uid)
    name = str(load.get("agent") or agent.name)
    snapshot = str(load.get("snapshot") or "")
    root, of_run = _where(run, document, directory, store)
    wanted = load.get("phase_name", load.get("phase"))
    if wanted is None:
        if run != document.uid:
            raise BrainDumpError(
                f"agent {agent.name!r}: 'load' from the run {run!r} must name the phase; it has {_list(of_run)}"
            )
        if phase.index == 0:
            raise BrainDumpError(
                f"agent {agent.name!r}: 'load' in the first phase has no previous phase to use"
            )
        wanted = phase.index - 1
    if isinstance(wanted, int):
        if not 0 <= wanted < len(of_run):
            raise BrainDumpError(
                f"agent {agent.name!r}: 'load' names phase {wanted}, but run {run!r} has {_list(of_run)}"
            )
        wanted = of_run[wanted]
    bases = ([Path(load["base"]).absolute()] if load.get("base") else []) + ([root / BRAINS] if root else [])
    load_from: list[BrainDumper] = [FileBrainDumper(base, run, wanted, name, snapshot) for base in bases]
    if root is not None and _has_database(store) and wanted in of_run:
        index = of_run.index(wanted)
        load_from.append(_in_database(*_location(store), root.name, index, name, snapshot))
    return load_from


def _has_database(store: Store | None) -> TypeGuard[Store]:
    """Whether ``store`` has a database that others may see who do not see its files."""
    if store is None:
        return False
    url = store.database.engine.url
    if url.get_backend_name() != "sqlite":
        return True
    # one in memory is seen by nobody else
    return bool(url.database) and url.database not in (":memory:", str(store.directory / "store.db"))


def _location(store: Store) -> tuple[str, str]:
    return store.database.engine.url.render_as_string(hide_password=False), str(store.directory)


def _in_database(
    location: str, files: str, instance: str, phase: int, agent: str, snapshot: str
) -> BrainDumper:
    # a store in a directory needs no database driver here
    from .store_dumper import StoreBrainDumper

    return StoreBrainDumper(location, files, instance, phase, agent, snapshot)


def _where(
    run: str, document: RunDocument, directory: Path, store: Store | None
) -> tuple[Path | None, list[str]]:
    """Return the directory of the newest instance of ``run``, and the names of its phases."""
    if run == document.uid:
        return directory, [phase.name for phase in document.phases]
    if store is None:
        return None, []
    try:
        phases = store.phases(run)
        instance = store.instance_directory(store.find_run(run))
    except StoreError as error:
        raise BrainDumpError(f"'load' names the experiment run {run!r}: {error}") from error
    return instance, list(phases["name"])


def _list(phases: list[str]) -> str:
    return ", ".join(f"{i}: {name!r}" for i, name in enumerate(phases)) or "no phase that is known here"
