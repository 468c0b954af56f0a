// Makes elements. Text of users only ever becomes text nodes and attributes, never markup.

/**
 * Make an element.
 * @param {string} tag name of the element; "svg:circle" is one of SVG
 * @param {Object} [properties] attributes; "on..." are listeners, "class" and "style" as in markup (style: an object)
 * @param {...(Node|string|number|null|false|Array)} children what it contains
 */
export function h(tag, properties, ...children) {
  const [space, name] = tag.startsWith("svg:") ? ["http://www.w3.org/2000/svg", tag.slice(4)] : [null, tag];
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    // (an attribute "style" would be refused by the page's policy)
    else if (key === "style") for (const [one, text] of Object.entries(value)) element.style.setProperty(one, text);
    else if (value === true) element.setAttribute(key, "");
    else element.setAttribute(key, String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replace all that an element contains. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** A link to a view of this page, such as "#/run/ID". */
export function link(to, ...children) {
  return h("a", { href: to }, ...children);
}

/** A table from plain columns: [{title, value(row), number?}] and rows. */
export function table(columns, rows, caption) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      caption && h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col", class: one.number && "number" }, one.title)))),
      h("tbody", {}, rows.map((row) => h("tr", {},
        columns.map((one) => h("td", { class: one.number && "number" }, one.value(row))))))));
}
