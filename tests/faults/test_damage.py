"""Files that are damaged, gone or edited after they were written: they are named, never believed."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sqlite3
from contextlib import closing
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from arsenai.execution.folders import make_folder, statuses
from faults.batch import execute, make_batch, recorded, results

from palaestrai_mosaik.agent.dumper import FileBrainDumper
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import DocumentError, StoreError
from palaestrai_mosaik.store import Store


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    """Turn one bit in the middle of the values."""
    data = bytearray(path.read_bytes())
    data[len(data) // 8] ^= 4
    path.write_bytes(bytes(data))


def delete(path):
    path.unlink()


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    folder = make_batch(tmp_path_factory.mktemp("damage") / "folder", seconds=0.0)
    assert execute(folder, executor="inline").whole
    return folder


@pytest.fixture
def folder(executed, tmp_path):
    """A copy of an executed folder."""
    shutil.copytree(executed.path, tmp_path / "f")
    return DesignFolder.open(tmp_path / "f")


def verified(capsys, folder, *options):
    """Return exit code, lines of what is damaged, and the last lines of ``palaestrai-mosaik verify``."""
    code = main(["verify", *options, "--store", str(folder.path / "results")])
    told = capsys.readouterr()
    return code, told.err.splitlines(), told.out.splitlines()


def first_part(folder, run, stream="environment-t"):
    with results(folder) as store:
        uid = store.find_run(run)
        return store.instance_directory(uid) / f"trajectories/phase-0/{stream}/part-000000.parquet"


@pytest.mark.parametrize("harm", [cut, empty, flip, delete])
def test_whoever_reads_a_damaged_part_is_told_which(folder, harm):
    part = first_part(folder, "batch-1-r0")
    harm(part)
    word = "missing" if harm is delete else "damaged"
    with results(folder) as store:
        with pytest.raises(StoreError, match=rf"{part} is {word}"):
            store.environment_states("batch-1-r0")
        # nothing else is touched by it
        assert len(store.steps("batch-1-r0")) == len(store.steps("batch-0-r0"))
        with pytest.raises(StoreError, match=rf"{part} is {word}"):
            store.export("batch-1-r0", folder.path / "exported")
        if harm is not flip:  # which harms a column that nobody asks for here
            with pytest.raises(StoreError, match=rf"{part} is {word}"):
                store.body_episodes("batch-1-r0")


def test_damaged_runs_are_found_and_executed_again(folder, capsys):
    before = recorded(folder)
    assert verified(capsys, folder, "--all")[:2] == (0, [])
    parts = [first_part(folder, "batch-0-r0"), first_part(folder, "batch-2-r0", "wall-a")]
    flip(parts[0])
    delete(parts[1])
    code, lines, last = verified(capsys, folder, "--all")
    assert (code, len(lines)) == (1, 2), lines
    for part, line, word in zip(parts, lines, ("damaged", "missing"), strict=True):
        assert f"{part} is {word}" in line
    assert last[0].startswith("3 runs with ")
    assert last[0].endswith("2 damaged")
    assert "--mark-failed" in last[1]
    # to look does no harm
    assert statuses(folder.path) == ["finished"] * 3

    assert verified(capsys, folder, "--all", "--mark-failed")[0] == 1
    assert statuses(folder.path) == ["lost", "finished", "lost"]
    summary = execute(folder, executor="inline")
    assert summary.whole
    assert recorded(folder) == before
    # they stay as failed runs, which nobody asks about again
    assert verified(capsys, folder, "--all")[:2] == (0, [])
    with results(folder) as store:
        errors = store.runs()["error"].dropna().tolist()
    assert [error.partition(":")[0] for error in errors] == ["Damaged", "Damaged"]


def test_values_that_were_exchanged_are_found_by_their_digest(folder, capsys):
    """A whole file, but another one: nothing but the digest in the database can tell."""
    mine, other = (first_part(folder, run, "agent-rule") for run in ("batch-0-r0", "batch-1-r0"))
    shutil.copy(other, mine)
    code, lines, _ = verified(capsys, folder, "batch-0-r0")
    assert code == 1
    assert f"{mine.parent} is damaged: its parts hold other values than were recorded" in lines[0]
    shutil.copy(first_part(folder, "batch-0-r0", "environment-o"), mine)
    code, lines, _ = verified(capsys, folder, "batch-0-r0")
    assert f"{mine.parent} is damaged: its parts have other columns" in lines[0]
    assert verified(capsys, folder, "batch-1-r0")[0] == 0


def test_more_than_steps_is_read(folder, capsys):
    run = "batch-0-r0"
    with results(folder) as store:
        directory = store.instance_directory(store.find_run(run))
    keeper = FileBrainDumper(directory / "brains", run, "only", "a")
    keeper.save(BytesIO(b"weights"))
    assert verified(capsys, folder, run)[0] == 0
    dump = next(directory.glob("brains/**/brain.bin"))
    wall = first_part(folder, run, "wall-a")
    marker = directory / "complete.json"
    harms = [
        (dump, lambda: dump.write_bytes(dump.read_bytes()[:-1] + b"S"), "it does not have the SHA-256"),
        (wall, lambda: flip(wall), "is damaged"),
        (marker, lambda: marker.write_text(marker.read_text().replace("finished", "failed")), "another end"),
        (marker, marker.unlink, "is missing"),
    ]
    for path, harm, message in harms:
        good = path.read_bytes()
        harm()
        code, lines, _ = verified(capsys, folder, run)
        assert (code, len(lines)) == (1, 1), lines
        assert str(path) in lines[0] and message in lines[0]
        path.write_bytes(good)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE outcomes SET sum = sum + 1 WHERE kind = 'objective' AND episode = 0",
            "its steps give the sum",
        ),
        (
            "UPDATE outcomes SET mean = mean * 2 + 1 WHERE kind = 'reward' AND episode = 0",
            "its steps give the sum",
        ),
        ("DELETE FROM outcomes WHERE kind = 'objective' AND episode = 0", "has the sum nan"),
        ("DELETE FROM episodes WHERE episode = 0", "and not the episode itself"),
        ("UPDATE streams SET rows = NULL WHERE kind = 'agent'", "names other digests than the database"),
    ],
)
def test_rows_that_differ_from_the_steps_are_told(folder, capsys, statement, message):
    assert verified(capsys, folder, "--all")[:2] == (0, [])
    with closing(sqlite3.connect(folder.path / "results" / "store.db")) as connection, connection:
        assert connection.execute(statement).rowcount > 0
    code, lines, _ = verified(capsys, folder, "--all")
    assert code == 1
    assert all(message in line for line in lines) and lines


def test_files_in_another_place_are_no_damage(folder, capsys, tmp_path, monkeypatch):
    """A database knows its files only by what it is told; nothing is marked for a wrong word."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{folder.path / 'results' / 'store.db'}"
    (tmp_path / "palaestrai-results" / "instances" / "of-others").mkdir(parents=True)
    marking = ["verify", "--mark-failed", "--store"]
    for runs in ("--all", "batch-0-r0"):
        assert main([*marking, url, runs]) == 2
        assert "say where they are: --files FOLDER/results" in capsys.readouterr().err
    assert main([*marking, url, "--all", "--files", str(folder.path / "results")]) == 0
    (folder.path / "results" / "instances").rename(tmp_path / "moved")
    assert main([*marking, str(folder.path / "results"), "--all"]) == 2
    assert "was it moved" in capsys.readouterr().err
    (tmp_path / "moved").rename(folder.path / "results" / "instances")
    assert statuses(folder.path) == ["finished"] * 3


def test_runs_of_another_folder_that_shares_the_database_are_not_damaged(tmp_path, capsys):
    """Each folder has its files, and both their rows in one database: what is elsewhere is nobody's to condemn."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    mine, others = (
        make_folder(tmp_path / name, what) for name, what in (("a", ["well"] * 2), ("b", ["slow"] * 3))
    )
    for folder in (mine, others):
        assert run_folder(folder, store=url, settings=Settings(executor="inline")).whole
    verifying = ["verify", "--store", url, "--files", str(mine.path / "results")]
    assert main([*verifying, "--all", "--mark-failed"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("2 runs with ")
    assert "not read: 3 runs of which" in told.out
    assert told.err == ""
    # damage of one's own is marked, and nothing else
    with Store(url, directory=mine.path / "results", create=True) as store:
        runs = store.runs()
        assert set(runs["status"]) == {"finished"}
        own, foreign = runs["run"].iloc[0], runs["run"].iloc[-1]
        delete(next(store.instance_directory(own).glob("trajectories/phase-0/agent-a/part-*")))
    assert main([*verifying, "--all", "--mark-failed"]) == 1
    assert "is missing" in capsys.readouterr().err
    # not even where it is named, beside one that is there
    assert main([*verifying, "--mark-failed", own, foreign]) == 1
    assert (
        f"not read: 1 run of which {mine.path / 'results' / 'instances'} has no files"
        in capsys.readouterr().err
    )
    with Store(url, directory=mine.path / "results", create=True) as store:
        runs = store.runs().set_index("run")["status"]
    assert runs[own] == "failed"
    assert set(runs.drop(own)) == {"finished"}


def test_a_folder_of_a_run_that_is_not_there_is_told_and_not_marked(folder, capsys):
    with results(folder) as store:
        uid = store.find_run("batch-1-r0")
        lost = store.instance_directory(uid)
    shutil.rmtree(lost)
    code, lines, _ = verified(capsys, folder, "--all", "--mark-failed")
    assert (code, uid in "".join(lines)) == (1, True)
    assert statuses(folder.path) == ["finished"] * 3
    # who knows that it is lost says so
    lost.mkdir()
    assert verified(capsys, folder, "--all", "--mark-failed")[0] == 1
    assert statuses(folder.path) == ["finished", "lost", "finished"]


@pytest.mark.parametrize("what", ["trajectories/phase-0/agent-a", "complete.json"])
def test_what_may_not_be_read_is_not_damaged(folder, capsys, monkeypatch, what):
    """Such as the files of a colleague, or of a server that does not answer: nobody has looked at them."""
    with results(folder) as store:
        place = store.instance_directory(store.find_run("batch-1-r0")) / what
    forbid(monkeypatch, place)
    code, lines, last = verified(capsys, folder, "--all", "--mark-failed")
    assert (code, "cannot be read: Permission denied" in lines[0]) == (1, True), lines
    assert last[0].startswith("2 runs with ") and last[0].endswith(" 0 damaged")
    monkeypatch.undo()
    assert statuses(folder.path) == ["finished"] * 3


def forbid(monkeypatch, place):
    """Let the system refuse to read what is at ``place`` (root would be let in whatever its mode is)."""
    before = {name: getattr(os, name) for name in ("listdir", "open", "scandir")}
    opened = io.open

    def refusing(original):
        def call(path, *arguments, **options):
            if isinstance(path, str | os.PathLike):
                above = options.get("dir_fd")
                whole = Path(path) if above is None else Path(f"/proc/self/fd/{above}").readlink() / path
                if whole.is_relative_to(place):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(whole))
            return original(path, *arguments, **options)

        return call

    for name, original in before.items():
        monkeypatch.setattr(os, name, refusing(original))
    monkeypatch.setattr(io, "open", refusing(opened))


def test_runs_must_be_named_or_all(folder, capsys):
    for options in ((), ("--all", "latest")):
        code, lines, _ = verified(capsys, folder, *options)
        assert (code, "name the runs to verify, or use --all" in lines[0]) == (2, True)


def test_no_damage_to_a_design_goes_unnoticed(tmp_path):
    """Of every generated file: cut anywhere, emptied, bytes turned. It is refused, with its name, and no traceback."""
    folder = make_folder(tmp_path / "f", ["well", "raise"], repetitions=2)
    rng = np.random.default_rng(3)
    names = ["design.yml", "design.csv", "unit_sample.csv", "manifest.json", "SHA256SUMS"]
    names.append(folder.documents[0].file)
    for name in names:
        path = folder.path / name
        good = path.read_bytes()
        harmed = [b"", *(good[:end] for end in rng.integers(1, len(good) - 1, size=6))]
        for at in rng.integers(0, len(good), size=12):
            turned = bytearray(good)
            turned[at] ^= int(rng.integers(1, 256))
            harmed.append(bytes(turned))
        for data in harmed:
            path.write_bytes(data)
            try:
                problems = DesignFolder.open(folder.path).verify()
            except DocumentError as error:
                problems = error.problems
            if not problems:
                # what differs means the same: such as a version in the manifest, or a comment
                assert name in ("manifest.json", "SHA256SUMS", *names[-1:]), (name, data)
            path.write_bytes(good)
    assert DesignFolder.open(folder.path).verify() == []


def test_a_row_that_was_changed_in_the_table_is_noticed(tmp_path):
    folder = make_folder(tmp_path / "f", ["well", "raise"])
    path = folder.path / "design.csv"
    table = pd.read_csv(path)
    table.loc[[0, 1], "doing"] = table.loc[[1, 0], "doing"].to_numpy()
    table.to_csv(path, index=False)
    (problem,) = DesignFolder.open(folder.path).verify()
    assert (problem.file, "edited" in problem.message) == (str(path), True)
