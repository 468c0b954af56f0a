// What went wrong, in words, until it goes well.

import { offline } from "web/data";
import { fill, h, link } from "web/dom";
import { Away } from "web/server";

/** Seconds until failed work is tried again. */
export const RETRY = 2;

/**
 * Returns `attempt(cause, work, again)`, which does `work` (by default `cause` itself) and returns its result.
 * If it throws, the message is shown in `element` until work with the same cause succeeds, and the result is undefined.
 * Failed work is tried again every few seconds, unless `again` is false because the caller does so.
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
    if (pending) return;
    setTimeout(() => {
      const newest = waiting.get(cause);
      waiting.delete(cause);
      if (!signal.aborted && problems.has(cause)) attempt(cause, newest);
    }, RETRY * 1000);
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

/** Show in `element` why an action was not done: until the next one, or until the server is back where it was away. */
export async function refused(element, error) {
  fill(element, error.message);
  if (!(error instanceof Away)) return;
  await error.back;
  if (element.textContent === error.message) fill(element);
}
