// Numbers and tokens as people read them. What is not known is a dash, never a zero.

const UNKNOWN = "–";

export function milliseconds(value) {
  if (!known(value)) return UNKNOWN;
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 100) return `${value.toFixed(0)} ms`;
  return `${value.toFixed(value >= 10 ? 1 : 2)} ms`;
}

export function ratio(value) {
  return known(value) ? value.toFixed(2) : UNKNOWN;
}

export function times(value) {
  return known(value) ? `${value.toFixed(2)}×` : UNKNOWN;
}

export function percent(value, digits = 0) {
  return known(value) ? `${(100 * value).toFixed(digits)} %` : UNKNOWN;
}

export function count(value, one, many = `${one}s`) {
  return `${value} ${value === 1 ? one : many}`;
}

// A token with its spaces and line breaks made visible.
export function spelled(text) {
  if (text === "") return "(part of a character)";
  return text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

// "today 14:03", "3 Mar", "3 Mar 2025": as short as it is clear.
export function when(time, now, locale = undefined) {
  const then = new Date(time);
  const today = new Date(now);
  if (then.toDateString() === today.toDateString()) {
    return then.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
  }
  const year = then.getFullYear() === today.getFullYear() ? undefined : "numeric";
  return then.toLocaleDateString(locale, { day: "numeric", month: "short", year });
}

function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}
