// Resources: what a view knows of the server. A resource asks, asks again and ends; views read its signals and draw.

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import { h } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { address, get, offline } from "web/data";

/** seconds until a request that has failed is repeated */
const RETRY = 2;

/**
 * @typedef {Object<string, string|number|null|undefined>} Query
 * @typedef {"loading"|"ready"|"failed"|"ended"} Status
 */

/**
 * @template T
 * @typedef {Object} Options
 * @property {() => Query|null} [query] of each request; when a signal that it reads changes it, the resource is asked for at
 *   once. Nothing is asked for while it is null
 * @property {(last: T) => Query} [since] what a request adds once there is a value for this query, such as its version
 * @property {number} [seconds] pause between an answer and the next request; without it, there is one request
 * @property {() => boolean} [live] whether more may come. It is called before a request, so the last answer is complete;
 *   when a signal that it reads changes it, the resource is asked for at once
 * @property {(value: T, live: boolean) => boolean} [ended] whether nothing more can come after a value; by default, where
 *   `live` was false
 * @property {() => unknown} [changes] when a signal that it reads changes its result, the resource is asked for at once
 * @property {(answer: any, last: T|undefined, stopped: AbortSignal) => T|undefined|Promise<T|undefined>} [take] makes the value
 *   of an answer and of the value so far; without a result, everything is asked for anew
 */

/**
 * @template T
 * @typedef {Object} Resource
 * @property {import("@preact/signals").Signal<Status>} status "failed": the last request, the value is that of an earlier one;
 *   "ended": nothing more is asked for
 * @property {import("@preact/signals").Signal<T|undefined>} value undefined until the first answer
 * @property {import("@preact/signals").Signal<string|null>} error the message of the last request, if it has failed
 * @property {import("@preact/signals").ReadonlySignal<boolean>} loaded whether there is a value
 * @property {() => void} reload ask now, also where it has ended
 * @property {() => void} close ask no more
 */

/**
 * Make a resource; {@link useResource} makes one for a component.
 * @template T
 * @param {string|(() => string)} path such as "run/ID/curves"; a function may read signals, as a query does
 * @param {Options<T>} [options]
 * @returns {Resource<T>}
 */
export function resource(path, { query = () => ({}), since, seconds, live = () => true, ended = (_, more) => !more,
  changes = () => null, take = (answer) => answer } = {}) {
  const status = signal(/** @type {Status} */ ("loading")), value = signal(/** @type {T|undefined} */ (undefined));
  const error = signal(/** @type {string|null} */ (null));
  const where = typeof path === "string" ? () => path : path;
  const wanted = computed(() => {
    const now = query();
    return now && address(where(), now);
  });
  const alive = computed(live), changed = computed(changes);
  let request = new AbortController(), timer = 0, answered = "";

  async function ask() {
    clearTimeout(timer);
    request.abort();
    const { signal: stopped } = (request = new AbortController());
    if (wanted.peek() === null) {
      error.value = null;
      return;
    }
    const name = wanted.peek(), more = alive.peek(), last = name === answered ? value.peek() : undefined;
    let pause = RETRY;
    try {
      const added = since && last !== undefined ? since(last) : {};
      const answer = await get(untracked(where), { ...untracked(query), ...added }, stopped);
      if (stopped.aborted) return;
      const made = await take(answer, last, stopped);
      if (stopped.aborted) return;
      answered = made === undefined ? "" : name;
      if (made === undefined) {
        ask();
        return;
      }
      const over = offline || seconds === undefined || ended(made, more);
      batch(() => {
        value.value = made;
        error.value = null;
        status.value = over ? "ended" : "ready";
      });
      if (over) return;
      pause = seconds;
    } catch (failure) {
      if (stopped.aborted) return;
      batch(() => {
        error.value = failure.message;
        status.value = offline ? "ended" : "failed";
      });
      if (offline) return;
    }
    timer = setTimeout(again, pause * 1000, stopped);
  }
  /** Ask when somebody looks. */
  function again(stopped) {
    if (document.hidden) document.addEventListener("visibilitychange", () => again(stopped), { once: true, signal: stopped });
    else ask();
  }
  const end = effect(() => {
    void [wanted.value, alive.value, changed.value];
    untracked(ask);
  });
  return {
    status, value, error, loaded: computed(() => value.value !== undefined), reload: ask,
    close() {
      end();
      clearTimeout(timer);
      request.abort();
    },
  };
}

/**
 * The resource of a component, until that is removed. Path and options are those of the first call: what may change are
 * the signals that they read.
 * @template T
 * @param {string|(() => string)} path
 * @param {Options<T>} [options]
 * @returns {Resource<T>}
 */
export function useResource(path, options) {
  const own = useMemo(() => resource(path, options), []);
  useEffect(() => own.close, [own]);
  return own;
}

/** A message of a problem, which goes with its cause. */
export function problem(message) {
  return h("p", { class: "problem", role: "alert", key: message }, message, " ", !offline && h("a", { href: "#/runs" }, "All runs"));
}

/**
 * What a component shows of some resources: their problems, and `draw()` once all of them are loaded.
 * @param {Resource<any>[]} resources
 * @param {() => any} draw
 */
export function shown(resources, draw) {
  const problems = [...new Set(resources.map((one) => one.error.value))].filter((one) => one !== null);
  if (resources.every((one) => one.loaded.value)) return [problems.map(problem), draw()];
  return problems.length ? problems.map(problem) : loading();
}

/** What is shown in place of something that is being asked for. */
export function loading() {
  return h("p", { class: "quiet", role: "status" }, "Loading …");
}
