// Resources: from the server that the page came from, or from the page itself where it is one file.

import { ask, askOnce } from "web/server";

const carried = window.palaestrai?.resources ?? null;

/** Whether the page is one file without a server. */
export const offline = carried !== null;

const TYPES = { float64: Float64Array, float32: Float32Array, int32: Int32Array, uint8: Uint8Array };

/** The text that names a request: path and query, sorted by name. `resources.py` does the same. */
export function address(path, query = {}) {
  const named = Object.keys(query).filter((name) => query[name] !== undefined && query[name] !== null).sort()
    .map((name) => `${encode(name)}=${encode(query[name])}`).join("&");
  return named ? `${path}?${named}` : path;
}

// as Python's quote(..., safe="") does
function encode(value) {
  return encodeURIComponent(String(value)).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Whether a resource can be asked for: a page in one file has only some. */
export function has(path, query = {}) {
  return !offline || address(path, query) in carried;
}

/** A resource, with its arrays decoded. Throws an Error with the server's message; waits for a server that is away. */
export async function get(path, query = {}, signal = undefined) {
  const name = address(path, query);
  if (offline) {
    if (!(name in carried)) throw new Error("This file does not have that view. Open the run with: palaestrai-mosaik serve");
    // (what the server would have answered)
    if (carried[name]?.refused) throw new Error(carried[name].refused);
    return decode(carried[name]);
  }
  const parts = name.split("?");
  return decode(await answer(await ask(`api/${parts[0].split("/").map(encodeURIComponent).join("/")}${parts[1] ? `?${parts[1]}` : ""}`, { signal })));
}

/** Ask the server to do something. Throws an Error with the server's message. */
export async function post(path, body = {}) {
  return answer(await askOnce(`api/${path.split("/").map(encodeURIComponent).join("/")}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  }));
}

async function answer(response) {
  const type = response.headers.get("Content-Type") || "";
  const body = type.includes("json") ? await response.json() : null;
  if (!response.ok) throw new Error(body?.error ?? `The server answered ${response.status}.`);
  return body;
}

/** Replace all encoded arrays in a value by typed arrays; those of two dimensions have a property `shape`. */
export function decode(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(decode);
  if (typeof value.base64 === "string" && TYPES[value.dtype]) {
    const bytes = Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0));
    const array = new TYPES[value.dtype](bytes.buffer);
    array.shape = value.shape;
    return array;
  }
  if (Array.isArray(value.planes) && Array.isArray(value.of)) return expand(value);
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, decode(one)]));
}

/** The rows of a frame, which comes by columns. */
export function rowsOf(frame) {
  const names = Object.keys(frame), size = names.length ? frame[names[0]].length : 0;
  return Array.from({ length: size }, (_, i) => Object.fromEntries(names.map((name) => [name, frame[name][i]])));
}

/** The numbers of a matrix that compact.py packed, row after row. */
function expand({ rows, quantum, of, planes, missing }) {
  const bytes = planes.map(decode), gone = missing && decode(missing);
  const columns = quantum.map((unit, column) => {
    const values = new Float64Array(rows);
    let sum = 0;
    for (let row = 0; row < rows; row += 1) {
      const place = column * rows + row;
      let coded = 0;
      for (let i = bytes.length - 1; i >= 0; i -= 1) coded = coded * 256 + bytes[i][place];
      sum += coded % 2 ? -(coded + 1) / 2 : coded / 2;
      values[row] = gone?.[place] ? NaN : sum * unit;
    }
    return values;
  });
  const matrix = new Float64Array(rows * of.length);
  of.forEach((one, column) => {
    for (let row = 0; row < rows; row += 1) matrix[row * of.length + column] = columns[one][row];
  });
  return matrix;
}
