"""Proposals of settings: those of the sampler, and failed settings that are proposed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestrai_mosaik.arsenai.design.growing import GrowingFolder, Setting
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.search_journal import RETRIES, SETTING
from palaestrai_mosaik.arsenai.execution.job import now
from palaestrai_mosaik.arsenai.execution.journal import Journal

from .retries import marked_settings, replaced, waiting
from .samplers import generation_of
from .space import Space


class Proposals:
    """Proposes the settings of a search; one process at a time may do so.

    Args:
        spec: the design of the search.
        journal: its journal.
        growing: its folder.
        worker: the name of this process in the journal.
    """

    def __init__(self, spec: DesignSpec, journal: Journal, growing: GrowingFolder, worker: str):
        self._spec, self._journal, self._growing, self._worker = spec, journal, growing, worker
        self._space = Space(spec)

    def propose(self, number: int) -> Setting:
        """Propose the setting of a new trial, and write it into the journal.

        Raises :class:`~palaestrai_mosaik.core.errors.ExecutionError` if constraints reject all proposals.
        """
        failed = self._to_retry(number)
        return self._propose_new(number) if failed is None else self._propose_again(number, failed)

    def _propose_new(self, number: int) -> Setting:
        proposal = self._space.propose(self._journal, number)
        values = self._growing.values(proposal.unit)
        hash_ = self._growing.expansion.row(values, number).hash("", 0)
        digest = self._growing.expansion.digest(values)
        name, first = self._seeds(number, hash_, digest)
        self._write_params(number, proposal.params)
        attributes = {
            "unit": list(proposal.unit),
            "name": list(name),
            "first": first,
            "hash": hash_,
            "values": digest,
            "rejected": proposal.rejected,
        }
        self._write_setting(number, attributes)
        return Setting(number, proposal.unit, name, first)

    def _seeds(self, number: int, hash_: str, digest: str) -> tuple[tuple[str | int, ...], int]:
        """Return the path of a setting's seeds, and the number of the first setting with the same documents."""
        trials = self._journal.trials()
        earlier = [trial.user_attrs.get(SETTING) for trial in trials[:number]]
        if self._spec.seed_policy == "common":
            # The outcome of a retried setting is that of its retry, so nothing repeats the failed one.
            out = replaced(trials)
            hashes = [None if attrs is None or attrs["first"] in out else attrs["hash"] for attrs in earlier]
            return (), hashes.index(hash_) if hash_ in hashes else number
        same = (at for at, attrs in enumerate(earlier) if attrs is not None and attrs["values"] == digest)
        # A retry has the seeds of the failed setting, so it does not count.
        return ("row", digest, sum(RETRIES not in trials[at].user_attrs for at in same)), number

    def _to_retry(self, number: int) -> int | None:
        """Return the failed setting that the setting ``number`` retries, or None if the sampler proposes it."""
        trial = self._journal.trial(number)
        if RETRIES in trial.user_attrs:
            return int(trial.user_attrs[RETRIES])
        if trial.params or trial.system_attrs:
            # A process was killed while it wrote a proposal of the sampler.
            return None
        marked = marked_settings(self._journal)
        return next(iter(waiting(self._journal.trials(), marked)), None) if marked else None

    def _propose_again(self, number: int, failed: int) -> Setting:
        """Propose a failed setting again, with the same seeds."""
        storage, id_ = self._journal.storage, self._journal.trial_id(number)
        # Written first, so that another process can continue after a kill.
        storage.set_trial_user_attr(id_, RETRIES, failed)
        trial = self._journal.trial(failed)
        for key, value in generation_of(trial).items():
            storage.set_trial_system_attr(id_, key, value)
        self._write_params(number, trial.params)
        attributes = trial.user_attrs[SETTING]
        self._write_setting(number, {**attributes, "first": number, "rejected": 0})
        return Setting(number, tuple(attributes["unit"]), tuple(attributes["name"]), number)

    def _write_params(self, number: int, params: Mapping[str, Any]) -> None:
        id_ = self._journal.trial_id(number)
        for axis, value in params.items():
            distribution = self._space.distributions[axis]
            internal = distribution.to_internal_repr(value)
            self._journal.storage.set_trial_param(id_, axis, internal, distribution)

    def _write_setting(self, number: int, attributes: Mapping[str, Any]) -> None:
        id_ = self._journal.trial_id(number)
        written = {**attributes, "worker": self._worker, "asked": now()}
        self._journal.storage.set_trial_user_attr(id_, SETTING, written)
