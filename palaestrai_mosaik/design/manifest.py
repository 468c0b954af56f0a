"""What the manifest of a folder says: who made it, from what, and what is in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from palaestrai_mosaik import __version__

from .blocks import pack
from .folder import FORMAT
from .model import Axis, DesignSpec
from .rows import Rows

#: libraries on which the numbers of a sample depend
_LIBRARIES = ("numpy", "scipy", "SALib")


def manifest(spec: DesignSpec, rows: Rows, first_rows: Mapping[int, int], documents: int) -> dict[str, Any]:
    """Return the manifest as plain data.

    ``first_rows`` gives, for every row whose documents equal those of an earlier one, the
    number of that one. All of it but ``versions`` depends on the design alone.
    """
    runs = rows.count * spec.repetitions
    return {
        "format": FORMAT,
        "versions": {
            "palaestrai_mosaik": __version__,
            "python": ".".join(map(str, sys.version_info[:2])),
            **{name.lower(): version(name) for name in _LIBRARIES},
        },
        "design": {"uid": spec.uid, "hash": spec.hash, "seed": spec.seed, "version": spec.version},
        "seeds": {"policy": spec.seed_policy},
        "sampler": {
            "name": spec.sampler.name,
            "n": spec.sampler.n,
            "options": dict(spec.sampler.options),
            "arguments": dict(rows.sample.arguments),
            "warnings": list(rows.sample.warnings),
            "blocks": pack(rows.sample.block),
        },
        "axes": [_axis(axis) for axis in spec.axes],
        "counts": {
            "drawn": rows.drawn,
            "rejected": rows.drawn - rows.count,
            "rows": rows.count,
            "repetitions": spec.repetitions,
            "runs": runs,
            "documents": documents,
            "duplicates": runs - documents,
        },
        "duplicates": {str(row): first for row, first in first_rows.items()},
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"name": axis.name, "factors": [factor.name for factor in axis.factors], "group": axis.group}


def manifest_text(data: Mapping[str, Any]) -> str:
    """Return a manifest as JSON text, an entry a line."""
    lines = []
    for key, value in data.items():
        if isinstance(value, list):
            items = ",\n".join(f"    {_compact(item)}" for item in value)
            lines.append(f"  {_compact(key)}: [\n{items}\n  ]")
        else:
            lines.append(f"  {_compact(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
