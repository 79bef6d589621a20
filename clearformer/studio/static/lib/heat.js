// A matrix as cells whose strength is their value: one pixel of a canvas for each cell, which the style sheet enlarges.
// A file of the picture has paths instead (`vector`).

import { h, s, short, tokenText } from "./dom.js";

const LEVELS = 24;
const painted = new WeakMap(); // canvas -> what it shows, to paint it again in other colours
let known = null;

// The two colours of cells, for values above and below 0, as [red, green, blue].
function colours() {
  known ??= ["--heat", "--cold"].map((name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).match(/[\d.]+/g).slice(0, 3).map(Number));
  return known;
}

function repaint() {
  known = null;
  for (const canvas of document.querySelectorAll("canvas.cells")) if (painted.has(canvas)) paint(canvas, painted.get(canvas));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
document.addEventListener("theme", repaint);

// Paint values (rows × columns), strength |value| / top; values below 0 in a second colour.
export function paint(canvas, what) {
  painted.set(canvas, what);
  const { values, n_rows, n_columns, top = 1 } = what;
  if (canvas.width !== n_columns) canvas.width = n_columns;
  if (canvas.height !== n_rows) canvas.height = n_rows;
  const image = new ImageData(n_columns, n_rows), pixels = image.data, [heat, cold] = colours();
  for (let i = 0, at = 0; i < values.length; i++, at += 4) {
    const value = values[i], colour = value < 0 ? cold : heat;
    pixels[at] = colour[0];
    pixels[at + 1] = colour[1];
    pixels[at + 2] = colour[2];
    pixels[at + 3] = Number.isFinite(value) ? 255 * Math.min(Math.abs(value) / top, 1) : 0; // a mask removes a score
  }
  canvas.getContext("2d", { willReadFrequently: true }).putImageData(image, 0, 0); // in memory: pixels are only copied
}

// The same cells as paths, one for each level of strength.
function vector({ values, n_rows, n_columns, top = 1 }, width, height) {
  const parts = new Map();
  for (let row = 0; row < n_rows; row++) {
    const y = row * height;
    for (let column = 0; column < n_columns;) {
      const level = levelOf(values[row * n_columns + column], top);
      const from = column;
      do column++; while (column < n_columns && levelOf(values[row * n_columns + column], top) === level);
      if (level === 0) continue;
      const part = `M${from * width} ${y}h${(column - from) * width}v${height}h${(from - column) * width}z`;
      if (parts.has(level)) parts.get(level).push(part);
      else parts.set(level, [part]);
    }
  }
  const [heat, cold] = colours().map((colour) => `rgb(${colour.join(", ")})`);
  return [...parts].map(([level, some]) => s("path", { d: some.join(""), fill: level > 0 ? heat : cold,
    "fill-opacity": (Math.abs(level) / LEVELS).toFixed(3), "shape-rendering": "crispEdges" }));
}

function levelOf(value, top) {
  if (!Number.isFinite(value)) return 0;
  const level = Math.round(LEVELS * Math.min(Math.abs(value) / top, 1));
  return value < 0 ? -level : level;
}

export function largest(values) {
  let top = 0;
  for (const value of values) if (Math.abs(value) > top) top = Math.abs(value);
  return top || 1;
}

// A matrix of at most so many rows and columns: the largest value of each group of cells.
export function thinned(values, n_rows, n_columns, most_rows = 22, most_columns = most_rows) {
  const rows = Math.min(n_rows, most_rows), columns = Math.min(n_columns, most_columns);
  if (rows === n_rows && columns === n_columns) return { values, n_rows, n_columns };
  const small = new Float32Array(rows * columns);
  for (let i = 0; i < n_rows; i++) {
    const row = Math.floor((i * rows) / n_rows) * columns;
    for (let j = 0; j < n_columns; j++) {
      const at = row + Math.floor((j * columns) / n_columns), value = values[i * n_columns + j];
      if (Math.abs(value) > Math.abs(small[at])) small[at] = value;
    }
  }
  return { values: small, n_rows: rows, n_columns: columns };
}

// matrix({ values, rows, columns, … }): a picture with labels, in which the pointer or arrow keys choose a cell.
// `at(row, column)` is called for the cell under the pointer, `pick(row, column)` for a click or Enter.
export function matrix({ values, rows, columns, n_rows, n_columns, title, top = 1, at, pick, chosen, isSquare = false }) {
  n_rows ??= rows.length;
  n_columns ??= columns.length;
  const side = Math.max(2, Math.min(38, 360 / Math.max(n_rows, n_columns))); // of a square cell
  const height = isSquare ? side : Math.max(4, Math.min(38, 620 / n_rows));
  const isText = columns && !areNumbers(columns);
  const width = isSquare ? side : Math.max(isText ? 4 : 2.5, Math.min(38, (columns ? 620 : 760) / n_columns));
  const down = apart(rows, height), along = apart(columns, width);
  const left = down ? labelWidth(rows) : 8, above = along ? labelWidth(columns) * 0.8 + 6 : 8;
  const size = [left + n_columns * width + (columns ? 34 : 8), above + n_rows * height + 8];
  const cursor = s("rect", { class: "cursor", width, height, visibility: "hidden" });
  const what = { values, n_rows, n_columns, top };
  const ground = s("rect", { class: "ground", width: n_columns * width, height: n_rows * height });
  const inFile = s("g", {});
  inFile.vector = () => vector(what, width, height);
  const place = s("g", { transform: `translate(${left} ${above})` }, inFile, ground, cursor);
  const canvas = h("canvas", { class: "cells", "aria-hidden": "true", style: { left: `${left}px`, top: `${above}px`,
    width: `${n_columns * width}px`, height: `${n_rows * height}px` } });
  paint(canvas, what);
  const font = Math.min(13, down * height - 1), across = Math.min(13, along * width - 1);
  const svg = s("svg", { viewBox: `0 0 ${size[0]} ${size[1]}`, width: size[0], height: size[1], role: "img",
    "aria-label": title },
    down > 0 && rows.map((row, i) => i % down === 0 && s("text", { x: left - 5, y: above + (i + 0.5) * height,
      class: "label end", "font-size": font }, tokenText(row))),
    along > 0 && columns.map((column, j) => j % along === 0 && s("text", { class: "label", "font-size": across,
      transform: `translate(${left + (j + 0.5) * width} ${above - 5}) rotate(-50)` }, tokenText(column))),
    place);
  const frame = h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": `${title}. Arrow keys move from cell to cell${pick ? ", Enter chooses one" : ""}.` },
  h("div", { class: "plane", style: { width: `${size[0]}px`, height: `${size[1]}px` } }, canvas, svg));
  let row = chosen?.[0] ?? -1, column = chosen?.[1] ?? -1;
  const move = (i, j) => {
    row = Math.max(0, Math.min(n_rows - 1, i));
    column = Math.max(0, Math.min(n_columns - 1, j));
    cursor.setAttribute("x", column * width);
    cursor.setAttribute("y", row * height);
    cursor.setAttribute("visibility", "visible");
    at?.(row, column);
  };
  const under = (event) => {
    const box = ground.getBoundingClientRect();
    return [Math.floor(((event.clientY - box.top) / box.height) * n_rows),
      Math.floor(((event.clientX - box.left) / box.width) * n_columns)];
  };
  svg.addEventListener("pointermove", (event) => move(...under(event)));
  svg.addEventListener("click", (event) => { move(...under(event)); pick?.(row, column); });
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) move(row < 0 ? 0 : row + step[0], column < 0 ? 0 : column + step[1]);
    else if (event.key === "Enter" && row >= 0) pick?.(row, column);
    else return;
    event.preventDefault();
  });
  if (chosen) move(row, column);
  return frame;
}

export function numbers(n) { return Array.from({ length: n }, (_, i) => String(i)); }

function areNumbers(labels) { return labels.every((label) => /^-?\d+$/.test(label)); }

// How many cells are between two labels; 0 for none. Of many numbers, some are enough.
function apart(labels, size) {
  if (!labels) return 0;
  if (labels.length <= 24 || !areNumbers(labels)) return size >= 9 ? 1 : 0;
  let n = 8;
  while (n * size < 26) n *= 2;
  return n;
}

export function labelWidth(labels) {
  return 18 + 8.4 * Math.min(14, Math.max(...labels.map((label) => label.length)));
}

export function matrixTable(values, rows, columns) {
  return { columns: ["", ...columns.map(tokenText)], rows: rows.map((row, i) =>
    [tokenText(row), ...columns.map((_, j) => short(values[i * columns.length + j]))]) };
}
