// Compare: two checkpoints, or a base and its adapter, on one text: outputs, token probabilities, layers and heads.

import { getJson, tensors } from "../lib/api.js";
import { fill, h, pausing, percent, short, tokenText } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { drawHeads, headOf, layerOf, layerTitle } from "../lib/heads.js";
import { largest, matrix, matrixTable } from "../lib/heat.js";
import { showMissing } from "../lib/nomodel.js";
import { showProblem } from "../lib/problem.js";
import { ranking, roomOf } from "../lib/ranking.js";

const EXAMPLES = { translation: "Where is the train station?", "causal-lm": "The man pulled a cart" };
const PARTS = { attn_out: "attention", cross_out: "cross-attention", mlp_out: "feed-forward", resid_post: "whole block", h: "state" };
const TRAIN = "clearformer finetune --model en-fr-small --pairs mine.tsv --method lora --out runs/mine";
const SIDES = ["A", "B"];

// decoder.blocks.1.cross_out -> Decoder 1, cross-attention
function partTitle(name) {
  const [, block, part] = name.match(/^(.*)\.(\w+)$/) ?? [null, name, ""];
  const title = layerTitle(`${block}.attn`).replace(/, self$/, "");
  return `${title.endsWith(".attn") ? block : title}${PARTS[part] ? `, ${PARTS[part]}` : ""}`;
}

function mount(context) {
  const state = { models: [], names: ["", ""], result: null, layers: [{}, {}], layer: null, head: 0 };
  let running = new AbortController(), isMissing = false;

  const pickers = SIDES.map((side, i) => h("select", { id: `model-${side}`, onchange: (event) => { state.names[i] = event.target.value; keep(); run(); } }));
  const swap = h("button", { type: "button", class: "quiet", onclick: () => { state.names.reverse(); offer(); keep(); run(); } }, "Swap");
  const text = h("textarea", { id: "text", rows: 2, maxlength: 5000, spellcheck: "false", oninput: pausing(450, () => { keep(); run(); }) });
  const target = h("input", { id: "target", type: "text", maxlength: 5000, autocomplete: "off", spellcheck: "false",
    placeholder: "the translation by A", oninput: pausing(450, () => { keep(); run(); }) });
  const targetRow = h("div", {}, h("label", { for: "target" }, "Translation that both read"), target);
  const problem = h("div", {}), status = h("p", { class: "hint", role: "status" });
  const outputs = h("div", { class: "pair outputs" });
  const sections = h("div", { class: "sections" });
  const page = [h("h1", {}, "Compare"),
    h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); keep(); run(); } },
      h("div", { class: "row first" }, SIDES.map((side, i) => h("label", { for: `model-${side}` }, h("span", { class: `swatch colour${i}` }), `${side} `, pickers[i])), swap),
      h("label", { for: "text", class: "heading" }, "Text"), text, targetRow, status), problem, outputs, sections];

  function read(params) {
    const usable = state.models.filter(({ problem: bad }) => !bad);
    const wanted = SIDES.map((side) => params.get(side.toLowerCase()));
    const first = usable.find(({ name }) => name === wanted[0]) ?? withPartner(usable) ?? usable[0];
    const second = usable.find(({ name }) => name === wanted[1]) ?? usable.find((one) => one !== first && one.task === first.task) ??
      usable.find((one) => one !== first);
    state.names = [wanted[0] ?? first.name, wanted[1] ?? second?.name ?? first.name];
    text.value = params.get("text") ?? example();
    target.value = params.get("target") ?? "";
    state.layer = params.get("layer");
    state.head = Number(params.get("head") ?? 0);
    offer();
  }

  // The first model that has another one of its kind.
  function withPartner(models) {
    return models.find((one) => models.some((other) => other !== one && other.task === one.task));
  }

  const taskOf = (name) => state.models.find((one) => one.name === name)?.task;
  const example = () => EXAMPLES[taskOf(state.names[0])] ?? "A good film.";

  function offer() {
    pickers.forEach((picker, i) => {
      fill(picker, state.models.filter(({ problem: bad }) => !bad).map(({ name }) => h("option", { value: name }, name)));
      picker.value = state.names[i];
    });
    targetRow.hidden = taskOf(state.names[0]) !== "translation";
  }

  function keep() {
    context.keep({ a: state.names[0], b: state.names[1], text: text.value === example() ? null : text.value, target: target.value || null,
      layer: state.layer, head: state.head || null });
  }

  async function begin(params) {
    try {
      state.models = (await getJson("/api/models")).models;
    } catch (error) {
      fill(context.root, page);
      showProblem(problem, error);
      return;
    }
    isMissing = state.models.filter(({ problem: bad }) => !bad).length < 2;
    if (isMissing) {
      showMissing(context.root, "Compare", "a second model", TRAIN);
      return;
    }
    fill(context.root, page);
    read(params);
    keep();
    await run();
  }

  async function run() {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    targetRow.hidden = taskOf(state.names[0]) !== "translation";
    if (!text.value.trim()) return;
    status.textContent = "Comparing …";
    try {
      const body = { models: state.names, text: text.value, ...(target.value.trim() && !targetRow.hidden ? { target: target.value } : {}) };
      state.result = await tensors("/api/compare", body, signal);
      fill(problem);
      sort();
      draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(outputs);
      fill(sections);
      showProblem(problem, error);
    }
    status.textContent = "";
  }

  // The attention of both, by layer; and of the layers that both have, the difference on the columns that both have.
  function sort() {
    state.layers = SIDES.map((_, i) => Object.fromEntries(Object.entries(state.result.activations)
      .filter(([name]) => name.startsWith(`${i}/`)).map(([name, one]) => [layerOf(name.slice(2)), withHeads(one)])));
    state.differences = {};
    for (const [layer, a] of Object.entries(state.layers[0])) {
      const b = state.layers[1][layer];
      if (b && a.shape[0] === b.shape[0] && a.rows.length === b.rows.length) state.differences[layer] = subtract(a, b);
    }
  }

  // Additive attention has a single head.
  function withHeads(one) {
    return one.shape.length > 2 ? one : { ...one, shape: [1, ...one.shape] };
  }

  function subtract(a, b) {
    const columns = a.columns.filter((name, j) => j >= a.columns.length - b.columns.length).slice(-Math.min(a.columns.length, b.columns.length));
    const [n_heads, n_rows] = a.shape, n = columns.length, [na, nb] = [a.columns.length, b.columns.length];
    const values = new Float32Array(n_heads * n_rows * n);
    for (let row = 0; row < n_heads * n_rows; row++) {
      for (let j = 0; j < n; j++) values[row * n + j] = b.values[row * nb + nb - n + j] - a.values[row * na + na - n + j];
    }
    return { shape: [n_heads, n_rows, n], rows: a.rows, columns, values };
  }

  function draw() {
    drawOutputs();
    fill(sections, drawClasses(), drawTokens(), drawLayers(), drawAttention());
    drawHead();
  }

  function drawOutputs() {
    const { outputs: both, models } = state.result;
    const words = (one) => (one === null ? "–" : one.translation ?? (one.text !== undefined && one.prompt !== undefined ? null : one.label ?? short(one.value)));
    fill(outputs, both.map((one, i) => h("section", { class: "card output", "aria-label": `Output of ${SIDES[i]}` },
      h("h2", { class: "heading" }, h("span", { class: `swatch colour${i}` }), `${SIDES[i]}: ${models[i]}`),
      h("p", { class: "translation" }, words(one) ?? [h("span", { class: "given" }, one.prompt), h("strong", {}, one.text)]),
      one?.logprob !== undefined && h("p", { class: "hint" }, `Log-probability ${one.logprob.toFixed(2)}.`),
      one?.probability !== undefined && h("p", { class: "hint" }, `Probability ${percent(one.probability)}.`))));
  }

  // A card with one figure of paired bars.
  function pairedBars({ title, hint, name, rows, json, table, at, pick, top }) {
    const readout = h("p", { class: "readout", role: "status" });
    const one = figure({ title, name, json, table, level: "h2" });
    const card = h("section", { class: `card compared-${name}` }, one.element, readout);
    if (hint) one.element.firstChild.after(h("p", { class: "hint" }, hint));
    queueMicrotask(() => one.draw(ranking({ title, rows, top, width: roomOf(one.element, 760), at: (i) => { readout.textContent = at(i); }, pick })));
    return card;
  }

  function drawClasses() {
    const [a, b] = state.result.outputs;
    if (!a?.top) return null;
    const classes = a.top.map(({ label }) => label);
    const of = (one, label) => one.top.find((row) => row.label === label)?.probability ?? 0;
    return pairedBars({ title: "Classes", name: "classes", top: 1,
      rows: classes.map((label) => ({ label, values: [of(a, label), of(b, label)], text: `${percent(of(a, label))} | ${percent(of(b, label))}` })),
      json: () => ({ models: state.result.models, classes: state.result.outputs.map((one) => one.top) }),
      table: () => ({ columns: ["class", ...SIDES], rows: classes.map((label) => [label, short(of(a, label)), short(of(b, label))]) }),
      at: (i) => `${classes[i]}: ${percent(of(a, classes[i]))} and ${percent(of(b, classes[i]))}` });
  }

  function drawTokens() {
    const [a, b] = state.result.tokens;
    if (!a || !b || !a.length) return null;
    const isTranslation = state.result.target !== null;
    return pairedBars({ title: "Token probabilities", name: "tokens", top: 1,
      hint: isTranslation ? `Both read the translation “${state.result.target}”.` : "Each token after the text before it.",
      rows: a.map((row, i) => ({ label: tokenText(row.token), values: [row.probability, b[i].probability],
        text: `${percent(row.probability)} | ${percent(b[i].probability)}` })),
      json: () => ({ models: state.result.models, target: state.result.target, tokens: state.result.tokens }),
      table: () => ({ columns: ["token", "A", "B", "rank in A", "rank in B", "log B − log A"], rows: a.map((row, i) =>
        [tokenText(row.token), short(row.probability), short(b[i].probability), row.rank, b[i].rank, (b[i].logprob - row.logprob).toFixed(3)]) }),
      at: (i) => `${tokenText(a[i].token)}: ${percent(a[i].probability)} (rank ${a[i].rank}) and ${percent(b[i].probability)} (rank ${b[i].rank})` });
  }

  function drawLayers() {
    const rows = state.result.layers;
    if (!rows.length) return h("section", { class: "card" }, h("p", { class: "hint" }, "No layer has the same size in both: their activations cannot be subtracted."));
    const most = rows.reduce((a, b) => (b.difference > a.difference ? b : a));
    return pairedBars({ title: "Layers", name: "layers",
      hint: most.difference === 0 ? "All activations are equal." : `The norm of A − B relative to A. ${partTitle(most.name)} differs most. Choose a layer to see its attention.`,
      rows: rows.map((row) => ({ label: partTitle(row.name), values: [row.difference], text: short(row.difference) })),
      json: () => ({ models: state.result.models, text: text.value, target: state.result.target, layers: rows }),
      table: () => ({ columns: ["layer", "relative difference", "norm in A", "norm in B"],
        rows: rows.map((row) => [row.name, short(row.difference), short(row.norms[0]), short(row.norms[1])]) }),
      at: (i) => `${rows[i].name}: ${short(rows[i].difference)}`,
      pick(i) {
        const block = rows[i].name.replace(/\.\w+$/, ""), kind = rows[i].name.endsWith("cross_out") ? "cross" : "attn";
        const layer = [`${block}.${kind}`, `${block}.attn`].find((name) => name in state.differences);
        if (!layer) return;
        state.layer = layer;
        keep();
        drawHead();
      } });
  }

  const grid = h("div", { class: "gridplace" }), readout = h("p", { class: "readout", role: "status" });
  const figures = ["A", "B", "B − A"].map((title, i) => figure({ title, name: `attention-${["a", "b", "difference"][i]}`,
    json: () => ({ models: state.result.models, which: title, layer: state.layer, head: state.head, ...shown(i) }),
    table: () => { const { weights, rows, columns } = shown(i); return matrixTable(weights.flat(), rows, columns); } }));
  const attention = h("section", { class: "card attention" }, h("h2", { class: "heading" }, "Attention"),
    h("p", { class: "hint" }, "Each small picture is the difference of a head, the strongest of all heads in full colour."),
    grid, h("div", { class: "threefigures" }, figures.map((one) => one.element)), readout);

  function drawAttention() {
    return Object.keys(state.differences).length ? attention : null;
  }

  const part = (i) => (i < 2 ? state.layers[i] : state.differences)[state.layer];

  function shown(i) {
    const { rows, columns } = part(i), values = headOf(part(i), state.head);
    return { rows, columns, weights: rows.map((_, r) => Array.from(values.subarray(r * columns.length, (r + 1) * columns.length))) };
  }

  function drawHead() {
    const names = Object.keys(state.differences);
    if (!names.length) return;
    if (!names.includes(state.layer)) state.layer = names.filter((name) => name.endsWith("cross")).at(-1) ?? names.at(-1);
    state.head = Math.min(state.head, state.differences[state.layer].shape[0] - 1);
    const all = Math.max(...names.map((name) => strongest(state.differences[name].values))) || 1;
    const scaled = Object.fromEntries(names.map((name) => [name, { ...state.differences[name],
      values: state.differences[name].values.map((value) => value / all) }]));
    drawHeads(grid, { layers: scaled, chosen: state, off: new Set(), show(layer, head) { Object.assign(state, { layer, head }); keep(); drawHead(); } });
    readout.textContent = "";
    figures.forEach((one, i) => {
      const { rows, columns } = part(i), values = headOf(part(i), state.head);
      const title = `${["A", "B", "B − A"][i]}: ${layerTitle(state.layer)}, head ${state.head}`;
      one.title(title);
      one.draw(matrix({ values, rows, columns, title, top: i < 2 ? 1 : largest(values), at(r, c) {
        const value = values[r * columns.length + c];
        readout.textContent = `${["A", "B", "B − A"][i]}: ${tokenText(rows[r])} attends to ${tokenText(columns[c])}: ${i < 2 ? percent(value) : short(value)}`;
      } }));
    });
  }

  function strongest(values) {
    let top = 0;
    for (const value of values) top = Math.max(top, Math.abs(value));
    return top;
  }

  begin(context.params);
  return {
    update(params) { if (!isMissing && state.models.length) { read(params); run(); } },
    unmount() { running.abort(); },
  };
}

export default { title: "Compare", mount };
