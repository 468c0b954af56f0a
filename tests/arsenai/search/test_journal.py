"""The journal of a search: lines that several processes append, and nothing behind a link is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from arsenai.execution.folders import environment_now
from arsenai.search.searches import search_design, told, tuned, written
from support.waiting import HANG

from palaestrai_mosaik.arsenai.execution.journal import (
    JournalFile,
    _identity,
    _locked,
    _remove_stale,
    open_journal,
    optuna,
)
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError

pytest.importorskip("optuna")
posix = pytest.mark.skipif(os.name != "posix", reason="links are POSIX's")

#: appends entries to the journal in the working directory
APPEND = """
from pathlib import Path
from palaestrai_mosaik.core import files
from palaestrai_mosaik.arsenai.execution.journal import JournalFile
files.add_root(Path())
journal = JournalFile(Path("journal.log"))
for number in range(40):
    journal.append_logs([{"op_code": 4, "number": number, "by": NAME}, {"op_code": 5, "number": number, "by": NAME}])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").mkdir()
    return tmp_path / "f"


def opened(folder):
    return open_journal(folder, "valley", ("minimize",))


def journal_of(path):
    files.add_root(path.parent)
    return JournalFile(path)


def entries(count):
    return [{"op_code": 4, "number": number} for number in range(count)]


def test_it_is_the_file_that_optuna_would_have_written(folder):
    """A journal of Optuna's own backend can be read, and Optuna itself can read our lines."""
    (folder / "search").mkdir()
    path = folder / "search" / "journal.log"
    backend = optuna().storages.journal.JournalFileBackend(str(path))
    old = optuna().create_study(storage=optuna().storages.JournalStorage(backend), study_name="valley")
    old.add_trial(optuna().trial.create_trial(value=2.0))
    before = path.read_bytes()
    journal = opened(folder)
    assert [trial.value for trial in journal.trials()] == [2.0]
    journal.storage.set_trial_user_attr(journal.storage.create_new_trial(journal.study._study_id), "a", [1])
    assert path.read_bytes().startswith(before)
    assert [trial.user_attrs for trial in old.get_trials()] == [{}, {"a": [1]}]
    assert os.listdir(folder / "search") == ["journal.log"]


@posix
@pytest.mark.parametrize("kind", ["link", "second name"])
def test_what_takes_the_place_of_the_journal_is_not_written_to(folder, kind):
    """It was opened by its name for every line, and other files were written."""
    journal = opened(folder)
    mine = folder.parent / "mine.txt"
    mine.write_text("mine\n" * 200)
    journal.path.unlink()
    if kind == "link":
        journal.path.symlink_to(mine)
    else:
        os.link(mine, journal.path)
    with pytest.raises(ExecutionError, match=r"cannot write .*journal\.log: journal\.log is a"):
        journal.storage.create_new_trial(journal.study._study_id)
    assert mine.read_text() == "mine\n" * 200
    if kind == "link":
        with pytest.raises(ExecutionError, match=r"cannot read .*journal\.log: journal\.log is a link"):
            journal.trials()


@posix
def test_what_takes_the_place_of_its_folder_is_left_alone(folder):
    journal = opened(folder)
    theirs = folder.parent / "theirs"
    shutil.copytree(folder / "search", theirs)
    (theirs / "journal.log.lock").write_text("theirs")
    shutil.rmtree(folder / "search")
    (folder / "search").symlink_to(theirs)
    before = {path.name: path.read_bytes() for path in theirs.iterdir()}
    for call in (journal.trials, lambda: journal.storage.create_new_trial(0), lambda: opened(folder)):
        with pytest.raises(ExecutionError, match=r"search is a link, and links .*are not followed"):
            call()
    assert {path.name: path.read_bytes() for path in theirs.iterdir()} == before


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "",
        "[1]",
        "{}",
        '{"op_code": 5}',
        '{"op_code": [5]}',
        '{"op_code": 1, "worker_id": "x", "study_id": 0}',
        '{"op_code": 4, "worker_id": "x", "study_id": 0, "datetime_start": "yesterday"}',
        '{"op_code": 4, "worker_id": "x", "study_id": 0, "datetime_start": null, "state": 9}',
        "[" * 100_000,
        "9" * 10_000,
        "\0" * 100,
    ],
    ids=range(12),
)
def test_a_damaged_line_is_named_with_its_file_and_number(folder, line, capsys):
    design = search_design(search={"budget": {"runs": 2}})
    opened(folder).storage.create_new_trial(0)
    path = folder / "search" / "journal.log"
    whole = path.read_text().splitlines()
    assert len(whole) == 2
    where = rf"journal\.log:{len(whole) + 1}: this line of the search's journal is damaged"
    for after in ([], whole[1:]):
        path.write_text("\n".join([*whole, line, *after]) + "\n")
        with pytest.raises(ExecutionError, match=where) as refused:
            opened(folder)
        assert "garbage" not in str(refused.value)
    if line == "garbage":
        shutil.rmtree(folder)
        tuned(design)
        text = (folder / "search" / "journal.log").read_text().splitlines(keepends=True)
        (folder / "search" / "journal.log").write_text("".join([*text[:3], line + "\n", *text[4:]]))
        assert main(["tune", written(design), "-o", "f", "--quiet", "--executor", "inline"]) == 2
        said = capsys.readouterr().err
        assert "journal.log:4: this line" in said
        assert "Traceback" not in said


def test_a_line_that_is_being_written_is_waited_for(folder, monkeypatch):
    """On NFS a reader may see the new size of a file before its new content, and reads zeros."""
    journal = journal_of(folder / "journal.log")
    journal.append_logs(entries(2))
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-9] + b"\0" * 8 + b"\n")

    def finish(path):
        path.write_bytes(whole)
        return _locked(path)

    monkeypatch.setattr("palaestrai_mosaik.arsenai.execution.journal._locked", finish)
    assert list(journal.read_logs(0)) == entries(2)


def test_a_line_that_was_not_finished_is_ignored_and_then_removed(folder):
    journal = journal_of(folder / "journal.log")
    journal.append_logs(entries(2))
    with journal.path.open("ab") as file:
        file.write(b'{"op_code": 4, "nu')
    assert list(journal.read_logs(1)) == entries(2)[1:]
    journal.append_logs(entries(3)[2:])
    assert list(journal.read_logs(0)) == entries(3)
    assert len(journal.path.read_text().splitlines()) == 3


def test_a_journal_that_has_lost_lines_is_not_appended_to(folder):
    journal = journal_of(folder / "journal.log")
    journal.append_logs(entries(3))
    assert len(list(journal.read_logs(0))) == 3
    journal.path.write_text("")
    for call in (lambda: journal.append_logs(entries(1)), lambda: list(journal.read_logs(3))):
        with pytest.raises(ExecutionError, match="lines that were read from the search's journal are gone"):
            call()
    assert journal.path.read_text() == ""


def test_several_processes_append_whole_entries(folder):
    names = "abc"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", APPEND.replace("NAME", repr(name))], cwd=folder, env=environment_now()
        )
        for name in names
    ]
    assert [worker.wait(HANG) for worker in workers] == [0] * len(names)
    found = [json.loads(line) for line in (folder / "journal.log").read_text().splitlines()]
    # entries of one call stay together, and in order
    assert [(one["op_code"], one["by"], one["number"]) for one in found[1::2]] == [
        (5, one["by"], one["number"]) for one in found[::2]
    ]
    for name in names:
        assert [one["number"] for one in found[::2] if one["by"] == name] == list(range(40))
    assert os.listdir(folder) == ["journal.log"]


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_the_lock_of_a_killed_process_is_removed(folder, monkeypatch, kind):
    monkeypatch.setattr("palaestrai_mosaik.arsenai.execution.journal.GRACE", 0.01)
    lock, mine = folder / "journal.log.lock", folder.parent / "mine.txt"
    mine.write_text("mine")
    if kind == "file":
        lock.write_text("")
    elif kind == "folder":
        lock.mkdir()
    elif os.name == "posix":
        # Optuna's own lock is a link
        lock.symlink_to(mine)
    journal = journal_of(folder / "journal.log")
    journal.append_logs(entries(1))
    assert list(journal.read_logs(0)) == entries(1)
    assert os.listdir(folder) == ["journal.log"]
    assert mine.read_text() == "mine"


def test_the_lock_that_another_process_has_taken_since_is_left_to_it(folder):
    lock = folder / "journal.log.lock"
    files.add_root(folder)
    with _locked(folder / "journal.log"):
        lock.unlink()
        lock.write_text("another's")
    assert lock.read_text() == "another's"
    stale = _identity(lock)
    lock.unlink()
    lock.write_text("a third one's")
    _remove_stale(lock, (*stale[:2], stale[2] - 1))
    assert lock.read_text() == "a third one's"
    assert os.listdir(folder) == ["journal.log.lock"]


def test_a_search_proposes_what_it_proposed_with_optunas_own_file(folder, monkeypatch):
    design = search_design(search={"sampler": "tpe", "budget": {"runs": 12}})
    tuned(design)
    found = told()
    shutil.rmtree(folder)

    def own(path):
        os.close(files.open_append(path))
        return optuna().storages.journal.JournalFileBackend(str(path))

    monkeypatch.setattr("palaestrai_mosaik.arsenai.execution.journal.JournalFile", own)
    tuned(design)
    assert told() == found
