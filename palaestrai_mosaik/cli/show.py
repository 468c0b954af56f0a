"""``palaestrai-mosaik show``: the results of a run as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core.errors import FINISHED
from palaestrai_mosaik.core.printing import Printable, count, counted_by_pattern
from palaestrai_mosaik.store import BodyChoice, Store
from palaestrai_mosaik.types.endings import ending

from .output import (
    answer,
    compose,
    duration,
    label_lines,
    rows_of,
    say,
    status,
    table,
    wants_json,
    wide,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store.store import StoreLocation

# maximum number of printed episodes in a phase, half of them from its end
_EPISODES = 12
# maximum number of printed columns of each kind in an agent's steps
_COLUMNS = 12
_REWARDS = 3
# columns that identify a row of an agent with several bodies
_PLACES = ("environment", "body", "environment_episode")
_ID_WIDTH = 16


def show(
    location: StoreLocation, run: str, phase: int | str | None, choice: BodyChoice, steps: int | None
) -> int:
    """Print the results of a run, optionally with its first and last ``steps`` steps.

    If bodies are selected, their episodes are printed individually.
    """
    with location.look() as store:
        uid = store.find_run(run)
        bodies = store.bodies(uid, phase, choice.agent, **choice.filters)  # first, to report unknown names
        episodes = store.episodes(uid, phase, choice.agent)
        evaluations = store.episodes(uid, phase, choice.agent, evaluation=True)
        phases, every = store.phases(uid), store.evaluate_every(uid)
        if phase is not None:
            phases = phases[(phases["phase"] == phase) | (phases["name"] == phase)]
        if wants_json():
            frames = {"phases": phases, "bodies": bodies, "episodes": episodes, "evaluations": evaluations}
            answer(_as_json(store, uid, frames, choice, steps))
            return FINISHED
        say(*_header(store, uid))
        _print_section("phases", _phase_table(phases, episodes))
        _print_section("agents", _agent_table(bodies))
        for row in rows_of(phases):
            title = f"phase {row.phase} {row.name!r}"
            _print_section(f"bodies in {title}", _body_lines(bodies[bodies["phase"] == row.phase]))
            if choice:
                _print_body_episodes(store, uid, row, choice)
                continue
            for what, frame, after in (
                ("episodes", episodes, None),
                ("evaluations", evaluations, every.get(row.phase)),
            ):
                selected = frame[frame["phase"] == row.phase]
                if len(selected):
                    _print_section(f"{what} of {title}", _episode_table(selected, after))
        if steps is not None:
            for row in rows_of(phases):
                _print_steps(store, uid, row, bodies, choice, steps)
        _print_section("recorded", _stream_table(store, uid, phase))
        _print_errors(store, uid)
    return FINISHED


def _as_json(
    store: Store, uid: str, frames: dict[str, pd.DataFrame], choice: BodyChoice, steps: int | None
) -> dict[str, Any]:
    phases = list(frames["phases"]["phase"])
    (run,) = store.runs(uid).to_dict("records")
    data = {"run": run, "folder": store.instance_directory(uid), **frames}
    chosen = {"agent": choice.agent, **choice.filters}
    if choice:
        data["body_episodes"] = {
            phase: store.body_episodes(uid, phase, evaluation=None, **chosen) for phase in phases
        }
    if steps is not None:
        data["steps"] = _steps_data(store, uid, frames["bodies"], choice, steps)
    streams = store.streams(uid)
    data["streams"] = streams[(streams["kind"] != "wall") & streams["phase"].isin(phases)]
    return data | {"warnings": store.warnings(uid), "errors": store.errors(uid)}


def _steps_data(
    store: Store, uid: str, bodies: pd.DataFrame, choice: BodyChoice, number: int
) -> list[dict[str, Any]]:
    """Return the first and last steps of each agent in each phase."""
    data = []
    for phase, agent in bodies[["phase", "agent"]].drop_duplicates().itertuples(index=False):
        frame = store.steps(uid, int(phase), agent, **choice.filters)
        whole = len(frame) <= 2 * number
        parts = {"steps": frame} if whole else {"first": frame.head(number), "last": frame.tail(number)}
        data.append({"phase": int(phase), "agent": agent, "rows": len(frame), **parts})
    return data


def _header(store: Store, uid: str) -> Iterator[str]:
    run = store.runs(uid).iloc[0]
    ended = (
        "" if run["ended"] is None or run["ended"] != run["ended"] else f", took {duration(run['duration'])}"
    )
    packages = ", ".join(f"{name} {version}" for name, version in (run["packages"] or {}).items())
    rows = [
        ("run", uid),
        ("document", f"{run['document']} (hash {run['hash'][:_ID_WIDTH]})"),
        ("status", status(run["status"])),
        ("started", f"{run['started'].to_pydatetime().astimezone():%Y-%m-%d %H:%M:%S %Z}{ended}"),
        ("seed", str(run["seed"])),
        ("where", f"{run['host']}, process {run['pid']}"),
        ("versions", packages),
        ("folder", str(store.instance_directory(uid))),
    ]
    if run["experiment"]:
        rows.insert(2, ("experiment", run["experiment"]))
    rows[1:1] = label_lines(store.labels(uid))
    indent = max(len(title) for title, _ in rows) + 2
    for title, value in rows:
        line = compose(title.ljust(indent), value)
        yield line if isinstance(value, Printable) else wrapped(line, indent)


def _print_section(title: str, text: str) -> None:
    if text:
        say(f"\n{title}", text)


def _phase_table(phases: pd.DataFrame, episodes: pd.DataFrame) -> str:
    once = episodes.drop_duplicates(["phase", "worker", "episode"])
    done = once.groupby("phase")["steps"].sum()
    rows = [
        (
            str(row.phase),
            row.name,
            row.mode,
            row.controller,
            row.workers,
            _of(row.episodes_done, row.episodes, row.workers),
            int(done.get(row.phase, 0)),
            ending(row.reason) if isinstance(row.reason, str) else None,
        )
        for row in rows_of(phases)
    ]
    headers = ("phase", "name", "mode", "controller", "workers", "episodes", "steps", "ended by")
    return table(headers, rows, indent="  ", leaving=("workers", "controller", "mode"), whole=("name",))


def _agent_table(bodies: pd.DataFrame) -> str:
    """Format the sensors and actuators of agents as rows, with the phases if they differ between phases."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in rows_of(bodies):
        channels = (
            ", ".join(uids) if wide() else counted_by_pattern(uids) for uids in (row.sensors, row.actuators)
        )
        groups.setdefault((row.agent, *channels), []).append(str(row.phase))
    phases = {
        agent: dict.fromkeys(map(str, bodies.loc[bodies["agent"] == agent, "phase"])) for agent, *_ in groups
    }
    rows = [
        (
            agent,
            None if len({*phases[agent]}) == len({*where}) else ", ".join(dict.fromkeys(where)),
            sensors,
            actuators,
        )
        for (agent, sensors, actuators), where in groups.items()
    ]
    headers = ("agent", "in phases", "sensors", "actuators")
    return table(headers, rows, indent="  ", whole=("agent",))


def _of(done: int, planned: Any, workers: int) -> str:
    # pandas' NA has no truth value, and comparisons with it are NA
    total = None if planned is None or str(planned) == "<NA>" else int(planned) * workers
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


def _episode_table(episodes: pd.DataFrame, every: int | None = None) -> str:
    """Format episodes as rows; for evaluations, with the number of training episodes before them."""
    chosen = episodes.drop_duplicates(["worker", "episode"])[["worker", "episode"]]
    left_out = len(chosen) - _EPISODES
    if left_out <= 0:
        return _episode_rows(episodes, every)
    import pandas as pd

    head = episodes.merge(chosen.head(_EPISODES // 2))
    tail = episodes.merge(chosen.tail(_EPISODES // 2))
    lines = _episode_rows(pd.concat([head, tail]), every).split("\n")
    lines.insert(1 + len(head), f"  ... {count(left_out, 'more episode')}")
    return "\n".join(lines)


def _episode_rows(episodes: pd.DataFrame, every: int | None) -> str:
    several = episodes["worker"].max() > 0
    rewards = _reward_columns(episodes, "_mean")
    titles = ["worker", "episode", "after episodes", "steps", "ended by", "agent"]
    titles += ["objective mean", "sum", "min", "max"]
    titles += rewards.values()
    least = [*reversed(rewards.values()), "min", "max", "sum", "ended by"]
    rows: list[list[Any]] = []
    last = None
    row: Any
    for _, row in episodes.iterrows():
        key = (row["worker"], row["episode"])
        after = None if every is None else every * (row["episode"] + 1)
        start: list[Any] = [row["worker"] if several else None, row["episode"], after]
        start += [row["steps"], ending(row["ended_by"], episode=True)]
        if key == last:
            start = [None if value is None else "" for value in start]
        last = key
        values = [row.get(f"objective_{moment}") for moment in ("mean", "sum", "min", "max")]
        rows.append([*start, row["agent"], *values, *(row[name] for name in rewards)])
    return table(titles, rows, indent="  ", leaving=least)


def _reward_columns(frame: pd.DataFrame, ending: str) -> dict[str, str]:
    """Return the first columns of rewards with this ending and any values, with their titles."""
    columns = [name for name in map(str, frame) if name.startswith("reward.") and name.endswith(ending)]
    return {
        name: f"{name.removeprefix('reward.').removesuffix(ending)} {ending[1:]}"
        for name in [name for name in columns if frame[name].notna().any()][:_REWARDS]
    }


def _body_lines(bodies: pd.DataFrame) -> str:
    """Format a line for each agent with several bodies or with labelled bodies."""
    lines = []
    for agent, selected in bodies.groupby("agent", sort=False):
        if selected["count"].sum() == 1 and selected["name"].isna().all():
            continue
        groups = []
        for group in rows_of(selected):
            environment = "several environments" if group.environment is None else group.environment
            numbers = f"{group.first} to {group.first + group.count - 1}"
            label = "" if group.name is None else f"{group.name} "
            what = f"body {group.first}" if group.count == 1 else f"{group.count:,} bodies"
            groups.append(f"{label}{what} in {environment}" + (f" ({numbers})" if group.count > 1 else ""))
        lines.append(f"  {agent}: {'; '.join(groups)}")
    return "\n".join(lines)


def _print_body_episodes(store: Store, uid: str, phase: Any, choice: BodyChoice) -> None:
    rows = store.body_episodes(uid, phase.phase, choice.agent, evaluation=None, **choice.filters)
    half = _EPISODES // 2
    parts = [rows] if len(rows) <= _EPISODES else [rows.head(half), rows.tail(half)]
    rewards = _reward_columns(rows, "_sum")
    titles = ["agent", "body", "worker", "episode", "own episode", "evaluation", "steps", "ended"]
    titles += ["objective mean", "sum", *rewards.values()]
    cells: list[list[Any]] = []
    for part in parts:
        if cells:
            cells.append(["..."] + [""] * (len(titles) - 1))
        cells += [_body_cells(row, rewards) for _, row in part.iterrows()]
    title = f"episodes of bodies in phase {phase.phase} {phase.name!r} ({count(len(rows), 'episode')})"
    _print_section(title, table(titles, cells, indent="  ") if cells else "  none yet")


def _body_cells(row: Any, rewards: Iterable[str]) -> list[Any]:
    ends = [word for word in ("terminated", "truncated") if row[word]]
    ended = ", ".join(ends) if row["terminated"] or row["complete"] else None
    return [
        *(row["agent"], row["body"], row["worker"], row["episode"], row["environment_episode"]),
        *("yes" if row["evaluation"] else None, row["steps"], ended),
        *(row["objective_mean"], row["objective_sum"], *(row[name] for name in rewards)),
    ]


def _print_steps(
    store: Store, uid: str, phase: Any, bodies: pd.DataFrame, choice: BodyChoice, number: int
) -> None:
    for name in dict.fromkeys(bodies.loc[bodies["phase"] == phase.phase, "agent"]):
        frame = store.steps(uid, phase.phase, name, **choice.filters)
        title = f"steps of agent {name!r} in phase {phase.phase} {phase.name!r} ({count(len(frame), 'row')})"
        _print_section(title, _steps_table(frame, number) if len(frame) else "  none yet")


def _step_columns(frame: pd.DataFrame) -> list[str]:
    """Return the printed columns of steps: those that identify a row, and the first ones of each kind."""
    workers = ["worker"] if frame["worker"].max() > 0 else []
    names = [*workers, *(name for name in _PLACES if name in frame), "episode", "step", "time"]
    for kind in ("reading.", "setpoint.", "reward."):
        names += [name for name in map(str, frame) if name.startswith(kind)][:_COLUMNS]
    return [*names, "objective"]


def _steps_table(frame: pd.DataFrame, number: int) -> str:
    """Format steps as columns and values as rows, because value names are long and numerous."""
    names = _step_columns(frame)
    # terminated and truncated are not listed
    left_out = len(frame.columns) - len(names) - ("worker" not in names) - 2
    rows: list[list[Any]] = [[name, *frame[name]] for name in names]
    if len(frame) > 2 * number:
        rows = [[name, *values[:number], "...", *values[-number:]] for name, *values in rows]
    columns = len(rows[0])
    # those in the middle leave first
    middle = sorted(range(1, columns), key=lambda index: abs(index - columns / 2))
    dots = [index for index in middle if rows[0][index] == "..."]
    leaving = [index for index in middle if index not in dots]
    text = table(["" for _ in rows[0]], rows, indent="  ", leaving=leaving).partition("\n")[2]
    return text + (f"\n  and {count(left_out, 'more value')} (see export)" if left_out > 0 else "")


def _stream_table(store: Store, uid: str, phase: int | str | None) -> str:
    streams = store.streams(uid, phase)
    streams = streams[(streams["kind"] != "wall") & (streams["rows"].fillna(1) > 0)]
    # each group of identical bodies has a separate stream
    several = set(streams.loc[streams["group"].fillna(0) > 0, "name"])
    rows = [
        (
            str(row.phase),
            f"{row.kind} (evaluation)" if row.evaluation else row.kind,
            f"{row.name}, group {row.group}" if row.kind == "agent" and row.name in several else row.name,
            *(row.rows, row.parts),
            # bytes of images depend on the version of the imaging library
            "" if row.kind == "frames" else row.digest and row.digest[:_ID_WIDTH],
        )
        for row in rows_of(streams)
    ]
    headers = ("phase", "what", "name", "rows", "files", "digest (same seed, same digest)")
    return table(headers, rows, indent="  ") if rows else ""


def _print_errors(store: Store, uid: str) -> None:
    say(*(compose("\n", status("warning:", "warning"), f" {text}") for text in store.warnings(uid)["text"]))
    for error in rows_of(store.errors(uid)):
        where = "" if str(error.phase) == "<NA>" else f" in phase {error.phase}"
        say(compose("\n", status("error"), where))
        say(*(f"  {line}".rstrip() for line in error.traceback.rstrip("\n").split("\n")))
