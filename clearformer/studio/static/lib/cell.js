// One cell of an activation: its number, its row and column, or how it comes about; of an image, the place that it sees.

import { h, percent, s, short, tokenText } from "./dom.js";
import { figure } from "./figure.js";
import { headOf } from "./heads.js";
import { largest } from "./heat.js";
import { heatmap, mapTable, marked } from "./pixels.js";

export const WEIGHTS = /\.(pattern|scores)$/;
const SIZE = 220; // pixels of an image on the screen

// cellOf({ name, part, all, head, cell, image }): elements. `part` is the matrix on the screen, { values, shape, rows,
// columns }, `all` has the activations by name, `image` the pixels that an image model reads.
export function cellOf(look) {
  const layer = look.name.replace(WEIGHTS, "");
  if (look.isMap) return placeOf(look);
  if (WEIGHTS.test(look.name) && `${layer}.q` in look.all && `${layer}.k` in look.all) return weightOf(look, layer);
  return numberOf(look);
}

function panel(title, terms, ...figures) {
  return [h("h3", {}, title), h("dl", {}, terms.filter(Boolean).map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value)))),
    h("div", { class: "cellfigures" }, figures)];
}

function label(names, i, what) { return names ? tokenText(names[i]) : `${what} ${i}`; }

// How one weight comes about: query and key, their product, the softmax of the row.
function weightOf({ part, all, head, cell: [i, j], image }, layer) {
  const { [`${layer}.q`]: q, [`${layer}.k`]: k, [`${layer}.scores`]: scores, [`${layer}.pattern`]: pattern } = all;
  const width = q.shape.at(-1), root = `√${width}`;
  const keyHead = Math.floor((head * k.shape[0]) / q.shape[0]); // several heads may use one key head
  const query = headOf(q, head).subarray(i * width, (i + 1) * width), key = headOf(k, keyHead).subarray(j * width, (j + 1) * width);
  const products = query.map((value, n) => (value * key[n]) / Math.sqrt(width));
  const dot = products.reduce((a, b) => a + b, 0), n_columns = scores.shape.at(-1);
  const score = headOf(scores, head)[i * n_columns + j], weights = headOf(pattern, head).subarray(i * n_columns, (i + 1) * n_columns);
  const bias = score - dot, hasBias = Number.isFinite(score) && Math.abs(bias) > 1e-3 * (1 + Math.abs(score));
  const from = label(part.rows, i, "row"), to = label(part.columns, j, "column");
  const terms = [[`q · k / ${root}`, short(dot)], hasBias && ["position bias", short(bias)], ["score", short(score)],
    ["weight, the softmax over the row", percent(weights[j])]];
  return panel(`${from} → ${to}`, terms, overImage(image, part.columns, weights, `Where ${from} looks`),
    vector("query", `of ${from}`, query), vector("key", `of ${to}`, key),
    vector(`q × k / ${root}`, `feature by feature; the sum is q · k / ${root}`, products));
}

// A value of a feature map: the pixels that it depends on, and all channels at its place.
function placeOf({ part, one, head, cell: [i, j], image }) {
  const [n_channels, n_rows, n_columns] = one.shape, at = i * n_columns + j;
  const channels = Float32Array.from({ length: n_channels }, (_, channel) => one.values[channel * n_rows * n_columns + at]);
  const size = one.field?.size ?? 0, title = `Channel ${head}, row ${i}, column ${j}`;
  const middle = [(j + 0.5) * image[0].length / n_columns, (i + 0.5) * image.length / n_rows];
  const sees = Math.max(size, image.length / n_rows);
  const picture = figure({ title: "What it sees", name: "place", level: "h4", json: () => ({ row: i, column: j, field: one.field, image }),
    table: () => ({ columns: ["", "value"], rows: [["pixels per side", short(sees)]] }) });
  picture.draw(marked({ pixels: image, size: SIZE, middle, sides: sees, title: `What ${title} sees` }));
  return panel(title, [["value", short(part.values[at])], size > 0 && ["depends on", `${size} × ${size} pixels`]],
    picture.element, vector("all channels", "at this place", channels));
}

// A number of any other matrix, with its row and its column.
function numberOf({ part: { values, shape: [n_rows, n_columns], rows, columns }, cell: [i, j], image }) {
  const row = values.subarray(i * n_columns, (i + 1) * n_columns), column = Float32Array.from({ length: n_rows }, (_, k) => values[k * n_columns + j]);
  const from = label(rows, i, "row"), to = label(columns, j, "feature");
  const higher = row.filter((value) => value > row[j]).length;
  return panel(`${from}, ${to}`, [["value", short(row[j])], n_columns > 1 && ["rank in its row", `${higher + 1} of ${n_columns}`]],
    overImage(image, rows, column, `${to} at every patch`),
    vector(from, "all of its row", row), n_rows > 1 && vector(to, "at every position", column));
}

// Numbers of all patches as a map, above the image if they are weights.
function overImage(image, names, values, title) {
  const n = image ? names?.filter((name) => name.startsWith("patch ")).length : 0, side = Math.sqrt(n || 0);
  if (!n || !Number.isInteger(side)) return false;
  const first = names.length - n, map = Array.from({ length: side }, (_, y) => Array.from(values.slice(first + y * side, first + (y + 1) * side)));
  const isWeight = Array.from(values).every((value) => value >= 0), readout = h("p", { class: "readout", role: "status" });
  const picture = figure({ title, name: "patches", level: "h4", json: () => ({ title, values: map }), table: () => mapTable(map) });
  picture.draw(heatmap({ ...(isWeight ? { pixels: image, heat: map } : { map }), title, size: SIZE, room: 2 * SIZE + 40,
    at: (place) => { readout.textContent = place; } }));
  return h("div", {}, picture.element, readout);
}

function vector(name, note, values) {
  const top = largest(values), bar = Math.max(4, Math.min(12, 600 / values.length)), width = bar * values.length;
  const svg = s("svg", { viewBox: `0 0 ${width} 44`, width, height: 44, role: "img",
    class: values.length <= 128 ? "fluid" : null,
    "aria-label": `${name} ${note}, ${values.length} numbers from ${short(Math.min(...values))} to ${short(Math.max(...values))}` },
  s("line", { class: "axis", x1: 0, x2: width, y1: 22, y2: 22 }),
  Array.from(values, (value, n) => s("rect", { class: value < 0 ? "heat cold" : "heat", x: n * bar + 0.5, width: bar - 1,
    y: value < 0 ? 22 : 22 - (21 * value) / top, height: Math.abs((21 * value) / top) })));
  const picture = figure({ title: name, name: "vector", level: "h4", json: () => ({ name, note, values: Array.from(values) }),
    table: () => ({ columns: ["", "value"], rows: Array.from(values, (value, n) => [String(n), short(value)]) }) });
  picture.draw(h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${name} ${note}` }, svg));
  picture.element.querySelector("h4").append(h("span", { class: "hint" }, ` ${note}`));
  return picture.element;
}
