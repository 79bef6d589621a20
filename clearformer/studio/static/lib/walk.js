// A text's way through a model: every step with its equation and its matrix, on the model's own numbers.

import { fill, h, percent, short, tokenText } from "./dom.js";
import { figure } from "./figure.js";
import { largest, matrixTable, paint, thinned } from "./heat.js";
import { showProblem } from "./problem.js";
import { isLarge, partOf, zoomed } from "./zoom.js";

// walk({ keep, drawn }): `keep` writes what is shown to the address, drawn(layer, head, signal) is called for every new walk.
// The result has element, heads, a place for the heads of the layer, and show({ ask, layers, … }).
export function walk({ keep, drawn }) {
  const state = { steps: [], step: 0, zoom: null, layers: {}, layer: null, head: 0, ask: null };
  let running = new AbortController();
  const problem = h("div", {}), title = h("p", { class: "hint" });
  const layers = h("select", { id: "walk-layer", onchange: () => { Object.assign(state, { layer: layers.value, head: 0 }); load(); } });
  const heads = h("select", { id: "walk-head", onchange: () => choose(Number(heads.value)) });
  const grid = h("div", {});
  const list = h("ol", { class: "steps", tabindex: "0", "aria-label": "Steps", onkeydown: (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!by) return;
    go(state.step + by);
    event.preventDefault();
  } });
  const equation = h("p", { class: "equation" }), facts = h("p", { class: "hint facts" });
  const readout = h("p", { class: "readout", role: "status" });
  const whole = h("button", { type: "button", class: "quiet", onclick: () => zoomTo(null) }, "Whole matrix");
  const before = h("button", { type: "button", class: "quiet", onclick: () => go(state.step - 1) }, "← Step before");
  const after = h("button", { type: "button", class: "quiet", onclick: () => go(state.step + 1) }, "Next step →");
  const picture = figure({ title: "Walk", name: "walk", json: () => ({ layer: state.layer, head: state.head, ...state.steps[state.step] }),
    table: () => {
      const { values, rows, columns, n_rows, n_columns } = partOf(state.steps[state.step], state.zoom);
      return matrixTable(values, rows ?? numbers(n_rows), columns ?? numbers(n_columns));
    } });
  const stage = h("div", { class: "stage" }, title, equation, facts, h("div", { class: "row" }, before, after, whole), picture.element,
    readout);
  const element = h("section", { class: "card walk", "aria-label": "Walk" }, problem,
    h("div", { class: "row choices" }, h("label", { for: "walk-layer" }, "Layer ", layers), h("label", { for: "walk-head" }, "Head ", heads)),
    grid, h("div", { class: "split wide" }, h("div", { class: "side" }, list), stage));

  function numbers(n) { return Array.from({ length: n }, (_, i) => String(i)); }

  async function load() {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    fill(layers, Object.keys(state.layers).map((name) => h("option", { value: name }, name)));
    layers.value = state.layer;
    fill(heads, numbers(state.layers[state.layer]).map((head) => h("option", { value: head }, head)));
    heads.value = String(state.head);
    keepAll();
    try {
      const values = await state.ask({ layer: state.layer, head: state.head }, signal);
      fill(problem);
      state.steps = values.steps;
      state.step = Math.min(state.step, values.steps.length - 1);
      const { values: rows } = values.steps[state.step];
      if (state.zoom && !(isLarge(rows.length, rows[0].length) && state.zoom[0] < rows.length && state.zoom[1] < rows[0].length)) state.zoom = null;
      title.textContent = values.title;
      drawList();
      draw();
      await drawn(state.layer, state.head, signal);
    } catch (error) {
      showProblem(problem, error);
    }
  }

  function keepAll() {
    keep({ block: state.layer, part: state.head || null, step: state.step || null, zoom: state.zoom?.join(",") });
  }

  function choose(head) {
    state.head = head;
    load();
  }

  function go(step) {
    state.step = Math.max(0, Math.min(state.steps.length - 1, step));
    state.zoom = null;
    keepAll();
    draw();
  }

  function zoomTo(cell) {
    state.zoom = cell;
    keepAll();
    draw();
  }

  function drawList() {
    fill(list, state.steps.map((step, i) => {
      const canvas = h("canvas", { class: "cells thumb", "aria-hidden": "true" });
      const flat = Float32Array.from(step.values.flat(), (value) => value ?? NaN);
      paint(canvas, { ...thinned(flat, step.values.length, step.values[0].length), top: largest(flat) });
      return h("li", {}, h("button", { type: "button", onclick: () => go(i) }, canvas,
        h("span", {}, h("strong", {}, `${i + 1}. ${step.name}`), h("small", {}, step.equation))));
    }));
  }

  function draw() {
    const step = state.steps[state.step], part = partOf(step, state.zoom);
    if (!state.zoom && /^\d+$/.test(step.columns[0])) part.columns = null; // features have only numbers
    const n_rows = step.values.length, n_columns = step.values[0].length, isThinned = isLarge(n_rows, n_columns);
    list.querySelectorAll("button").forEach((button, i) => {
      if (i !== state.step) return button.removeAttribute("aria-current");
      button.setAttribute("aria-current", "step");
      const { offsetTop, offsetHeight } = button, { scrollTop, clientHeight } = list; // the list scrolls, never the page
      if (offsetTop < scrollTop || offsetTop + offsetHeight > scrollTop + clientHeight) list.scrollTop = offsetTop - clientHeight / 3;
    });
    before.disabled = state.step === 0;
    after.disabled = state.step === state.steps.length - 1;
    whole.hidden = !state.zoom;
    equation.textContent = step.equation;
    facts.textContent = `${n_rows} × ${n_columns}. ` + (step.gap === null ? "" : `Largest difference from the model's own activation: ${short(step.gap)}. `) +
      (isThinned ? state.zoom ? "A part with every cell." : "Thinned: the largest value of each group. Click or press Enter to see a part with every cell." : "");
    const name = `${state.step + 1}. ${step.name}`;
    picture.title(name);
    readout.textContent = "";
    const isShare = ["pattern", "probabilities", "word"].includes(step.name);
    picture.draw(zoomed({ part, title: name, top: isShare ? 1 : largest(part.values),
      at([i, j], value) {
        const shown = Number.isNaN(value) ? "masked" : isShare ? percent(value) : step.name === "id" ? String(value) : short(value);
        readout.textContent = `${tokenText(step.rows[i])}, ${/^\d+$/.test(step.columns[j]) ? `feature ${step.columns[j]}` : tokenText(step.columns[j])}: ${shown}`;
      },
      pick: isThinned && !state.zoom ? (i, j) => zoomTo([i, j]) : null }));
  }

  return {
    element, choose,
    heads: grid,
    // layers: { block: number of heads }. ask(options, signal) returns the values of `clearformer lens walk --json`.
    show({ ask, layers: known, layer, head, step, zoom }) {
      const isThere = layer in known;
      Object.assign(state, { ask, layers: known, layer: isThere ? layer : Object.keys(known)[0], step, zoom });
      state.head = isThere ? Math.min(head, known[layer] - 1) : 0;
      load();
    },
    stop() { running.abort(); },
  };
}
