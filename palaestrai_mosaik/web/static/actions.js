// What the page can do beside showing: buttons that cancel and resume, and what became of what they started.

import { get, offline, post, watch } from "web/data";
import { fill, h, link } from "web/dom";
import { refused } from "web/messages";

/**
 * The buttons of a run: cancel where it runs on the server's machine, resume where it has a checkpoint.
 * Returns {element, update(facts)}; call `update` when the run's status may have changed.
 * @param {{store: Object, signal: AbortSignal, attempt: Function}} context the context of the view
 * @param {{run: string, document: string, status: string}} facts the resource "run/ID"
 * @param {Function} resumed is called when the run is being resumed
 */
export function runActions(context, facts, resumed) {
  const path = `run/${facts.run}`;
  return bar(context, `${path}/actions`, facts.status, [
    { name: "cancel", title: "Cancel", path: `${path}/cancel`, ask: ["Cancel this run?",
      `Run ${facts.run} of ${facts.document} ends after its current step. What it has recorded stays.`, "Cancel the run"] },
    { name: "resume", title: "Resume", path: `${path}/resume`, done: resumed },
  ]);
}

/**
 * The buttons of a design: cancel the tasks of a cluster and what the page executes, execute what is missing or failed.
 * Returns {element, update({status})}, where `status` is any text that changes when the possible actions may have changed.
 */
export function designActions(context) {
  return bar(context, "design/actions", "", [
    { name: "resume", title: "Execute missing and failed runs", path: "design/resume", ask: ["Execute the missing and failed runs?",
      "They start on the machine of this server, or where the last submission went.", "Execute"] },
    { name: "cancel", title: "Cancel", path: "design/cancel", ask: ["Cancel the runs of this design?",
      "Tasks on the cluster and runs that this page has started end. What they have recorded stays.", "Cancel the runs"] },
  ]);
}

function bar({ store, signal, attempt }, resource, status, actions) {
  if (offline || !store?.actions) return { element: null, update() {} };
  const buttons = h("span", { class: "actions" }), said = h("span", { role: "status" }), log = h("div", {});
  const element = h("div", {}, h("div", { class: "controls" }, buttons, said), log);
  let shown = null;

  async function look() {
    const possible = await get(resource, {}, signal);
    const names = actions.filter((one) => possible[one.name]);
    const now = names.map((one) => one.name).join() + (possible.why ?? "");
    if (now === shown) return;
    // the message concerns an action that was possible before
    if (shown !== null) fill(said);
    shown = now;
    fill(buttons, names.map((one) => h("button", { type: "button", "data-action": one.name, onclick: () => act(one) }, one.title)),
      possible.why && h("span", { class: "quiet" }, possible.why));
  }
  async function act(one) {
    if (one.ask && !(await confirmed(...one.ask))) return;
    const all = [...buttons.querySelectorAll("button")];
    for (const button of all) button.disabled = true;
    try {
      const answer = await post(one.path);
      fill(said, answer.done);
      one.done?.();
      if (answer.key) follow(answer.key, signal, log, attempt, again);
    } catch (error) {
      refused(said, error);
    }
    for (const button of all) button.disabled = false;
    again();
  }
  function again() {
    shown = null;
    attempt(look);
  }
  attempt(look);
  return {
    element,
    update(facts) {
      if (facts.status !== status) attempt(look);
      status = facts.status;
    },
  };
}

/** Ask whether to do something that cannot be undone; resolves to true or false. */
export function confirmed(title, text, yes) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), h("p", {}, text),
      h("div", { class: "controls" },
        h("button", { type: "button", autofocus: true, onclick: () => dialog.close("no") }, "No"),
        h("button", { type: "button", "data-action": "confirm", onclick: () => dialog.close("yes") }, yes)));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Show in `element` what becomes of a process that the page has started, until it has `ended`. */
export function follow(key, signal, element, attempt, ended = () => {}) {
  const state = h("p", { role: "status" }), printed = h("pre", {});
  const details = h("details", {}, h("summary", {}, "What it prints"), printed);
  fill(element, state, details);
  let before = null;
  return watch(1, signal, async () => {
    const one = await get(`started/${key}`, {}, signal);
    printed.textContent = one.printed;
    const over = one.code !== null;
    const now = `${one.run} ${one.code}`;
    if (now !== before) {
      const how = !over ? (one.run ? "is running" : "is starting") : one.code === 0 ? "has finished" : `has ended with the exit code ${one.code}`;
      fill(state, h("span", { class: `status ${over ? (one.code === 0 ? "finished" : "failed") : "running"}` }, `${one.title} ${how}`), " ",
        one.run && link(`#/run/${encodeURIComponent(one.run)}`, `Run ${one.run}`), h("span", { class: "quiet" }, ` log: ${one.log}`));
      if (over && one.code !== 0) details.open = true;
    }
    before = now;
    if (over) ended();
    return !over;
  }, attempt);
}
