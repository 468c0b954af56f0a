// Numbers, times and sizes as people read them.

const MISSING = "–";
const WHOLE = new Intl.NumberFormat("en");

/** A number with at most `digits` significant digits. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return MISSING;
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return WHOLE.format(value);
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1).replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

/** A number of things: "1 run", "2 runs", "1,200 entries". */
export function count(value, noun, plural = `${noun}s`) {
  return `${number(value)} ${value === 1 ? noun : plural}`;
}

/** Seconds as "1.2 s", "3 min 5 s", "2 h 10 min" or "3 d 4 h". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return MISSING;
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  const whole = Math.round(seconds);
  /** @type {[string, number][]} */
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => whole >= size);
  const parts = [];
  let rest = whole;
  for (const [name, size] of units.slice(first, first + 2)) {
    parts.push(`${Math.floor(rest / size)} ${name}`);
    rest %= size;
  }
  return parts.join(" ");
}

/** A date and time in the reader's zone; `moment` is ISO 8601 or seconds since 1970. */
export function date(moment) {
  if (moment === null || moment === undefined) return MISSING;
  const when = new Date(typeof moment === "number" ? moment * 1000 : moment);
  if (Number.isNaN(when.getTime())) return MISSING;
  const two = (value) => String(value).padStart(2, "0");
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} `
    + `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
}
