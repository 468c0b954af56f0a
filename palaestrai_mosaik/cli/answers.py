"""The answer of a command with ``--json``: one document on standard output, and nothing else there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from palaestrai_mosaik.errors import Problem

from .tables import missing


def answer(data: Any) -> None:
    """Print ``data`` as JSON. Frames are lists of their rows; what is no number is ``null``."""
    print(json.dumps(_plain(data), indent=2, allow_nan=False))


def problems_data(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return what is wrong in documents, and where: ``file``, ``line`` and ``column`` from 1, ``path``, ``message``."""
    from palaestrai_mosaik.experiment.columns import columns_of

    each = list(dict.fromkeys(problems))
    return [
        {
            "file": problem.file or None,
            "line": problem.line,
            "column": column,
            "path": problem.path or None,
            "message": problem.message,
        }
        for problem, column in zip(each, columns_of(each), strict=True)
    ]


def _plain(value: Any) -> Any:
    """Return ``value`` as what JSON has."""
    plain: Any
    if missing(value) or (isinstance(value, float) and not math.isfinite(value)):
        plain = None
    elif isinstance(value, str | int | float):
        plain = value
    elif isinstance(value, Mapping):
        plain = {str(key): _plain(one) for key, one in value.items()}
    elif isinstance(value, date):
        plain = value.isoformat()
    elif isinstance(value, os.PathLike):
        plain = os.fspath(value)
    elif hasattr(value, "to_json"):
        # a frame
        plain = json.loads(value.to_json(orient="records", date_format="iso", double_precision=15))
    elif hasattr(value, "tolist"):
        # a number or an array of numpy
        plain = _plain(value.tolist())
    else:
        plain = [_plain(one) for one in value]
    return plain
