// Translate: the translation as it is written, with the probability of every token and what else it could have been;
// who attends to whom, in every layer and head; and what happens without some of the heads.

import { drawAlternatives } from "../lib/alternatives.js";
import { activations, postJson, stream } from "../lib/api.js";
import { choice, fill, h, pausing, percent, tokenText } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { drawHeads, layerOf, layerTitle } from "../lib/heads.js";
import { matrix, matrixTable } from "../lib/heat.js";
import { lines } from "../lib/lines.js";
import { showProblem } from "../lib/problem.js";
import { tree, treeTable } from "../lib/tree.js";

const EXAMPLE = "Where is the train station?";
const ALTERNATIVES = 6;

function mount(context) {
  // `layers` are the thumbnails of all heads, and `maps` the whole patterns that have been asked for, both while the
  // model reads the text and the target of `body`. `shown` is the pattern on the screen.
  const state = { steps: [], translation: "", layers: {}, maps: new Map(), layer: null, head: 0, off: new Set(), token: null,
    body: null, shown: null, tree: null };
  let running = new AbortController(), showing = new AbortController();

  const source = h("textarea", { id: "source", rows: 3, maxlength: 5000, spellcheck: "false",
    oninput: () => { state.token = null; later(); } });
  const status = h("p", { class: "hint", role: "status" });
  const output = h("div", { class: "tokens", id: "output", "aria-label": "Tokens of the translation", role: "group" });
  const plain = h("p", { class: "translation", "aria-live": "polite", "aria-label": "Translation" });
  const alternatives = h("div", { class: "alternatives" });
  const reference = h("p", { class: "hint reference", hidden: true });
  const problem = h("div", {});
  const grid = h("div", { class: "gridplace" });
  const readout = h("p", { class: "readout", role: "status" });
  const reset = h("button", { type: "button", class: "quiet", onclick: () => { state.off.clear(); changeHeads(); } },
    "All heads on");
  const picture = figure({ title: "Attention", name: "attention", json: () => shown(), table: () => {
    const { rows, columns, weights } = shown();
    return matrixTable(weights.flat(), rows, columns);
  } });
  const beam = figure({ title: "Beam search", name: "beam-search", level: "h2", json: () => state.tree, table: () => treeTable(state.tree) });
  const branch = h("p", { class: "readout", role: "status" });
  const beams = h("section", { class: "card beams" }, beam.element,
    h("p", { class: "hint" }, "Each step extends the live hypotheses. Solid: kept. ■ finished. Dashed: dropped. " +
      "Thick: the way to the translation."), branch);
  const searches = h("div", {}), views = h("div", {});

  fill(context.root,
    h("h1", {}, "Translate"),
    h("form", { class: "pair", onsubmit: (event) => { event.preventDefault(); run(); } },
      h("section", { class: "card" }, h("label", { for: "source", class: "heading" }, "Text"), source,
        h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Translate"), searches)),
      h("section", { class: "card", "aria-label": "Translation" }, h("h2", { class: "heading" }, "Translation"),
        plain, output, alternatives, reference, status)),
    problem,
    h("section", { class: "card attention", hidden: true }, h("h2", { class: "heading" }, "Attention"),
      h("p", { class: "hint" }, "Each small picture is a head: rows attend to columns. Its switch turns the head off."),
      h("div", { class: "split" }, h("div", { class: "side" }, grid, h("div", { class: "row" }, reset)),
        h("div", { class: "stage" }, views, picture.element, readout))));
  const attention = context.root.querySelector(".attention");
  const later = pausing(450, () => run());

  function read(params) {
    source.value = params.get("text") ?? EXAMPLE;
    state.search = params.get("search") === "beam" ? "beam" : "greedy";
    state.view = params.get("view") === "lines" ? "lines" : "matrix";
    state.layer = params.get("layer");
    state.head = Number(params.get("head") ?? 0);
    state.token = params.has("token") ? Number(params.get("token")) : null;
    state.layers = {}; // perhaps of another model
    state.off = new Set(params.getAll("off").flatMap((text) => text.split(" ")).filter(Boolean));
    fill(searches, choice("Search", { greedy: "Greedy, streamed", beam: "Beam search" }, state.search, (value) => {
      state.search = value;
      run();
    }));
    fill(views, choice("Picture", { matrix: "Matrix", lines: "Lines" }, state.view, (value) => {
      state.view = value;
      keep();
      draw();
    }));
  }

  function keep() {
    context.keep({ text: source.value === EXAMPLE ? null : source.value, search: state.search === "beam" ? "beam" : null,
      view: state.view === "lines" ? "lines" : null, layer: state.layer, head: state.head || null,
      token: state.token, off: [...state.off].join(" ") || null });
  }

  // Translate the text. With `target`, the picture of that translation is redrawn first, without waiting for the new one.
  async function run(target = null) {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    const text = source.value.trim();
    fill(problem);
    keep();
    if (state.search === "greedy" || !text) beams.remove();
    if (!text) {
      Object.assign(state, { steps: [], translation: "", layers: {} });
      attention.hidden = true;
      drawTokens();
      return;
    }
    const body = { text, model: context.model?.name, off: [...state.off] };
    try {
      if (target !== null) {
        await look({ ...body, target }, signal);
        measured();
      }
      status.textContent = "Translating …";
      const translation = state.search === "beam" ? await search(body, signal) : await streamTokens(body, signal);
      if (translation !== target || state.search === "beam") await look({ ...body, target: translation }, signal);
      status.textContent = "";
      await compare(body, translation, signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      status.textContent = "";
      showProblem(problem, error);
    }
  }

  async function streamTokens(body, signal) {
    const steps = [];
    let translation = "";
    await stream("/v1/translate", { ...body, stream: true, alternatives: ALTERNATIVES }, {
      token(step) {
        steps.push(step);
        Object.assign(state, { steps: [...steps], translation: steps.map((one) => one.text).join("") });
        drawTokens();
      },
      end(end) { translation = state.translation = end.translation; },
    }, signal);
    drawTokens();
    return translation;
  }

  async function search(body, signal) {
    const [{ translations: [{ translation }] }] = await Promise.all([postJson("/v1/translate", body, signal), drawTree(body, signal)]);
    state.translation = translation;
    return translation;
  }

  // The hypotheses that the search keeps, finishes and drops.
  async function drawTree(body, signal) {
    state.tree = await postJson("/api/lens/beam-tree", body, signal);
    const title = `Beam search, ${state.tree.beam} hypotheses, ${state.tree.steps.length} steps`;
    beam.title(title);
    branch.textContent = "";
    beam.draw(tree({ ...state.tree, title, at: (text) => { branch.textContent = text; } }));
    problem.after(beams);
  }

  // All heads while the model reads the text and a translation: the chosen one whole, the others as thumbnails.
  async function look(body, signal) {
    const key = keyOfHead(), request = { ...body, names: nameOfHead(), thumbnails: ["*.pattern"],
      alternatives: ALTERNATIVES };
    const values = await activations(request, signal).catch((error) => {
      if (!/no activation is called/.test(error.message)) throw error;
      return { activations: {}, thumbnails: {}, predictions: null }; // a model without attention
    });
    state.body = body;
    state.layers = Object.fromEntries(Object.entries(values.thumbnails).map(([name, one]) => [layerOf(name), one]));
    showing.abort();
    state.maps = new Map(Object.values(values.activations).map((map) => [key, map]));
    if (values.predictions) {
      state.steps = values.predictions.map((step) => ({ ...step, text: null }));
      drawTokens();
    }
    const names = Object.keys(state.layers);
    if (!names.length) {
      attention.hidden = true;
      return;
    }
    if (!names.includes(state.layer)) state.layer = names.filter((name) => name.endsWith("cross")).at(-1) ?? names.at(-1);
    const { shape } = state.layers[state.layer];
    state.head = Math.min(state.head, shape.length > 2 ? shape[0] - 1 : 0);
    await draw();
    attention.hidden = false;
  }

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

  // What the model writes with all heads on, beside the translation without some of them.
  async function compare(body, translation, signal) {
    reference.hidden = !state.off.size;
    if (!state.off.size) return;
    const { translations: [before] } = await postJson("/v1/translate",
      { ...body, off: [], ...(state.search === "beam" ? {} : { beam: 1 }) }, signal);
    fill(reference, before.translation === translation ? "The same with all heads on." : "With all heads on: ",
      before.translation === translation ? null : h("q", {}, before.translation));
  }

  function changeHeads() {
    performance.mark("click");
    drawGrid(); // the switch answers at once
    run(state.translation);
  }

  // From the click until the new picture is on the screen.
  function measured() {
    requestAnimationFrame(() => setTimeout(() => performance.measure("redraw", "click")));
  }

  function drawTokens() {
    plain.textContent = state.translation;
    fill(output, state.steps.map((step, i) => h("button", {
      type: "button", class: "token", "aria-pressed": String(i === state.token),
      "aria-label": `${tokenText(step.token)}, ${percent(step.probability)}`,
      style: { "--p": step.probability.toFixed(4) },
      onclick: () => {
        state.token = state.token === i ? null : i;
        keep();
        drawTokens();
        output.children[i].focus();
      },
    }, h("span", {}, tokenText(step.token)), h("small", {}, percent(step.probability)))));
    drawAlternatives(alternatives, state.steps[state.token]);
  }

  function shown() {
    const { layer, head, off, rows, columns, values } = state.shown, n = columns.length;
    const weights = rows.map((_, i) => Array.from(values.subarray(i * n, (i + 1) * n)));
    return { model: context.model.name, layer, head, off, rows, columns, weights };
  }

  function drawGrid() {
    reset.hidden = !state.off.size;
    drawHeads(grid, { layers: state.layers, chosen: state, off: state.off,
      show(layer, head) {
        Object.assign(state, { layer, head });
        keep();
        draw();
      },
      flip: canFlip() ? (layer, head) => {
        const name = `${layer}[${head}]`;
        if (!state.off.delete(name)) state.off.add(name);
        changeHeads();
      } : null });
  }

  async function draw() {
    drawGrid();
    try {
      drawMap(await mapOfHead());
    } catch (error) {
      showProblem(problem, error);
    }
  }

  function drawMap({ values, rows, columns }) {
    state.shown = { layer: state.layer, head: state.head, off: [...state.off], values, rows, columns };
    const title = `${layerTitle(state.layer)}, head ${state.head}${state.off.has(keyOfHead()) ? " (off)" : ""}`;
    picture.title(title);
    readout.textContent = "";
    const at = (row, column) => {
      readout.textContent = `${tokenText(rows[row])} attends to ${tokenText(columns[column])}: ` +
        percent(values[row * columns.length + column]);
    };
    picture.draw(state.view === "matrix" ? matrix({ values, rows, columns, title, at })
      : lines({ values, rows, columns, title, at: (text) => { readout.textContent = text; } }));
  }

  function canFlip() {
    return Object.values(state.layers)[0].shape.length > 2 && !Object.keys(state.layers).some((name) => !/blocks/.test(name));
  }

  read(context.params);
  run();
  return {
    update(params) { read(params); run(); },
    unmount() { running.abort(); showing.abort(); },
  };
}

export default { title: "Translate", verb: "translate", mount };
