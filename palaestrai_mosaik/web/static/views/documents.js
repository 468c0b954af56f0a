// Documents: check a run document or a design, edit it, and start a run of it.

import { follow } from "web/actions";
import { get, post } from "web/data";
import { fill, h } from "web/dom";
import { number } from "web/format";
import { refused } from "web/messages";

/** what the view shows survives a visit of another one */
const kept = { name: "document.yml", text: "" };
const MAX_BYTES = 4 * 2 ** 20;

export async function show(element, { store, signal, attempt }) {
  if (!store.actions) {
    fill(element, h("h1", {}, "Documents"), h("p", {}, "This page is read-only (--read-only): it cannot check or start anything."));
    return;
  }
  const rules = await get("documents", {}, signal);
  const gutter = h("pre", { class: "gutter", "aria-hidden": "true" });
  const text = h("textarea", { class: "yaml", spellcheck: "false", autocomplete: "off", wrap: "off", rows: "24", id: "document",
    placeholder: "Drop a YAML file here, choose one, or write." });
  const title = h("label", { for: "document" });
  const found = h("div", { class: "found", role: "region", "aria-label": "Problems", tabindex: "0" });
  const said = h("span", { role: "status" });
  const settings = h("textarea", { rows: "2", cols: "44", id: "settings", spellcheck: "false", placeholder: "schedule.train.phase_config.episodes=3" });
  const seed = h("input", { type: "number", id: "seed", min: "0", step: "1" });
  const file = h("input", { type: "file", accept: ".yml,.yaml", id: "file" });
  const check = h("button", { type: "button", "data-action": "check", onclick: () => busy(checkIt) }, "Check");
  const start = h("button", { type: "button", "data-action": "start", onclick: () => busy(startIt) }, "Start a run");
  const started = h("div", {});
  const editor = h("div", { class: "editor" }, gutter, text);
  let marked = new Map();

  const modules = rules.allow_modules;
  fill(element, h("h1", {}, "Documents"),
    h("p", { class: "quiet" }, "Relative paths in a document start at ", h("code", {}, rules.directory), ". To check a document imports the "
      + "classes that it names and sets up its environments, on the machine of this server and with your rights. ",
    modules && `It may name classes of palaestrai_mosaik${modules.map((one) => `, ${one}`).join("")} only (--allow-modules).`),
    h("div", { class: "controls" }, h("label", { for: "file" }, "Choose a file ", file), check, start, said),
    h("div", { class: "document" }, h("div", {}, title, editor), found),
    h("div", { class: "controls" },
      h("label", { for: "seed" }, "Seed ", seed),
      h("label", { for: "settings" }, "Other values, PATH=VALUE, one a line ", settings)),
    started);

  function open(name, content) {
    Object.assign(kept, { name, text: content });
    text.value = content;
    changed();
    fill(found);
  }
  function changed() {
    kept.text = text.value;
    marked = new Map();
    fill(title, kept.name);
    // the message concerns another text
    fill(said);
    lines();
  }
  function lines() {
    const count = text.value.split("\n").length;
    const numbers = Array.from({ length: count }, (_, i) => {
      const kind = marked.get(i + 1);
      return h("span", { class: kind }, `${kind === "error" ? "✗" : kind ? "!" : " "} ${i + 1}\n`);
    });
    fill(gutter, numbers);
    gutter.scrollTop = text.scrollTop;
  }
  async function take(chosen) {
    if (!chosen) return;
    if (chosen.size > MAX_BYTES) fill(said, `${chosen.name} has ${number(chosen.size)} bytes; at most ${number(MAX_BYTES)} are taken`);
    else open(chosen.name, await chosen.text());
  }
  function order() {
    return { name: kept.name, text: text.value, seed: seed.value === "" ? null : Number(seed.value),
      settings: settings.value.split("\n").map((one) => one.trim()).filter(Boolean) };
  }
  async function busy(work) {
    check.disabled = start.disabled = true;
    try {
      await work();
    } catch (error) {
      if (!signal.aborted) refused(said, error);
    }
    check.disabled = start.disabled = false;
  }
  async function checkIt() {
    fill(said, "Checking …");
    const answer = await post("documents/check", order());
    const { problems, warnings } = answer;
    marked = new Map();
    for (const one of warnings) if (one.line !== null && !one.file) marked.set(one.line, "warning");
    for (const one of problems) if (one.line !== null && !one.file) marked.set(one.line, "error");
    lines();
    fill(said, problems.length ? `${number(problems.length)} ${problems.length === 1 ? "problem" : "problems"}` : `${answer.kind === "design" ? "The design" : "The document"} is sound.`);
    fill(found, listed("Problems", "error", problems), listed("Warnings", "warning", warnings),
      answer.description && h("pre", {}, answer.description));
    return problems.length === 0;
  }
  async function startIt() {
    if (!(await checkIt())) return;
    fill(said, "Starting …");
    const answer = await post("documents/start", order());
    fill(said, answer.done);
    follow(answer.key, signal, started, attempt);
  }
  function listed(name, kind, items) {
    return items.length > 0 && [h("h2", {}, name), h("ol", { class: "problems" }, items.map((one) => h("li", { class: kind },
      h("button", { type: "button", disabled: one.line === null || Boolean(one.file), onclick: () => go(one) }, place(one)),
      one.path && h("code", {}, one.path), " ", one.message)))];
  }
  function place({ file: other, line, column }) {
    const at = line === null ? "document" : `line ${line}${column === null ? "" : `, column ${column}`}`;
    return other ? `${other}, ${at}` : at;
  }
  function go({ line, column }) {
    const before = text.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    const at = before + (column ?? 1) - 1;
    const end = text.value.indexOf("\n", at);
    text.focus();
    text.setSelectionRange(at, end < 0 ? text.value.length : end);
    text.scrollTop = Math.max(0, (line - 6) * parseFloat(getComputedStyle(text).lineHeight));
  }

  text.addEventListener("input", changed);
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  file.addEventListener("change", () => take(file.files[0]));
  element.addEventListener("dragover", (event) => { event.preventDefault(); editor.classList.add("over"); });
  element.addEventListener("dragleave", () => editor.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    editor.classList.remove("over");
    take(event.dataTransfer.files[0]);
  });
  open(kept.name, kept.text);
}
