// How a run came about: its document, failures, warnings, log, versions, digests, and the world that was built.

import { get, has, offline, watch } from "web/data";
import { fill, h, table } from "web/dom";
import { date, number } from "web/format";
import { drawing } from "web/world";

/** of a log, so many entries are shown, the newest */
const MOST_ENTRIES = 2000;
const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
const ENTRY = /^\d{4}-\d\d-\d\dT\S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) /;

export async function show(element, { run, facts, signal, attempt }) {
  let record = await get(`run/${run}/record`, {}, signal);
  const failures = h("div", {}), warnings = h("div", {});
  const lines = record.document.map((text, i) => h("span", { class: "line", "data-line": i + 1, id: `line-${i + 1}` }, `${text}\n`));
  const log = has(`run/${run}/log`) ? journal(run, signal, attempt) : null;
  element.classList.add("record");
  fill(element, failures,
    h("h2", {}, "Run document"),
    h("div", { class: "controls" }, copier("Copy the document", () => record.document.join("\n"))),
    h("pre", { class: "document", tabindex: "0", "aria-label": "Text of the run document" }, lines),
    warnings,
    log?.element,
    h("h2", {}, "Run"), origin(record),
    h("h2", {}, "Recorded streams"), streams(record));

  /** Mark the lines that failures concern. */
  function mark() {
    for (const line of lines) line.classList.remove("marked");
    for (const one of record.failures.flatMap((each) => each.marks)) lines[one.line - 1]?.classList.add("marked");
    for (const line of lines) line.tabIndex = line.classList.contains("marked") ? 0 : -1;
    for (const line of lines) if (line.tabIndex < 0) line.removeAttribute("tabindex");
    const first = element.querySelector("pre.document .marked"), box = first?.parentElement;
    if (box) box.scrollTop = first.offsetTop - box.offsetTop - box.clientHeight / 2;
  }

  function jump(line) {
    const to = lines[line - 1];
    to?.scrollIntoView({ block: "center" });
    to?.focus({ preventScroll: true });
  }

  function draw() {
    fill(failures, record.failures.map((one) => h("section", { class: "card" },
      h("h2", {}, `${one.kind}: ${one.message.split("\n")[0]}`),
      h("p", { class: "quiet" }, [one.phase === null ? null : `phase ${named(one.phase)}`, date(one.time)].filter(Boolean).join(" · ")),
      one.marks.length > 0 && h("p", {}, "In the document: ", one.marks.map((each, i) => [i > 0 && " ",
        h("button", { type: "button", onclick: () => jump(each.line) }, `line ${each.line}: ${each.what}`)])),
      one.traceback && h("details", { open: true }, h("summary", {}, "Traceback"), copier("Copy the traceback", () => one.traceback),
        h("pre", { class: "text traceback", tabindex: "0", "aria-label": "Traceback" }, one.traceback)))));
    fill(warnings, record.warnings.length > 0 && [h("h2", {}, "Warnings"), table([
      { title: "time", value: (row) => date(row.time) }, { title: "warning", value: (row) => row.text }], record.warnings, "Warnings")]);
    // the end of a traceback says what was raised
    for (const one of failures.querySelectorAll("pre.traceback")) one.scrollTop = one.scrollHeight;
    mark();
  }

  function named(phase) {
    const found = record.phases.find((one) => one.phase === phase);
    return found ? `${phase} ${found.name}` : phase;
  }

  draw();
  if (has(`run/${run}/world`)) element.append(await world(run, record, signal, attempt));
  if (log) {
    watch(2, signal, async () => {
      const more = await log.look();
      if (facts.status !== "running") return false;
      const { status } = await get(`run/${run}`, {}, signal);
      if (more || status !== "running") {
        record = await get(`run/${run}/record`, {}, signal);
        draw();
      }
      // what was logged last has to be seen, too
      if (status !== "running") await log.look();
      return status === "running";
    }, attempt);
  }
}

/** A button that copies a text. */
function copier(title, text) {
  return h("button", { type: "button", onclick: async (event) => {
    const button = event.target;
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "The browser does not allow it: select the text";
    }
    setTimeout(() => { button.textContent = title; }, 2000);
  } }, title);
}

function origin({ facts, packages, again }) {
  const rows = [["run", facts.run], ["document", facts.document], ["hash", facts.hash], ["experiment", facts.experiment], ["seed", facts.seed],
    ["palaestrAI version of the document", facts.version], ["host", facts.host], ["process", facts.pid],
    ["packages", Object.entries(packages).map(([name, version]) => `${name} ${version}`).join(", ")]];
  return h("div", { class: "card" }, h("dl", {}, rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
  again === null ? h("p", {}, "To execute it again, save the run document as a file: ", h("code", {}, "palaestrai-mosaik start FILE"))
    : h("p", {}, "To execute it again: ", h("code", {}, again), " ", copier("Copy the command", () => again)));
}

function streams({ streams: rows, phases }) {
  const named = (number_) => phases.find((one) => one.phase === number_)?.name ?? number_;
  const digest = (row) => (row.digest === null ? "–" : [h("code", {}, row.digest.slice(0, 16)), " ", copier("Copy", () => row.digest)]);
  return table([
    { title: "phase", value: (row) => named(row.phase) }, { title: "kind", value: (row) => row.kind },
    { title: "of", value: (row) => row.name + (row.group ? `, group ${row.group}` : "") + (row.evaluation ? ", evaluation" : "") },
    { title: "rows", number: true, value: (row) => number(row.rows) }, { title: "digest (SHA-256)", value: digest },
  ], rows, "Streams of rows, and their digests: the same for the same document, seed and versions");
}

/** The log: {element, look()}; `look` asks for what is new and returns whether there was any. */
function journal(run, signal, attempt) {
  let next = 0, entries = [];
  const lines = h("pre", { class: "text log", tabindex: "0", role: "log", "aria-label": "Log of the run" });
  const note = h("p", { class: "quiet" });
  const follow = h("input", { type: "checkbox", checked: true, id: "follow" });
  const level = h("select", { id: "level", onchange: () => draw() }, [["all", 0], ["warnings and errors", 2], ["errors", 3]]
    .map(([name, least]) => h("option", { value: least }, name)));
  const element = h("section", { "aria-label": "Log" }, h("h2", {}, "Log"),
    h("div", { class: "controls" }, h("label", {}, "Entries ", level), !offline && h("label", {}, follow, " show the newest"),
      copier("Copy the log", () => entries.map((one) => one.text).join(""))), note, lines);

  function draw() {
    const shown = entries.filter((one) => one.level >= Number(level.value));
    const left = Math.max(0, shown.length - MOST_ENTRIES);
    fill(note, entries.length ? `${number(shown.length)} of ${number(entries.length)} entries${left ? `, the first ${number(left)} left out` : ""}`
      : "Nothing is logged.");
    lines.hidden = !entries.length;
    fill(lines, shown.slice(left).map((one) => h("span", { class: LEVELS[one.level] }, one.text)));
    if (follow.checked) lines.scrollTop = lines.scrollHeight;
  }

  async function look() {
    const found = await attempt(look, () => get(`run/${run}/log`, next ? { from: next } : {}, signal));
    if (!found) return false;
    next = found.next;
    for (const line of found.text.split(/(?<=\n)/)) {
      const begins = ENTRY.exec(line);
      // (further lines of an entry, a traceback for instance, belong to it)
      if (begins || !entries.length) entries.push({ level: LEVELS.indexOf(begins?.[1] ?? "INFO"), text: line });
      else entries.at(-1).text += line;
    }
    entries = entries.filter((one) => one.text);
    if (found.text || !next) draw();
    return found.text !== "";
  }
  return { element, look };
}

async function world(run, record, signal, attempt) {
  const body = h("div", {});
  const select = h("select", { onchange: () => attempt(load, () => load(Number(select.value))) },
    record.phases.map((one) => h("option", { value: one.phase }, one.name || one.phase)));
  const element = h("section", { "aria-label": "World" });

  async function load(phase) {
    const found = await get(`run/${run}/world`, phase === undefined ? {} : { phase }, signal);
    if (!found) {
      fill(body, h("p", { class: "quiet" }, "The world of this phase is not recorded."));
      return false;
    }
    const left = found.left_out ?? {};
    const out = [["simulators", left.simulators], ["connections", left.connections]].filter(([, count]) => count);
    fill(body,
      h("p", { class: "quiet" }, `${found.title.replace(/^./, (c) => c.toUpperCase())}. An arrow: arrives at the same time; a dashed arrow: arrives at the next step.`,
        found.summarised && " Large world: entities of one model are grouped.",
        out.length > 0 && ` Left out: ${out.map(([name, count]) => `${number(count)} ${name}`).join(", ")}.`),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Picture of the world" }, drawing(found.picture, found.title)),
      h("details", {}, h("summary", {}, "Simulators and connections as tables"),
        table([{ title: "simulator", value: (row) => row.simulator }, { title: "what", value: (row) => row.what },
          { title: "entities", value: (row) => row.entities.map((one) => `${one.entity} [${one.model}]`).join(", ") }],
        found.simulators, "Simulators"),
        table([{ title: "from", value: (row) => place(row.source) }, { title: "to", value: (row) => place(row.target) },
          { title: "data", value: (row) => row.data }, { title: "values", number: true, value: (row) => number(row.values) },
          { title: "arrives", value: (row) => (row.time_shifted ? "at the next step" : "at the same time") }],
        found.connections, "Connections")));
    return true;
  }
  const place = (end) => (end.simulator === end.entity ? end.entity : `${end.simulator}.${end.entity}`);
  if (!(await load())) return h("p", { class: "quiet" }, "The world of this run is not recorded.");
  if (record.phases.length) select.value = record.phases.at(-1).phase;
  return fill(element, h("h2", {}, "World"),
    !offline && record.phases.length > 1 && h("div", { class: "controls" }, h("label", {}, "Phase ", select)), body);
}
