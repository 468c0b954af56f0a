// A run over simulated time: panels of columns of an episode, of one phase or of several laid over one another.

import { figure } from "web/chart";
import { get, offline, watch } from "web/data";
import { fill, h } from "web/dom";
import { number } from "web/format";
import { caption, laidOver, options, refined, scale, table } from "web/series";

/** milliseconds after the last zoom until its details are asked for */
const PAUSE = 250;
/** a line that has grown beyond so many points is asked for anew */
const MOST_POINTS = 6000;

export async function show(element, { run, facts, signal, attempt }) {
  let choices = await get(`run/${run}/time`, {}, signal);
  let chosen = fromAddress();
  let answer = null, details = null, axis = null, figures = [], timer = null, loads = 0;
  const controls = h("div", { class: "controls" });
  const adding = h("form", { class: "controls adding", onsubmit: add });
  const message = h("div", { role: "status" });
  const panels = h("div", { class: "time-panels" });
  fill(element, controls, adding, message, panels);
  signal.addEventListener("abort", () => { clearTimeout(timer); close(); });

  function close() {
    for (const one of figures) one.close();
    figures = [];
  }

  /** What of the choice a request needs. */
  function query() {
    const { phases, worker, episode, evaluation, body, incarnation, panel } = chosen;
    return { phases: phases.length ? phases.join(",") : undefined, worker, episode, evaluation, body, incarnation,
      patterns: panel ? panel.join("\n") : undefined };
  }

  /** The answer to what is chosen; a page in one file has each phase by itself. */
  async function ask() {
    if (!offline) return get(`run/${run}/series`, query(), signal);
    const known = choices.phases.map((one) => String(one.phase)), wanted = chosen.phases.filter((one) => known.includes(String(one)));
    const shown = wanted.length ? wanted : known.slice(-1);
    return laidOver(await Promise.all(shown.map((phase) => get(`run/${run}/series`, { phases: String(phase) }, signal))));
  }

  async function load() {
    details = null;
    loads += 1;
    const turn = loads;
    if (chosen.panel && !chosen.panel.length) {
      answer = { ...answer, panels: [], patterns: [], problems: [] };
    } else {
      let found;
      try {
        found = await ask();
      } catch (error) {
        if (signal.aborted) return;
        found = { patterns: chosen.panel ?? [], phases: [], span: null, panels: [], problems: [{ message: error.message }] };
      }
      // (an answer that arrives after a later choice is not what is asked for now)
      if (turn !== loads) return;
      answer = found;
    }
    axis = scale(answer);
    // a window that lies outside of what there is shows all of it
    if (answer.span && chosen.from !== undefined && !(chosen.from < answer.span[1] && chosen.to > answer.span[0])) whole();
    listControls();
    draw();
    await refine();
  }

  function draw() {
    close();
    const general = answer.problems.filter((one) => one.pattern === undefined);
    fill(message, general.map((one) => h("p", { class: "problem" }, one.message)),
      !answer.panels.length && !answer.problems.length && h("p", { class: "quiet" },
        facts.status === "running" ? "Nothing is recorded yet." : "Nothing is shown: add a panel."));
    // (in a page in one file, a pattern may mean nothing in the phases that are shown)
    const empty = (i) => offline && !answer.panels.some((one) => one.pattern === i);
    fill(panels, answer.patterns.map((pattern, i) => !empty(i) && h("section", { "aria-label": `Panel ${pattern}` },
      h("header", { class: "controls" }, h("h2", {}, pattern),
        !offline && h("button", { type: "button", "aria-label": `Remove the panel ${pattern}`, onclick: () => remove(i) }, "Remove")),
      [...new Set(answer.problems.filter((one) => one.pattern === i).map((one) => one.message))]
        .map((text) => h("p", { class: "problem" }, text)),
      answer.panels.filter((one) => one.pattern === i).map(picture))));
  }

  function picture(panel) {
    const note = h("p", { class: "quiet note" });
    const view = () => ({ panel: refined(panel, details), answer, axis, window: zoomed() });
    const one = figure({
      title: panel.y_label,
      description: `${panel.y_label}: ${answer.patterns[panel.pattern]} over time. ${caption(panel, answer)} `
        + "Plus and minus zoom, the arrow keys move, 0 shows the whole episode.",
      height: 300,
      options: (base) => options(view(), base),
      numbers: () => table(view()),
      created: (chart) => listen(chart, one),
      keys,
    });
    one.panel = panel;
    one.view = view;
    one.note = () => fill(note, caption(refined(panel, details), answer));
    one.note();
    one.element.append(note);
    figures.push(one);
    return one.element;
  }

  // zoom

  function zoomed() {
    if (!answer.span) return [0, 1];
    return chosen.from === undefined ? answer.span : [chosen.from, chosen.to];
  }

  function listen(chart, one) {
    chart.on("datazoom", () => {
      const { startValue, endValue } = chart.getOption().dataZoom[0];
      zoom(axis.tick(startValue), axis.tick(endValue), one);
    });
    chart.getZr().on("dblclick", reset);
    brush(chart);
  }

  // drawing over the panel selects a span; a finger on the panel scrolls the page
  function brush(chart) {
    if (matchMedia("(pointer: coarse)").matches) return;
    chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
  }

  function zoom(from, to, source = null) {
    const [first, last] = answer.span;
    const least = Math.max((last - first) / 1e5, 1e-9);
    let [a, b] = [Math.max(first, Math.min(from, to)), Math.min(last, Math.max(from, to))];
    if (b - a < least) return;
    const [was, will] = zoomed();
    const near = (x, y) => Math.abs(x - y) < least / 10;
    if (near(a, was) && near(b, will)) return;
    if (near(a, first) && near(b, last)) whole();
    else [chosen.from, chosen.to] = [a, b];
    for (const one of figures) {
      if (!one.chart()) continue;
      [a, b] = zoomed();
      if (one !== source) one.chart().dispatchAction({ type: "dataZoom", startValue: axis.value(a), endValue: axis.value(b) });
    }
    settle();
  }

  function whole() {
    delete chosen.from;
    delete chosen.to;
  }

  function reset() {
    if (answer.span) zoom(...answer.span);
  }

  function settle() {
    redraw();
    clearTimeout(timer);
    timer = setTimeout(() => { remember(); attempt(refine); }, PAUSE);
  }

  /** Draw the lines of all figures anew, within the same axes. */
  function redraw() {
    for (const one of figures) {
      const { series } = options(one.view());
      one.chart()?.setOption({ series });
      one.list();
      one.note();
    }
  }

  /** Ask for all points of the window, where lines have more than were sent. */
  async function refine() {
    if (offline || !answer.span || chosen.from === undefined) {
      if (details) {
        details = null;
        redraw();
      }
      return;
    }
    const thin = answer.panels.some((panel) => panel.lines.some((line) => line.points > line.x.length));
    if (!thin) return;
    const [from, to] = zoomed(), asked = JSON.stringify([from, to, query()]);
    const window = { start: Math.max(0, Math.floor(from)), stop: Math.ceil(to) + 1 };
    const found = await get(`run/${run}/series`, { ...query(), ...pinned(), ...window }, signal);
    if (asked !== JSON.stringify([...zoomed(), query()])) return;
    details = { ...found, ...window };
    redraw();
  }

  /** The phases and episodes that are shown, so that a later request means the same. */
  function pinned(some = answer.phases) {
    const same = new Set(some.map((one) => one.episode)).size === 1;
    return { phases: some.map((one) => one.phase).join(","), patterns: answer.patterns.join("\n"),
      worker: some[0].worker, episode: chosen.episode ?? (same ? some[0].episode : undefined) };
  }

  function keys(event) {
    if (!answer.span || event.ctrlKey || event.metaKey || event.altKey) return;
    const [a, b] = zoomed(), width = b - a, middle = (a + b) / 2;
    const [first, last] = answer.span;
    const shifted = (by) => {
      const step = Math.max(first - a, Math.min(last - b, by));
      zoom(a + step, b + step);
    };
    const acts = {
      "+": () => zoom(middle - width / 4, middle + width / 4),
      "=": () => zoom(middle - width / 4, middle + width / 4),
      "-": () => zoom(middle - width, middle + width),
      ArrowLeft: () => shifted(-width / 4),
      ArrowRight: () => shifted(width / 4),
      0: reset,
      Escape: reset,
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }

  // what is chosen

  function change(changes) {
    chosen = { ...chosen, ...changes };
    remember();
    attempt(load);
  }

  function add(event) {
    event.preventDefault();
    const input = adding.querySelector("input");
    const pattern = input.value.trim();
    if (!pattern || answer.patterns.includes(pattern)) return;
    input.value = "";
    change({ panel: [...answer.patterns, pattern] });
  }

  function remove(i) {
    change({ panel: answer.patterns.filter((_, k) => k !== i) });
    adding.querySelector("input")?.focus();
  }

  function listControls() {
    const shown = answer.phases.map((one) => one.phase);
    const those = choices.phases.filter((one) => shown.includes(one.phase));
    const most = (name) => Math.max(0, ...those.map((one) => one[name]));
    const workers = [...new Set(those.flatMap((one) => one.episodes.map((each) => each.worker)))].sort((a, b) => a - b);
    const evaluates = those.some((one) => one.episodes.some((each) => each.evaluation)) || chosen.evaluation;
    const several = most("bodies") > 1 ? "body" : "incarnation";
    const members = most(several === "body" ? "bodies" : "incarnations");
    const last = Math.max(0, ...answer.phases.map((one) => one.last));
    const option = (value, text, selected, disabled) => h("option", { value, selected, disabled }, text);
    const picked = (name) => (event) => change({ [name]: event.target.value === "" ? undefined : Number(event.target.value) });
    const active = document.activeElement?.id;
    fill(controls,
      h("fieldset", { class: "phases" }, h("legend", {}, "Phases"), choices.phases.map((one) => h("label", {},
        h("input", { type: "checkbox", value: one.phase, id: `phase-${one.phase}`, checked: shown.includes(one.phase),
          onchange: (event) => pick(one.phase, event.target.checked) }),
        one.name || `phase ${one.phase}`))),
      offline && h("span", { class: "quiet" }, episodesOf(answer.phases)),
      !offline && last > 0 && h("label", {}, "Episode ", h("input", { type: "number", id: "episode", min: 0, max: last,
        value: chosen.episode, placeholder: `last (${last})`, onchange: picked("episode") })),
      !offline && evaluates && h("label", {}, "of ", h("select", { id: "evaluation", onchange: (event) =>
        change({ evaluation: event.target.value || undefined, episode: undefined }) },
      option("", "training and test", !chosen.evaluation), option("1", "evaluation", chosen.evaluation))),
      !offline && workers.length > 1 && h("label", {}, "Worker ", h("select", { id: "worker", onchange: picked("worker") },
        workers.map((one) => option(one, one, one === answer.phases[0]?.worker)))),
      !offline && members > 1 && h("label", {}, `${several[0].toUpperCase()}${several.slice(1)} `,
        h("select", { id: "member", onchange: picked(several) }, option("", "all, as a band", chosen[several] === undefined),
          Array.from({ length: members }, (_, i) => option(i, i, chosen[several] === i)))),
      h("button", { type: "button", onclick: reset }, "Whole episode"));
    if (active) document.getElementById(active)?.focus();
    if (offline || adding.firstChild) return;
    const kinds = { reading: "readings", setpoint: "set-points", reward: "rewards" };
    const said = (one) => `${number(one.count)} ${kinds[one.kind] ?? one.kind}${one.unit ? `, ${one.unit}` : ""}`;
    fill(adding, h("label", {}, "Columns ", h("input", { list: "patterns", id: "pattern", size: 36, autocomplete: "off",
      placeholder: choices.patterns[0] ?? "*" })),
    h("datalist", { id: "patterns" }, choices.suggestions.map((one) => h("option", { value: one.pattern, label: said(one) }))),
    h("button", {}, "Add a panel"));
  }

  /** Which episodes are shown, where one cannot choose: "episode 3", or "episodes 3 and 0". */
  function episodesOf(phases) {
    const numbers = [...new Set(phases.map((one) => one.episode))];
    return numbers.length ? `episode${numbers.length > 1 ? "s" : ""} ${numbers.join(", ")}` : "";
  }

  function pick(phase, on) {
    const shown = answer.phases.map((one) => one.phase);
    const phases = choices.phases.map((one) => one.phase).filter((one) => (one === phase ? on : shown.includes(one)));
    return change({ phases });
  }

  // the address has all that was chosen: a link shows the same

  function fromAddress() {
    const found = new URLSearchParams(location.hash.split("?")[1] ?? "");
    const whole = (name) => (found.has(name) && found.get(name) !== "" ? Number(found.get(name)) : undefined);
    const result = { phases: (found.get("phases") ?? "").split(",").filter(Boolean), worker: whole("worker"),
      episode: whole("episode"), evaluation: found.get("evaluation") ?? undefined, body: whole("body"),
      incarnation: whole("incarnation"), panel: found.has("panel") ? found.getAll("panel").filter(Boolean) : undefined };
    const [from, to] = [whole("from"), whole("to")];
    return from < to ? { ...result, from, to } : result;
  }

  function remember() {
    const kept = new URLSearchParams();
    const { phases, panel, ...rest } = chosen;
    if (phases.length) kept.set("phases", phases.join(","));
    for (const one of panel?.length === 0 ? [""] : panel ?? []) kept.append("panel", one);
    for (const [name, value] of Object.entries(rest)) if (value !== undefined) kept.set(name, Number(Number(value).toPrecision(9)));
    const text = kept.toString();
    history.replaceState(null, "", `${location.hash.split("?")[0] || `#/run/${encodeURIComponent(run)}/time`}${text ? `?${text}` : ""}`);
  }

  // a run that goes on

  /** Add later ticks; returns whether there were any, and loads all anew where the lines are others. */
  async function grow() {
    const newest = answer.phases.at(-1);
    if (!newest) {
      choices = await get(`run/${run}/time`, {}, signal);
      await load();
      return answer.phases.length > 0;
    }
    const start = Math.max(0, newest.complete + 1);
    const later = await get(`run/${run}/series`, { ...query(), ...pinned([newest]), start }, signal);
    const moved = chosen.episode === undefined && later.phases[0].last > newest.episode;
    if (moved || (!chosen.phases.length && later.newest > newest.phase)) {
      choices = await get(`run/${run}/time`, {}, signal);
      await load();
      return true;
    }
    newest.last = later.phases[0].last;
    if (!later.span || later.phases[0].complete < start) return false;
    const index = answer.phases.length - 1;
    for (const panel of later.panels) {
      const old = answer.panels.find((one) => one.pattern === panel.pattern && one.y_label === panel.y_label && one.kind === panel.kind);
      for (const line of panel.lines) {
        const known = old?.lines.find((one) => one.phase === index && one.column === line.column && one.label === line.label);
        if (!known || known.x.length > MOST_POINTS) { await load(); return true; }
        const kept = known.x.findIndex((x) => x >= start), end = kept < 0 ? known.x.length : kept;
        known.points += line.x.length - (known.x.length - end);
        for (const name of ["x", "y", "low", "high", "min", "median", "max"]) {
          if (known[name]) known[name] = [...Array.from(known[name]).slice(0, end), ...line[name]];
        }
      }
    }
    newest.complete = later.phases[0].complete;
    answer.span = [Math.min(answer.span[0], later.span[0]), Math.max(answer.span[1], later.span[1])];
    for (const one of figures) one.update(), one.chart() && brush(one.chart()), one.note();
    return true;
  }

  await load();
  if (facts.status === "running" && !offline) {
    watch(1, signal, async () => {
      if (chosen.panel && !chosen.panel.length) return true;
      const grown = await grow();
      return grown || (await get(`run/${run}`, {}, signal)).status === "running";
    }, attempt);
  }
}
