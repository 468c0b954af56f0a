// How a run goes: its phases, the curves of its episodes, and what was warned of.

import { look } from "web/chart";
import { curveFigure, groups } from "web/curves";
import { get, has, offline, rowsOf, watch } from "web/data";
import { fill, h } from "web/dom";
import { date, duration, number } from "web/format";
import { windowTable } from "web/window_table";

/** statistics that are drawn before somebody asks for others */
const MOST_STATISTICS = 4;

export async function show(element, { run, facts, signal, attempt, latest = () => facts }) {
  // (bodies take longer to read: what is known without them is drawn first)
  let { version, phases, warnings, curves, unread } = await get(`run/${run}/curves`, offline ? {} : { bands: 0 }, signal);
  let fold = "mean";
  const timeline = h("div", { class: "phases" }), figures = h("div", { class: "grid" }), drawn = new Map();
  const problem = h("div", {}), warned = h("div", { class: "warnings" });
  const choice = h("select", { onchange: () => { fold = choice.value; draw(false); } },
    h("option", { value: "mean" }, "mean"), h("option", { value: "sum" }, "sum"));
  const pattern = h("input", { type: "search", placeholder: "such as loss", oninput: () => draw(false) });
  const statistics = h("label", {}, "Statistics", pattern);
  const episodes = h("details", { class: "card episodes" }, h("summary", {}, "Episodes as a table"), h("div", {}));
  episodes.addEventListener("toggle", () => episodes.open && attempt(list));
  fill(element, problem, h("h2", {}, "Phases"), timeline, warned, h("h2", {}, "Curves"),
    h("div", { class: "controls" }, h("label", {}, "Of an episode's values, the", choice), statistics), figures, !offline && episodes);
  signal.addEventListener("abort", () => drawn.forEach((one) => one.close()));

  const rows = () => rowsOf(phases);
  function draw(again) {
    const agents = [...new Set(curves.map((one) => one.agent))];
    const known = groups(curves), told = known.filter((one) => one.curves[0].kind === "statistic");
    statistics.hidden = !told.length;
    const text = pattern.value.trim().toLowerCase();
    const picked = text ? told.filter((one) => one.title.toLowerCase().includes(text)) : told.slice(0, MOST_STATISTICS);
    const wanted = known.filter((one) => one.curves[0].kind !== "statistic" || picked.includes(one));
    for (const [title, one] of drawn) {
      if (wanted.some((group) => group.title === title)) continue;
      one.close();
      one.element.remove();
      drawn.delete(title);
    }
    for (const { title } of wanted) {
      if (!drawn.has(title)) {
        const lines = () => (groups(curves).find((one) => one.title === title)?.curves ?? []).map((curve) => ({
          label: curve.agent, curve, look: look(agents.indexOf(curve.agent)) }));
        const one = curveFigure({ title, lines, fold: () => fold, phases: rows });
        drawn.set(title, one);
        figures.append(one.element);
      }
      drawn.get(title).update(again);
    }
    if (!wanted.length) fill(figures, h("p", { class: "quiet" }, "No episode has ended yet."));
    else figures.querySelector(":scope > p")?.remove();
  }
  function showPhases() {
    const begin = Math.min(...rows().map((one) => Date.parse(one.started)));
    const end = Math.max(begin + 1, ...rows().map((one) => (one.ended ? Date.parse(one.ended) : facts.status === "running" ? Date.now()
      : Date.parse(facts.ended ?? one.started))));
    fill(timeline, rows().map((one) => {
      const from = Date.parse(one.started), to = one.ended ? Date.parse(one.ended) : end;
      const planned = one.episodes === null || Number.isNaN(one.episodes) ? "" : ` of ${number(one.episodes * one.workers)}`;
      return h("div", { class: "phase" },
        h("div", { class: "name" }, h("b", {}, one.name), h("span", { class: "quiet" }, ` ${one.mode}, ${number(one.workers)} worker${
          one.workers === 1 ? "" : "s"}, ${number(one.episodes_done)}${planned} episode${
          (one.episodes || one.episodes_done) * (one.episodes ? one.workers : 1) === 1 ? "" : "s"}, ${duration((to - from) / 1000)}${
          one.reason ? `; ${one.reason}` : ""}`)),
        h("div", { class: "span", title: `${date(one.started)} to ${one.ended ? date(one.ended) : "now"}` },
          h("i", { style: { "margin-left": `${100 * (from - begin) / (end - begin)}%`, width: `${Math.max(0.5, 100 * (to - from) / (end - begin))}%` } })));
    }));
  }
  function showWarnings() {
    fill(warned, warnings.length > 0 && [h("h2", {}, "Warnings"), h("ul", {}, warnings.map((text) => h("li", {}, text)))]);
  }
  async function list() {
    const { columns, values, rows: count } = await get(`run/${run}/episodes`, {}, signal);
    const table = windowTable({ caption: "Episodes, the newest first", key: (i) => i, sorted: () => {}, columns: columns.map((name) => ({
      name, title: name, width: Math.max(90, 9 * name.length), number: typeof values[name]?.[0] === "number",
      cell: (i) => { const value = values[name][i]; return typeof value === "number" ? number(value, 6) : value === null ? "" : String(value); } })) });
    fill(episodes.lastChild, table.element);
    table.show(Array.from({ length: count }, (_, i) => i), null);
  }

  function showError() {
    const { error } = latest();
    fill(problem, error && h("p", { class: "problem" }, error, " ", has(`run/${run}/record`) && h("a", { href: `#/run/${encodeURIComponent(run)}/record` }, "Traceback")));
  }
  showError();
  showPhases();
  showWarnings();
  draw(false);
  if (offline) return;
  async function readAgain() {
    const now = await get(`run/${run}/curves`, { known: version }, signal);
    ({ phases, warnings } = now);
    showError();
    showPhases();
    showWarnings();
    if (now.curves) {
      ({ version, curves } = now);
      draw(true);
    }
    // (the head of the view learns how the run has ended)
    return true;
  }
  if (facts.status === "running") watch(1, signal, readAgain, attempt);
  else if (unread) await readAgain();
}
