"""The reasons for which episodes and phases end, in words.

The store records the name of the class of the termination condition, and its ``termination_reason`` if it has one:
``AgentEvaluationObjectiveTerminationCondition: success``. Other ends are recorded as a word: ``failed``.
"""

from __future__ import annotations

_SUFFIX = "TerminationCondition"
_EPISODES = "all episodes done"
_ENVIRONMENT = "environment ended"
#: by recorded word, the reason
_WORDS = {
    "episodes": _EPISODES,
    "environments": "all environments ended",
    "pruned": "stopped early by the search",
}
#: by class and whether a phase has ended, the reason
_CONDITIONS = {
    ("AgentObjective", False): "objective reached",
    ("AgentObjective", True): "objective reached",
    ("Environment", False): _ENVIRONMENT,
    ("Environment", True): _ENVIRONMENT,
    ("MaxEpisodes", True): _EPISODES,
    ("VanillaRunGovernor", False): _ENVIRONMENT,
    ("VanillaRunGovernor", True): _EPISODES,
    ("VanillaSimController", False): _ENVIRONMENT,
    ("VanillaSimController", True): _ENVIRONMENT,
    ("AgentEvaluationObjective", False): _ENVIRONMENT,
    ("AgentEvaluationObjective", True): _EPISODES,
}
#: by class and recorded reason, the reason in words
_REASONS = {
    ("AgentEvaluationObjective", "success"): "evaluations good enough",
    ("AgentEvaluationObjective", "plateau"): "evaluations no longer improve",
}
#: by class of a condition of others that this process has loaded, the first line of its documentation
_summaries: dict[str, str] = {}


def describe_condition(condition: type) -> None:
    """Keep the first line of the documentation of a class of conditions, for :func:`ending`."""
    lines = (condition.__dict__.get("__doc__") or "").strip().splitlines()
    _summaries[condition.__name__] = lines[0].strip().rstrip(".") if lines else ""


def ending(reason: str, *, episode: bool = False) -> str:
    """Return in words why a phase has ended, with the class of the condition in parentheses.

    A condition of others is described by its ``termination_reason``, else by the first line of its documentation if
    this process has loaded it.

    Args:
        reason: the recorded reason.
        episode: whether an episode has ended, not a phase.

    Returns:
        ``all episodes done (VanillaRunGovernor)``, or the name of the class if nothing else is known.
    """
    name, _, detail = reason.partition(": ")
    short = name.removesuffix(_SUFFIX) or name
    words = _REASONS.get((short, detail)) or detail
    if not words and name.endswith(_SUFFIX):
        words = _CONDITIONS.get((short, not episode), "")
    words = words or _summaries.get(name, "")
    if words:
        return f"{words} ({short})"
    return _WORDS.get(reason, reason)
