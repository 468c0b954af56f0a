"""A muscle that writes down what it sees, for runs in other processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from palaestrai_mosaik.agent import Muscle


class NotingMuscle(Muscle):
    """Sets its actuators to each of ``values`` in turn; writes a line of JSON with what it saw to ``file``."""

    def __init__(self, file: str, values: list[float]) -> None:
        self.file, self.values = Path(file), values

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        value = self.values.pop(0)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({s.uid: float(s.value) for s in sensors}) + "\n")
        for actuator in actuators_available:
            actuator.value = value
        return actuators_available, None
