// Points with names: a map in two dimensions, or one in three that the pointer and arrow keys turn.

import { h, s } from "./dom.js";

const MARGIN = 36, STEP = Math.PI / 24;

// The first three coordinates of each point, seen after a turn about the vertical axis and a tilt. y points upwards.
export function turned([x, y, z = 0], [yaw, pitch]) {
  const across = x * Math.cos(yaw) + z * Math.sin(yaw), back = -x * Math.sin(yaw) + z * Math.cos(yaw);
  return [across, y * Math.cos(pitch) - back * Math.sin(pitch), y * Math.sin(pitch) + back * Math.cos(pitch)];
}

// points: [[x, y, z?], …]; `turn` is [yaw, pitch] for three dimensions, null for two. at(i) is called for the point under
// the pointer or the cursor, and `turnTo(turn)` while the map is turned.
export function scatter({ points, names, marked = new Set(), axes, title, width, turn, at, turnTo }) {
  const height = Math.round(Math.min(0.78 * width, 520));
  const radius = Math.max(...points.map((point) => Math.hypot(...point.slice(0, turn ? 3 : 2)))) || 1;
  const flat = [0, 1].map((k) => points.map((point) => point[k] ?? 0)).map((values) => [Math.min(...values, 0), Math.max(...values, 0)]);
  const [wide, high] = [width - 2 * MARGIN - 60, height - 2 * MARGIN];
  const unit = turn ? Math.min(wide, high) / 2 / radius
    : Math.min(...flat.map(([low, top], k) => [wide, high][k] / (top - low || 1)));
  const place = s("g", {});
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title }, place);
  const frame = h("div", { class: `scroll scatter${turn ? " turnable" : ""}`, tabindex: "0", role: "group",
    "aria-label": `${title}. ${turn ? "Arrow keys turn the map, Enter moves" : "Arrow keys move"} from word to word.` }, svg);
  let angles = turn ?? [0, 0], index = -1, seen = [];

  function draw() {
    const middle = turn ? [width / 2 - 20, height / 2]
      : [MARGIN + wide / 2 - unit * (flat[0][0] + flat[0][1]) / 2, height / 2 + unit * (flat[1][0] + flat[1][1]) / 2];
    seen = points.map((point) => {
      const [x, y, z] = turn ? turned(point, angles) : [point[0], point[1] ?? 0, 0];
      return [middle[0] + unit * x, middle[1] - unit * y, z / radius];
    });
    const order = seen.map((_, i) => i).sort((a, b) => seen[a][2] - seen[b][2]); // the nearest is drawn last
    const taken = seen.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]); // boxes that a name must not cover
    const lines = axes.slice(0, turn ? 3 : 2).map((name, k) => {
      const [low, top] = turn ? [-radius, radius] : flat[k];
      const [start, end] = [low, top].map((value) => [0, 0, 0].map((_, n) => (n === k ? value : 0)));
      const [from, to] = [start, end].map((point) => (turn ? turned(point, angles) : point))
        .map(([x, y]) => [middle[0] + unit * x, middle[1] - unit * y]);
      const [left, middleOf] = [Math.min(to[0] + 4, width - 92), to[1] + (k === 1 ? -6 : 12)];
      taken.push([left, middleOf - 6, left + 6.5 * name.length, middleOf + 6]);
      return [s("line", { class: "grid", x1: from[0], y1: from[1], x2: to[0], y2: to[1] }),
        s("text", { class: "label axisname", x: left, y: middleOf, "font-size": 11 }, name)];
    }).flat();
    const dots = order.map((i) => {
      const [x, y, z] = seen[i], isNear = turn ? 0.55 + 0.45 * (z + 1) / 2 : 1;
      return s("g", { class: `point${i === index ? " chosen" : ""}`, "data-name": names[i], opacity: isNear.toFixed(2) },
        s("circle", { class: `dot colour${marked.has(names[i]) ? 1 : 0}`, cx: x, cy: y, r: turn ? (3 + 1.6 * (z + 1) / 2).toFixed(2) : 4 }),
        s("text", { ...besides(x, y, names[i], taken), "font-size": 13 }, names[i]));
    });
    place.replaceChildren(...lines, ...dots);
  }

  const choose = (i) => {
    index = i;
    draw();
    at?.(i);
  };
  let drag = null;
  svg.addEventListener("pointerdown", (event) => {
    if (!turn) return;
    drag = { x: event.clientX, y: event.clientY, angles };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (drag) {
      angles = rounded([drag.angles[0] + (event.clientX - drag.x) / 120, clamped(drag.angles[1] + (event.clientY - drag.y) / 120)]);
      draw();
      return;
    }
    const box = svg.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) * width / box.width, (event.clientY - box.top) * height / box.height];
    const far = seen.map(([px, py]) => Math.hypot(px - x, py - y));
    const nearest = far.indexOf(Math.min(...far));
    if (far[nearest] < 22 && nearest !== index) choose(nearest);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    svg.addEventListener(name, () => {
      if (drag) turnTo?.(angles);
      drag = null;
    });
  }
  frame.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    const go = (step) => choose((index + step + points.length) % points.length);
    if (!turn && by) go(index < 0 ? 1 : by);
    else if (turn && by) {
      const isAcross = event.key === "ArrowLeft" || event.key === "ArrowRight";
      angles = rounded([angles[0] + (isAcross ? by * STEP : 0), clamped(angles[1] + (isAcross ? 0 : by * STEP))]);
      draw();
      turnTo?.(angles);
    } else if (turn && event.key === "Enter") go(1);
    else return;
    event.preventDefault();
  });
  draw();
  return frame;
}

// A place for a name that covers no other: right of its point, else left, above, below, or a little further away.
function besides(x, y, name, taken) {
  const long = 7.4 * name.length;
  const places = [[x + 7, y], [x - 7 - long, y], [x - long / 2, y - 13], [x - long / 2, y + 13], [x + 7, y - 9], [x + 7, y + 9],
    [x - 7 - long, y - 11], [x - 7 - long, y + 11], [x + 5, y - 19], [x + 5, y + 19], [x - long / 2, y - 25], [x - long / 2, y + 25]];
  const boxes = places.map(([left, middle]) => [left, middle - 7, left + long, middle + 7]);
  const isFree = ([a, b, c, d]) => a > 0 && taken.every(([left, top, right, bottom]) => c < left || a > right || d < top || b > bottom);
  const chosen = Math.max(boxes.findIndex(isFree), 0);
  taken.push(boxes[chosen]);
  const isLeft = chosen === 1; // its end is known better than its width
  return { class: isLeft ? "label end" : "label", x: (isLeft ? x - 7 : places[chosen][0]).toFixed(1), y: places[chosen][1].toFixed(1) };
}

// As in the address, so that a link shows the same picture.
function rounded(angles) { return angles.map((angle) => Math.round(1000 * angle) / 1000); }

function clamped(pitch) {
  return Math.max(-Math.PI / 2, Math.min(Math.PI / 2, pitch));
}
