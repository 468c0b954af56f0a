// A run over simulated time: panels of columns of an episode, of one phase or of several laid over one another.

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { Figure } from "web/chart";
import { get, offline } from "web/data";
import { number } from "web/format";
import { choices as choicesOfAddress, Entry, keepChoices } from "web/page";
import { loading, problem, shown, useResource } from "web/resource";
import { caption, extended, laidOver, options, refined, scale, table } from "web/series";

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

function Controls({ recorded, chosen, answer, change, whole }) {
  const { phases = [] } = answer.value.value ?? {}, shown_ = phases.map((one) => one.phase);
  const all = recorded.value.value.phases, those = all.filter((one) => shown_.includes(one.phase));
  const most = (name) => Math.max(0, ...those.map((one) => one[name]));
  const workers = [...new Set(those.flatMap((one) => one.episodes.map((each) => each.worker)))].sort((a, b) => a - b);
  const { episode, evaluation } = chosen.value;
  const evaluates = those.some((one) => one.episodes.some((each) => each.evaluation)) || evaluation;
  const several = most("bodies") > 1 ? "body" : "incarnation", members = most(several === "body" ? "bodies" : "incarnations");
  const last = Math.max(0, ...phases.map((one) => one.last));
  const pickedText = (name) => (text) => change({ [name]: text === "" ? undefined : Number(text) });
  const picked = (name) => (event) => pickedText(name)(event.target.value);
  const pick = (phase, on) => change({ phases: all.map((one) => one.phase).filter((one) => (one === phase ? on : shown_.includes(one))) });
  return h("div", { class: "controls" },
    h("fieldset", { class: "phases" }, h("legend", {}, "Phases"), all.map((one) => h("label", { key: one.phase },
      h("input", { type: "checkbox", value: one.phase, id: `phase-${one.phase}`, checked: shown_.includes(one.phase),
        onchange: (event) => pick(one.phase, event.target.checked) }),
      one.name || `phase ${one.phase}`))),
    offline ? h("span", { class: "quiet" }, episodesOf(phases)) : [
      last > 0 && h("label", { key: "episode" }, "Episode ", h(Entry, { type: "number", id: "episode", min: 0, max: last,
        value: episode ?? "", placeholder: `last (${last})`, entered: pickedText("episode") })),
      evaluates && h("label", { key: "evaluation" }, "of ", h("select", { id: "evaluation", value: evaluation ?? "", onchange: (event) =>
        change({ evaluation: event.target.value || undefined, episode: undefined }) },
      h("option", { value: "" }, "training and test"), h("option", { value: "1" }, "evaluation"))),
      workers.length > 1 && h("label", { key: "worker" }, "Worker ", h("select", { id: "worker", value: phases[0]?.worker, onchange: picked("worker") },
        workers.map((one) => h("option", { value: one }, one)))),
      members > 1 && h("label", { key: "member" }, `${several[0].toUpperCase()}${several.slice(1)} `,
        h("select", { id: "member", value: chosen.value[several] ?? "", onchange: picked(several) }, h("option", { value: "" }, "all, as a band"),
          Array.from({ length: members }, (_, i) => h("option", { value: i }, i)))),
    ],
    h("button", { type: "button", onclick: whole }, "Whole episode"));
}

/** Which episodes are shown, where one cannot choose: "episode 3", or "episodes 3, 0". */
function episodesOf(phases) {
  const numbers = [...new Set(phases.map((one) => one.episode))];
  return numbers.length ? `episode${numbers.length > 1 ? "s" : ""} ${numbers.join(", ")}` : "";
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

function Panel({ panel, answer, axis, window, zoom, whole }) {
  const view = { panel, answer, axis, window }, latest = useRef(view);
  latest.current = view;
  function listen(chart) {
    chart.on("datazoom", () => {
      const { startValue, endValue } = chart.getOption().dataZoom[0], { tick } = latest.current.axis;
      zoom(tick(startValue), tick(endValue));
    });
    chart.getZr().on("dblclick", whole);
    // drawing over the panel selects a span; a finger on the panel scrolls the page
    if (matchMedia("(pointer: coarse)").matches) return;
    chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
  }
  function keys(event) {
    if (!answer.span || event.ctrlKey || event.metaKey || event.altKey) return;
    const [a, b] = window, width = b - a, middle = (a + b) / 2, [first, last] = answer.span;
    const shifted = (by) => {
      const step = Math.max(first - a, Math.min(last - b, by));
      zoom(a + step, b + step);
    };
    const closer = () => zoom(middle - width / 4, middle + width / 4);
    const acts = { "+": closer, "=": closer, "-": () => zoom(middle - width, middle + width),
      ArrowLeft: () => shifted(-width / 4), ArrowRight: () => shifted(width / 4), 0: whole, Escape: whole };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }
  const text = caption(panel, answer);
  return h(Figure, { title: panel.y_label, height: 300, created: listen, keys,
    description: `${panel.y_label}: ${answer.patterns[panel.pattern]} over time. ${text} `
      + "Plus and minus zoom, the arrow keys move, 0 shows the whole episode.",
    options: (base) => options(view, base), numbers: (most) => table(view, most) }, h("p", { class: "quiet note" }, text));
}

/** The ticks that are looked at; a span that lies outside of what there is shows all of it. */
function zoomed(span, answer) {
  if (!answer.span) return [0, 1];
  return span && span[0] < answer.span[1] && span[1] > answer.span[0] ? span : answer.span;
}

/** The span of a zoom within an episode; null: all of it; undefined: no other one than now. */
function within([from, to], [was, will], whole) {
  if (!whole) return undefined;
  const [first, last] = whole, least = Math.max((last - first) / 1e5, 1e-9), near = (x, y) => Math.abs(x - y) < least / 10;
  const [a, b] = [Math.max(first, Math.min(from, to)), Math.min(last, Math.max(from, to))];
  if (b - a < least || (near(a, was) && near(b, will))) return undefined;
  return near(a, first) && near(b, last) ? null : [a, b];
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
