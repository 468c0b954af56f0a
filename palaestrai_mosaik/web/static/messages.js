// Error messages, which stay until their cause is gone.

import { offline } from "web/data";
import { fill, h, link } from "web/dom";
import { Away } from "web/server";

/** Seconds until failed work is tried again. */
const RETRY = 2;

/**
 * Returns `attempt(cause, work, again)`, which does `work` (by default `cause` itself) and returns its result.
 * If it throws, the message is shown in `element` until work with the same cause succeeds, and the result is undefined.
 * Failed work is tried again every few seconds while the page is visible, unless `again` is false because the caller does so.
 */
export function attempts(element, signal) {
  const problems = new Map(); // cause -> message
  const waiting = new Map(); // cause -> work that has failed
  function draw() {
    fill(element, [...new Set(problems.values())].map((message) => h("p", { class: "problem", role: "alert" }, message, " ",
      !offline && link("#/runs", "All runs"))));
  }
  function retry(cause, work) {
    const pending = waiting.has(cause);
    waiting.set(cause, work);
    if (!pending) setTimeout(repeat, RETRY * 1000, cause);
  }
  function repeat(cause) {
    if (signal.aborted) return;
    if (document.hidden) {
      setTimeout(repeat, RETRY * 1000, cause);
      return;
    }
    const work = waiting.get(cause);
    waiting.delete(cause);
    if (problems.has(cause)) attempt(cause, work);
  }
  async function attempt(cause, work = cause, again = true) {
    try {
      const result = await work();
      if (problems.delete(cause)) draw();
      return result;
    } catch (error) {
      if (signal.aborted) return undefined;
      if (again && !offline) retry(cause, work);
      // a screen reader reads a message once
      if (problems.get(cause) === error.message) return undefined;
      problems.set(cause, error.message);
      draw();
      return undefined;
    }
  }
  return attempt;
}

/** Show in `element` why an action failed, until the next action, or until the server is back if it was away. */
export async function refused(element, error) {
  fill(element, error.message);
  if (!(error instanceof Away)) return;
  await error.back;
  if (element.textContent === error.message) fill(element);
}
