// Horizontal bars, one row per label, in which the pointer or arrow keys choose a row.
//
// rows: [{ label, values: [a, b?], ghost, text, isOut }]: one bar per value, in the colours of the series; `ghost` is a
// second value, drawn as a mark; `text` stands at the end of the row. `at(i)` is called for the row under the pointer or
// the cursor, `pick(i)` for a click or Enter. With `above`, labels stand above their bars: for sentences.

import { h, s } from "./dom.js";

const TRACK = 10;

export function ranking({ rows, title, top, width = 560, above = false, note = "", chosen = -1, at, pick }) {
  above ||= width < 420 && rows.some(({ label }) => label.length > 14);
  const n_bars = Math.max(1, ...rows.map(({ values }) => values.length));
  const thin = n_bars > 1 ? 9 : TRACK;
  const height = Math.max(24, n_bars * (thin + 2) + 6) + (above ? 18 : 0);
  const letters = Math.max(1, ...rows.map(({ label }) => label.length)), ends = Math.max(...rows.map(({ text }) => text.length), 1);
  const left = above ? 4 : Math.min(12 + 7.6 * letters, 0.42 * width), right = 14 + 7.2 * ends;
  const most = top ?? (Math.max(...rows.flatMap(({ values, ghost }) => [...values, ghost ?? 0])) || 1);
  const long = Math.max(width - left - right, 60), size = [left + long + right, rows.length * height + 4];
  const x = (value) => left + long * Math.min(Math.max(value, 0) / most, 1);
  const fits = Math.floor((above ? size[0] - 8 : left - 11) / (above ? 6.9 : 7.6));
  const groups = rows.map(({ label, values, ghost, text, isOut }, i) => {
    const y = i * height + 2, middle = y + (above ? 18 : 0) + (height - (above ? 18 : 0)) / 2;
    const first = middle - (values.length * (thin + 2) - 2) / 2;
    return s("g", { class: `ranked${isOut ? " out" : ""}${pick ? " pickable" : ""}` },
      s("rect", { class: "rowground", x: 0, y, width: size[0], height: height - 1, rx: 4 }),
      s("text", { class: above ? "label" : "label end", x: above ? left : left - 8, y: above ? y + 10 : middle, "font-size": 13 },
        label.length > fits ? `${label.slice(0, fits - 1)}…` : label),
      values.map((value, n) => [
        s("rect", { class: "track", x: left, y: first + n * (thin + 2), width: long, height: thin, rx: 2 }),
        value > 0 && s("rect", { class: `rankfill colour${n}`, x: left, y: first + n * (thin + 2), rx: 2, height: thin,
          width: Math.max(x(value) - left, 0.8), "data-value": value })]).flat().filter(Boolean),
      ghost !== undefined && s("line", { class: "ghost", x1: x(ghost), x2: x(ghost), y1: middle - TRACK / 2 - 3,
        y2: middle + TRACK / 2 + 3 }),
      s("text", { class: "label", x: left + long + 8, y: middle, "font-size": 12 }, text));
  });
  const cursor = s("rect", { class: "cursor", x: 1, width: size[0] - 2, height: height - 1, rx: 4, visibility: "hidden" });
  const svg = s("svg", { viewBox: `0 0 ${size[0]} ${size[1]}`, width: size[0], height: size[1], role: "img",
    "aria-label": title }, groups, cursor);
  const frame = h("div", { class: "scroll ranking", tabindex: "0", role: "group",
    "aria-label": `${title}. Up and down arrow keys move from row to row${pick ? ", Enter chooses one" : ""}${note}.` }, svg);
  let row = -1;
  const move = (i) => {
    row = Math.max(0, Math.min(rows.length - 1, i));
    cursor.setAttribute("y", row * height + 2);
    cursor.setAttribute("visibility", "visible");
    at?.(row);
  };
  const under = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.floor(((event.clientY - box.top) / box.height) * size[1] / height);
  };
  svg.addEventListener("pointermove", (event) => move(under(event)));
  svg.addEventListener("click", (event) => { move(under(event)); pick?.(row); });
  frame.addEventListener("keydown", (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1, Home: -rows.length, End: rows.length }[event.key];
    if (by) move(row + by);
    else if (event.key === "Enter" && row >= 0) pick?.(row);
    else return;
    event.preventDefault();
  });
  if (chosen >= 0) move(chosen);
  return frame;
}

// The room for a picture, in pixels.
export function roomOf(element, most = 600) {
  return Math.max(250, Math.min(most, element.clientWidth || most));
}
