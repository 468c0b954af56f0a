// Documents: check a run document or a design, edit it, and start a run of it.

import { signal, useSignal } from "@preact/signals";
import { h } from "preact";
import { useRef } from "preact/hooks";
import { Started, useMessage } from "web/actions";
import { post } from "web/data";
import { count } from "web/format";
import { useTitle } from "web/page";
import { shown, useResource } from "web/resource";

/** what the view shows survives a visit of another one */
const name = signal("document.yml"), text = signal("");
const MAX_BYTES = 4 * 2 ** 20;

export function View({ store }) {
  useTitle("Documents");
  const rules = useResource("documents", { query: () => (store.actions ? {} : null) });
  return [h("h1", {}, "Documents"), store.actions ? shown([rules], () => h(Editor, rules.value.value))
    : h("p", {}, "This page is read-only (--read-only): it cannot check or start anything.")];
}

function Editor({ directory, allow_modules: modules }) {
  const said = useMessage(), busy = useSignal(false), checked = useSignal(null), started = useSignal(null), over = useSignal(false);
  const area = useRef(null), gutter = useRef(null), seed = useRef(null), settings = useRef(null);

  function change(content) {
    text.value = content;
    // what was said concerns another text
    checked.value = null;
    said.clear();
  }
  async function take(file) {
    if (!file) return;
    if (file.size > MAX_BYTES) {
      said.say(`${file.name} has ${count(file.size, "byte")}; at most ${count(MAX_BYTES, "byte")} are taken`);
      return;
    }
    const content = await file.text();
    name.value = file.name;
    change(content);
  }
  const order = () => ({ name: name.value, text: text.value, seed: seed.current.value === "" ? null : Number(seed.current.value),
    settings: settings.current.value.split("\n").map((one) => one.trim()).filter(Boolean) });
  async function work(act) {
    busy.value = true;
    await said.attempt(act);
    busy.value = false;
  }
  async function check() {
    said.say("Checking …");
    const answer = await post("documents/check", order());
    checked.value = answer;
    said.say(answer.problems.length ? count(answer.problems.length, "problem") : `${answer.kind === "design" ? "The design" : "The document"} is sound.`);
    return answer.problems.length === 0;
  }
  async function start() {
    if (!(await check())) return;
    said.say("Starting …");
    const answer = await post("documents/start", order());
    said.say(answer.done);
    started.value = answer.key;
  }
  function go({ line, column }) {
    const { value } = area.current, before = value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    const at = before + (column ?? 1) - 1, end = value.indexOf("\n", at);
    area.current.focus();
    area.current.setSelectionRange(at, end < 0 ? value.length : end);
    area.current.scrollTop = Math.max(0, (line - 6) * parseFloat(getComputedStyle(area.current).lineHeight));
  }
  const marked = new Map();
  for (const [kind, list] of [["warning", checked.value?.warnings], ["error", checked.value?.problems]]) {
    for (const one of list ?? []) if (one.line !== null && !one.file) marked.set(one.line, kind);
  }
  const line = (_, i) => {
    const kind = marked.get(i + 1);
    return h("span", { class: kind }, `${kind === "error" ? "✗" : kind ? "!" : " "} ${i + 1}\n`);
  };
  return h("div", {
    ondragover: (event) => { event.preventDefault(); over.value = true; },
    ondragleave: () => { over.value = false; },
    ondrop: (event) => { event.preventDefault(); over.value = false; take(event.dataTransfer.files[0]); },
  },
  h("p", { class: "quiet" }, "Relative paths in a document start at ", h("code", {}, directory), ". To check a document imports the "
    + "classes that it names and sets up its environments, on the machine of this server and with your rights. ",
  modules && `It may name classes of palaestrai_mosaik${modules.map((one) => `, ${one}`).join("")} only (--allow-modules).`),
  h("div", { class: "controls" },
    h("label", { for: "file" }, "Choose a file ", h("input", { type: "file", accept: ".yml,.yaml", id: "file",
      onchange: (event) => take(event.target.files[0]) })),
    h("button", { type: "button", "data-action": "check", disabled: busy.value, onclick: () => work(check) }, "Check"),
    h("button", { type: "button", "data-action": "start", disabled: busy.value, onclick: () => work(start) }, "Start a run"),
    h("span", { role: "status" }, said.text.value)),
  h("div", { class: "document" },
    h("div", {}, h("label", { for: "document" }, name.value), h("div", { class: `editor ${over.value ? "over" : ""}` },
      h("pre", { class: "gutter", "aria-hidden": "true", ref: gutter }, text.value.split("\n").map(line)),
      h("textarea", { class: "yaml", spellcheck: false, autocomplete: "off", wrap: "off", rows: 24, id: "document", ref: area, value: text.value,
        placeholder: "Drop a YAML file here, choose one, or write.", oninput: () => change(area.current.value),
        onscroll: () => { gutter.current.scrollTop = area.current.scrollTop; } }))),
    h("div", { class: "found", role: "region", "aria-label": "Problems", tabindex: 0 }, checked.value && [
      listed("Problems", "error", checked.value.problems, go), listed("Warnings", "warning", checked.value.warnings, go),
      checked.value.description && h("pre", {}, checked.value.description)])),
  h("div", { class: "controls" },
    h("label", { for: "seed" }, "Seed ", h("input", { type: "number", id: "seed", min: 0, step: 1, ref: seed })),
    h("label", { for: "settings" }, "Other values, PATH=VALUE, one a line ", h("textarea", { rows: 2, cols: 44, id: "settings", spellcheck: false,
      placeholder: "schedule.train.phase_config.episodes=3", ref: settings }))),
  started.value && h(Started, { key: started.value, process: started.value }));
}

function listed(title, kind, items, go) {
  return items.length > 0 && [h("h2", {}, title), h("ol", { class: "problems" }, items.map((one) => h("li", { class: kind },
    h("button", { type: "button", disabled: one.line === null || Boolean(one.file), onclick: () => go(one) }, place(one)),
    one.path && h("code", {}, one.path), " ", one.message)))];
}

function place({ file, line, column }) {
  const at = line === null ? "document" : `line ${line}${column === null ? "" : `, column ${column}`}`;
  return file ? `${file}, ${at}` : at;
}
