"""Filters of an agent: what stands between environment and muscle, and before the brain."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from palaestrai_mosaik.errors import ActionError, ContractError
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .memory import Experience


class Filter(ABC):
    """Changes what a muscle sees and does, or what a brain learns from. No method is mandatory.

    The constructor receives the document's ``params``; a subclass need not call
    ``super().__init__()``. Every muscle (worker) has filters of its own, and the brain has
    one more set of them, the *master*:

    - on the muscle's side, per episode ``reset``, then per step ``muscle_pre_process`` and
      ``muscle_post_process`` (the last readings of an episode are pre-processed, too);
    - on the brain's side, per closed row ``brain_pre_process``, and ``brain_post_process`` for
      every update. An episode begins with the row whose ``step`` is 0; its last row need not be
      marked as such, since an episode may be ended after the brain has learned from that row.

    What a muscle's filters learn from the readings travels as ``news`` to the master, which
    takes it in with ``learn`` in a defined order. The master's ``state`` goes back to the
    muscles with the brain's updates and is saved with its model. A muscle's filters use the
    state that they got last, and nothing of what they have seen since then: so results do
    not depend on the number of processes that the workers are spread over.

    Vectors are never written to: a method returns the vector that it was given, or a new one.
    A set-point of NaN means that there is no new set-point.
    """

    #: what is learned is frozen in test mode; set by the framework
    mode: Mode = Mode.TRAIN
    #: the channels of the environment, set by the framework before :meth:`setup`. Rows that
    #: the brain's side gets have the environment's readings and set-points, wherever in the
    #: chain the filter stands.
    environment_sensors: Layout
    environment_actuators: Layout
    #: hook for adapters: it belongs to a muscle or a brain, and is made with it
    _has_owner: ClassVar[bool] = False

    def _introduce(self, seed: int) -> None:
        """Hook for adapters, called first: a seed for global generators."""

    def _join(self) -> None:
        """Hook for adapters: the muscle or brain is there, and does not call the filter itself."""

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        """Return the channels on the muscle's side. Called once, before anything else.

        Args:
            sensors: the sensors on the environment's side.
            actuators: the actuators on the environment's side.

        Raises:
            ContractError: the filter cannot work on a channel.
        """
        return sensors, actuators

    def reset(self) -> None:
        """Called when an episode begins, on the muscle's side only."""

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        """Return what the muscle sees instead of ``readings``; shapes as told by :meth:`setup`."""
        return readings

    def muscle_post_process(self, setpoints: FloatVector) -> FloatVector:
        """Return what the environment gets instead of the muscle's ``setpoints``."""
        return setpoints

    def muscle_inverse(self, setpoints: FloatVector) -> FloatVector:
        """Return set-points of the muscle from which :meth:`muscle_post_process` makes ``setpoints``.

        Optional; asked where an agent has ``replay``: the store has what the environment got, and
        not what the muscle did. Called before :meth:`muscle_post_process` gets the result, in the
        same state. A filter that does not override ``muscle_post_process`` need not override this.
        """
        return setpoints

    def brain_pre_process(self, experience: Experience) -> Experience:
        """Return the row that the brain learns from; ``experience`` itself is left as it is."""
        return experience

    def brain_post_process(self, update: Any) -> Any:
        """Return the update that the muscles get instead of ``update``."""
        return update

    def news(self) -> Any:
        """Return what was learned since the last call, something that can be pickled; ``None`` for nothing."""
        return None

    def learn(self, news: Any) -> None:
        """Take in the ``news`` of a muscle's filter."""

    def state(self) -> dict[str, Any]:
        """Return all that was learned: arrays and numbers, always under the same names.

        Later learning leaves what was returned unchanged.
        """
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned; numbers may come as arrays of shape ``()``."""


class FilterChain:
    """The filters of an agent in order, the first one next to the environment.

    Readings and rows pass from the first filter to the last one, set-points and updates
    from the last one to the first. ``sensors`` and ``actuators`` are the channels as the muscle
    sees them.
    """

    def __init__(self, filters: Sequence[Filter], sensors: Layout, actuators: Layout):
        self.filters = tuple(filters)
        self._environment = actuators
        self._pre: list[tuple[Callable[[FloatVector], FloatVector], tuple[int], Filter]] = []
        self._post: list[tuple[Callable[[FloatVector], FloatVector], tuple[int], Filter]] = []
        environment = (sensors, actuators)
        for one in self.filters:
            inside = actuators
            one.environment_sensors, one.environment_actuators = environment
            sensors, actuators = _set_up(one, sensors, actuators)
            # what a filter does not override costs nothing
            if type(one).muscle_pre_process is not Filter.muscle_pre_process:
                self._pre.append((one.muscle_pre_process, (sensors.size,), one))
            if type(one).muscle_post_process is not Filter.muscle_post_process:
                self._post.insert(0, (one.muscle_post_process, (inside.size,), one))
        self.sensors, self.actuators = sensors, actuators
        self._brain_pre = [
            one for one in self.filters if type(one).brain_pre_process is not Filter.brain_pre_process
        ]
        self._brain_post = [
            one
            for one in reversed(self.filters)
            if type(one).brain_post_process is not Filter.brain_post_process
        ]
        self._news = [one for one in self.filters if type(one).news is not Filter.news]
        self._reset = [one for one in self.filters if type(one).reset is not Filter.reset]
        self._names = [frozenset(one.state()) for one in self.filters]
        self._mode = Mode.TRAIN
        self.mode = Mode.TRAIN

    @property
    def mode(self) -> Mode:
        """Whether the filters learn; set for all of them at once."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        for one in self.filters:
            one.mode = mode

    def reset(self) -> None:
        """Begin an episode."""
        for one in self._reset:
            one.reset()

    def pre(self, readings: FloatVector) -> FloatVector:
        """Return what the muscle sees, read-only; ``readings`` is not changed."""
        if not self._pre:
            return readings
        for process, shape, one in self._pre:
            readings = process(readings)
            if getattr(readings, "shape", None) != shape:
                raise _misfit(one, "muscle_pre_process", shape, readings)
        readings.flags.writeable = False
        return readings

    def post(self, setpoints: FloatVector) -> FloatVector:
        """Return the environment's set-points; ``setpoints`` is not changed.

        Raises :class:`ActionError` where the filters lead out of an actuator's space.
        """
        if not self._post:
            return setpoints
        for process, shape, one in self._post:
            setpoints = process(setpoints)
            if getattr(setpoints, "shape", None) != shape:
                raise _misfit(one, "muscle_post_process", shape, setpoints)
        try:
            self._environment.check(setpoints)
        except ActionError as error:
            passed = ", ".join(type(one).__name__ for _, _, one in self._post)
            raise ActionError(f"after the filters {passed}: {error}") from None
        return setpoints

    @property
    def irreversible(self) -> list[str]:
        """The names of the filters whose effect on set-points cannot be undone (see :meth:`undo`)."""
        return [
            type(one).__name__
            for _, _, one in self._post
            if type(one).muscle_inverse is Filter.muscle_inverse
        ]

    def undo(self, setpoints: FloatVector) -> FloatVector:
        """Return what the muscle did for the environment to get ``setpoints``, after :meth:`pre`.

        The filters live through that action as they do in :meth:`post`. For chains without
        :attr:`irreversible` filters.
        """
        for process, _, one in reversed(self._post):
            setpoints = one.muscle_inverse(setpoints)
            process(setpoints)
        return setpoints

    def brain_pre(self, experience: Experience) -> Experience:
        """Return the row that the brain learns from; ``experience`` is not changed."""
        for one in self._brain_pre:
            experience = one.brain_pre_process(experience)
        return experience

    def brain_post(self, update: Any) -> Any:
        """Return the update that the muscles get."""
        for one in self._brain_post:
            update = one.brain_post_process(update)
        return update

    def news(self) -> list[Any] | None:
        """Return each filter's news, ``None`` if no filter has any."""
        if not self._news:
            return None
        news = [one.news() for one in self.filters]
        return None if all(item is None for item in news) else news

    def learn(self, news: Sequence[Any] | None) -> None:
        """Take in the news of a muscle's chain."""
        if news is not None:
            self._check_length(news)
            for one, item in zip(self.filters, news, strict=True):
                if item is not None:
                    one.learn(item)

    def state(self) -> list[dict[str, Any]]:
        """Return what each filter has learned."""
        return [one.state() for one in self.filters]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Take over what :meth:`state` of a chain of the same filters returned.

        Raises :class:`ContractError` where it is of other filters.
        """
        self._check_length(state)
        for one, names, item in zip(self.filters, self._names, state, strict=True):
            if item.keys() != names:
                raise ContractError(
                    f"filter {type(one).__name__} has a state of {_listed(names)}, not of {_listed(item)}"
                )
            if names:
                one.set_state(item)

    def _check_length(self, items: Sequence[Any]) -> None:
        if len(items) != len(self.filters):
            raise ContractError(
                f"found what {len(items)} filters have learned, but the agent has {len(self.filters)}: "
                + _listed(type(one).__name__ for one in self.filters)
            )


def _set_up(one: Filter, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
    if not isinstance(one, Filter):
        raise ContractError(f"{one!r} is no Filter")
    name = type(one).__name__
    answer = one.setup(sensors, actuators)
    if not isinstance(answer, tuple) or [type(part) for part in answer] != [Layout, Layout]:
        raise ContractError(
            f"{name}.setup must return the sensors' and the actuators' Layout, not {answer!r}"
        )
    for kind, layout in zip(("sensor", "actuator"), answer, strict=True):
        if len(layout.index) != len(layout.uids):
            twice = next(uid for i, uid in enumerate(layout.uids) if layout.index[uid] != i)
            raise ContractError(f"filter {name} makes two {kind}s with the uid {twice!r}")
    return answer


def _misfit(one: Filter, method: str, shape: tuple[int], found: Any) -> ContractError:
    what = f"one of shape {found.shape}" if isinstance(found, np.ndarray) else repr(found)
    return ContractError(f"{type(one).__name__}.{method} must return a vector of shape {shape}, not {what}")


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) or "nothing"
