// The rendered frames of an episode: when each was rendered, and its image, which is fetched with its neighbours.

import { get } from "web/data";
import { momentOf } from "web/motion";

/** images that are kept of an episode: of long ones, those far from the place that is looked at are fetched again */
const KEPT = 1000;

/**
 * The film of an episode. `query` says which: {environment, phase, worker, episode, evaluation}; `title` is what people call it.
 * Returns {title, states, times, at(tick), step(state), moment(tick), image(state), grow()}; states are counted from 0.
 */
export async function film(run, query, title, signal) {
  let facts = await get(`run/${run}/film`, query, signal);
  const chunks = new Map(); // number of the first image -> promise of the images
  const chunk = (first) => {
    if (!chunks.has(first)) {
      if (chunks.size * facts.together > KEPT) chunks.delete(chunks.keys().next().value);
      const asked = get(`run/${run}/images`, { ...query, from: first }, signal).then(({ png }) => png);
      // (what has failed is asked for again)
      asked.catch(() => chunks.delete(first));
      chunks.set(first, asked);
    }
    return chunks.get(first);
  };
  const self = {
    title,
    get states() { return facts.frames; },
    /** The ticks at which the frames were rendered. */
    get times() { return facts.time; },
    /** The newest state at a tick; the first one before it. */
    at: (tick) => Math.max(0, facts.time.findLastIndex((time) => time <= tick)),
    step: (state) => facts.step[state],
    /** When a tick is: its date, or its number. */
    moment: (tick) => momentOf(facts.clock, tick),
    /** The address of an image; null where there is none. The images that follow it are fetched, too. */
    async image(state) {
      if (!facts.frames) return null;
      const first = state - (state % facts.together), next = first + facts.together;
      const found = await chunk(first);
      if (next < facts.frames) chunk(next).catch(() => {});
      return found[state - first] === undefined ? null : `data:image/png;base64,${found[state - first]}`;
    },
    /** Look whether there are more frames by now. */
    async grow() {
      const before = facts.frames;
      facts = await get(`run/${run}/film`, query, signal);
      // (the last images were not a whole chunk)
      if (facts.frames > before) chunks.delete(before - (before % facts.together));
    },
  };
  return self;
}
