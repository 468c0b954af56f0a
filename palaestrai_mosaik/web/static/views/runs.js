// All runs of the store, as they are now.

import { signal, useSignal, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { get, has, offline } from "web/data";
import { count, date, duration, number } from "web/format";
import { LabelTags } from "web/labels";
import { choices, keepChoices, Status, useTitle } from "web/page";
import { problem, shown, useResource } from "web/resource";
import { Added, added, conditionOf, Picker, useValues } from "web/run_columns";
import { WindowTable } from "web/window_table";

const STATUSES = ["running", "finished", "failed", "interrupted", "pruned", "lost"];
/** Seconds after which the curve of a running run is asked for again, and how long a scroll has to rest before any is. */
const OLD = 5, REST = 0.12;
/** More lines cannot be told apart. */
const MOST = 24;

/** the sort that nobody has chosen */
const NEWEST = { name: "started", down: true };

// what the reader has chosen stays while other views are looked at
const text = signal(""), statuses = signal(new Set()), sort = signal(NEWEST), selected = signal(new Set());
const tags = signal(new Set());

/** A set with or without a member. */
function switched(set, member, on = !set.has(member)) {
  return new Set(on ? [...set, member] : [...set].filter((one) => one !== member));
}

/** What the objective of a run is, such as "return of player". */
function statisticOf(agent, fold) {
  return agent && `${fold === "sum" ? "return" : "mean"} of ${agent}`;
}

/** The runs of an answer and of the one before it: {rows: Map of id -> row, cursor, behind}. */
function joined(answer, last) {
  const rows = new Map(last?.rows), { experiment, status, phase_name: phase, error, agent, fold } = answer;
  const errors = new Map(Array.from(error.rows, (i, j) => [i, error.texts[j]]));
  const labels = new Map(Array.from(answer.labels.rows, (i, j) => [i,
    { name: answer.labels.name[j], tags: answer.labels.tags[j], note: answer.labels.note[j] }]));
  for (let i = 0; i < answer.id.length; i += 1) {
    const row = {
      id: answer.id[i], run: answer.run[i], document: answer.document[i], seed: answer.seed[i],
      experiment: experiment.texts[experiment.codes[i]], status: status.texts[status.codes[i]],
      phase: answer.phase[i], phase_name: phase.texts[phase.codes[i]], phases: answer.phases[i],
      episodes: answer.episodes[i], episodes_planned: answer.episodes_planned[i], steps: answer.steps[i],
      objective: answer.objective[i], statistic: statisticOf(agent.texts[agent.codes[i]], fold.texts[fold.codes[i]]), started: answer.started[i], ended: answer.ended[i],
      error: errors.get(i) ?? null, rate: answer.rate[i], left: answer.left[i],
      ...(labels.get(i) ?? { name: null, tags: [], note: null }),
    };
    rows.set(row.id, { ...row, text: [row.document, row.experiment, row.run, row.error, row.name, ...row.tags, row.note].join("\n").toLowerCase() });
  }
  return { rows, cursor: answer.cursor, behind: answer.now - Date.now() / 1000 };
}

/** What has changed since the last answer. */
async function take(answer, last, stopped) {
  if (!last) return joined(answer);
  const named = new Set(answer.id);
  // one that is gone without an end is not in the answer: its process has died, or a clock is wrong
  const gone = [...last.rows.values()].filter((row) => row.status === "running" && !named.has(row.id)).map((row) => row.id).slice(0, 500);
  const others = gone.length ? await get("runs", { since: last.cursor, ids: gone.join(",") }, stopped) : null;
  const now = others ? joined(others, joined(answer, last)) : joined(answer, last);
  if (answer.count !== now.rows.size) return undefined;
  return answer.id.length + gone.length ? now : last;
}

/** The shortest beginnings of the uids that tell them apart, of at least 15 characters: date and time. */
function shortIds(uids) {
  const ordered = [...uids].sort(), short = new Map();
  const shared = (a, b) => {
    let i = 0;
    while (i < a.length && a[i] === b[i]) i += 1;
    return i;
  };
  let before = 0;
  ordered.forEach((uid, i) => {
    const after = i + 1 < ordered.length ? shared(uid, ordered[i + 1]) : 0;
    short.set(uid, uid.slice(0, Math.max(15, before + 1, after + 1)));
    before = after;
  });
  return short;
}

/** Whether nothing is known. */
function missing(value) {
  return value === null || value === undefined || Number.isNaN(value) || value === "";
}

/** A small curve, without axes. */
function sparkline(values) {
  const present = (values ?? []).filter((one) => one !== null);
  if (present.length < 2) return null;
  const low = Math.min(...present), high = Math.max(...present), width = 56, height = 20;
  const points = values.map((one, i) => one !== null && `${(i / (values.length - 1)) * width},`
    + `${high > low ? height - 1 - ((one - low) / (high - low)) * (height - 2) : height / 2}`).filter(Boolean);
  return h("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    h("polyline", { points: points.join(" ") }));
}

/** The curves and paces of the rows in view: {curve(row), pace(row)}. */
function useDetails(all, seen) {
  const known = useRef(new Map());
  const curves = useResource("sparklines", {
    query() {
      if (offline) return {};
      const now = Date.now() / 1000, asked = known.current;
      const wanted = seen.value.map((id) => all.value.value?.rows.get(id)).filter((row) => row?.episodes > 0
        && asked.get(row.run)?.episodes !== row.episodes && !(now - asked.get(row.run)?.asked < OLD));
      return wanted.length ? { runs: wanted.map((row) => row.run).join(",") } : null;
    },
    take(answer) {
      const now = Date.now() / 1000, rows = new Map([...all.value.peek()?.rows.values() ?? []].map((row) => [row.run, row]));
      known.current = new Map(known.current);
      for (const [run, values] of Object.entries(answer)) {
        known.current.set(run, { values: Array.from(values), episodes: rows.get(run)?.episodes, asked: now });
      }
      return known.current;
    },
  });
  const paces = useResource("paces", { seconds: 1, query() {
    const running = offline ? [] : seen.value.map((id) => all.value.value?.rows.get(id)).filter((row) => row?.status === "running");
    return running.length ? { runs: running.map((row) => row.run).join(",") } : null;
  } });
  return { curve: (row) => curves.value.value?.get(row.run)?.values,
    pace: (row) => (row.status === "running" ? paces.value.value?.[row.run] : null), problems: [curves, paces] };
}

/** Take the choices of an address; without any, those that were made before stay. */
function adopt() {
  const kept = choices(), members = (name) => new Set((kept.get(name) ?? "").split(",").filter(Boolean));
  if (!kept.size || offline) return;
  const [name, way] = (kept.get("sort") ?? "").split(" ");
  text.value = kept.get("search") ?? "";
  statuses.value = members("status");
  tags.value = members("tag");
  sort.value = name ? { name, down: way === "down" } : NEWEST;
  added.value = kept.getAll("column").map((each) => {
    const [key, ...words] = each.split(" ");
    return { key, condition: words.join(" ") };
  });
}

function remember() {
  const kept = new URLSearchParams(), { name, down } = sort.value;
  const members = { search: text.value, status: [...statuses.value].join(","), tag: [...tags.value].join(",") };
  for (const [choice, value] of Object.entries(members)) if (value) kept.set(choice, value);
  if (name !== NEWEST.name || !down) kept.set("sort", `${name} ${down ? "down" : "up"}`);
  for (const { key, condition } of added.value) kept.append("column", `${key} ${condition}`.trim());
  if (!offline) keepChoices("#/runs", kept);
}

export function View({ store, query }) {
  useTitle("Runs");
  useMemo(adopt, [query.toString()]);
  useSignalEffect(remember);
  const all = useResource("runs", { since: ({ cursor }) => ({ since: cursor }), seconds: 1, take });
  return [h("h1", {}, store.design ? `Runs of ${store.design}` : "Runs"), shown([all], () => h(Table, { all, store }))];
}

function Table({ all, store }) {
  const seen = useSignal([]), timer = useRef(0), { curve, pace, problems } = useDetails(all, seen);
  useEffect(() => () => clearTimeout(timer.current), []);
  const { rows, behind } = all.value.value;
  const ids = [...rows.values()].map((row) => row.run), short = useMemo(() => shortIds(ids), [ids.length]);
  const seconds = (row) => (Number.isFinite(row.ended) ? Math.max(0, row.ended - row.started)
    : row.status === "running" ? Math.max(0, Date.now() / 1000 + behind - row.started) : NaN);
  const steps = (row) => row.steps + (pace(row)?.steps ?? 0);
  const rate = (row) => (row.status === "running" ? pace(row)?.rate ?? row.rate : seconds(row) > 0 ? row.steps / seconds(row) : NaN);
  const left = (row) => (row.status === "running" ? pace(row)?.left ?? row.left : NaN);
  const whole = (said) => h("span", { title: said }, said);
  const values = useValues(all), adding = useSignal(added.value.length > 0);

  const columns = [
    !offline && { name: "select", title: h("span", { class: "unseen" }, "Select"), width: 34, cell: (row) => h("input", {
      type: "checkbox", checked: selected.value.has(row.run), "aria-label": `Select ${row.document} ${row.run}`,
      onchange: (event) => { selected.value = switched(selected.value, row.run, event.target.checked); } }) },
    { name: "run", title: "Run", width: 155, least: 144, sortable: true,
      cell: (row) => (has(`run/${row.run}`) ? h("a", { href: `#/run/${encodeURIComponent(row.run)}`, title: row.run }, short.get(row.run))
        : whole(row.run)) },
    { name: "name", title: "Name", width: 130, least: 80, sortable: true, cell: (row) => whole(row.name ?? "") },
    { name: "tags", title: "Tags", width: 130, least: 80, sortable: true, value: (row) => row.tags.join(", "), cell: (row) => whole(row.tags.join(", ")) },
    { name: "document", title: "Document", width: 160, least: 86, sortable: true, cell: (row) => whole(row.document) },
    { name: "experiment", title: "Experiment", width: 105, least: 92, sortable: true, cell: (row) => whole(row.experiment ?? "") },
    { name: "status", title: "Status", width: 112, least: 108, sortable: true, cell: (row) => h(Status, { of: row.status }) },
    { name: "phase", title: "Phase", width: 125, least: 98, sortable: true, cell: (row) => (row.phase < 0 ? "–"
      : whole(`${row.phase_name} (${row.phase + 1} of ${row.phases})`)) },
    { name: "episodes", title: "Episodes", width: 100, least: 84, sortable: true, number: true, cell: (row) => number(row.episodes)
      + (Number.isFinite(row.episodes_planned) ? ` of ${number(row.episodes_planned)}` : "") },
    { name: "steps", title: "Steps", width: 80, least: 64, sortable: true, number: true, value: steps, cell: (row) => number(steps(row)) },
    { name: "rate", title: "Steps/s", width: 80, least: 66, sortable: true, number: true, value: rate, cell: (row) => number(rate(row), 3) },
    { name: "left", title: "Time left", width: 95, least: 78, sortable: true, number: true, value: left, cell: (row) => duration(left(row)) },
    { name: "objective", title: "Objective", width: 150, least: 132, sortable: true, number: true,
      cell: (row) => [sparkline(curve(row)), " ", number(row.objective)] },
    { name: "statistic", title: "Statistic", width: 180, least: 64, sortable: true, cell: (row) => (row.statistic ? whole(row.statistic) : "") },
    ...added.value.map(({ key }) => values.column(key)),
    { name: "started", title: "Started", width: 140, least: 138, sortable: true, number: true,
      // without the seconds, which the id of the run has
      cell: (row) => h("span", { title: date(row.started) }, date(row.started).slice(0, 16)) },
    { name: "duration", title: "Duration", width: 90, least: 72, sortable: true, number: true, value: seconds, cell: (row) => duration(seconds(row)) },
    { name: "error", title: "Error", width: 260, least: 60, sortable: true, cell: (row) => (row.error === null ? "" : whole(row.error)) },
    { name: "note", title: "Note", width: 200, least: 60, sortable: true, cell: (row) => whole(row.note ?? "") },
  ].filter(Boolean).map((column) => ({ value: (row) => row[column.name], ...column }));

  const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
  const conditions = added.value.filter((one) => one.condition).map(({ key, condition }) => [values.column(key).value, conditionOf(condition)]);
  const searched = [...rows.values()].filter((row) => words.every((word) => row.text.includes(word))
    && conditions.every(([value, holds]) => holds(value(row))));
  const matching = searched.filter((row) => [...tags.value].every((tag) => row.tags.includes(tag)));
  const ordered = inOrder(matching.filter((row) => statuses.value.size === 0 || statuses.value.has(row.status)),
    // a column that is sorted by may have been removed
    (columns.find((one) => one.sortable && one.name === sort.value.name) ?? columns.find((one) => one.name === NEWEST.name)).value, sort.value.down);
  // a column in which no run has a value is not shown, unless it was added
  const chosen = new Set(added.value.map(({ key }) => key));
  const hidden = new Set(columns.filter((one) => one.sortable && !chosen.has(one.name) && one.name !== sort.value.name && rows.size
    && [...rows.values()].every((row) => missing(one.value(row)))).map((one) => one.name));
  function viewed(inView) {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => { seen.value = inView.map((row) => row.id); }, REST * 1000);
  }
  return [
    h("div", { class: "controls" },
      h("label", {}, "Search", h("input", { type: "search", placeholder: "Document, id, label or error", value: text.value,
        "aria-label": "Search runs", oninput: (event) => { text.value = event.target.value; } })),
      h(Filters, { rows: matching }), h(Tags, { rows: searched }), !offline && h(Comparison, {})),
    !offline && store.actions && selected.value.size > 0 && h(LabelTags, { runs: [...selected.value], done: all.reload }),
    !offline && h("details", { class: "columns", open: adding.value, ontoggle: (event) => { adding.value = event.target.open; } },
    h("summary", {}, "Columns of parameters and metrics"), adding.value && [h(Picker, {}), h(Added, {})]),
    h("p", { class: "quiet", role: "status" }, rows.size === 0
      ? ["The store has no runs yet: start one ", store.actions && ["in ", h("a", { href: "#/documents" }, "Documents"), ", or "],
        "with palaestrai-mosaik start DOCUMENT"]
      : ordered.length === rows.size ? count(rows.size, "run") : `${number(ordered.length)} of ${count(rows.size, "run")}`),
    shown(problems.filter((one) => one.error.value !== null && one.loaded.value), () => null),
    added.value.length > 0 && values.answer.error.value && problem(values.answer.error.value),
    h(WindowTable, { caption: "Runs", columns, rows: ordered, rowKey: (row) => row.id, sort: sort.value, hidden, viewed,
      sorted: (by) => { sort.value = by; } }),
  ];
}

/** Rows by a value; what is not known comes last, however it is sorted; then the newest run. */
function inOrder(rows, value, down) {
  const values = new Map(rows.map((row) => [row, value(row)]));
  return rows.sort((a, b) => {
    const [x, y] = [values.get(a), values.get(b)];
    if (missing(x) || missing(y)) return Number(missing(x)) - Number(missing(y)) || b.id - a.id;
    const order = typeof x === "number" ? x - y : x < y ? -1 : Number(x > y);
    return (down ? -order : order) || b.id - a.id;
  });
}

function Filters({ rows }) {
  const counts = new Map();
  for (const row of rows) counts.set(row.status, (counts.get(row.status) ?? 0) + 1);
  const others = [...counts.keys()].filter((status) => !STATUSES.includes(status)).sort();
  const names = [...STATUSES, ...others].filter((status) => counts.has(status) || statuses.value.has(status));
  const button = (name, size, pressed, press) => h("button", { key: name, type: "button", class: "filter", value: name,
    "aria-pressed": String(pressed), onclick: press }, `${name || "all"} ${number(size)}`);
  return h("div", { class: "controls", role: "group", "aria-label": "Status" },
    button("", rows.length, statuses.value.size === 0, () => { statuses.value = new Set(); }),
    names.map((status) => button(status, counts.get(status) ?? 0, statuses.value.has(status), () => {
      statuses.value = switched(statuses.value, status);
    })));
}

/** The tags of runs: a run has all that are pressed. */
function Tags({ rows }) {
  const counts = new Map([...tags.value].map((tag) => [tag, 0]));
  for (const tag of rows.flatMap((row) => row.tags)) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  return counts.size > 0 && h("div", { class: "controls", role: "group", "aria-label": "Tags" }, [...counts].sort().map(([tag, size]) =>
    h("button", { key: tag, type: "button", class: "filter tag", value: tag, "aria-pressed": String(tags.value.has(tag)),
      onclick: () => { tags.value = switched(tags.value, tag); } }, `${tag} ${number(size)}`)));
}

function Comparison() {
  const { size } = selected.value;
  return [
    h("button", { type: "button", disabled: size < 2 || size > MOST, title: size > MOST ? `At most ${MOST} runs can be told apart` : "",
      onclick: () => { location.hash = `#/compare/${[...selected.value].map(encodeURIComponent).join(",")}`; } },
    size < 2 ? "Compare (select two or more)" : `Compare ${count(size, "run")}`),
    size > 0 && h("button", { type: "button", onclick: () => { selected.value = new Set(); } }, "Clear"),
  ];
}
