"""Figures that a brain or a muscle reports about itself; they land in the store."""

from __future__ import annotations

from typing import Any


class StatisticsMixin:
    """Collects named figures until the framework takes them (after every step)."""

    _statistics: dict[str, Any] | None = None

    def add_statistics(self, key: str, value: Any, allow_overwrite: bool = False) -> None:
        """Report a figure, such as a loss, for the current step.

        That is, for a muscle, the step that it acts in; for a brain the row that ``thinking`` is about, and
        in ``evaluated`` the evaluation. What a brain reports in other methods goes with what follows of
        these, and nowhere if nothing follows.

        Args:
            key: the name of the figure.
            value: a number.
            allow_overwrite: replace what the step has under this key already.

        Raises:
            TypeError: ``value`` is no number.
            KeyError: the step has that key already, and ``allow_overwrite`` is false.
        """
        try:
            number = float(value) if not isinstance(value, str | bytes) else None
        except (TypeError, ValueError):
            number = None
        if number is None:
            raise TypeError(f"statistic {key!r} must be a number, not {value!r}")
        if self._statistics is None:
            self._statistics = {}
        if not allow_overwrite and key in self._statistics:
            raise KeyError(f"statistic {key!r} was already reported in this step")
        self._statistics[key] = number

    def pop_statistics(self) -> dict[str, Any]:
        """Return what was reported since the last call, and forget it."""
        found, self._statistics = self._statistics, None
        return found or {}
