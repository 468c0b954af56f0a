"""Statistics that a brain or a muscle reports, to be stored."""

from __future__ import annotations

from typing import Any


class StatisticsMixin:
    """Collects named figures until the framework takes them, after every step."""

    _statistics: dict[str, Any] | None = None

    def add_statistics(self, key: str, value: Any, allow_overwrite: bool = False) -> None:
        """Report a figure, such as a loss, for the current step.

        For a muscle, the current step is that of its action; for a brain, the row of the current ``thinking``, or the
        evaluation of ``evaluated``. Figures that a brain reports in other methods belong to its next call of
        these, and are lost if there is none.

        Args:
            key: the name of the figure.
            value: a number.
            allow_overwrite: whether an existing value of the step under this key is replaced.

        Raises:
            TypeError: ``value`` is not a number.
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
        """Return the figures reported since the last call, and clear them."""
        statistics, self._statistics = self._statistics, None
        return statistics or {}
