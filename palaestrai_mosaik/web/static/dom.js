// Makes elements of drawings that are painted many times a second. Text of users only ever becomes text nodes and attributes.

/**
 * Make an element.
 * @param {string} tag name of the element; "svg:circle" is one of SVG
 * @param {Object<string, any>} attributes "style" is an object
 * @param {...any} children what it contains: nodes, texts, arrays of them
 * @returns {any}
 */
export function make(tag, attributes, ...children) {
  const [space, name] = tag.startsWith("svg:") ? ["http://www.w3.org/2000/svg", tag.slice(4)] : [null, tag];
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    // an attribute "style" would be refused by the page's policy
    if (key === "style") for (const [property, text] of Object.entries(value)) /** @type {any} */ (element).style.setProperty(property, text);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
