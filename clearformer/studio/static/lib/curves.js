// Curves over steps: one line per run, with axes, a cursor for the pointer and arrow keys, and a legend by name.

import { h, s, short } from "./dom.js";

const WIDTH = 480, HEIGHT = 230, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 28, MOST = 600;

// Numbers for an axis: about `n` round ones between two values.
export function ticks(low, high, n = 5) {
  const raw = (high - low || 1) / n;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * ([1, 2, 5, 10].find((factor) => factor * unit >= raw) ?? 10);
  const result = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) result.push(k * step);
  return result;
}

export function tickText(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  return String(Number(value.toPrecision(6)));
}

// At most MOST points: of each group of neighbours the lowest and the highest.
export function thinned(points) {
  if (points.length <= MOST) return points;
  const size = Math.ceil((2 * points.length) / MOST), result = [];
  for (let i = 0; i < points.length; i += size) {
    const group = points.slice(i, i + size);
    const low = group.reduce((a, b) => (b[1] < a[1] ? b : a)), high = group.reduce((a, b) => (b[1] > a[1] ? b : a));
    result.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
  }
  if (result.at(-1) !== points.at(-1)) result.push(points.at(-1));
  return result;
}

// series: [{ label, colour (0 to 7), dashed, points: [[step, value], …] }]; `word` says what a step is, and the
// axis has the values in `include`.
export function curves({ series, title, at, word = "step", include = [] }) {
  const all = series.flatMap(({ points }) => points);
  const steps = all.map(([step]) => step), heights = [...all.map(([, value]) => value), ...include];
  const first = Math.min(...steps, 0), last = Math.max(...steps, first + 1);
  let low = Math.min(...heights), high = Math.max(...heights);
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.05;
  if (low > 0 && low < 0.25 * high) low = 0;
  else if (low !== 0) low -= margin;
  high += margin;
  const x = (step) => LEFT + ((step - first) / (last - first)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const cursor = s("line", { class: "axis cursorline", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curves", role: "img", "aria-label": title },
    ticks(low, high, 4).map((value) => [
      s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      s("text", { class: "label end", x: LEFT - 6, y: y(value), "font-size": 11 }, tickText(value))]).flat(),
    ticks(first, last, 5).map((step) => s("text", { class: "label middle", x: x(step), y: HEIGHT - 12, "font-size": 11 },
      step >= 10000 ? `${step / 1000}k` : String(step))),
    s("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
    series.map(({ points, colour, dashed }) => points.length === 1
      ? s("circle", { class: `dot colour${colour}`, cx: x(points[0][0]), cy: y(points[0][1]), r: 3 })
      : s("polyline", { class: `curve colour${colour}${dashed ? " dashed" : ""}`,
        points: thinned(points).map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ") })),
    cursor);
  const frame = h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": `${title}. Left and right arrow keys move along the ${word}s.` }, svg);
  const known = [...new Set(steps)].sort((a, b) => a - b);
  let index = -1;
  const move = (i) => {
    index = Math.max(0, Math.min(known.length - 1, i));
    const step = known[index];
    cursor.setAttribute("x1", x(step));
    cursor.setAttribute("x2", x(step));
    cursor.setAttribute("visibility", "visible");
    const values = series.map(({ label, points }) => [label, valueAt(points, step)]).filter(([, value]) => value !== null);
    at?.(`${word} ${step.toLocaleString("en")}: ${values.map(([label, value]) => `${label} ${short(value)}`).join(", ")}`);
  };
  svg.addEventListener("pointermove", (event) => {
    if (!known.length) return;
    const box = svg.getBoundingClientRect();
    const step = first + (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * (last - first);
    move(nearest(known, step));
  });
  frame.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !known.length) return;
    move(index + by);
    event.preventDefault();
  });
  return frame;
}

function nearest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle;
    else high = middle;
  }
  return Math.abs(sorted[low] - value) <= Math.abs(sorted[high] - value) ? low : high;
}

// The value at a step, or the last one before it.
function valueAt(points, step) {
  let result = null;
  for (const [at, value] of points) if (at <= step) result = value;
  return result;
}
