"""The reference lists what users import, and all of it can be imported."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(palaestrai_mosaik[.\w]*)` \| (.*) \|$", PAGE, flags=re.M)
#: public names that need an extra
EXTRAS = {
    "MosaikEnvironment": "palaestrai",
    "PowerFlow": "pandapower",
    "Profiles": "pandapower",
} | dict.fromkeys(("aec_env", "make", "make_vec", "parallel_env"), "gymnasium")


def test_the_packages_for_users_are_listed() -> None:
    names = {name.partition(".")[2] for name, _ in ROWS}
    assert names == {"", "types", "agent", "environment", "simulators", "store", "arsenai", "testing"}


@pytest.mark.parametrize(("package", "text"), ROWS, ids=[name for name, _ in ROWS])
def test_all_public_names_can_be_imported(package: str, text: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        if name not in EXTRAS or importlib.util.find_spec(EXTRAS[name]):
            assert getattr(module, name).__doc__, name
    assert {*re.findall(r"`(\w+)`", text)} <= {*module.__all__}
