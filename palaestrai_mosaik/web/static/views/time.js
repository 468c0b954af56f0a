// A run over simulated time: panels of columns of an episode, of one phase or of several laid over one another.

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { get, offline } from "web/data";
import { number } from "web/format";
import { choices as choicesOfAddress, keepChoices } from "web/page";
import { loading, problem, shown, useResource } from "web/resource";
import { extended, laidOver, refined, scale } from "web/series";
import { Controls, Panel, within, zoomed } from "web/time_panel";

/** milliseconds after the last zoom until its details are asked for */
const PAUSE = 250;

export function View({ run, running }) {
  const recorded = useResource(`run/${run}/time`);
  return shown([recorded], () => h(Episodes, { run, running, recorded }));
}

function Episodes({ run, running, recorded }) {
  const chosen = useSignal(useMemo(fromAddress, []));
  /** the ticks that are looked at; null: the whole episode */
  const span = useSignal(useMemo(spanOfAddress, []));
  const first = useRef(true);
  useSignalEffect(() => {
    const kept = [run, chosen.value, span.value];
    const timer = first.current ? 0 : setTimeout(() => remember(...kept), PAUSE);
    first.current = false;
    return () => clearTimeout(timer);
  });
  const change = (changes) => { chosen.value = { ...chosen.peek(), ...changes }; };
  const answer = offline ? useCarried(run, chosen, recorded) : useSeries(run, chosen, recorded, running);
  return [
    h(Controls, { recorded, chosen, answer, change, whole: () => { span.value = null; } }),
    !offline && h(Adding, { recorded, answer, change }),
    h("div", { role: "status" }, answer.error.value && problem(answer.error.value)),
    answer.loaded.value ? h(Panels, { run, running, chosen, answer, span, change }) : !answer.error.value && loading(),
  ];
}

/** The lines of what is chosen; those of a run that goes on are extended. */
function useSeries(run, chosen, recorded, running) {
  return useResource(`run/${run}/series`, {
    query: () => queryOf(chosen.value),
    since: ({ phases, patterns }) => (phases.length ? { ...pinned(phases.slice(-1), patterns, chosen.peek()),
      start: Math.max(0, phases.at(-1).complete + 1) } : {}),
    seconds: 1,
    live: () => running.value,
    take(now, last) {
      if (!last) return now;
      if (last.phases.length) {
        const newest = last.phases.at(-1), { phases, panel, episode } = chosen.peek();
        const moved = (episode === undefined && now.phases[0].last > newest.episode) || (!phases.length && now.newest > newest.phase);
        if (!moved) return panel && !panel.length ? last : extended(last, now);
      } else if (!now.phases.length) return last;
      // another phase or episode has begun
      recorded.reload();
      return undefined;
    },
  });
}

/** The lines of what is chosen in a page in one file, which has each phase by itself. */
function useCarried(run, chosen, recorded) {
  const value = useSignal(undefined), error = useSignal(null), loaded = useComputed(() => value.value !== undefined);
  const wanted = useComputed(() => {
    const names = recorded.value.value.phases.map((one) => String(one.phase)), picked = chosen.value.phases.filter((one) => names.includes(String(one)));
    return (picked.length ? picked : names.slice(-1)).join(",");
  });
  useSignalEffect(() => {
    const asked = wanted.value;
    Promise.all(asked.split(",").map((phase) => get(`run/${run}/series`, { phases: phase }))).then(
      (answers) => { if (asked === wanted.peek()) value.value = laidOver(answers); }, (problem_) => { error.value = problem_.message; });
  });
  return { value, error, loaded };
}

/** What of the choice a request needs. */
function queryOf({ phases, worker, episode, evaluation, body, incarnation, panel }) {
  return { phases: phases.length ? phases.join(",") : undefined, worker, episode, evaluation, body, incarnation,
    patterns: panel ? panel.join("\n") : undefined };
}

/** The phases and episodes that are shown, so that a later request means the same. */
function pinned(phases, patterns, { episode }) {
  const same = new Set(phases.map((one) => one.episode)).size === 1;
  return { phases: phases.map((one) => one.phase).join(","), patterns: patterns.join("\n"),
    worker: phases[0].worker, episode: episode ?? (same ? phases[0].episode : undefined) };
}

const KINDS = { reading: "readings", setpoint: "set-points", reward: "rewards" };

function Adding({ recorded, answer, change }) {
  const input = useRef(null), { patterns, suggestions } = recorded.value.value;
  function add(event) {
    event.preventDefault();
    const pattern = input.current.value.trim(), shownPatterns = answer.value.value?.patterns ?? [];
    if (!pattern || shownPatterns.includes(pattern)) return;
    input.current.value = "";
    change({ panel: [...shownPatterns, pattern] });
  }
  const said = (one) => `${number(one.count)} ${KINDS[one.kind] ?? one.kind}${one.unit ? `, ${one.unit}` : ""}`;
  return h("form", { class: "controls adding", onsubmit: add },
    h("label", {}, "Columns ", h("input", { list: "patterns", id: "pattern", size: 36, autocomplete: "off", ref: input,
      placeholder: patterns[0] ?? "*" })),
    h("datalist", { id: "patterns" }, suggestions.map((one) => h("option", { value: one.pattern, label: said(one) }))),
    h("button", {}, "Add a panel"));
}

function Panels({ run, running, chosen, answer, span, change }) {
  const details = useSignal(null), { value } = answer.value, axis = scale(value);
  const removed = chosen.value.panel?.length === 0, window = zoomed(span.value, value);
  useSignalEffect(() => {
    const now = answer.value.value, looked = span.value, { panel } = chosen.value;
    if (offline || !looked || !now.span || panel?.length === 0) {
      details.value = null;
      return undefined;
    }
    // all points of the window, where lines have more than were sent
    const thin = now.panels.some((one) => one.lines.some((line) => line.points > line.x.length));
    if (!thin) return undefined;
    const request = new AbortController(), [from, to] = zoomed(looked, now);
    const part = { start: Math.max(0, Math.floor(from)), stop: Math.ceil(to) + 1 };
    const timer = setTimeout(() => get(`run/${run}/series`, { ...queryOf(chosen.peek()), ...pinned(now.phases, now.patterns, chosen.peek()), ...part },
      request.signal).then((found) => { details.value = { ...found, ...part }; }, () => {
      // the lines stay as they are
    }), PAUSE);
    return () => {
      clearTimeout(timer);
      request.abort();
    };
  });
  const zoom = (from, to) => {
    const next = within([from, to], zoomed(span.peek(), answer.value.peek()), answer.value.peek().span);
    if (next !== undefined) span.value = next;
  };
  const general = value.problems.filter((one) => one.pattern === undefined);
  if (removed || (!value.panels.length && !value.problems.length)) {
    return h("p", { class: "quiet", role: "status" }, running.value && !removed ? "Nothing is recorded yet." : "Nothing is shown: add a panel.");
  }
  // in a page in one file, a pattern may mean nothing in the phases that are shown
  const empty = (i) => offline && !value.panels.some((one) => one.pattern === i);
  return [
    general.map((one) => h("p", { class: "problem", role: "alert" }, one.message)),
    h("div", { class: "time-panels" }, value.patterns.map((pattern, i) => !empty(i) && h("section", { key: pattern, "aria-label": `Panel ${pattern}` },
      h("header", { class: "controls" }, h("h2", {}, pattern),
        !offline && h("button", { type: "button", "aria-label": `Remove the panel ${pattern}`, onclick: () => {
          change({ panel: value.patterns.filter((_, k) => k !== i) });
          document.getElementById("pattern").focus();
        } }, "Remove")),
      [...new Set(value.problems.filter((one) => one.pattern === i).map((one) => one.message))].map((text) => h("p", { class: "problem" }, text)),
      value.panels.filter((one) => one.pattern === i).map((panel) => h(Panel, { key: `${panel.kind} ${panel.y_label}`, panel: refined(panel, details.value),
        answer: value, axis, window, zoom, whole: () => { span.value = null; } }))))),
  ];
}

// the address has all that was chosen: a link shows the same

const whole = (text) => (text === null || text === "" ? undefined : Number(text));

function fromAddress() {
  const kept = choicesOfAddress();
  const numbers = Object.fromEntries(["worker", "episode", "body", "incarnation"].map((name) => [name, whole(kept.get(name))]));
  return { ...numbers, phases: (kept.get("phases") ?? "").split(",").filter(Boolean), evaluation: kept.get("evaluation") ?? undefined,
    panel: kept.has("panel") ? kept.getAll("panel").filter(Boolean) : undefined };
}

function spanOfAddress() {
  const [from, to] = ["from", "to"].map((name) => whole(choicesOfAddress().get(name)));
  return from < to ? [from, to] : null;
}

function remember(run, { phases, panel, ...rest }, span) {
  const kept = new URLSearchParams();
  if (phases.length) kept.set("phases", phases.join(","));
  for (const one of panel?.length === 0 ? [""] : panel ?? []) kept.append("panel", one);
  const numbers = { ...rest, from: span?.[0], to: span?.[1] };
  for (const [name, value] of Object.entries(numbers)) if (value !== undefined) kept.set(name, String(Number(Number(value).toPrecision(9))));
  keepChoices(`#/run/${encodeURIComponent(run)}/time`, kept);
}
