"""Findings of the conformance checks, and comparisons of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.importing import broken_overrides
from palaestrai_mosaik.environment.faults import channel_faults
from palaestrai_mosaik.types.vectors import ValueRules

T = TypeVar("T")


class ConformanceError(PalaestraiMosaikError, AssertionError):
    """A part breaks its contract.

    Attributes:
        subject: the name of the part's class.
        findings: all broken rules, each with its first violation.
    """

    def __init__(self, subject: str, findings: Sequence[str]):
        self.subject = subject
        self.findings = tuple(findings)
        super().__init__(f"{subject} does not keep its contract:" + "".join(f"\n- {f}" for f in findings))


class Findings:
    """Collects the rules broken by one subject, with one entry per rule."""

    def __init__(self, subject: str):
        self.subject = subject
        self._found: dict[str, tuple[str, int]] = {}

    def add(self, rule: str, detail: str) -> None:
        """Add a broken rule. The first detail is kept, further ones are counted."""
        first, count = self._found.get(rule, (detail, 0))
        self._found[rule] = (first, count + 1)

    def raise_found(self) -> None:
        """Raise :class:`ConformanceError` if any rule is broken."""
        if self._found:
            raise self._error()

    def stop(self, rule: str, detail: str) -> ConformanceError:
        """Add a broken rule that prevents further checks; return the error to raise."""
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
        """Run a block that calls the subject's code, and check for exceptions and the use of global randomness."""
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
    """Create a subject, which must be an instance of ``base``, and its empty findings."""
    findings = Findings(f"what {getattr(factory, '__name__', repr(factory))} returns")
    with findings.calling("the constructor"):
        subject = factory()
    if not isinstance(subject, base):
        raise findings.stop(f"is no {base.__name__}", f"it is a {type(subject).__name__}")
    findings.subject = type(subject).__name__
    for fault in broken_overrides(type(subject), base):
        findings.add("a method cannot be called", fault)
    findings.raise_found()
    return subject, findings


def build_another(factory: Callable[[], T], findings: Findings) -> T:
    """Create another subject with the same factory."""
    with findings.calling("the constructor"):
        return factory()


def check_channels(findings: Findings, kind: str, channels: Sequence[Any]) -> None:
    """Check the uids, spaces and values of sensors, actuators or rewards (``kind``).

    A broken rule that would stop a run raises :class:`ConformanceError` at once, because it prevents further checks.
    """
    for rule, detail in channel_faults(kind, channels):
        findings.add(rule, detail)
    findings.raise_found()
    for channel in channels:
        uid, space = channel.uid, channel.space
        missing = channel.value is None
        if missing and kind != "actuator" and not channel.may_be_missing:
            findings.add(f"a {kind} has no initial value", repr(uid))
        elif not missing and not space.contains(channel.value):
            findings.add(
                f"an initial value lies outside its space ({kind})", _located(channel, channel.value)
            )


def check_flat_values(findings: Findings, kind: str, channels: Sequence[Any], flat: Any, when: str) -> None:
    """Check that all values of a flat vector are finite and lie in their spaces, by the rules of a run.

    ``flat`` has the shape (sum of the spaces' sizes,).
    """
    rules = ValueRules(channels)
    wrong = rules.not_finite(flat) | rules.outside(flat)
    for channel, part in zip(channels, rules.layout.slices, strict=True):
        if not wrong[part].any():
            continue
        value = flat[part]
        with suppress(ValueError):
            value = channel.space.unflatten(value)
        if np.isfinite(flat[part]).all():
            findings.add(f"a {kind} lies outside its space", f"{when}: {_located(channel, value)}")
        else:
            findings.add(f"a {kind} is not finite", f"{when}: {value!r} of {channel.uid!r}")


def _located(channel: Any, value: Any) -> str:
    return f"{value!r} of {channel.uid!r} is not in {channel.space}"


def sample_flat(channels: Sequence[Any], rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Sample a value from each channel's space; return them as one flat vector."""
    parts = [channel.space.flatten(channel.space.sample(rng)) for channel in channels]
    return np.concatenate(parts) if parts else np.empty(0)


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal; NaN equals NaN.

    Arrays, mappings, lists, tuples and dataclasses are compared by content. Objects that cannot be compared, or only by
    identity, count as equal.
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
