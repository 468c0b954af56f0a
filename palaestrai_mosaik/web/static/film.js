// The images of an episode, which are fetched in groups, each with the one that follows it.

import { get } from "web/data";

/** images that are kept of an episode: of long ones, those far from the place that is looked at are fetched again */
const KEPT = 1000;

/**
 * The images of a film: `run` and `query` say which, `together` how many come with a request.
 * Returns {at(state), grown(frames)}: the address of an image, null where there is none; and how many frames there are.
 */
export function imagesOf({ run, query, together }) {
  const groups = new Map(); // number of the first image -> promise of the images
  let frames = 0;
  const group = (first) => {
    if (!groups.has(first)) {
      if (groups.size * together > KEPT) groups.delete(groups.keys().next().value);
      const asked = get(`run/${run}/images`, { ...query, from: first }).then(({ png }) => png);
      // what has failed is asked for again
      asked.catch(() => groups.delete(first));
      groups.set(first, asked);
    }
    return groups.get(first);
  };
  return {
    async at(state) {
      if (state >= frames) return null;
      const first = state - (state % together), next = first + together, images = await group(first);
      if (next < frames) group(next).catch(() => {});
      return images[state - first] === undefined ? null : `data:image/png;base64,${images[state - first]}`;
    },
    grown(now) {
      // the last images were not a whole group
      if (frames && now > frames) groups.delete(frames - (frames % together));
      frames = now;
    },
  };
}
