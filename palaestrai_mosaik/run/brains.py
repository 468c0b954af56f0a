"""Where the brains of a run are kept, and where ``load`` takes them from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from palaestrai_mosaik.agent.dumper import BrainDumper, FileBrainDumper
from palaestrai_mosaik.errors import BrainDumpError, StoreError
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store

BRAINS = "brains"


class BrainKeeper(BrainDumper):
    """Saves to several places and loads from others."""

    def __init__(self, save_to: list[BrainDumper], load_from: list[BrainDumper]):
        self._save_to = save_to
        self._load_from = load_from

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.store_brain_dump(dump, self._save_to, tag)

    def load(self, tag: str = "") -> BinaryIO:
        return self.load_brain_dump(self._load_from, tag)


def brain_keeper(
    agent: AgentSpec, phase: PhaseSpec, document: RunDocument, directory: Path, store: Store | None
) -> BrainKeeper:
    """Return the keeper for ``agent`` in ``phase``.

    Every brain is saved below ``directory`` (that of the instance), and also below the
    brain's ``store_path``, where it has that parameter. ``load`` in the document names
    ``agent``, ``experiment_run``, ``phase`` (index or name), ``phase_name`` and ``base``;
    what it leaves out is the same agent, the same run and the previous phase.
    """
    save_to: list[BrainDumper] = [FileBrainDumper(directory / BRAINS, document.uid, phase.name, agent.name)]
    path = agent.brain.params.get("store_path") if agent.brain is not None else None
    if isinstance(path, str):
        save_to.append(FileBrainDumper(path, document.uid, phase.name, agent.name))
    load_from: list[BrainDumper] = []
    if agent.load is not None:
        load = agent.load
        run = str(load.get("experiment_run") or document.uid)
        name = str(load.get("agent") or agent.name)
        root, of_run = _where(run, document, directory, store)
        from_phase = load.get("phase_name", load.get("phase"))
        if from_phase is None:
            if run != document.uid:
                raise BrainDumpError(
                    f"agent {agent.name!r}: 'load' from the run {run!r} must name the phase; it has {_list(of_run)}"
                )
            if phase.index == 0:
                raise BrainDumpError(
                    f"agent {agent.name!r}: 'load' in the first phase has no previous phase to use"
                )
            from_phase = phase.index - 1
        if isinstance(from_phase, int):
            if not 0 <= from_phase < len(of_run):
                raise BrainDumpError(
                    f"agent {agent.name!r}: 'load' names phase {from_phase}, but run {run!r} has {_list(of_run)}"
                )
            from_phase = of_run[from_phase]
        for base in ([load["base"]] if load.get("base") else []) + ([root / BRAINS] if root else []):
            load_from.append(FileBrainDumper(base, run, from_phase, name))
    return BrainKeeper(save_to, load_from)


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
