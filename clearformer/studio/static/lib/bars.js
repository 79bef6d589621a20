// Classes with their probabilities as bars, the most probable first. A click or the arrow keys choose a class.

import { h, percent, s } from "./dom.js";
import { textWidth } from "./shades.js";

const ROW = 26, NUMBER = 62;

// rows: [{ label, probability }]
export function bars({ rows, chosen, title, width, pick }) {
  // The chosen class is bold, and therefore wider.
  const left = Math.min(Math.max(...rows.map(({ label }) => 1.12 * textWidth(label, 13))) + 12, width * 0.4);
  const room = Math.max(40, width - left - NUMBER), height = ROW * rows.length + 4;
  const groups = rows.map(({ label, probability }, i) => s("g", { class: `classbar${label === chosen ? " chosen" : ""}`,
    transform: `translate(0 ${ROW * i + 2})` },
  s("rect", { class: "hit", width, height: ROW, rx: 4 }),
  s("text", { class: "label end", x: left - 6, y: ROW / 2, "font-size": 13 }, clipped(label, left - 10)),
  s("rect", { class: "trough", x: left, y: 7, width: room, height: ROW - 14, rx: 3 }),
  s("rect", { class: "heat", x: left, y: 7, width: Math.max(1, room * probability).toFixed(1), height: ROW - 14, rx: 3 }),
  s("text", { class: "label", x: left + room + 8, y: ROW / 2, "font-size": 13 }, percent(probability)),
  s("title", {}, `${label}: ${percent(probability)}`)));
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "fluid",
    "aria-label": `${title}: ${rows.slice(0, 3).map(({ label, probability }) => `${label} ${percent(probability)}`).join(", ")}` }, groups);
  const frame = h("div", { class: "scroll bars", tabindex: "0", role: "group",
    "aria-label": `${title}. Up and down arrow keys choose a class.` }, svg);
  groups.forEach((group, i) => group.addEventListener("click", () => pick(rows[i].label)));
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = rows.findIndex(({ label }) => label === chosen);
    pick(rows[Math.max(0, Math.min(rows.length - 1, at + step))].label);
  });
  return frame;
}

function clipped(text, room) {
  let cut = text;
  while (cut.length > 1 && textWidth(cut, 13) > room) cut = cut.slice(0, -1);
  return cut === text ? text : `${cut.slice(0, -1)}…`;
}
