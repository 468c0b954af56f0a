// Labels of runs: name, tags and note, and the forms that set them.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useRef } from "preact/hooks";
import { useMessage } from "web/actions";
import { post } from "web/data";

/** The name, tags and note of a run. */
export function Labels({ of: { name, tags, note } }) {
  return [
    (name || tags.length > 0) && h("p", { class: "labels" }, name && h("b", {}, name), tags.map((tag) => h("span", { key: tag, class: "tag" }, tag))),
    note && h("p", { class: "labels note" }, note),
  ];
}

/** Tags of a text, in which commas separate them. */
function tagsOf(text) {
  return text.split(",").map((tag) => tag.trim()).filter(Boolean);
}

/** The form that sets the labels of a run. */
export function LabelForm({ run, facts }) {
  const { name, tags, note } = facts.value.value, open = useSignal(false), said = useMessage(), form = useRef(null);
  async function save(event) {
    event.preventDefault();
    const fields = form.current.elements, wanted = tagsOf(fields.tags.value);
    await said.attempt(async () => {
      await post(`run/${run}/label`, { name: fields.name.value, note: fields.note.value, tags: wanted.filter((tag) => !tags.includes(tag)),
        untag: tags.filter((tag) => !wanted.includes(tag)) });
      said.clear();
      open.value = false;
      facts.reload();
    });
  }
  return h("div", { class: "label" },
    h("button", { type: "button", "data-action": "label", "aria-expanded": String(open.value), onclick: () => { open.value = !open.value; } }, "Edit labels"),
    open.value && h("form", { class: "controls", ref: form, onsubmit: save },
      h("label", {}, "Name", h("input", { name: "name", defaultValue: name ?? "", autocomplete: "off" })),
      h("label", {}, "Tags, with commas", h("input", { name: "tags", defaultValue: tags.join(", "), autocomplete: "off" })),
      h("label", {}, "Note", h("textarea", { name: "note", rows: 3, cols: 40, defaultValue: note ?? "" })),
      h("button", {}, "Save")),
    h("span", { role: "status" }, said.text.value));
}

/** The form that adds tags to runs, or removes them. */
export function LabelTags({ runs, done }) {
  const input = useRef(null), said = useMessage();
  const change = (name) => said.attempt(async () => {
    const tags = tagsOf(input.current.value);
    if (!tags.length) return;
    said.say((await post("runs/label", { runs, [name]: tags })).done);
    input.current.value = "";
    done();
  });
  return h("form", { class: "controls tagging", onsubmit: (event) => {
    event.preventDefault();
    change("tags");
  } },
  h("label", {}, "Tag of the selected runs", h("input", { name: "tag", size: 16, autocomplete: "off", ref: input })),
  h("button", { "data-action": "tag" }, "Add"), h("button", { type: "button", "data-action": "untag", onclick: () => change("untag") }, "Remove"),
  h("span", { role: "status" }, said.text.value));
}
