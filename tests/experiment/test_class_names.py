"""Names of classes and ids of sensors."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core import importing
from palaestrai_mosaik.core.errors import NameResolutionError
from palaestrai_mosaik.experiment import class_names, classes, resolve, split_id


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_working_directory_is_importable(module) -> None:
    module("cwd_parts/inner.py", "class Muscle:\n    pass\n")
    assert resolve("cwd_parts.inner:Muscle", "muscle").__name__ == "Muscle"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cwd_near:Muscel", "has no class 'Muscel' (did you mean 'Muscle'?)"),
        ("cwd_naer:Muscle", "there is no module 'cwd_naer' (did you mean 'cwd_near'?)"),
        ("cwd_near.sub:Muscle", "there is no module 'cwd_near.sub'"),
        ("cwd_near:function", "is not a class but a function"),
        ("cwd_near.Muscle", "did you mean 'cwd_near:Muscle'?"),
        ("a:b:c", "package.module:Class"),
        ("", "package.module:Class"),
        ("../evil:C", "package.module:Class"),
        ("cwd_raises:C", "RuntimeError: planted"),
        ("cwd_exits:C", "SystemExit: 3"),
        ("cwd_broken:C", "SyntaxError"),
        ("cwd_needs:C", "needs the module 'not_there_at_all', which is not installed"),
        ("json.decoderr:X", "did you mean 'json.decoder'"),
    ],
)
def test_names_that_fail(name: str, said: str, module) -> None:
    module("cwd_near.py", "class Muscle:\n    pass\n\ndef function():\n    pass\n")
    module("cwd_raises.py", "def inner():\n    raise RuntimeError('planted')\n\ninner()\n")
    module("cwd_exits.py", "import sys\nsys.exit(3)\n")
    module("cwd_broken.py", "def (:\n")
    module("cwd_needs.py", "import not_there_at_all\n")
    importing._top_level_modules.cache_clear()
    with pytest.raises(NameResolutionError) as error:
        resolve(name, "muscle")
    assert said in str(error.value)
    if "planted" in said:
        assert "in inner" in str(error.value)  # the traceback of the user's code, not of ours
        assert "importlib" not in str(error.value)


def test_entry_points_give_short_names(module, monkeypatch) -> None:
    module("cwd_entry.py", "class Fancy:\n    pass\n")
    entry = importlib.metadata.EntryPoint("fancy", "cwd_entry:Fancy", "palaestrai_mosaik.muscle")

    def registered(*, group: str):
        return [entry] if group == entry.group else []

    monkeypatch.setattr(class_names, "entry_points", registered)
    sys.path.insert(0, "")
    assert resolve("fancy", "muscle").__name__ == "Fancy"
    with pytest.raises(NameResolutionError, match=r"did you mean 'fancy'.*short names: .*, fancy"):
        resolve("fancyy", "muscle")
    with pytest.raises(NameResolutionError, match="'fancy' is no short name of a class for 'brain'"):
        resolve("fancy", "brain")


def test_palaestrai_names_have_one_name_here() -> None:
    for name in (
        "palaestrai.agent:DummyBrain",
        "palaestrai.agent.dummy_brain:DummyBrain",
    ):
        assert class_names.canonical_name(name) == "palaestrai_mosaik.agent.library.dummy:DummyBrain"
    for package in ("experiment", "simulation"):
        name = f"palaestrai.{package}:EnvironmentTerminationCondition"
        assert class_names.canonical_name(name).startswith(
            "palaestrai_mosaik.simulation.conditions:Environment"
        )
    assert class_names.canonical_name("mine:Own") == "mine:Own"


def test_other_palaestrai_names_need_palaestrai(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "palaestrai", None)
    monkeypatch.setattr(classes, "importable", lambda package: False)
    with pytest.raises(NameResolutionError) as error:
        resolve("palaestrai.agent:DumyBrain", "brain")
    assert "not installed" in str(error.value)
    assert "did you mean 'palaestrai.agent:DummyBrain'" in str(error.value)


def test_other_palaestrai_names_come_from_palaestrai(module) -> None:
    module("interop/palaestrai/__init__.py", "")
    module("palaestrai/special.py", "class Odd:\n    pass\n")
    assert resolve("palaestrai.special:Odd", "brain").__module__ == "palaestrai.special"


@pytest.mark.parametrize(
    ("full", "uids", "expected"),
    [
        ("w.0", ["w"], ("w", "0")),
        ("my-env.a.b", ["my-env"], ("my-env", "a.b")),
        ("a.b.c", ["a", "a.b"], ("a.b", "c")),
        ("a.b", ["a", "a.b"], ("a", "b")),
        ("a.b.c", ["a"], ("a", "b.c")),
    ],
)
def test_split_id(full: str, uids: list[str], expected: tuple[str, str]) -> None:
    assert split_id(full, uids) == expected


@pytest.mark.parametrize("full", ["w", "w.", ".w", "x.0", "ww.0", ""])
def test_split_id_refuses(full: str) -> None:
    with pytest.raises(NameResolutionError):
        split_id(full, ["w"])


@settings(max_examples=80)
@given(st.lists(st.text("ab.-", min_size=1, max_size=4), min_size=1, max_size=4, unique=True), st.data())
def test_split_id_takes_the_longest_uid(uids: list[str], data) -> None:
    full = f"{data.draw(st.sampled_from(uids))}.{data.draw(st.text('ab.-', min_size=1, max_size=4))}"
    fitting = [uid for uid in uids if full.startswith(f"{uid}.") and len(full) > len(uid) + 1]
    uid, local = split_id(full, uids)
    assert f"{uid}.{local}" == full
    assert len(uid) == max(map(len, fitting))
