"""Messages about arguments and names that are written once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ContractError, DocumentError
from palaestrai_mosaik.experiment.fields import show


@pytest.mark.parametrize("value", [True, 1, 1.0, "3", None])
def test_other_than_a_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ContractError) as caught:
        check_whole("batch", value, 2)
    assert str(caught.value) == f"batch must be a whole number of at least 2, not {value!r}"
    check_whole("batch", 2, 2)


def test_an_empty_string_is_called_empty(tmp_path: Path) -> None:
    assert (show(""), show("a"), show([])) == ("an empty string", "the string 'a'", "an empty list")
    base = "{schedule: [{p: {environments: [dummy], agents: [{name: a, muscle: random}]}}]}"
    path = tmp_path / "design.yml"
    path.write_text(f'uid: d\nseed: 1\nbase: {base}\noutcomes: {{"": {{of: steps, episode: mean}}}}\n')
    with pytest.raises(DocumentError, match="name must be a non-empty string, found an empty string"):
        load(path)
