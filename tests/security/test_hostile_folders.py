"""Every command over folders that somebody has made who wants it to do harm: nothing of mine changes, nothing hangs.

See :mod:`.hostile`. The few cases that always run are those by which harm was done once; ``--slow`` runs all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("links, pipes and forks are POSIX's", allow_module_level=True)

from security import hostile

#: every n-th name and value is tried by the slow tests; all of them (1) take hours
EVERY = int(os.environ.get("PALAESTRAI_MOSAIK_TEST_HOSTILE_EVERY", "400"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workplace in which the commands have done their work, and nobody any harm."""
    return hostile.make(tmp_path_factory.mktemp("hostile") / "made")


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return hostile.copy_of(made, tmp_path / "place")


#: what was done once, to which name, and by which commands
DONE: list[tuple[Callable[[Path, str], None], str, tuple[str, ...]]] = [
    (hostile.link_to_file, "f/analysis/outcomes.csv", ("analyse",)),
    (hostile.link_to_same, "f/analysis", ("analyse", "compare")),
    (hostile.link_to_file, "f/report/index.html", ("report",)),
    (hostile.link_to_file, "f/jobs/.lock", ("run", "resume", "generate")),
    (hostile.second_name, "f/jobs/.lock", ("run", "resume", "generate")),
    (hostile.second_name, "f/stores/.lock", ("collect",)),
    (hostile.link_to_same, "f/.replacing", ("generate",)),
    (hostile.link_to_same, "f/.replaced", ("generate",)),
    (hostile.link_to_same, "f/stores/.doing-0-r0.removed", ("collect",)),
    (hostile.link_to_same, "s/instances/*/checkpoints", ("start",)),
    (hostile.second_name, "s/store.db", ("list", "start")),
    (hostile.pipe, "f/manifest.json", ("status", "run", "analyse")),
    (hostile.pipe, "f/runs/doing-0-r0.yml", ("check", "run", "submit")),
    (hostile.pipe, "s/instances/*/complete.json", ("verify", "show")),
    (hostile.folder, "f/design.csv", ("status", "generate")),
]


@pytest.mark.parametrize(("attack", "name", "verbs"), DONE, ids=[f"{a.__name__}-{n}" for a, n, _ in DONE])
def test_no_harm_is_done_again(
    place: Path, attack: Callable[[Path, str], None], name: str, verbs: tuple[str, ...]
) -> None:
    theirs = place / "theirs"
    names = [path.relative_to(theirs).as_posix() for path in theirs.glob(name)] if "*" in name else [name]
    assert names
    for number, one in enumerate(names):
        attack(place, one)
        if (place / "mine" / "led-to").exists():
            (place / "mine" / f"led-to-{number}").mkdir()
            _rename(place, one, number)
    assert not hostile.faults(place, [one for one in hostile.COMMANDS if one[1] in verbs])


def _rename(place: Path, name: str, number: int) -> None:
    """Let what a name leads to have another name, so that a second one can lead elsewhere."""
    new = place / "mine" / f"led-to-{number}" / "there"
    (place / "mine" / "led-to").rename(new)
    path = place / "theirs" / name
    if path.is_symlink():
        path.unlink()
        path.symlink_to(new)


def test_nothing_is_wrong_with_a_folder_in_which_nobody_did_anything(place: Path) -> None:
    assert not hostile.faults(place)


@pytest.mark.parametrize("what", ["write", "delete", "make", "hang", "raise", "print"])
def test_the_watcher_would_see_it(place: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Were it blind, no test here could fail."""
    mine = place / "mine" / "home"

    def act(_: object) -> int:
        if what == "write":
            (mine / ".bashrc").write_text("# theirs\n")
        elif what == "delete":
            (mine / ".bashrc").unlink()
        elif what == "make":
            (mine / ".profile").write_text("# theirs\n")
        elif what == "hang":
            os.mkfifo(place / "pipe")
            (place / "pipe").read_text()
        elif what == "raise":
            raise OSError("on purpose")
        else:
            print("Traceback (most recent call last):", file=sys.stderr)
        return 0

    monkeypatch.setattr(hostile, "_ARSENAI", act)
    if what == "hang":
        monkeypatch.setattr(hostile, "LIMIT", 1.0)
    assert hostile.faults(place, [("arsenai", "status", "{f}")])


def test_names_are_those_that_the_commands_make(made: Path, place: Path) -> None:
    """A new file is covered without a word here; those that are there for a moment are, too."""
    found = hostile.names(place)
    for name in ("f/jobs/.lock", "f/stores/.lock", "f/.replacing", "f/.replaced", "f/analysis/outcomes.csv"):
        assert name in found
    assert not [path for path in found if hostile._kind(path) == "f/.0.tmp"]


def _some(cases: Iterator[object], first: int) -> Iterator[object]:
    return (case for number, case in enumerate(cases) if number % EVERY == first % EVERY)


@pytest.mark.parametrize("attack", hostile.ATTACKS, ids=lambda attack: attack.__name__)
def test_whatever_lies_in_the_place_of_a_name(
    made: Path, tmp_path: Path, attack: Callable[[Path, str], None]
) -> None:
    """Links, second names, pipes, devices, folders, in the place of each name that there is."""
    names = hostile.names(hostile.copy_of(made, tmp_path / "names"))
    assert len(names) > 80
    found = {}
    for number, name in enumerate(_some(iter(names), hostile.ATTACKS.index(attack))):
        place = hostile.copy_of(made, tmp_path / str(number))
        attack(place, str(name))
        if wrong := hostile.faults(place, hostile.concerning(str(name))):
            found[name] = wrong
        hostile._clear(place)
    assert not found


@pytest.mark.parametrize("number", range(len(hostile.VALUES)))
def test_whatever_stands_in_a_file(made: Path, tmp_path: Path, number: int) -> None:
    """Names that lead out, huge and negative numbers, NaN, control characters, in JSON, tables and databases."""
    value, found = hostile.VALUES[number], {}
    count = sum(1 for _ in hostile.values_of(made, value))
    for index in range(number % EVERY, count, EVERY * 4):
        place = hostile.copy_of(made, tmp_path / str(index))
        name, act = list(hostile.values_of(place, value))[index]
        act()
        if wrong := hostile.faults(place, hostile.concerning(name)):
            found[name] = wrong
        hostile._clear(place)
    assert not found
