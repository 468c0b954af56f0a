"""Where brains are kept and loaded from: files, snapshots, and databases."""

from __future__ import annotations

import json
import pickle
import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from palaestrai_mosaik.core.errors import BrainDumpError
from palaestrai_mosaik.experiment import RunDocument
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.brains import BrainKeeper, brain_keeper
from palaestrai_mosaik.store import Store
from tests.support.documents import DUMMY, agent, document, named, phase


def keeper(spec: RunDocument, index: int, directory: Path, store: Store | None = None) -> BrainKeeper:
    """Return the keeper of the only agent of a phase."""
    (one,) = spec.phases[index].agents
    return brain_keeper(one, spec.phases[index], spec, directory, store)


def phases(load: dict[str, Any] | None = None, **keys: Any) -> RunDocument:
    """Two phases; in the second one the agent loads what ``load`` says."""
    second = {"agents": [{"name": "a", "load": {} if load is None else load}]}
    return document(phase(agents=[agent("a", **keys)]), second)


def files(base: Path) -> list[str]:
    return sorted(str(p.relative_to(base)) for p in base.rglob("*.bin"))


def count(stream: Any) -> int:
    return int(json.load(stream)["count"])


def test_a_snapshot_is_kept_beside_the_others_and_loaded_by_name(tmp_path: Path) -> None:
    kept = keeper(phases(), 0, tmp_path)
    kept.save(BytesIO(b"end"))
    for name in ("best", "episode-2"):
        kept.snapshot(name).save(BytesIO(name.encode()), "actor")
    assert files(tmp_path / "brains" / "test" / "phase_0" / "a") == [
        "brain.bin",
        "snapshot-best/brain-actor.bin",
        "snapshot-episode-2/brain-actor.bin",
    ]
    assert keeper(phases(), 1, tmp_path).load().read() == b"end"
    assert keeper(phases({"snapshot": "best"}), 1, tmp_path).load("actor").read() == b"best"
    wanted = {"snapshot": "episode-2", "phase_name": "phase_0"}
    assert keeper(phases(wanted), 1, tmp_path).load("actor").read() == b"episode-2"
    with pytest.raises(BrainDumpError, match=r"no snapshot 'episode-3' .*it has 'best', 'episode-2'"):
        keeper(phases({"snapshot": "episode-3"}), 1, tmp_path).load("actor")


def test_a_snapshot_goes_to_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    brain = named(f"{DUMMY}:DummyBrain", store_path="./custom")
    (tmp_path / "run").mkdir()
    keeper(phases(brain=brain), 0, tmp_path / "run").snapshot("best").save(BytesIO(b"x"))
    place = "test/phase_0/a/snapshot-best/brain.bin"
    assert files(tmp_path) == [f"custom/{place}", f"run/brains/{place}"]
    load = {"base": "./custom", "phase_name": "phase_0", "snapshot": "best"}
    shutil.rmtree(tmp_path / "run")
    assert keeper(phases(load), 1, tmp_path / "run").load().read() == b"x"


@pytest.mark.parametrize("url", [False, True])
def test_a_keeper_travels(tmp_path: Path, url: bool) -> None:
    store = (
        Store(f"sqlite:///{tmp_path}/results.db", directory=tmp_path, create=True)
        if url
        else Store(tmp_path, create=True)
    )
    with store:
        run = begun(store)
        kept = pickle.loads(pickle.dumps(keeper(phases(), 0, run, store)))
        kept.snapshot("best").save(BytesIO(b"x"))
        loads = keeper(phases({"snapshot": "best"}), 1, run, store)
        assert pickle.loads(pickle.dumps(loads)).load().read() == b"x"


def begun(store: Store) -> Path:
    recorder = store.begin_run(uid="test", document={}, text="", hash="h", seed=1, version="3.5")
    return recorder.directory


def test_a_store_in_a_directory_keeps_files_only(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        run = begun(store)
        keeper(phases(), 0, run, store).save(BytesIO(b"x"))
        assert store.brains("latest").empty
        assert len(files(run)) == 1


def test_a_database_of_its_own_keeps_brains_for_those_who_do_not_see_the_files(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/results.db"
    with Store(url, directory=tmp_path / "here", create=True) as store:
        run = begun(store)
        kept = keeper(phases(), 0, run, store)
        kept.save(BytesIO(b"end"))
        kept.snapshot("best").save(BytesIO(b"best"), "actor")
        assert store.brains("latest")[["phase", "agent", "snapshot", "tag"]].values.tolist() == [
            [0, "a", "", ""],
            [0, "a", "best", "actor"],
        ]
        assert keeper(phases(), 1, run, store).load().read() == b"end"
        # without the files there is still the database
        shutil.rmtree(run)
        assert keeper(phases(), 1, run, store).load().read() == b"end"
        assert keeper(phases({"snapshot": "best"}), 1, run, store).load("actor").read() == b"best"
        with pytest.raises(BrainDumpError, match=r"no brain dump .*; .*has no brain of agent 'a'"):
            keeper(phases({"snapshot": "bst"}), 1, run, store).load()


def test_a_brain_of_another_run_comes_out_of_the_database(tmp_path: Path) -> None:
    """The second execution is that of another machine: it sees the database, not the files."""
    url = f"sqlite:///{tmp_path}/results.db"
    with Store(url, directory=tmp_path / "there", create=True) as store:
        execute(document(phase(agents=[agent("a")]), uid="teacher"), store=store)
    load = {"experiment_run": "teacher", "agent": "a", "phase": 0}
    with Store(url, directory=tmp_path / "here", create=True) as store:
        pupil = document(phase(agents=[agent("pupil", load=load)], mode="test"), uid="pupil")
        result = execute(pupil, store=store)
        kept = keeper(document(phase(agents=[agent("pupil", load={"phase": 0, **load})])), 0, tmp_path, store)
        assert count(kept.load()) == 10
        assert result.directory is not None
        assert len(files(result.directory)) == 1


def test_a_damaged_file_is_not_passed_over_for_the_database(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/results.db", directory=tmp_path, create=True) as store:
        run = begun(store)
        keeper(phases(), 0, run, store).save(BytesIO(b"end"))
        (path,) = run.rglob("brain.bin")
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(BrainDumpError, match="damaged"):
            keeper(phases(), 1, run, store).load()
