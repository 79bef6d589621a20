// Attention as lines: the positions that attend on the right, the positions attended to on the left.

import { h, s, percent, tokenText } from "./dom.js";
import { labelWidth } from "./heat.js";

const ROW = 26, GAP = 240, FAINT = 0.03;

export function lines({ values, rows, columns, title, at }) {
  const left = labelWidth(columns), right = labelWidth(rows);
  const height = ROW * Math.max(rows.length, columns.length) + 8;
  const y = (i) => ROW * (i + 0.5) + 4;
  const paths = rows.map((_, i) => s("g", { class: "links" }, columns.map((_, j) => {
    const weight = values[i * columns.length + j];
    return weight < FAINT ? null : s("path", { class: "link", "stroke-opacity": weight.toFixed(3),
      "stroke-width": (0.6 + 3 * weight).toFixed(2), "data-weight": weight.toFixed(4),
      d: `M${left} ${y(j)}C${left + GAP / 2} ${y(j)} ${left + GAP / 2} ${y(i)} ${left + GAP} ${y(i)}` });
  })));
  const sources = columns.map((token, j) => s("text", { class: "label end", x: left - 6, y: y(j), "font-size": 13 },
    tokenText(token)));
  const targets = rows.map((token, i) => s("text", { class: "label", x: left + GAP + 6, y: y(i), "font-size": 13 },
    tokenText(token)));
  const svg = s("svg", { viewBox: `0 0 ${left + GAP + right} ${height}`, width: left + GAP + right, height, role: "img",
    "aria-label": title }, paths, sources, targets);
  const frame = h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": `${title}. Arrow keys move from token to token.` }, svg);
  let row = -1;
  const choose = (i) => {
    row = i;
    const isOne = i >= 0;
    svg.classList.toggle("one", isOne);
    paths.forEach((path, k) => path.classList.toggle("chosen", k === i));
    targets.forEach((label, k) => label.classList.toggle("chosen", k === i));
    if (!isOne) return at?.("");
    const some = columns.map((token, j) => [values[i * columns.length + j], token]).sort((a, b) => b[0] - a[0]);
    at?.(`${tokenText(rows[i])} attends to ${some.slice(0, 3).map(([weight, token]) =>
      `${tokenText(token)} ${percent(weight)}`).join(", ")}`);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const i = Math.floor((((event.clientY - box.top) / box.height) * height - 4) / ROW);
    choose(i < rows.length ? Math.max(i, 0) : -1);
  });
  svg.addEventListener("pointerleave", () => choose(-1));
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    choose(Math.max(0, Math.min(rows.length - 1, row + step)));
    event.preventDefault();
  });
  return frame;
}
