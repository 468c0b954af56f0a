"""Filters of an agent, between environment and muscle and in front of the brain."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from palaestrai_mosaik.core.errors import ActionError, ContractError
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .memory import Experience


class Filter(ABC):
    """Changes a muscle's readings and set-points, or the rows for a brain. No method is mandatory.

    The constructor receives the document's ``params``; a subclass need not call
    ``super().__init__()``. Every muscle (worker) has its own filters, and the brain has
    one more set of them, the *master*:

    - on the muscle's side, per episode ``reset``, then per step ``muscle_pre_process`` and
      ``muscle_post_process`` (the last readings of an episode are pre-processed, too);
    - on the brain's side, per closed row ``brain_pre_process``, and ``brain_post_process`` for
      every update. An episode begins with the row whose ``step`` is 0; its last row need not be
      marked, since an episode may be ended after the brain has learned from that row.

    The statistics that a muscle's filters learn from the readings travel as ``news`` to the master,
    which applies them with ``learn`` in a defined order. The master's ``state`` returns to the
    muscles with the brain's updates and is saved with its model. A muscle's filters use only the
    last state that they received, not the readings since then, so that results do
    not depend on the number of processes that the workers are spread over.

    Vectors are never written to: a method returns its argument or a new vector.
    A set-point of NaN means that there is no new set-point.
    """

    #: learning is frozen in test mode; set by the framework
    mode: Mode = Mode.TRAIN
    #: the channels of the environment, set by the framework before :meth:`setup`. On the brain's side,
    #: rows have the environment's readings and set-points, independent of the filter's position in
    #: the chain.
    environment_sensors: Layout
    environment_actuators: Layout
    #: hook for adapters: whether it belongs to a muscle or a brain and is made with it
    _has_owner: ClassVar[bool] = False

    def _introduce(self, seed: int) -> None:
        """Hook for adapters, called first, with a seed for global generators."""

    def _join(self) -> None:
        """Hook for adapters, called once the muscle or brain has been made, if it does not call the filter itself."""

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        """Return the channels on the muscle's side. Called once, before anything else.

        Args:
            sensors: the sensors on the environment's side.
            actuators: the actuators on the environment's side.

        Returns:
            The sensors and the actuators on the muscle's side.

        Raises:
            ContractError: the filter cannot work on a channel.
        """
        return sensors, actuators

    def reset(self) -> None:
        """Prepare for an episode. Called when one begins, on the muscle's side only."""

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        """Return the muscle's readings.

        Args:
            readings: (readings,), those on the environment's side.

        Returns:
            The readings on the muscle's side, of the length that :meth:`setup` has declared.
        """
        return readings

    def muscle_post_process(self, setpoints: FloatVector) -> FloatVector:
        """Return the environment's set-points.

        Args:
            setpoints: (set-points,), those on the muscle's side.

        Returns:
            The set-points on the environment's side, of the length of its actuators.
        """
        return setpoints

    def muscle_inverse(self, setpoints: FloatVector) -> FloatVector:
        """Return set-points of the muscle that :meth:`muscle_post_process` turns into ``setpoints``.

        Optional; used for an agent with ``replay``, since the store has the environment's set-points and
        not the muscle's. :meth:`muscle_post_process` is then called with the result, in the
        same state. A filter that does not override ``muscle_post_process`` need not override this.

        Args:
            setpoints: (set-points,), those on the environment's side.

        Returns:
            The set-points on the muscle's side.
        """
        return setpoints

    def brain_pre_process(self, experience: Experience) -> Experience:
        """Return the row that the brain learns from.

        Args:
            experience: a closed row, which must not be changed.

        Returns:
            The same row or a new one, of the same muscle and with the same end.
        """
        return experience

    def brain_post_process(self, update: Any) -> Any:
        """Return the muscles' update.

        Args:
            update: the brain's update, which must not be changed.
        """
        return update

    def news(self) -> Any:
        """Return the statistics learned since the last call, picklable, or ``None``."""
        return None

    def learn(self, news: Any) -> None:
        """Learn from a muscle's filter.

        Args:
            news: a result of :meth:`news`, not ``None``.
        """

    def state(self) -> dict[str, Any]:
        """Return the learned state: arrays and numbers, always under the same names.

        Later learning must not change the returned values.
        """
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a learned state.

        Args:
            state: a result of :meth:`state`; numbers may be arrays of shape ``()``.
        """


class FilterChain:
    """The filters of an agent in order, the first one next to the environment.

    Readings and rows pass from the first filter to the last one, set-points and updates
    from the last one to the first. The attributes ``sensors`` and ``actuators`` are the channels on the
    muscle's side.

    Args:
        filters: the filters, which are set up here.
        sensors: the sensors on the environment's side.
        actuators: the actuators on the environment's side.

    Raises:
        ContractError: an element of ``filters`` is no filter, or its ``setup`` does not return two layouts with
            unique ids.
    """

    def __init__(self, filters: Sequence[Filter], sensors: Layout, actuators: Layout):
        self.filters = tuple(filters)
        self._environment = actuators
        self._pre: list[tuple[Callable[[FloatVector], FloatVector], tuple[int], Filter]] = []
        self._post: list[tuple[Callable[[FloatVector], FloatVector], tuple[int], Filter]] = []
        environment = (sensors, actuators)
        for item in self.filters:
            inner_actuators = actuators
            item.environment_sensors, item.environment_actuators = environment
            sensors, actuators = _set_up(item, sensors, actuators)
            # only overridden methods are called
            if _overrides(item, "muscle_pre_process"):
                self._pre.append((item.muscle_pre_process, (sensors.size,), item))
            if _overrides(item, "muscle_post_process"):
                self._post.insert(0, (item.muscle_post_process, (inner_actuators.size,), item))
        self.sensors, self.actuators = sensors, actuators
        self._brain_pre = [item for item in self.filters if _overrides(item, "brain_pre_process")]
        self._brain_post = [item for item in self.filters[::-1] if _overrides(item, "brain_post_process")]
        self._news = any(_overrides(item, "news") for item in self.filters)
        self._reset = [item for item in self.filters if _overrides(item, "reset")]
        self._names = [frozenset(item.state()) for item in self.filters]
        self._mode = Mode.TRAIN
        self.mode = Mode.TRAIN

    @property
    def mode(self) -> Mode:
        """The mode of all filters; setting it sets them all."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        for item in self.filters:
            item.mode = mode

    def reset(self) -> None:
        """Start an episode."""
        for item in self._reset:
            item.reset()

    def pre(self, readings: FloatVector) -> FloatVector:
        """Return the muscle's readings, read-only.

        Args:
            readings: (readings,), those of the environment, which are not changed.

        Raises:
            ContractError: a filter returns a vector of another shape than declared.
        """
        if not self._pre:
            return readings
        for process, shape, item in self._pre:
            readings = process(readings)
            if getattr(readings, "shape", None) != shape:
                raise _misfit(item, "muscle_pre_process", shape, readings)
        readings.flags.writeable = False
        return readings

    def post(self, setpoints: FloatVector) -> FloatVector:
        """Return the environment's set-points.

        Args:
            setpoints: (set-points,), those of the muscle, which are not changed.

        Raises:
            ContractError: a filter returns a vector of another shape than declared.
            ActionError: a set-point is outside its actuator's space.
        """
        if not self._post:
            return setpoints
        for process, shape, item in self._post:
            setpoints = process(setpoints)
            if getattr(setpoints, "shape", None) != shape:
                raise _misfit(item, "muscle_post_process", shape, setpoints)
        try:
            self._environment.check(setpoints)
        except ActionError as error:
            passed = ", ".join(type(item).__name__ for _, _, item in self._post)
            raise ActionError(f"after the filters {passed}: {error}") from None
        return setpoints

    @property
    def irreversible(self) -> list[str]:
        """The names of the filters that :meth:`undo` cannot invert."""
        return [type(item).__name__ for _, _, item in self._post if not _overrides(item, "muscle_inverse")]

    def undo(self, setpoints: FloatVector) -> FloatVector:
        """Return the muscle's set-points that become the environment's ``setpoints``; called after :meth:`pre`.

        The filters process that action as in :meth:`post`. For chains without
        :attr:`irreversible` filters.

        Args:
            setpoints: (set-points,), those of the environment.
        """
        for process, _, item in reversed(self._post):
            setpoints = item.muscle_inverse(setpoints)
            process(setpoints)
        return setpoints

    def brain_pre(self, experience: Experience) -> Experience:
        """Return the row that the brain learns from.

        Args:
            experience: a closed row, which is not changed.
        """
        for item in self._brain_pre:
            experience = item.brain_pre_process(experience)
        return experience

    def brain_post(self, update: Any) -> Any:
        """Return the muscles' update.

        Args:
            update: the brain's update.
        """
        for item in self._brain_post:
            update = item.brain_post_process(update)
        return update

    def news(self) -> list[Any] | None:
        """Return each filter's news, or ``None`` if no filter has any."""
        if not self._news:
            return None
        news = [member.news() for member in self.filters]
        return None if all(item is None for item in news) else news

    def learn(self, news: Sequence[Any] | None) -> None:
        """Learn from a muscle's chain.

        Args:
            news: a result of :meth:`news`.

        Raises:
            ContractError: it comes from another number of filters.
        """
        if news is not None:
            self._check_length(news)
            for member, item in zip(self.filters, news, strict=True):
                if item is not None:
                    member.learn(item)

    def state(self) -> list[dict[str, Any]]:
        """Return each filter's learned state."""
        return [item.state() for item in self.filters]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restore the learned state of each filter.

        Args:
            state: a result of :meth:`state`.

        Raises:
            ContractError: it comes from other filters.
        """
        self._check_length(state)
        for member, names, item in zip(self.filters, self._names, state, strict=True):
            if item.keys() != names:
                raise ContractError(
                    f"filter {type(member).__name__} has a state of {_listed(names)}, not of {_listed(item)}"
                )
            if names:
                member.set_state(item)

    def _check_length(self, items: Sequence[Any]) -> None:
        if len(items) != len(self.filters):
            raise ContractError(
                f"found what {len(items)} filters have learned, but the agent has {len(self.filters)}: "
                + _listed(type(item).__name__ for item in self.filters)
            )


def _overrides(item: Filter, method: str) -> bool:
    return getattr(type(item), method) is not getattr(Filter, method)


def _set_up(item: Filter, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
    if not isinstance(item, Filter):
        raise ContractError(f"{item!r} is no Filter")
    name = type(item).__name__
    answer = item.setup(sensors, actuators)
    if not isinstance(answer, tuple) or [type(part) for part in answer] != [Layout, Layout]:
        raise ContractError(
            f"{name}.setup must return the sensors' and the actuators' Layout, not {answer!r}"
        )
    for kind, layout in zip(("sensor", "actuator"), answer, strict=True):
        if len(layout.index) != len(layout.uids):
            duplicate = next(uid for i, uid in enumerate(layout.uids) if layout.index[uid] != i)
            raise ContractError(f"filter {name} makes two {kind}s with the uid {duplicate!r}")
    return answer


def _misfit(item: Filter, method: str, shape: tuple[int], result: Any) -> ContractError:
    what = f"one of shape {result.shape}" if isinstance(result, np.ndarray) else repr(result)
    return ContractError(f"{type(item).__name__}.{method} must return a vector of shape {shape}, not {what}")


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) or "nothing"
