// Rendered frames, state by state: one episode or two beside each other.

import { get, offline, watch } from "web/data";
import { fill, h } from "web/dom";
import { episodeChoice } from "web/episode_choice";
import { film } from "web/film";
import { number } from "web/format";
import { player } from "web/player";

/** smaller images are shown larger, by a whole factor (CSS pixels) */
const WIDTH = 320;

export async function show(element, context) {
  const { run, signal, attempt } = context;
  const query = context.query ?? new URLSearchParams();
  let index = await get(`run/${run}/frames`, {}, signal);
  let sides = []; // what is shown: {film, image, caption}
  let ticks = [0]; // at which a frame of one of them was rendered

  const choice = episodeChoice({ run, view: "frames", query, index: () => index, episodes, load, signal, attempt });
  const { main, controls } = choice;
  const follow = h("input", { type: "checkbox", checked: true });
  const live = h("label", { hidden: true }, follow, "follow the newest frame");
  const time = player({ label: said, changed: paint, signal });
  const pictures = h("div", { class: "drawings" }), note = h("p", { class: "quiet note" });
  fill(element,
    h("div", { class: "controls" }, controls.main, controls.beside, controls.another, live),
    time.element, note, pictures,
    h("p", { class: "quiet" }, "Keys: space plays, arrows step, Home and End go to the ends."));

  // ----- which episodes
  function episodes(of) {
    const names = new Map(of.phases.map((one) => [one.phase, one.name]));
    const several = new Set(of.episodes.map((one) => one.environment)).size > 1;
    return of.episodes.map((one) => ({ ...one,
      key: `${one.phase}.${one.worker}.${one.episode}${one.evaluation ? "e" : ""}.${one.environment}`,
      title: `${several ? `${one.environment}: ` : ""}${names.get(one.phase)}, ${one.evaluation ? "evaluation" : "episode"} `
        + `${one.episode}${one.worker ? `, worker ${one.worker}` : ""}` }));
  }

  // ----- loading
  async function filmOf({ run: ofRun, index: of, key }) {
    const one = episodes(of).find((episode) => episode.key === key);
    const asked = { environment: one.environment, phase: one.phase, worker: one.worker, episode: one.episode,
      evaluation: one.evaluation ? 1 : undefined };
    return film(ofRun, asked, ofRun === run ? one.title : `${ofRun}: ${one.title}`, signal);
  }
  async function load() {
    if (!main.value) {
      sides = [];
      fill(pictures);
      fill(note, index.running ? "No frame has been rendered yet." : "No frames were rendered.");
      return;
    }
    const films = [];
    for (const one of choice.shown()) films.push(await filmOf(one));
    sides = films.map((one) => ({ film: one, image: h("img", { alt: "", class: "frame" }), caption: h("figcaption", { class: "quiet" }) }));
    for (const { image } of sides) image.addEventListener("load", () => enlarge(image));
    fill(pictures, sides.map((side) => h("section", { class: "card" }, h("h2", {}, side.film.title),
      h("figure", { class: "rendered" }, side.image, side.caption))));
    pictures.classList.toggle("two", sides.length > 1);
    choice.remember();
    grown();
  }
  /** Show films that may have more frames than before. */
  function grown() {
    // (who was rendered less often keeps its frame until its next one)
    ticks = [...new Set(sides.flatMap((side) => side.film.times))].sort((a, b) => a - b);
    time.length(ticks.length);
    const [{ film: one }] = sides, last = one.step(one.states - 1);
    fill(note, one.states > 1 && one.states <= last && `${number(one.states)} of ${number(last + 1)} states were rendered.`);
    time.set(query.has("state") ? Number(query.get("state")) : time.state());
    query.delete("state");
  }

  // ----- painting
  function said(state) {
    if (!sides.length || !ticks.length) return "";
    const [{ film: one }] = sides;
    return `${one.moment(ticks[state])} of ${one.moment(ticks.at(-1))}`;
  }
  function paint(state) {
    for (const side of sides) attempt(side, () => put(side, side.film.at(ticks[state])));
  }
  async function put(side, state) {
    if (side.wanted === state) return;
    side.wanted = state;
    const address = await side.film.image(state);
    // (while an image was fetched, the player may have gone on)
    if (side.wanted !== state || address === null) return;
    const moment = side.film.moment(side.film.times[state]);
    side.image.src = address;
    side.image.alt = `${side.film.title}, ${moment}`;
    side.image.dataset.step = side.film.step(state);
    side.caption.textContent = `${moment} · step ${side.film.step(state)} of ${side.film.step(side.film.states - 1)}`;
  }
  function enlarge(image) {
    const factor = Math.max(1, Math.floor(WIDTH / image.naturalWidth));
    image.style.setProperty("width", `${image.naturalWidth * factor}px`);
    image.classList.toggle("enlarged", factor > 1);
  }

  // ----- the beginning, and what goes on
  await choice.begin();
  choice.update();
  await load();
  if (!index.running || offline) return;
  live.hidden = false;
  watch(2, signal, async () => {
    const newest = () => episodes(index).filter((one) => !one.evaluation).at(-1)?.key ?? "";
    const wasNewest = main.value === newest();
    index = await get(`run/${run}/frames`, {}, signal);
    choice.update();
    if (!wasNewest) return index.running;
    if (follow.checked && newest() !== main.value) {
      main.value = newest();
      await load();
    } else if (sides.length) {
      await sides[0].film.grow();
      grown();
    } else {
      await load();
    }
    if (follow.checked && !time.playing()) time.set(Infinity);
    return index.running;
  }, attempt);
}
