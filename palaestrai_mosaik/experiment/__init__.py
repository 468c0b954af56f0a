"""The experiment-run document: reading, cascade, checks and identity.

The package imports no code that runs; :func:`check_classes` and :func:`resolve` import the classes that a
document names.
"""

from palaestrai_mosaik.core.importing import only_modules

from .canonical import canonical_json, content_digest, digest
from .classes import check_classes, hook_warnings, modules_of, resolve, unused_methods
from .describe import describe
from .fields import split_id
from .load import AnyDocument, as_document, from_mapping, load, loads
from .model import (
    BODY_NUMBER,
    DOCUMENT_VERSION,
    AgentSpec,
    BodySpec,
    ClassSpec,
    EnvironmentSpec,
    FrameSpec,
    PartialDocument,
    PhaseSpec,
    ReplaySpec,
    RunDocument,
    SimulationSpec,
    SnapshotSpec,
)
from .vocabulary import json_schema
from .yaml_text import dumps

__all__ = [
    "BODY_NUMBER",
    "DOCUMENT_VERSION",
    "AgentSpec",
    "AnyDocument",
    "BodySpec",
    "ClassSpec",
    "EnvironmentSpec",
    "FrameSpec",
    "PartialDocument",
    "PhaseSpec",
    "ReplaySpec",
    "RunDocument",
    "SimulationSpec",
    "SnapshotSpec",
    "as_document",
    "canonical_json",
    "check_classes",
    "content_digest",
    "describe",
    "digest",
    "dumps",
    "from_mapping",
    "hook_warnings",
    "json_schema",
    "load",
    "loads",
    "modules_of",
    "only_modules",
    "resolve",
    "split_id",
    "unused_methods",
]
