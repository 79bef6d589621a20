// The attention of all layers and heads while a model reads a text: small pictures with switches, and one of them large,
// as a matrix or as lines.

import { activations } from "./api.js";
import { choice, fill, h, percent, tokenText } from "./dom.js";
import { figure } from "./figure.js";
import { layerOf, layerTitle } from "./heads.js";
import { matrix, matrixTable } from "./heat.js";
import { lines } from "./lines.js";
import { headSwitches } from "./switches.js";

// attentionOf({ model, keep, changed, fail }): keep() writes the address, changed() is called when heads are switched.
export function attentionOf({ model, keep, changed, fail }) {
  // `layers` are the thumbnails of all heads, and `maps` the whole patterns that have been asked for, both while the
  // model reads the text of `body`. `shown` is the pattern on the screen.
  // The address has the layer once it is chosen.
  const state = { layers: {}, maps: new Map(), layer: null, head: 0, isChosen: false, view: "matrix", body: null, shown: null };
  let showing = new AbortController();
  const switches = headSwitches({ changed, show(layer, head) {
    Object.assign(state, { layer, head, isChosen: true });
    keep();
    draw();
  } });
  const readout = h("p", { class: "readout", role: "status" });
  const picture = figure({ title: "Attention", name: "attention", json: () => shown(), table: () => {
    const { rows, columns, weights } = shown();
    return matrixTable(weights.flat(), rows, columns);
  } });
  const views = h("div", {});
  const element = h("section", { class: "card attention", hidden: true }, h("h2", { class: "heading" }, "Attention"),
    h("p", { class: "hint" }, "Each small picture is a head: rows attend to columns. Its switch turns the head off."),
    h("div", { class: "split" }, h("div", { class: "side" }, switches.element),
      h("div", { class: "stage" }, views, picture.element, readout)));

  function keyOfHead() { return `${state.layer}[${state.head}]`; }

  // The name of the chosen head's pattern, once the layers of the model are known.
  function nameOfHead() {
    const layer = state.layers[state.layer];
    return !layer ? [] : [`${state.layer}.pattern${layer.shape.length > 2 ? `[${state.head}]` : ""}`];
  }

  // The whole pattern of the chosen head.
  async function mapOfHead() {
    const key = keyOfHead(), maps = state.maps;
    if (!maps.has(key)) {
      showing.abort();
      showing = new AbortController();
      const values = await activations({ ...state.body, names: nameOfHead() }, showing.signal);
      maps.set(key, Object.values(values.activations)[0]);
    }
    return maps.get(key);
  }

  function shown() {
    const { layer, head, off, rows, columns, values } = state.shown, n = columns.length;
    const weights = rows.map((_, i) => Array.from(values.subarray(i * n, (i + 1) * n)));
    return { model: model(), layer, head, off, rows, columns, weights };
  }

  function drawGrid() {
    switches.draw({ layers: state.layers, chosen: state });
  }

  async function draw() {
    drawGrid();
    try {
      drawMap(await mapOfHead());
    } catch (error) {
      fail(error);
    }
  }

  function drawMap({ values, rows, columns }) {
    state.shown = { layer: state.layer, head: state.head, off: switches.names, values, rows, columns };
    const title = `${layerTitle(state.layer)}, head ${state.head}${switches.isOff(state.layer, state.head) ? " (off)" : ""}`;
    picture.title(title);
    readout.textContent = "";
    const at = (row, column) => {
      readout.textContent = `${tokenText(rows[row])} attends to ${tokenText(columns[column])}: ` +
        percent(values[row * columns.length + column]);
    };
    picture.draw(state.view === "matrix" ? matrix({ values, rows, columns, title, at })
      : lines({ values, rows, columns, title, at: (text) => { readout.textContent = text; } }));
  }

  return {
    element,
    get off() { return switches.names; },
    read(params) {
      state.view = params.get("view") === "lines" ? "lines" : "matrix";
      state.layer = params.get("layer");
      state.head = Number(params.get("head") ?? 0);
      state.isChosen = params.has("layer");
      state.layers = {}; // perhaps of another model
      switches.read(params);
      fill(views, choice("Picture", { matrix: "Matrix", lines: "Lines" }, state.view, (value) => {
        state.view = value;
        keep();
        draw();
      }));
    },
    keep() {
      return { view: state.view === "lines" ? "lines" : null, layer: state.isChosen ? state.layer : null, head: state.head || null, ...switches.keep() };
    },
    // Draw all heads while the model reads what `body` asks for: the chosen one whole, the others as thumbnails. Returns
    // the server's values.
    async look(body, signal, alternatives = 0) {
      const key = keyOfHead();
      const values = await activations({ ...body, names: nameOfHead(), thumbnails: ["*.pattern"], alternatives }, signal);
      state.body = body;
      state.layers = Object.fromEntries(Object.entries(values.thumbnails).map(([name, one]) => [layerOf(name), one]));
      showing.abort();
      state.maps = new Map(Object.values(values.activations).map((map) => [key, map]));
      const names = Object.keys(state.layers);
      if (!names.length) { // a model without attention
        element.hidden = true;
        return values;
      }
      if (!names.includes(state.layer)) state.layer = names.filter((name) => name.endsWith("cross")).at(-1) ?? names.at(-1);
      const { shape } = state.layers[state.layer];
      state.head = Math.min(state.head, shape.length > 2 ? shape[0] - 1 : 0);
      await draw();
      element.hidden = false;
      return values;
    },
    hide() {
      state.layers = {};
      element.hidden = true;
    },
    stop() { showing.abort(); },
  };
}
