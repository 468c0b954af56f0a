"""Small disks that tests may fill, or turn read-only: file systems in memory, mounted by root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def mount(folder: Path, kib: int) -> None:
    """Mount an empty disk at ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    _call("mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder))


def remount(folder: Path, options: str) -> None:
    """Change how the disk at ``folder`` is mounted: ``ro``, ``rw``, ``size=100k``."""
    _call("mount", "-o", f"remount,{options}", str(folder))


def unmount(folder: Path) -> None:
    """Take the disk away, although files may be open."""
    _call("umount", "--lazy", str(folder))


def why_not() -> str | None:
    """Return why no disk can be mounted here, ``None`` if one can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "only root can mount a small disk"
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    probe = subprocess.run(command, check=False, capture_output=True)
    return None if probe.returncode == 0 else "no disk can be mounted here"


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
