"""What the conformance checks share: their findings, and comparisons of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from palaestrai_mosaik import seeding
from palaestrai_mosaik.errors import PalaestraiMosaikError
from palaestrai_mosaik.types import Space

T = TypeVar("T")


class ConformanceError(PalaestraiMosaikError, AssertionError):
    """A part does not keep its contract; ``findings`` lists all that was found."""

    def __init__(self, subject: str, findings: Sequence[str]):
        self.subject = subject
        self.findings = tuple(findings)
        super().__init__(f"{subject} does not keep its contract:" + "".join(f"\n- {f}" for f in findings))


class Findings:
    """Collects what a check finds out about one subject, one entry per broken rule."""

    def __init__(self, subject: str):
        self.subject = subject
        self._found: dict[str, tuple[str, int]] = {}

    def add(self, rule: str, detail: str) -> None:
        """Note that ``rule`` is broken; the first detail is kept, the others are counted."""
        first, count = self._found.get(rule, (detail, 0))
        self._found[rule] = (first, count + 1)

    def raise_found(self) -> None:
        """Raise :class:`ConformanceError` if anything was found."""
        if self._found:
            raise self._error()

    def stop(self, rule: str, detail: str) -> ConformanceError:
        """Note what makes it impossible to go on; return the error to raise."""
        self.add(rule, detail)
        return self._error()

    def _error(self) -> ConformanceError:
        return ConformanceError(
            self.subject,
            [
                f"{rule}: {detail}" + (f" (and {count - 1} more)" if count > 1 else "")
                for rule, (detail, count) in self._found.items()
            ],
        )

    @contextmanager
    def calling(self, what: str) -> Iterator[None]:
        """Surround a call of the subject's code: it must not raise, nor use global randomness."""
        before = seeding.global_state_digest()
        try:
            yield
        except ConformanceError:
            raise
        except Exception as error:
            raise self.stop("raises an exception", f"{what}: {type(error).__name__}: {error}") from error
        if seeding.global_state_digest() != before:
            self.add(
                "uses a global random generator (random or numpy.random) instead of its own rng",
                what,
            )


def build(factory: Callable[[], T], base: type) -> tuple[T, Findings]:
    """Return a new subject, which must be a ``base``, and its empty findings."""
    findings = Findings(f"what {getattr(factory, '__name__', repr(factory))} returns")
    with findings.calling("the constructor"):
        subject = factory()
    if not isinstance(subject, base):
        raise findings.stop(f"is no {base.__name__}", f"it is a {type(subject).__name__}")
    findings.subject = type(subject).__name__
    return subject, findings


def build_another(factory: Callable[[], T], findings: Findings) -> T:
    """Return a further subject of a factory."""
    with findings.calling("the constructor"):
        return factory()


def check_channels(findings: Findings, kind: str, channels: Sequence[Any]) -> None:
    """Check the uids, spaces and values of sensors, actuators or rewards (``kind``).

    Raises at once where a channel has no space, because nothing else can be checked then.
    """
    uids: list[str] = []
    for channel in channels:
        uid, space = getattr(channel, "uid", None), getattr(channel, "space", None)
        if not isinstance(uid, str) or not uid:
            findings.add(f"a {kind} has no uid", f"a uid is a text that is not empty, found {uid!r}")
        elif uid in uids:
            findings.add(f"several {kind}s have the same uid", repr(uid))
        uids.append(str(uid))
        if not isinstance(space, Space):
            raise findings.stop(f"a {kind} has no space", f"{uid!r} has {space!r}")
        missing = channel.value is None
        if missing and kind != "actuator":
            findings.add(f"a {kind} has no initial value", repr(uid))
        elif not missing and not space.contains(channel.value):
            findings.add(
                f"an initial value lies outside its space ({kind})", _located(channel, channel.value)
            )


def check_flat_values(findings: Findings, kind: str, channels: Sequence[Any], flat: Any, when: str) -> None:
    """Check that the flat vector holds a member of the space of each channel.

    ``flat``: shape (sum of the spaces' sizes,).
    """
    start = 0
    for channel in channels:
        part = flat[start : start + channel.space.size]
        start += channel.space.size
        try:
            value = channel.space.unflatten(part)
        except ValueError:
            value = part
        if not channel.space.contains(value):
            findings.add(f"a {kind} lies outside its space", f"{when}: {_located(channel, value)}")


def _located(channel: Any, value: Any) -> str:
    return f"{value!r} of {channel.uid!r} is not in {channel.space}"


def sample_flat(channels: Sequence[Any], rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a flat vector with a sample of the space of each channel."""
    parts = [channel.space.flatten(channel.space.sample(rng)) for channel in channels]
    return np.concatenate(parts) if parts else np.empty(0)


def same(a: Any, b: Any) -> bool:
    """Return whether two values mean the same; NaN equals NaN.

    Looks into arrays, mappings, lists, tuples and dataclasses. Objects that cannot be
    compared, or only by identity, cannot be told apart and count as the same.
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        x, y = np.asarray(a), np.asarray(b)
        return x.shape == y.shape and bool(np.array_equal(x, y, equal_nan=x.dtype.kind in "fc"))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if is_dataclass(a) and type(a) is type(b):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return _equal(a, b)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if type(a) is type(b) and type(a).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
        return True
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return True
