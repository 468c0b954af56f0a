// How a run came about: its document, failures, warnings, log, versions, digests, and the world that was built.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { has, offline } from "web/data";
import { count, date, number } from "web/format";
import { table } from "web/page";
import { shown, useResource } from "web/resource";
import { drawing } from "web/world";

/** of a log, so many entries are shown, the newest */
const MOST_ENTRIES = 2000;
const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
const ENTRY = /^\d{4}-\d\d-\d\dT\S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) /;

export function View({ run, running }) {
  const log = useResource(`run/${run}/log`, {
    query: () => (has(`run/${run}/log`) ? {} : null),
    since: ({ next }) => (next ? { from: next } : {}),
    seconds: 2, live: () => running.value, take: entriesOf,
  });
  // what is logged may have been recorded, too
  const answer = useResource(`run/${run}/record`, { changes: () => `${running.value} ${log.value.value?.next}` });
  return shown([answer], () => {
    const record = answer.value.value;
    return h("div", { class: "record" },
      h(Failures, { record }),
      h("h2", {}, "Run document"),
      h("div", { class: "controls" }, h(Copier, { title: "Copy the document", text: () => record.document.join("\n") })),
      h(Text, { record }),
      record.warnings.length > 0 && [h("h2", {}, "Warnings"), table([
        { title: "time", value: (row) => date(row.time) }, { title: "warning", value: (row) => row.text }], record.warnings, "Warnings")],
      has(`run/${run}/log`) && h(Log, { log }),
      h("h2", {}, "Run"), origin(record),
      h("h2", {}, "Recorded streams"), streams(record),
      has(`run/${run}/world`) && h(World, { run, record }));
  });
}

function jump(line) {
  const to = document.getElementById(`line-${line}`);
  to?.scrollIntoView({ block: "center" });
  to?.focus({ preventScroll: true });
}

function Failures({ record }) {
  const box = useRef(null), { failures } = record;
  const named = (number_) => {
    const phase = record.phases.find((one) => one.phase === number_);
    return phase ? `${number_} ${phase.name}` : number_;
  };
  // the end of a traceback says what was raised
  useEffect(() => {
    for (const one of box.current.querySelectorAll("pre.traceback")) one.scrollTop = one.scrollHeight;
  }, [failures.length]);
  return h("div", { ref: box }, failures.map((one) => h("section", { class: "card" },
    h("h2", {}, `${one.kind}: ${one.message.split("\n")[0]}`),
    h("p", { class: "quiet" }, [one.phase === null ? null : `phase ${named(one.phase)}`, date(one.time)].filter(Boolean).join(" · ")),
    one.marks.length > 0 && h("p", {}, "In the document: ", one.marks.map((mark, i) => [i > 0 && " ",
      h("button", { type: "button", onclick: () => jump(mark.line) }, `line ${mark.line}: ${mark.what}`)])),
    one.traceback && h("details", { open: true }, h("summary", {}, "Traceback"), h(Copier, { title: "Copy the traceback", text: () => one.traceback }),
      h("pre", { class: "text traceback", tabindex: 0, role: "region", "aria-label": "Traceback" }, one.traceback)))));
}

/** The run document, in which the lines that failures concern are marked. */
function Text({ record }) {
  const box = useRef(null), marked = new Set(record.failures.flatMap((one) => one.marks).map((one) => one.line));
  useLayoutEffect(() => {
    const first = box.current.querySelector(".marked");
    if (first) box.current.scrollTop = first.offsetTop - box.current.offsetTop - box.current.clientHeight / 2;
  }, [[...marked].join()]);
  return h("pre", { class: "document", tabindex: 0, role: "region", "aria-label": "Text of the run document", ref: box },
    record.document.map((text, i) => h("span", { class: `line ${marked.has(i + 1) ? "marked" : ""}`, "data-line": i + 1, id: `line-${i + 1}`,
      tabindex: marked.has(i + 1) ? 0 : undefined }, `${text}\n`)));
}

/** A button that copies a text. */
function Copier({ title, text }) {
  const said = useSignal(title);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text());
      said.value = "Copied";
    } catch {
      said.value = "The browser does not allow it: select the text";
    }
    setTimeout(() => { said.value = title; }, 2000);
  }
  return h("button", { type: "button", onclick: copy }, said.value);
}

function origin({ facts, packages, again }) {
  const rows = [["run", facts.run], ["document", facts.document], ["hash", facts.hash], ["experiment", facts.experiment], ["seed", facts.seed],
    ["palaestrAI version of the document", facts.version], ["host", facts.host], ["process", facts.pid],
    ["packages", Object.entries(packages).map(([name, version]) => `${name} ${version}`).join(", ")]];
  return h("div", { class: "card" }, h("dl", {}, rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
  again === null ? h("p", {}, "To execute it again, save the run document as a file: ", h("code", {}, "palaestrai-mosaik start FILE"))
    : h("p", {}, "To execute it again: ", h("code", {}, again), " ", h(Copier, { title: "Copy the command", text: () => again })));
}

function streams({ streams: rows, phases }) {
  const named = (number_) => phases.find((one) => one.phase === number_)?.name ?? number_;
  const digest = (row) => (row.digest === null ? "–" : [h("code", {}, row.digest.slice(0, 16)), " ", h(Copier, { title: "Copy", text: () => row.digest })]);
  return table([
    { title: "phase", value: (row) => named(row.phase) }, { title: "kind", value: (row) => row.kind },
    { title: "of", value: (row) => row.name + (row.group ? `, group ${row.group}` : "") + (row.evaluation ? ", evaluation" : "") },
    { title: "rows", number: true, value: (row) => number(row.rows) }, { title: "digest (SHA-256)", value: digest },
  ], rows, "Streams of rows, and their digests: the same for the same document, seed and versions");
}

/** The entries of a log, and those that an answer adds; further lines of an entry, such as a traceback, belong to it. */
function entriesOf({ next, text }, last) {
  const entries = [...last?.entries ?? []];
  for (const line of text.split(/(?<=\n)/).filter(Boolean)) {
    const begins = ENTRY.exec(line), before = entries.at(-1);
    if (begins || !before) entries.push({ level: LEVELS.indexOf(begins?.[1] ?? "INFO"), text: line });
    else entries[entries.length - 1] = { ...before, text: before.text + line };
  }
  return last && !text ? last : { next, entries };
}

function Log({ log }) {
  const least = useSignal(0), follow = useSignal(true), box = useRef(null);
  const entries = log.value.value?.entries ?? [], wanted = entries.filter((one) => one.level >= least.value);
  const left = Math.max(0, wanted.length - MOST_ENTRIES);
  useLayoutEffect(() => {
    if (follow.value && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [wanted.length, follow.value]);
  return h("section", { "aria-label": "Log" }, h("h2", {}, "Log"),
    h("div", { class: "controls" },
      h("label", {}, "Entries ", h("select", { id: "level", value: least.value, onchange: (event) => { least.value = Number(event.target.value); } },
        [["all", 0], ["warnings and errors", 2], ["errors", 3]].map(([name, value]) => h("option", { value }, name)))),
      !offline && h("label", {}, h("input", { type: "checkbox", id: "follow", checked: follow.value,
        onchange: (event) => { follow.value = event.target.checked; } }), " show the newest"),
      h(Copier, { title: "Copy the log", text: () => entries.map((one) => one.text).join("") })),
    shown([log], () => [
      h("p", { class: "quiet" }, entries.length ? `${number(wanted.length)} of ${count(entries.length, "entry", "entries")}${
        left ? `, the first ${number(left)} left out` : ""}` : "Nothing is logged."),
      entries.length > 0 && h("pre", { class: "text log", tabindex: 0, role: "log", "aria-label": "Log of the run", ref: box },
        wanted.slice(left).map((one) => h("span", { class: LEVELS[one.level] }, one.text)))]));
}

const place = (end) => (end.simulator === end.entity ? end.entity : `${end.simulator}.${end.entity}`);

function World({ run, record }) {
  const phase = useSignal(undefined);
  const answer = useResource(`run/${run}/world`, { query: () => ({ phase: phase.value }) });
  const choice = !offline && record.phases.length > 1 && h("div", { class: "controls" }, h("label", {}, "Phase ",
    h("select", { value: phase.value ?? record.phases.at(-1).phase, onchange: (event) => { phase.value = Number(event.target.value); } },
      record.phases.map((one) => h("option", { value: one.phase }, one.name || one.phase)))));
  return h("section", { "aria-label": "World" }, shown([answer], () => (answer.value.value || phase.value !== undefined
    ? [h("h2", {}, "World"), choice, picture(answer.value.value)] : h("p", { class: "quiet" }, "The world of this run is not recorded."))));
}

function picture(world) {
  if (!world) return h("p", { class: "quiet" }, "The world of this phase is not recorded.");
  const { simulators, connections } = world.left_out ?? {};
  const out = [simulators && count(simulators, "simulator"), connections && count(connections, "connection")].filter(Boolean);
  return [
    h("p", { class: "quiet" }, `${world.title.replace(/^./, (c) => c.toUpperCase())}. An arrow: arrives at the same time; a dashed arrow: arrives at the next step.`,
      world.summarised && " Large world: entities of one model are grouped.", out.length > 0 && ` Left out: ${out.join(", ")}.`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Picture of the world" }, drawing(world.picture, world.title)),
    h("details", {}, h("summary", {}, "Simulators and connections as tables"),
      table([{ title: "simulator", value: (row) => row.simulator }, { title: "what", value: (row) => row.what },
        { title: "entities", value: (row) => row.entities.map((one) => `${one.entity} [${one.model}]`).join(", ") }],
      world.simulators, "Simulators"),
      table([{ title: "from", value: (row) => place(row.source) }, { title: "to", value: (row) => place(row.target) },
        { title: "data", value: (row) => row.data }, { title: "values", number: true, value: (row) => number(row.values) },
        { title: "arrives", value: (row) => (row.time_shifted ? "at the next step" : "at the same time") }],
      world.connections, "Connections")),
  ];
}
