// Histograms over the steps of a training: one ridge for each step, from the first at the top to the last.

import { tickText, ticks } from "./curves.js";
import { h, s, short } from "./dom.js";

const WIDTH = 520, LEFT = 84, RIGHT = 14, ROW = 15, RISE = 26, BOTTOM = 40, MOST = 40;

// At most MOST of the rows, evenly spaced, with the first and the last.
function some(rows) {
  if (rows.length <= MOST) return rows;
  return Array.from({ length: MOST }, (_, i) => rows[Math.round((i * (rows.length - 1)) / (MOST - 1))]);
}

// rows: [{ step, low, high, counts, outside, min, max }]; across: the name of the axis.
export function ridges({ rows: all, across, title, at }) {
  const rows = some(all);
  const low = Math.min(...rows.map((row) => row.low)), high = Math.max(...rows.map((row) => row.high)), span = high - low || 1;
  const x = (value) => LEFT + ((value - low) / span) * (WIDTH - LEFT - RIGHT);
  const base = (i) => RISE + 6 + i * ROW, height = base(rows.length - 1) + BOTTOM;
  const areas = rows.map((row, i) => {
    const top = Math.max(...row.counts, 1), width = (row.high - row.low) / row.counts.length;
    const points = row.counts.map((count, b) => {
      const y = (base(i) - (RISE * count) / top).toFixed(1);
      return `V${y}H${x(row.low + (b + 1) * width).toFixed(1)}`;
    });
    return s("path", { class: "ridge", d: `M${x(row.low).toFixed(1)} ${base(i)}${points.join("")}V${base(i)}z` });
  });
  const labels = rows.map(({ step }, i) => s("text", { class: "label end", x: LEFT - 8, y: base(i) - 3, "font-size": 11 },
    step.toLocaleString("en")));
  const axis = height - BOTTOM + 8;
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "curves", role: "img", "aria-label": title }, labels,
    s("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: axis, y2: axis }),
    ticks(low, high, 5).map((value) => s("text", { class: "label middle", x: x(value), y: axis + 11, "font-size": 11 }, tickText(value))),
    s("text", { class: "label middle", x: (LEFT + WIDTH - RIGHT) / 2, y: axis + 25, "font-size": 11 }, across), areas);
  const frame = h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": `${title}. Up and down arrow keys move from step to step.` }, svg);
  let row = -1;
  const choose = (i) => {
    row = Math.max(0, Math.min(rows.length - 1, i));
    areas.forEach((area, k) => area.classList.toggle("chosen", k === row));
    at?.(describe(rows[row]));
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    choose(Math.ceil((((event.clientY - box.top) / box.height) * height - RISE - 6) / ROW));
  });
  frame.addEventListener("keydown", (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!by) return;
    choose(row + by);
    event.preventDefault();
  });
  return frame;
}

// The bin with most values, as its two edges.
function fullest({ low, high, counts }) {
  const b = counts.indexOf(Math.max(...counts)), width = (high - low) / counts.length;
  return [low + b * width, low + (b + 1) * width];
}

function describe(row) {
  const [from, to] = fullest(row).map(short);
  return `step ${row.step.toLocaleString("en")}: most values from ${from} to ${to}` +
    (row.outside ? `; ${row.outside.toLocaleString("en")} outside, from ${short(row.min)} to ${short(row.max)}` : "");
}

export function ridgeTable(rows) {
  return { columns: ["step", "first bin from", "last bin to", "fullest bin from", "to", "values outside"],
    rows: rows.map((row) => [String(row.step), short(row.low), short(row.high), ...fullest(row).map(short), String(row.outside ?? 0)]) };
}
