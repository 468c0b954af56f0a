// A panel of columns over simulated time, its zoom, and the choice of phases and episodes that go with it.

import { h } from "preact";
import { useRef } from "preact/hooks";
import { Figure } from "web/chart";
import { offline } from "web/data";
import { Entry } from "web/page";
import { caption, options, table } from "web/series";

/**
 * What is shown: phases, episode and worker; `recorded` is run/ID/time, `answer` has the phases that are shown, and `change(changes)`
 * changes what is chosen; `bodies` says whether one of several bodies can be.
 */
export function Controls({ recorded, chosen, answer, change, whole, bodies = true }) {
  const { phases = [] } = answer.value.value ?? {}, shown_ = phases.map((one) => one.phase);
  const all = recorded.value.value.phases, those = all.filter((one) => shown_.includes(one.phase));
  const most = (name) => Math.max(0, ...those.map((one) => one[name]));
  const workers = [...new Set(those.flatMap((one) => one.episodes.map((each) => each.worker)))].sort((a, b) => a - b);
  const { episode, evaluation } = chosen.value;
  const evaluates = those.some((one) => one.episodes.some((each) => each.evaluation)) || evaluation;
  const several = most("bodies") > 1 ? "body" : "incarnation", members = bodies ? most(several === "body" ? "bodies" : "incarnations") : 0;
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

/** A panel over the ticks `window`; `zoom(from, to)` looks at other ticks, `whole()` at all. */
export function Panel({ panel, answer, axis, window, zoom, whole }) {
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
    description: `${panel.y_label}${panel.pattern === undefined ? "" : `: ${answer.patterns[panel.pattern]}`} over time. ${text} `
      + "Plus and minus zoom, the arrow keys move, 0 shows the whole episode.",
    options: (base) => options(view, base), numbers: (most) => table(view, most) }, h("p", { class: "quiet note" }, text));
}

/** The ticks that are looked at; a span that lies outside of what there is shows all of it. */
export function zoomed(span, answer) {
  if (!answer.span) return [0, 1];
  return span && span[0] < answer.span[1] && span[1] > answer.span[0] ? span : answer.span;
}

/** The span of a zoom within an episode; null: all of it; undefined: no other one than now. */
export function within([from, to], [was, will], whole) {
  if (!whole) return undefined;
  const [first, last] = whole, least = Math.max((last - first) / 1e5, 1e-9), near = (x, y) => Math.abs(x - y) < least / 10;
  const [a, b] = [Math.max(first, Math.min(from, to)), Math.min(last, Math.max(from, to))];
  if (b - a < least || (near(a, was) && near(b, will))) return undefined;
  return near(a, first) && near(b, last) ? null : [a, b];
}
