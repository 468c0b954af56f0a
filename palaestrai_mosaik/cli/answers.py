"""The output of commands with ``--json``: a single document on standard output."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from palaestrai_mosaik.core.errors import Problem
from palaestrai_mosaik.core.printing import Printable, write

from .tables import missing


def answer(data: Any) -> None:
    """Print ``data`` as JSON. Frames become lists of rows, and non-finite numbers ``null``."""
    text = json.dumps(_plain(data), indent=2, allow_nan=False)
    # json escapes all terminal control characters except this one
    write(Printable(text.replace("\x7f", "\\u007f")), sys.stdout, needed=True)


def problems_data(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return distinct problems as mappings: ``file``, ``line`` and ``column`` (from 1), ``path``, ``message``."""
    from palaestrai_mosaik.experiment.yaml_text import columns_of

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
    """Convert ``value`` to types that JSON supports."""
    plain: Any
    if missing(value) or (isinstance(value, float) and not math.isfinite(value)):
        plain = None
    elif isinstance(value, str | int | float):
        plain = value
    elif isinstance(value, Mapping):
        plain = {str(key): _plain(item) for key, item in value.items()}
    elif isinstance(value, date):
        plain = value.isoformat()
    elif isinstance(value, os.PathLike):
        plain = os.fspath(value)
    elif hasattr(value, "to_json"):
        # a data frame
        plain = json.loads(value.to_json(orient="records", date_format="iso", double_precision=15))
    elif hasattr(value, "tolist"):
        # a NumPy number or array
        plain = _plain(value.tolist())
    else:
        plain = [_plain(item) for item in value]
    return plain
