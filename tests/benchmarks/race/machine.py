"""What machine this is, and how busy it is with other work."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

#: share of all cores that other work may take before it is told
BUSY = 0.15
#: seconds over which it is looked at
_WINDOW = 0.5


@dataclass(frozen=True)
class Load:
    """The machine at one moment: load averages and the share of all cores that is in use."""

    minute: float
    five_minutes: float
    in_use: float

    @property
    def busy(self) -> bool:
        """Whether other work disturbs a measurement that begins now."""
        return self.in_use > BUSY

    def told(self) -> dict[str, float]:
        """Return it as a mapping."""
        return asdict(self)


def load() -> Load:
    """Look for half a second, while this process does nothing."""
    in_use = psutil.cpu_percent(interval=_WINDOW) / 100
    minute, five_minutes, _ = os.getloadavg()
    return Load(minute, five_minutes, in_use)


def describe() -> dict[str, Any]:
    """Return what is known of the machine; ``""`` where the system does not tell."""
    return {
        "cpu": cpu_model(_text("/proc/cpuinfo")) or platform.processor(),
        "cores": psutil.cpu_count(),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
    }


def cpu_model(cpuinfo: str) -> str:
    """Return the model that ``/proc/cpuinfo`` names first."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return ""


def _text(path: str) -> str:
    file = Path(path)
    return file.read_text(encoding="utf-8") if file.is_file() else ""
