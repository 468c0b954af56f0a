"""Bodies in pictures: what each came to in an episode of the phase, or in one of its environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.errors import PalaestraiMosaikError
from palaestrai_mosaik.experiment import only_modules, resolve
from palaestrai_mosaik.experiment.names import named_modules
from palaestrai_mosaik.store import BodyChoice

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

#: what a condition derives from
_CONDITION = "palaestrai_mosaik.simulation.conditions:TerminationCondition"


def many_bodied(store: Store, run: str, phase: int | str | None, choice: BodyChoice) -> set[str]:
    """Return the agents that have to be asked body by body: they have several, or some are picked."""
    bodies = store.bodies(run, phase, choice.agent, **choice.around)
    if choice:
        return set(bodies["agent"])
    counts = bodies.groupby(["phase", "agent"], as_index=False)["count"].sum()
    return set(counts.loc[counts["count"] > 1, "agent"])


def body_outcomes(
    store: Store, run: str, phase: int | str | None, choice: BodyChoice, evaluation: bool | None = False
) -> pd.DataFrame:
    """Return what each body came to in each episode of the phase, in the form of ``Store.outcomes``.

    Columns: ``phase``, ``worker``, ``body``, ``episode``, ``evaluation``, ``agent``, ``kind``,
    ``name``, ``sum`` and ``mean`` (over the steps that have a value, of all episodes that its
    environment had within that of the phase).
    """
    import pandas as pd

    keys = ["phase", "worker", "body", "episode", "evaluation", "agent"]
    rows = store.body_episodes(
        *(run, phase, choice.agent),
        evaluation=evaluation,
        **choice.around,
        counts=True,
    )
    values = [str(name).removesuffix("_sum") for name in rows if str(name).endswith("_sum")]
    counted = [f"{name}_{what}" for name in values for what in ("sum", "count")]
    grouped = rows.groupby(keys, sort=False)[counted].sum(min_count=1).reset_index()
    parts = []
    for name in values:
        reward = name.removeprefix("reward.") if name != "objective" else ""
        part = grouped[keys].assign(kind="reward" if reward else "objective", name=reward)
        total, count = grouped[f"{name}_sum"], grouped[f"{name}_count"]
        parts.append(part.assign(sum=total, mean=total / count.where(count > 0)))
    result = pd.concat(parts, ignore_index=True)
    # an agent has no part in the rewards of environments that others are in
    return result[result["sum"].notna() | (result["kind"] == "objective")]


def phases_that_begin_again(store: Store, run: str) -> set[int]:
    """Return the numbers of the phases in which environments begin again on their own."""
    document = store.document(run)
    always = _begins_again(document.get("run_config", {}))
    phases = [phase for entry in document.get("schedule", []) for phase in entry.values()]
    return {i for i, phase in enumerate(phases) if always or _begins_again(phase.get("simulation", {}))}


def _begins_again(section: Mapping[str, Any]) -> bool:
    conditions = list(section.get("conditions") or [])
    conditions += [section["condition"]] if section.get("condition") else []
    return any(_resets(str(one["name"]), one.get("params") or {}) for one in conditions)


def _resets(name: str, params: Mapping[str, Any]) -> bool:
    """Whether a condition lets environments begin again.

    The condition itself is asked, if it is one of this package, or its module has been imported
    already: a look at results, maybe of somebody else, imports nothing that their document names.
    """
    try:
        with only_modules(module for module in named_modules(name) if module in sys.modules):
            found = resolve(name, "condition")
        if not any(f"{one.__module__}:{one.__qualname__}" == _CONDITION for one in found.__mro__):
            return False
        made = found(**deepcopy(dict(params)))
    except (PalaestraiMosaikError, TypeError):
        # nor may it be installed here, or be the one that ran
        return bool(params.get("when") == "all")
    return bool(getattr(made, "environments_reset", False))


def own_episodes(store: Store, run: str, phase: int, choice: BodyChoice, every: int | None) -> pd.DataFrame:
    """Return the episodes of the bodies' environments, in the order in which they ended.

    Columns: ``agent``, ``phase``, ``worker``, ``episode``, ``evaluation``, ``after``, ``sum`` and
    ``mean`` of the objective. Episodes that did not end by themselves are left out. ``after``
    counts the training episodes of the worker until then; an evaluation, which ran after
    ``every`` episodes of the phase, comes after those that had ended by then.
    """
    frame = store.body_episodes(
        *(run, phase, choice.agent),
        evaluation=None,
        **choice.around,
    )
    frame = frame[frame["complete"].astype(bool)].reset_index(drop=True)
    frame = frame.rename(columns={"objective_sum": "sum", "objective_mean": "mean"})
    trained = frame[~frame["evaluation"].astype(bool)]
    after = trained.groupby(["agent", "worker"]).cumcount() + 1
    frame["after"] = after.reindex(frame.index)
    for i, row in frame[frame["after"].isna()].iterrows():
        before = (trained["agent"] == row["agent"]) & (trained["worker"] == row["worker"])
        before &= trained["episode"] < (row["episode"] + 1) * (every or 1)
        frame.loc[i, "after"] = int(before.sum())
    columns = ["agent", "phase", "worker", "episode", "evaluation", "after", "sum", "mean"]
    return frame[columns].astype({"after": int})
