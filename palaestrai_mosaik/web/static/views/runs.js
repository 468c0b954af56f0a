// All runs of the store, as they are now.

import { get, has, offline, watch } from "web/data";
import { fill, h, link } from "web/dom";
import { date, duration, number } from "web/format";
import { windowTable } from "web/window_table";

const STATUSES = ["running", "finished", "failed", "interrupted", "pruned", "lost"];
/** Seconds after which the curve of a running run is asked for again, and how long a scroll has to rest before any is. */
const OLD = 5, REST = 0.12;
/** More lines cannot be told apart. */
const MOST = 24;

// what the reader has chosen stays while other views are looked at
const chosen = { text: "", statuses: new Set(), sort: { name: "started", down: true }, runs: new Set() };

/** All runs: objects with the fields of the resource `runs`. */
class Runs {
  constructor() {
    this.rows = new Map();
    this.cursor = null;
    this.behind = 0;
  }

  /** Bring the rows up to date. Returns whether anything changed. */
  async look(signal) {
    if (this.cursor === null) return this.readAll(signal);
    const running = [...this.rows.values()].filter((row) => row.status === "running");
    const answer = await get("runs", { since: this.cursor }, signal);
    this.add(answer);
    const told = new Set(answer.id);
    // one that is gone without an end is not in the answer: its process has died, or a clock is wrong
    const gone = running.filter((row) => !told.has(row.id)).map((row) => row.id).slice(0, 500);
    if (gone.length) this.add(await get("runs", { since: this.cursor, ids: gone.join(",") }, signal));
    if (answer.count !== this.rows.size) return this.readAll(signal);
    return answer.id.length + gone.length > 0;
  }

  async readAll(signal) {
    const answer = await get("runs", {}, signal);
    const old = this.rows;
    this.rows = new Map();
    this.add(answer, old);
    return true;
  }

  add(answer, old = this.rows) {
    this.cursor = answer.cursor;
    this.behind = answer.now - Date.now() / 1000;
    const { experiment, status, phase_name: phase, error } = answer;
    const errors = new Map(Array.from(error.rows, (i, j) => [i, error.texts[j]]));
    for (let i = 0; i < answer.id.length; i += 1) {
      const row = {
        id: answer.id[i], run: answer.run[i], document: answer.document[i], seed: answer.seed[i],
        experiment: experiment.texts[experiment.codes[i]], status: status.texts[status.codes[i]],
        phase: answer.phase[i], phase_name: phase.texts[phase.codes[i]], phases: answer.phases[i],
        episodes: answer.episodes[i], episodes_planned: answer.episodes_planned[i], steps: answer.steps[i],
        objective: answer.objective[i], started: answer.started[i], ended: answer.ended[i],
        error: errors.get(i) ?? null, rate: answer.rate[i], left: answer.left[i],
      };
      const known = old.get(row.id);
      row.curve = known?.curve ?? null;
      row.pace = row.status === "running" ? known?.pace ?? null : null;
      row.text = `${row.document}\n${row.experiment ?? ""}\n${row.run}\n${row.error ?? ""}`.toLowerCase();
      row.unfinished = 0;
      this.rows.set(row.id, row);
    }
  }

  now() {
    return Date.now() / 1000 + this.behind;
  }

  seconds(row) {
    if (Number.isFinite(row.ended)) return Math.max(0, row.ended - row.started);
    return row.status === "running" ? Math.max(0, this.now() - row.started) : NaN;
  }

  rate(row) {
    if (row.status === "running") return row.pace?.rate ?? row.rate;
    const seconds = this.seconds(row);
    return seconds > 0 ? row.steps / seconds : NaN;
  }

  left(row) {
    return row.status === "running" ? row.pace?.left ?? row.left : NaN;
  }

  steps(row) {
    return row.steps + (row.pace?.steps ?? 0);
  }
}

/** The shortest beginnings of the uids that tell them apart, of at least 15 characters: date and time. */
function shortIds(uids) {
  const ordered = [...uids].sort(), found = new Map();
  const shared = (a, b) => {
    let i = 0;
    while (i < a.length && a[i] === b[i]) i += 1;
    return i;
  };
  let before = 0;
  ordered.forEach((uid, i) => {
    const after = i + 1 < ordered.length ? shared(uid, ordered[i + 1]) : 0;
    found.set(uid, uid.slice(0, Math.max(15, before + 1, after + 1)));
    before = after;
  });
  return found;
}

/** Whether nothing is known. */
function missing(value) {
  return value === null || value === undefined || Number.isNaN(value) || value === "";
}

/** A small curve, without axes. */
function sparkline(values) {
  const known = (values ?? []).filter((one) => one !== null);
  if (known.length < 2) return null;
  const low = Math.min(...known), high = Math.max(...known), width = 80, height = 20;
  const points = values.map((one, i) => one !== null && `${(i / (values.length - 1)) * width},`
    + `${high > low ? height - 1 - ((one - low) / (high - low)) * (height - 2) : height / 2}`).filter(Boolean);
  return h("svg:svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    h("svg:polyline", { points: points.join(" ") }));
}

export async function show(element, { signal, store, attempt }) {
  const runs = new Runs();
  let short = new Map(), ordered = [];

  const search = h("input", { type: "search", placeholder: "Document, experiment, id or error", value: chosen.text,
    "aria-label": "Search runs", oninput: () => { chosen.text = search.value; arrange(); } });
  const filters = h("div", { class: "controls", role: "group", "aria-label": "Status" });
  const compare = h("button", { type: "button", onclick: () => {
    location.hash = `#/compare/${[...chosen.runs].map(encodeURIComponent).join(",")}`;
  } });
  const clear = h("button", { type: "button", onclick: () => {
    chosen.runs.clear();
    for (const box of table.element.querySelectorAll("input:checked")) box.checked = false;
    select();
  } }, "Clear");
  const said = h("p", { class: "quiet", role: "status" });

  const columns = [
    !offline && { name: "select", title: h("span", { class: "unseen" }, "Select"), width: 34, fixed: true, cell: (row) => h("input", {
      type: "checkbox", checked: chosen.runs.has(row.run), "aria-label": `Select ${row.document} ${row.run}`,
      onchange: (event) => { chosen.runs[event.target.checked ? "add" : "delete"](row.run); select(); } }) },
    { name: "run", title: "Run", width: 155, least: 144, fixed: true, sortable: true,
      cell: (row) => (has(`run/${row.run}`) ? h("a", { href: `#/run/${encodeURIComponent(row.run)}`, title: row.run }, short.get(row.run))
        : whole(row.run)) },
    { name: "document", title: "Document", width: 160, least: 86, sortable: true, cell: (row) => whole(row.document) },
    { name: "experiment", title: "Experiment", width: 105, least: 92, sortable: true, cell: (row) => whole(row.experiment ?? "") },
    { name: "status", title: "Status", width: 95, least: 92, sortable: true, cell: (row) => h("span", { class: `status ${row.status}` }, row.status) },
    { name: "phase", title: "Phase", width: 125, least: 98, sortable: true, cell: (row) => (row.phase < 0 ? "–"
      : whole(`${row.phase_name} (${row.phase + 1} of ${row.phases})`)) },
    { name: "episodes", title: "Episodes", width: 100, least: 84, sortable: true, number: true, cell: (row) => number(row.episodes)
      + (Number.isFinite(row.episodes_planned) ? ` of ${number(row.episodes_planned)}` : "") },
    { name: "steps", title: "Steps", width: 80, least: 64, sortable: true, number: true, value: (row) => runs.steps(row),
      cell: (row) => number(runs.steps(row)) },
    { name: "rate", title: "Steps/s", width: 80, least: 66, sortable: true, number: true, value: (row) => runs.rate(row),
      cell: (row) => number(runs.rate(row), 3) },
    { name: "left", title: "Time left", width: 95, least: 78, sortable: true, number: true, value: (row) => runs.left(row),
      cell: (row) => duration(runs.left(row)) },
    { name: "objective", title: "Objective", width: 160, least: 146, sortable: true, number: true,
      cell: (row) => [sparkline(row.curve?.values), " ", number(row.objective)] },
    { name: "started", title: "Started", width: 140, least: 138, sortable: true, number: true,
      // (without the seconds, which the id of the run has)
      cell: (row) => h("span", { title: date(row.started) }, date(row.started).slice(0, 16)) },
    { name: "duration", title: "Duration", width: 90, least: 72, sortable: true, number: true, value: (row) => runs.seconds(row),
      cell: (row) => duration(runs.seconds(row)) },
    { name: "error", title: "Error", width: 260, least: 60, sortable: true, cell: (row) => (row.error === null ? "" : whole(row.error)) },
  ].filter(Boolean);
  const table = windowTable({ caption: "Runs", columns, key: (row) => row.id,
    sorted: (sort) => { chosen.sort = sort; arrange(); }, viewed: () => rest() });

  fill(element, h("h1", {}, store.design ? `Runs of ${store.design}` : "Runs"),
    h("div", { class: "controls" }, h("label", {}, "Search", search), filters, !offline && [compare, clear]), said, table.element);

  function whole(text) {
    return h("span", { title: text }, text);
  }
  function select() {
    const count = chosen.runs.size;
    compare.textContent = count < 2 ? "Compare (select two or more)" : `Compare ${count} runs`;
    compare.disabled = count < 2 || count > MOST;
    compare.title = count > MOST ? `At most ${MOST} runs can be told apart` : "";
    clear.hidden = count === 0;
  }

  /** Filter and sort the rows. */
  function arrange() {
    const words = chosen.text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [...runs.rows.values()].filter((row) => words.every((word) => row.text.includes(word)));
    const counts = new Map();
    for (const row of found) counts.set(row.status, (counts.get(row.status) ?? 0) + 1);
    drawFilters(counts, found.length);
    ordered = found.filter((row) => chosen.statuses.size === 0 || chosen.statuses.has(row.status));
    const { name, down } = chosen.sort, column = columns.find((one) => one.name === name);
    const value = column.value ?? ((row) => row[name]);
    const values = new Map(ordered.map((row) => [row, value(row)]));
    ordered.sort((a, b) => {
      const [x, y] = [values.get(a), values.get(b)];
      // what is not known comes last, however it is sorted; then the newest run
      if (missing(x) || missing(y)) return missing(x) - missing(y) || b.id - a.id;
      const order = typeof x === "number" ? x - y : x < y ? -1 : Number(x > y);
      return (down ? -order : order) || b.id - a.id;
    });
    fill(said, runs.rows.size === 0 ? ["The store has no runs yet: start one ", store.actions && ["in ", link("#/documents", "Documents"), ", or "],
      "with palaestrai-mosaik start DOCUMENT"]
      : ordered.length === runs.rows.size ? `${number(ordered.length)} runs`
        : `${number(ordered.length)} of ${number(runs.rows.size)} runs`);
    table.show(ordered, chosen.sort, empty());
  }
  /** The names of the columns in which no run has a value. */
  function empty() {
    const all = [...runs.rows.values()];
    const has = (column) => all.some((row) => !missing((column.value ?? ((one) => one[column.name]))(row)));
    return new Set(columns.filter((one) => one.sortable && one.name !== chosen.sort.name && all.length && !has(one)).map((one) => one.name));
  }
  function drawFilters(counts, total) {
    const others = [...counts.keys()].filter((status) => !STATUSES.includes(status)).sort();
    const names = [...STATUSES, ...others].filter((status) => counts.has(status) || chosen.statuses.has(status));
    const wanted = [null, ...names];
    // buttons stay where they are, so that the one with the focus keeps it
    const kept = [...filters.children];
    if (!kept.length || kept.map((one) => one.value).join() !== wanted.map((one) => one ?? "").join()) {
      fill(filters, wanted.map((status) => h("button", { type: "button", class: "filter", value: status ?? "", onclick: () => {
        if (status === null) chosen.statuses.clear();
        else if (!chosen.statuses.delete(status)) chosen.statuses.add(status);
        arrange();
      } })));
    }
    wanted.forEach((status, i) => {
      const button = filters.children[i];
      button.textContent = `${status ?? "all"} ${number(status === null ? total : counts.get(status) ?? 0)}`;
      button.setAttribute("aria-pressed", status === null ? chosen.statuses.size === 0 : chosen.statuses.has(status));
    });
  }

  let timer = null;
  function rest() {
    clearTimeout(timer);
    timer = setTimeout(() => attempt(details), REST * 1000);
  }
  signal.addEventListener("abort", () => clearTimeout(timer));

  /** Ask for the curves of the rows in view that have none, or an old one. */
  async function details() {
    const seen = table.inView(), now = Date.now() / 1000;
    const missing = seen.filter((row) => row.episodes > 0 && row.curve?.episodes !== row.episodes
      && !(row.curve && now - row.curve.asked < OLD));
    if (!missing.length) return;
    // ask once, even if the answer takes long
    for (const row of missing) row.curve = { values: row.curve?.values ?? [], episodes: row.episodes, asked: now };
    let curves;
    try {
      curves = await get("sparklines", offline ? {} : { runs: missing.map((row) => row.run).join(",") }, signal);
    } catch (error) {
      for (const row of missing) {
        const known = runs.rows.get(row.id);
        if (known) known.curve = null;
      }
      throw error;
    }
    for (const row of missing) {
      const known = runs.rows.get(row.id);
      if (known) known.curve = { values: Array.from(curves[row.run] ?? []), episodes: row.episodes, asked: now };
    }
    table.update();
  }
  /** Ask how fast the runs in view are that run. */
  async function paces() {
    const running = table.inView().filter((row) => row.status === "running");
    if (!running.length || offline) return;
    const found = await get("paces", { runs: running.map((row) => row.run).join(",") }, signal);
    for (const row of running) row.pace = found[row.run] ?? null;
    table.update();
  }

  select();
  let known = -1;
  await watch(1, signal, async () => {
    const changed = await runs.look(signal);
    if (changed) {
      if (known !== runs.rows.size) short = shortIds([...runs.rows.values()].map((row) => row.run));
      known = runs.rows.size;
      arrange();
    }
    await paces();
    return true;
  }, attempt);
}
