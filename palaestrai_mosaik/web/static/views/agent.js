// What agents do: their actions over an episode, how far these are from doing nothing, and where they deviate.

import { useSignal, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import { useMemo } from "preact/hooks";
import { problem, shown, useResource } from "web/resource";
import { number } from "web/format";
import { choices, Entry, keepChoices, table } from "web/page";
import { scale } from "web/series";
import { Controls, Panel, within, zoomed } from "web/time_panel";

/** seconds between two looks at a run that goes on */
const PAUSE = 5;
const CHOICES = ["episode", "evaluation", "worker", "reference", "tolerance"];

export function View({ run, running }) {
  const recorded = useResource(`run/${run}/time`);
  return shown([recorded], () => h(Agents, { run, running, recorded }));
}

function Agents({ run, running, recorded }) {
  const chosen = useSignal(useMemo(fromAddress, [])), span = useSignal(null);
  useSignalEffect(() => remember(run, chosen.value));
  const change = (changes) => { chosen.value = { ...chosen.peek(), ...changes }; };
  const answer = useResource(`run/${run}/agent`, {
    query: () => ({ ...chosen.value, phases: chosen.value.phases.join(",") || undefined }),
    seconds: PAUSE,
    live: () => running.value,
  });
  const whole = () => { span.value = null; };
  return [
    h(Controls, { recorded, chosen, answer, change, whole, bodies: false }),
    answer.loaded.value && h(Reference, { answer, chosen, change }),
    h("div", { role: "status" }, answer.error.value && answer.loaded.value && problem(answer.error.value)),
    answer.loaded.value ? h(Actions, { answer, span, whole }) : shown([answer], () => null),
  ];
}

/** With what each agent is compared, and how far apart is a deviation. */
function Reference({ answer, chosen, change }) {
  const { phases, tolerance } = answer.value.value, { reference = phases[0]?.phase } = chosen.value;
  return h("div", { class: "controls" },
    phases.length > 1 && h("label", {}, "Deviation from phase", h("select", { id: "reference", value: reference,
      onchange: (event) => change({ reference: Number(event.target.value) }) },
    phases.map((one) => h("option", { key: one.phase, value: one.phase }, one.name)))),
    h("label", {}, "Tolerance", h(Entry, { type: "number", id: "tolerance", min: 0, step: 0.01, value: tolerance,
      entered: (text) => change({ tolerance: text === "" ? undefined : Number(text) }) }), "of the ranges"));
}

function Actions({ answer, span, whole }) {
  const { value } = answer.value, ends = value.series.flatMap(({ x }) => (x.length ? [x[0], x.at(-1)] : []));
  if (!ends.length) return h("p", { class: "quiet", role: "status" }, "No agent has acted in what is shown.");
  const pictured = { ...value, span: [Math.min(...ends), Math.max(...ends)] }, axis = scale(pictured);
  const window = zoomed(span.value, pictured);
  const zoom = (from, to) => {
    const next = within([from, to], zoomed(span.peek(), pictured), pictured.span);
    if (next !== undefined) span.value = next;
  };
  const panel = (one) => one.lines.length > 0 && h(Panel, { key: `${one.kind} ${one.y_label}`, panel: one, answer: pictured, axis, window, zoom, whole });
  const at = (tick) => (tick === null ? "–" : axis.text(tick));
  const phaseOf = (i) => value.phases[value.series[i].phase].name, share = (one) => number(one, 3);
  const named = (i) => `${value.series[i].agent} in ${phaseOf(i)}`;
  return [
    h("h2", {}, "Distance from doing nothing"),
    h("p", { class: "quiet note" }, "The root mean square of an agent's set-points, each as a share of the range of its actuator: 0 where it leaves all "
      + "actuators alone, 1 where all are a whole range away."),
    panel(distances(value)),
    table([
      { title: "phase", value: (row) => phaseOf(row.i) }, { title: "agent", value: (row) => row.agent },
      { title: "actuators", number: true, value: (row) => number(row.actuators.length) },
      { title: "set", number: true, value: (row) => `${number(100 * row.set, 3)} %` },
      { title: "mean distance", number: true, value: (row) => share(row.mean) },
      { title: "largest", number: true, value: (row) => share(row.largest) }, { title: "at", number: true, value: (row) => at(row.at) }],
    value.series.map((one, i) => ({ ...one, i })), "Distance of each agent from doing nothing"),
    h("h2", {}, "Actions"),
    h("div", { class: "time-panels" }, actions(value).map(panel)),
    h("h2", {}, "Deviations"),
    value.deviations.length === 0 && h("p", { class: "quiet" }, "No two agents of a phase have actuators in common, and no agent acts in two of these phases."),
    deviations(value).map(panel),
    value.deviations.length > 0 && table([
      { title: "what", value: (row) => named(row.second) }, { title: "deviates from", value: (row) => named(row.first) },
      { title: "common actuators", number: true, value: (row) => number(row.actuators) },
      { title: `ticks above ${number(value.tolerance)}`, number: true, value: (row) => `${number(100 * row.share, 3)} %` },
      { title: "the first at", number: true, value: (row) => at(row.since) },
      { title: "mean deviation", number: true, value: (row) => share(row.mean) },
      { title: "largest", number: true, value: (row) => share(row.largest) }, { title: "at", number: true, value: (row) => at(row.at) }],
    value.deviations, "Deviations of agents"),
  ];
}

/** A panel of lines, as series.js draws it; each column has its dashes in all phases. */
function panelOf(y_label, lines, more = {}) {
  const columns = [...new Set(lines.map((one) => one.column))];
  return { kind: "lines", y_label, limits: [], lines: lines.map((one) => ({ label: one.column, points: one.x.length, ...one,
    place: columns.indexOf(one.column) })), ...more };
}

function distances({ series }) {
  return panelOf("distance from doing nothing (share of the ranges)",
    series.map(({ agent, phase, x, distance }) => ({ phase, column: agent, x, y: distance, steps: true })));
}

/** Panels of the actions of each agent by unit: a line for each actuator, or percentiles over many. */
function actions({ series }) {
  const panels = new Map();
  for (const { agent, phase, bands } of series) {
    // what an agent does not set in a phase has no line
    for (const one of bands.filter(({ median }) => median.some(Number.isFinite))) {
      const key = JSON.stringify([agent, one.unit]), percentiles = !one.lines.length;
      const own = panels.get(key) ?? { agent, unit: one.unit, count: one.count, bounds: new Map(), percentiles: false, lines: [] };
      panels.set(key, own);
      own.percentiles ||= percentiles;
      for (const bound of [one.low_bound, one.high_bound]) if (bound !== null) own.bounds.set(bound, { name: "bound", value: bound });
      own.lines.push({ phase, band: one });
    }
  }
  return [...panels.values()].map(({ agent, unit, count, bounds, percentiles, lines }) => {
    const label = `${agent}: set-points${unit ? ` (${unit})` : ""}`, common = { unit, limits: [...bounds.values()] };
    if (percentiles) {
      return panelOf(label, lines.map(({ phase, band }) => ({ ...band, phase, column: agent })), { ...common, kind: "percentiles", columns: count });
    }
    const drawn = lines.flatMap(({ phase, band: { x, lines: few } }) => few.map(({ uid, y }) => ({ phase, column: uid, x, y, steps: true })));
    return panelOf(label, drawn.filter(({ y }) => y.some(Number.isFinite)), common);
  });
}

/** Panels of the deviations between agents of a phase, and of agents from themselves in the reference phase. */
function deviations({ phases, series, deviations: all, tolerance }) {
  const limits = [{ name: "tolerance", value: tolerance }], alike = (one) => series[one.first].phase === series[one.second].phase;
  const panel = (what, chosen, other) => panelOf(`deviation from ${what} (share of the ranges)`, chosen.map((one) => ({ phase: series[one.second].phase,
    column: `${series[one.second].agent} from ${other(series[one.first])}`, x: one.x, y: one.distance, steps: true })), { limits });
  return [
    panel("another agent", all.filter(alike), (one) => one.agent),
    panel("another phase", all.filter((one) => !alike(one)), (one) => phases[one.phase].name),
  ];
}

function fromAddress() {
  const kept = choices();
  return { phases: (kept.get("phases") ?? "").split(",").filter(Boolean),
    ...Object.fromEntries(CHOICES.map((name) => [name, kept.get(name) ?? undefined])) };
}

function remember(run, { phases, ...rest }) {
  const kept = new URLSearchParams();
  if (phases.length) kept.set("phases", phases.join(","));
  for (const name of CHOICES) if (rest[name] !== undefined) kept.set(name, String(rest[name]));
  keepChoices(`#/run/${encodeURIComponent(run)}/agent`, kept);
}
