"""Bodies in pictures: what each came to in an episode of the phase, or in one of its environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.store import BodyChoice

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store


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
    ``name``, ``sum`` and ``mean`` (over the steps of all episodes that its environment had within
    that of the phase).
    """
    import pandas as pd

    keys = ["phase", "worker", "body", "episode", "evaluation", "agent"]
    rows = store.body_episodes(
        *(run, phase, choice.agent),
        evaluation=evaluation,
        **choice.around,
    )
    sums = [name for name in map(str, rows) if name.endswith("_sum")]
    grouped = rows.groupby(keys, sort=False)[["steps", *sums]].sum(min_count=1).reset_index()
    parts = []
    for name in sums:
        reward = name.removesuffix("_sum").removeprefix("reward.") if name != "objective_sum" else ""
        part = grouped[keys].assign(kind="reward" if reward else "objective", name=reward)
        parts.append(part.assign(sum=grouped[name], mean=grouped[name] / grouped["steps"]))
    result = pd.concat(parts, ignore_index=True)
    # an agent has no part in the rewards of environments that others are in
    return result[result["sum"].notna() | (result["kind"] == "objective")]


def phases_that_begin_again(store: Store, run: str) -> set[int]:
    """Return the numbers of the phases in which environments begin again on their own."""
    document = store.document(run)
    always = _waits_for_all(document.get("run_config", {}))
    phases = [phase for entry in document.get("schedule", []) for phase in entry.values()]
    return {i for i, phase in enumerate(phases) if always or _waits_for_all(phase.get("simulation", {}))}


def _waits_for_all(section: Mapping[str, Any]) -> bool:
    conditions = section.get("conditions") or []
    return any((condition.get("params") or {}).get("when") == "all" for condition in conditions)


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
