"""Brains of imported runs, kept where ``load`` of a run document finds them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from palaestrai_mosaik.agent.dumper import FileBrainDumper

from .brains import BRAINS


def keep_brain(directory: Path, run: str, phase: str, agent: str, dump: bytes, tag: str) -> None:
    """Keep the ``dump`` of an agent's brain in the folder of an instance, as a run keeps its own."""
    FileBrainDumper(directory / BRAINS, run, phase, agent).save(BytesIO(dump), tag)
