// All layers and heads as small pictures: a click shows a head, its switch turns it off and on.

import { h, fill } from "./dom.js";
import { paint, thinned } from "./heat.js";

// decoder.blocks.1.cross.pattern -> decoder.blocks.1.cross
export function layerOf(name) {
  return name.replace(/\.pattern$/, "");
}

// decoder.blocks.1.cross -> Decoder 1, cross
export function layerTitle(layer) {
  const [, stack, index, kind] = layer.match(/^(?:(\w+)\.)?(?:.*\.)?blocks\.(\d+)\.(\w+)$/) ?? [];
  if (index === undefined) return layer;
  const side = stack && stack !== "blocks" ? stack[0].toUpperCase() + stack.slice(1) : "Block";
  return side === "Decoder" ? `${side} ${index}, ${kind === "cross" ? "cross" : "self"}` : `${side} ${index}`;
}

export function headOf(activation, head) {
  const [n_rows, n_columns] = activation.shape.slice(-2);
  return activation.values.subarray(head * n_rows * n_columns, (head + 1) * n_rows * n_columns);
}

// layers: { layer: { shape, values } }, matrices (heads × rows × columns) or thumbnails of them. chosen: { layer, head },
// where `layer` may be a list. off: a Set of "LAYER[HEAD]". show(layer, head) and flip(layer, head) are called for clicks. A grid of the same layers is updated in
// place, which is fast and keeps the focus.
export function drawHeads(place, options) {
  const grid = place.querySelector(".heads");
  const names = Object.entries(options.layers).map(([layer, { shape }]) => `${layer} ${headsOf(shape)}`);
  const structure = [...names, Boolean(options.flip)].join("\n");
  if (grid?.dataset.structure === structure) update(grid, options);
  else redraw(place, headGrid(options)).dataset.structure = structure;
}

function headsOf(shape) {
  return shape.length > 2 ? shape[0] : 1;
}

function headGrid(options) {
  const rows = Object.entries(options.layers).map(([layer, { shape }]) => {
    const title = layerTitle(layer);
    const cells = Array.from({ length: headsOf(shape) }, (_, head) => h("div", { class: "cell", role: "cell" },
      h("button", { type: "button", class: "show", title: `${title}, head ${head}`, "aria-label": `Show ${title}, head ${head}`,
        onclick: () => grid.options.show(layer, head) }, h("canvas", { class: "cells thumb", "aria-hidden": "true" })),
      options.flip && h("button", { type: "button", class: "switch", role: "switch", "aria-label": `${title}, head ${head}`,
        "data-head": `${layer}[${head}]`, onclick: () => grid.options.flip(layer, head) })));
    return h("div", { class: "layer", role: "row" }, h("div", { class: "name", role: "rowheader" }, title), cells);
  });
  const grid = h("div", { class: "heads", role: "table", "aria-label": "Attention heads" }, rows);
  update(grid, options);
  return grid;
}

function update(grid, options) {
  grid.options = options;
  const { layers, chosen, off } = options;
  Object.entries(layers).forEach(([layer, activation], i) => {
    const [n_rows, n_columns] = activation.shape.slice(-2);
    [...grid.children[i].querySelectorAll(".cell")].forEach((cell, head) => {
      const isOff = off.has(`${layer}[${head}]`), [show, flip] = cell.children;
      cell.classList.toggle("off", isOff);
      show.setAttribute("aria-pressed", String([chosen.layer].flat().includes(layer) && chosen.head === head));
      flip?.setAttribute("aria-checked", String(!isOff));
      flip?.setAttribute("title", isOff ? "Switch on" : "Switch off");
      paint(show.firstChild, thinned(headOf(activation, head), n_rows, n_columns));
    });
  });
}

// Draw a grid in place of another, and keep the focus on the same button.
function redraw(place, grid) {
  const label = place.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  fill(place, grid);
  if (label) place.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus({ preventScroll: true });
  return grid;
}
