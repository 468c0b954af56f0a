"""Names, tags and notes of runs: set, selected by, and kept; no document, digest or check has them."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from support import records

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.labels import MOST_TAGS, LabelChange, Labels
from palaestrai_mosaik.store.merge import StoreReader, copy_rows, delete_runs, place_files
from palaestrai_mosaik.store.models import Label
from palaestrai_mosaik.store.verify import verify


def test_labels_are_set_added_to_and_removed(store: Store) -> None:
    first, second = records.record_small_run(store), records.record_small_run(store, "other")
    assert store.labels(first) == Labels()
    changed = store.label(first, name=" the best ", tags=["b", "a", "a"], note="one\r\ntwo\n")
    assert changed == {first: Labels("the best", ("a", "b"), "one\ntwo")}
    assert store.label([second, first], tags="c", untag=["a"]) == {
        second: Labels(tags=("c",)),
        first: Labels("the best", ("b", "c"), "one\ntwo"),
    }
    assert store.labels("other") == Labels(tags=("c",))
    store.label("the best", name="", note="")
    assert store.labels(first) == Labels(tags=("b", "c"))
    runs = store.runs()
    assert runs["tags"].tolist() == [["b", "c"], ["c"]]
    assert runs["name"].tolist() == [None, None]
    assert store.runs(tags="c")["run"].tolist() == [first, second]
    assert store.runs(tags=["c", "b"])["run"].tolist() == [first]
    assert store.runs(tags="unknown").empty


def test_a_run_is_selected_by_its_name(store: Store) -> None:
    first, second = records.record_small_run(store), records.record_small_run(store, "other")
    store.label(first, name="base line")
    assert store.find_run("base line") == first
    assert store.episodes("base line").equals(store.episodes(first))
    with pytest.raises(StoreError, match="has no run 'base lime' \\(did you mean 'base line'\\?\\)"):
        store.find_run("base lime")
    store.label(second, name="base line")
    with pytest.raises(StoreError, match=f"is not unique: it is the name of {first}, {second}; use the id"):
        store.find_run("base line")
    # the uid of a document selects its newest run: a name must not change which run is deleted
    store.label(first, name="other")
    with pytest.raises(StoreError, match=f"it is the uid of a document and the name of {first}"):
        store.find_run("other")
    store.label(second, name="my-run")
    store.label(first, name="my-run")
    store.label(second, name="")
    assert store.find_run("my-run") == first
    for name, message in (("latest", "selects the newest run"), (second, "which is the id of a run")):
        with pytest.raises(StoreError, match=message):
            store.label(first, name=name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a\nb"}, "a name is one line without control characters, not 'a\\\\nb'"),
        ({"name": "a\x1b[31mb"}, "without control characters"),
        ({"name": "a\u202eb"}, "without control characters"),
        ({"name": "x" * 121}, "a name has up to 120 characters, not 121"),
        ({"tags": ["a", " "]}, "a tag is a text without commas, not ' '"),
        ({"tags": "a,b"}, "a tag is a text without commas"),
        ({"tags": "x" * 61}, "a tag has up to 60 characters"),
        ({"tags": "a", "untag": ["a"]}, "the tag 'a' is both added and removed"),
        ({"note": "a\0b"}, "a note has no control characters such as '\\\\x00'"),
        ({"note": "\ud800"}, "a note has no control characters"),
        ({"note": "x" * 10_001}, "a note has up to 10,000 characters, not 10,001"),
        ({"tags": [str(n) for n in range(MOST_TAGS + 1)]}, "a run can have 50 tags, not 52"),
        ({"untag": "loudest"}, "has no tag 'loudest' \\(did you mean 'loud'\\?\\)"),
    ],
)
def test_what_a_label_may_not_contain(sqlite_store: Store, change: dict[str, str], message: str) -> None:
    uid = records.record_small_run(sqlite_store)
    sqlite_store.label(uid, tags="loud")
    with pytest.raises(StoreError, match=message):
        sqlite_store.label(uid, **change)  # type: ignore[arg-type]
    assert sqlite_store.labels(uid) == Labels(tags=("loud",))


def test_texts_are_normalised() -> None:
    change = LabelChange("e\u0301", ["E\u0301 "], note="\tfirst\n\n second \U0001f469\u200d\U0001f4bb")
    assert (change.name, change.tags) == ("\xe9", ("\xc9",))
    assert change.note == "first\n\n second \U0001f469\u200d\U0001f4bb"
    assert LabelChange(name="") and not LabelChange()


def test_nothing_is_changed_if_one_run_is_unknown_or_several_would_get_a_name(store: Store) -> None:
    first, second = records.record_small_run(store), records.record_small_run(store, "other")
    with pytest.raises(StoreError, match="has no run 'unknown'"):
        store.label([first, "unknown"], tags="a")
    with pytest.raises(StoreError, match="a name selects one run, and there are 2 runs: use a tag"):
        store.label([first, second], name="both")
    with pytest.raises(StoreError, match="none of the runs has the tag 'a'"):
        store.label([first, second], untag="a")
    assert store.labels(first) == store.labels(second) == Labels()


def test_no_document_digest_or_check_has_labels(store: Store) -> None:
    uid = records.record_small_run(store)
    before = store.document_of(uid), store.streams(uid)["digest"].tolist()
    folder = {path: path.read_bytes() for path in store.instance_directory(uid).rglob("*") if path.is_file()}
    store.label(uid, name="x", tags="y", note="z")
    assert (store.document_of(uid), store.streams(uid)["digest"].tolist()) == before
    assert {path: path.read_bytes() for path in folder} == folder
    assert not verify(store, uid).damage


def test_labels_go_with_a_deleted_run_only(store: Store) -> None:
    first, second = records.record_small_run(store), records.record_small_run(store, "other")
    store.label([first, second], tags="a")
    delete_runs(store, [first])
    with store.database.reading() as session:
        assert list(session.scalars(sa.select(Label.run))) == [second]


def test_two_processes_label_at_once(store: Store) -> None:
    uid = records.record_small_run(store)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: store.label(uid, tags=f"tag {number:02}"), range(20)))
    assert store.labels(uid).tags == tuple(f"tag {number:02}" for number in range(20))


def test_a_store_that_is_only_read_is_not_labelled(tmp_path: Path) -> None:
    with Store(tmp_path / "store", create=True) as store:
        uid = records.record_small_run(store)
        store.label(uid, name="x")
    with Store(tmp_path / "store", read_only=True) as store:
        assert store.find_run("x") == uid
        with pytest.raises(StoreError, match="open for reading only"):
            store.label(uid, name="y")
        with store.writable() as writable:
            writable.label(uid, name="y")
        assert store.labels(uid).name == "y"


def test_a_copied_run_brings_its_labels_and_keeps_those_of_the_target(store: Store, tmp_path: Path) -> None:
    with Store(tmp_path / "own", journal="delete", create=True) as own:
        uid = records.record_small_run(own)
        own.label(uid, name="theirs", tags=["a", "b"], note="their note")

    def copy() -> None:
        reader, folder = StoreReader(), tmp_path / "own" / "instances" / uid
        place_files(folder, store.instance_directory(uid))
        with store.database.writing() as session, reader.reading(tmp_path / "own") as rows:
            copy_rows(rows, folder, session, uid)
        reader.close()

    copy()
    assert store.labels(uid) == Labels("theirs", ("a", "b"), "their note")
    delete_runs(store, [uid])
    # labels may come before the run's rows: they have been removed to be replaced
    with store.database.writing() as session:
        session.add(Label(run=uid, name="ours", tags=["c"], changed=datetime.now(UTC)))
    copy()
    assert store.labels(uid) == Labels("ours", ("a", "b", "c"), "their note")


def test_labels_of_a_copied_folder_are_copied(tmp_path: Path) -> None:
    with Store(tmp_path / "store", journal="delete", create=True) as store:
        uid = records.record_small_run(store)
        store.label(uid, name="x")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with Store(tmp_path / "copy", read_only=True) as copied:
        assert copied.labels(uid) == Labels("x")


def test_labels_of_hostile_stores_do_no_harm(tmp_path: Path) -> None:
    with Store(tmp_path / "store", journal="delete", create=True) as store:
        first, second = records.record_small_run(store), records.record_small_run(store, "other")
        store.label(first, name="x")
    with sqlite3.connect(tmp_path / "store" / "store.db") as connection:
        connection.execute("UPDATE labels SET tags = '{\"a\": 1}', name = ?", (second,))
        connection.execute(
            "INSERT INTO labels VALUES (?, 'latest', '[1, \"b\"]', NULL, '2026-01-01')", (second,)
        )
    connection.close()
    with Store(tmp_path / "store") as store:
        assert store.runs()["tags"].tolist() == [[], ["b"]]
        assert (store.find_run(second), store.find_run("latest")) == (second, second)
        assert store.label(first, tags="c")[first].tags == ("c",)
    deep = "[" * 200_000
    for name, tags, note in ((b"\xff", "{{", b"\xff"), ("x", deep, None), (b"y", b"\xff", "note")):
        with sqlite3.connect(tmp_path / "store" / "store.db") as connection:
            connection.execute("UPDATE labels SET name = ?, tags = ?, note = ?", (name, tags, note))
        connection.close()
        with Store(tmp_path / "store") as store:
            kept = [text if isinstance(text, str) else None for text in (name, note)]
            assert store.labels(first) == Labels(kept[0], (), kept[1])
            assert store.run_rows()["tags"].tolist() == store.runs()["tags"].tolist() == [[], []]
