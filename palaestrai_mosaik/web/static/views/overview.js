// How a run goes: its phases, the curves of its episodes, and what was warned of.

import { useComputed, useSignal } from "@preact/signals";
import { h } from "preact";
import { look } from "web/chart";
import { CurveFigure, EpisodeValues, FoldChoice, groups } from "web/curves";
import { has, offline, rowsOf } from "web/data";
import { count, date, duration, number } from "web/format";
import { keepChoices } from "web/page";
import { shown, useResource } from "web/resource";
import { WindowTable } from "web/window_table";

/** statistics that are drawn before somebody asks for others */
const MOST_STATISTICS = 4;

export function View({ run, facts, running, query }) {
  // bodies take longer to read: what is known without them is drawn first
  const answer = useResource(`run/${run}/curves`, {
    query: () => (offline ? {} : { bands: 0 }),
    since: ({ version }) => ({ known: version, bands: undefined }),
    seconds: 1,
    live: () => running.value,
    ended: ({ unread }, live) => !live && !unread,
    take: (now, last) => ({ ...now, curves: now.curves ?? last?.curves, unfinished: now.unfinished ?? last?.unfinished ?? [] }),
  });
  return [h(Failure, { run, facts }), shown([answer], () => [
    h(Phases, { answer, facts }),
    h(Curves, { answer, run, query }),
    !offline && h(Episodes, { run, running })])];
}

function Failure({ run, facts }) {
  const { error } = facts.value.value;
  return error && h("p", { class: "problem" }, error, " ",
    has(`run/${run}/record`) && h("a", { href: `#/run/${encodeURIComponent(run)}/record` }, "Traceback"));
}

function Phases({ answer, facts }) {
  const phases = rowsOf(answer.value.value.phases), { warnings } = answer.value.value, { status, ended } = facts.value.value;
  const last = (phase) => (status === "running" ? Date.now() : Date.parse(ended ?? phase.started));
  /** @type {[number, number][]} */
  const spans = phases.map((phase) => [Date.parse(phase.started), phase.ended ? Date.parse(phase.ended) : last(phase)]);
  const begin = Math.min(...spans.map(([from]) => from)), length = Math.max(1, ...spans.map(([, to]) => to - begin));
  const described = (phase, [from, to]) => {
    const planned = Number.isFinite(phase.episodes ?? NaN) ? phase.episodes * phase.workers : null;
    const episodes = planned === null ? count(phase.episodes_done, "episode")
      : `${number(phase.episodes_done)} of ${count(planned, "episode")}`;
    return ` ${phase.mode}, ${count(phase.workers, "worker")}, ${episodes}, ${duration((to - from) / 1000)}${
      phase.reason ? `; ${phase.reason}` : ""}`;
  };
  return [
    h("h2", {}, "Phases"),
    h("div", { class: "phases" }, phases.map((phase, i) => h("div", { class: "phase", key: phase.phase },
      h("div", { class: "name" }, h("b", {}, phase.name), h("span", { class: "quiet" }, described(phase, spans[i]))),
      h("div", { class: "span", title: `${date(phase.started)} to ${phase.ended ? date(phase.ended) : "now"}` },
        h("i", { style: { "margin-left": `${(100 * (spans[i][0] - begin)) / length}%`,
          width: `${Math.max(0.5, (100 * (spans[i][1] - spans[i][0])) / length)}%` } }))))),
    h("div", { class: "warnings" }, warnings.length > 0 && [
      h("h2", {}, "Warnings"), h("ul", {}, warnings.map((text) => h("li", {}, text)))]),
  ];
}

/** The phases of one episode: those that plan no more, or have ended after it. */
function single(phases) {
  return JSON.stringify(rowsOf(phases).map(({ phase, name, episodes, workers, episodes_done, ended }) => (
    { phase, name, single: ended === null ? episodes * workers === 1 : episodes_done <= 1 })));
}

function Curves({ answer, run, query }) {
  const curves = useComputed(() => answer.value.value.curves).value, unfinished = useComputed(() => answer.value.value.unfinished).value;
  const phases = JSON.parse(useComputed(() => single(answer.value.value.phases)).value);
  const chosen = useSignal(query.get("fold")), fold = ["sum", "mean"].includes(chosen.value) ? chosen.value : answer.value.peek().fold;
  const wanted = useSignal("");
  const all = groups(curves, unfinished), statistics = all.filter((one) => one.kind === "statistic");
  const text = wanted.value.trim().toLowerCase();
  const picked = text ? statistics.filter((one) => one.title.toLowerCase().includes(text)) : statistics.slice(0, MOST_STATISTICS);
  const drawn = all.filter((one) => !statistics.includes(one) || picked.includes(one));
  return [
    h("h2", {}, "Curves"),
    h("div", { class: "controls" },
      h(FoldChoice, { fold, chosen: (statistic) => {
        chosen.value = statistic;
        keepChoices(`#/run/${encodeURIComponent(run)}/overview`, new URLSearchParams({ fold: statistic }));
      } }),
      statistics.length > 0 && h("label", {}, "Statistics",
        h("input", { type: "search", placeholder: "such as loss", oninput: (event) => { wanted.value = event.target.value; } }))),
    h("div", { class: "grid" }, drawn.map((group) => h(onlySingle(group, phases) ? EpisodeValues : Group, { key: group.title, ...group, phases,
      // a sum of losses or learning rates says nothing
      fold: group.kind === "statistic" ? "mean" : fold })),
    !drawn.length && h("p", { class: "quiet" }, "No episode has ended yet.")),
  ];
}

/** Whether a group has one episode in each of its phases. */
function onlySingle(group, phases) {
  return [...group.curves, ...group.unfinished].every((each) => !each.evaluation && phases.find(({ phase }) => phase === each.phase)?.single);
}

function Group({ title, curves, unfinished, fold, phases }) {
  return h(CurveFigure, { title, fold, phases,
    lines: curves.map((curve) => ({ label: curve.agent, curve, look: look(curve.colour) })),
    unfinished: unfinished.map((episode) => ({ label: episode.agent, episode, look: look(episode.colour) })) });
}

function Episodes({ run, running }) {
  const open = useSignal(false);
  return h("details", { class: "card episodes", ontoggle: (event) => { open.value = event.target.open; } },
    h("summary", {}, "Episodes as a table"), open.value && h(EpisodeTable, { run, running }));
}

function EpisodeTable({ run, running }) {
  const answer = useResource(`run/${run}/episodes`, { seconds: 5, live: () => running.value });
  return shown([answer], () => {
    const { columns, values, rows } = answer.value.value;
    const cell = (value) => (typeof value === "number" ? number(value, 6) : String(value ?? ""));
    return h(WindowTable, { caption: "Episodes, the newest first", key: "table", rowKey: (i) => i, rows: Array.from({ length: rows }, (_, i) => i),
      columns: columns.map((name) => ({ name, title: name, width: Math.max(90, 9 * name.length),
        number: typeof values[name]?.[0] === "number", cell: (i) => cell(values[name][i]) })) });
  });
}
