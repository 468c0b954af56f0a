// What went wrong, in words, until it goes well.

import { offline } from "web/data";
import { fill, h, link } from "web/dom";
import { Away } from "web/server";

/**
 * Returns `attempt(cause, work)`, which does `work` (by default `cause` itself) and returns what it returns.
 * What it throws is shown in `element` until something with the same cause goes well; it returns undefined then.
 */
export function attempts(element, signal) {
  const problems = new Map(); // cause -> message
  function draw() {
    fill(element, [...new Set(problems.values())].map((message) => h("p", { class: "problem", role: "alert" }, message, " ",
      !offline && link("#/runs", "All runs"))));
  }
  return async (cause, work = cause) => {
    try {
      const result = await work();
      if (problems.delete(cause)) draw();
      return result;
    } catch (error) {
      // (read out only where it has changed)
      if (signal.aborted || problems.get(cause) === error.message) return undefined;
      problems.set(cause, error.message);
      draw();
      return undefined;
    }
  };
}

/** Show in `element` why an action was not done: until the next one, or until the server is back where it was away. */
export async function refused(element, error) {
  fill(element, error.message);
  if (!(error instanceof Away)) return;
  await error.back;
  if (element.textContent === error.message) fill(element);
}
