// Positions: how a model knows where a token stands. The encoding as a picture, similarities, how well a rotation
// explains a shift, and biases or rotary similarity by distance.

import { postJson, tensors } from "../lib/api.js";
import { choice, fill, h, pausing, short } from "../lib/dom.js";
import { curves } from "../lib/curves.js";
import { figure } from "../lib/figure.js";
import { largest, matrix, matrixTable, numbers } from "../lib/heat.js";
import { showProblem } from "../lib/problem.js";
import { slider } from "../lib/slider.js";

const KINDS = {
  sinusoidal: "sinusoids, added to the embeddings", learned: "learned vectors, added to the embeddings",
  rotary: "rotary: queries and keys are rotated", alibi: "ALiBi: a bias that falls with distance", t5: "T5: a learned bias by distance",
};
const MOST_SHIFT = 64, FEATURES = 256;
const nested = (rows) => Float32Array.from(rows.flat());

function mount(context) {
  const state = { encodings: [], activations: {}, name: null, k: 1 };
  let running = new AbortController(), shifting = new AbortController();
  const problem = h("div", {}), names = h("div", {}), facts = h("p", { class: "hint facts" });
  const place = h("div", { class: "positionfigures" });
  fill(context.root, h("h1", {}, "Positions"), problem,
    h("section", { class: "card" }, h("h2", { class: "heading" }, "Encoding"), h("div", { class: "row first" }, names), facts, place));

  function read(params) {
    state.name = params.get("name");
    state.k = Math.max(1, Math.trunc(Number(params.get("k") ?? 1)) || 1);
  }

  function keep() {
    context.keep({ name: state.name === state.encodings[0]?.name ? null : state.name, k: state.k === 1 ? null : state.k });
  }

  async function begin() {
    running.abort();
    running = new AbortController();
    fill(problem);
    fill(place);
    facts.textContent = "";
    fill(names);
    const { signal } = running;
    try {
      const { encodings, activations } = await tensors("/api/positions", { model: context.model?.name }, signal);
      Object.assign(state, { encodings, activations });
      if (!encodings.some(({ name }) => name === state.name)) state.name = encodings[0].name;
      fill(names, encodings.length > 1 && choice("Encoding", Object.fromEntries(encodings.map(({ name }) => [name, name])), state.name,
        (value) => { state.name = value; keep(); show(); }));
      show();
    } catch (error) {
      showProblem(problem, error);
    }
  }

  function show() {
    const one = state.encodings.find(({ name }) => name === state.name);
    keep();
    facts.textContent = `${one.name}: ${KINDS[one.kind]}${one.n_positions ? `, ${one.n_positions.toLocaleString("en")} positions` : ""}.`;
    fill(place, picture(one), norms(one), distance(one), shift(one), similarity(one), bias(one));
  }

  // A figure with a readout below it.
  function panel(title, name, values, table, draw) {
    const readout = h("p", { class: "readout", role: "status" });
    const one = figure({ title, name, table, json: () => ({ model: context.model.name, encoding: state.name, ...values() }) });
    one.draw(draw((text) => { readout.textContent = text; }));
    return h("div", { class: `panel ${name}` }, one.element, readout);
  }

  // Positions are rows, features columns. Of wide vectors, the first features are drawn.
  function picture(one) {
    const table = state.activations[one.name];
    if (!table) return null;
    const [n_rows, width] = table.shape, n_columns = Math.min(width, FEATURES);
    const values = Float32Array.from({ length: n_rows * n_columns }, (_, i) => table.values[Math.floor(i / n_columns) * width + (i % n_columns)]);
    const title = one.kind === "rotary" ? "Cosines and sines of the angles" : "Vectors of the positions";
    const rows = () => Array.from({ length: n_rows }, (_, i) => Array.from(values.subarray(i * n_columns, (i + 1) * n_columns)));
    return panel(`${title}, ${n_rows} × ${n_columns}`, "encoding", () => ({ values: rows() }),
      () => matrixTable(values, numbers(n_rows), numbers(n_columns)),
      (say) => matrix({ values, rows: numbers(n_rows), columns: numbers(n_columns), title: `${title}: rows are positions, columns features`, top: largest(values),
        at: (i, j) => say(`position ${i}, feature ${j}: ${short(values[i * n_columns + j])}`) }));
  }

  function similarity(one) {
    if (!one.similarity) return null;
    const values = nested(one.similarity), labels = numbers(one.similarity.length);
    return panel("Similarity of positions", "similarity", () => ({ similarity: one.similarity }), () => matrixTable(values, labels, labels),
      (say) => matrix({ values, rows: labels, columns: labels, title: "Similarity: rows and columns are positions", top: largest(values),
        at: (i, j) => say(`positions ${i} and ${j}: cosine ${short(values[i * labels.length + j])}`) }));
  }

  function line(title, name, word, points, label, include) {
    return panel(title, name, () => ({ [name]: points }), () => ({ columns: [word, label], rows: points.map(([x, y]) => [String(x), short(y)]) }),
      (say) => curves({ title, word, at: say, include, series: [{ label, colour: 0, points }] }));
  }

  function norms(one) {
    return one.norms ? line("Norm of each position", "norms", "position", one.norms.map((value, i) => [i, value]), "norm", [0]) : null;
  }

  function distance(one) {
    return one.by_distance ? line("Similarity by distance: a vector rotated by p and by p + distance", "by_distance", "distance",
      one.by_distance.map((value, i) => [i, value]), "similarity", [0, 1]) : null;
  }

  function bias(one) {
    if (!one.bias) return null;
    const n_heads = one.bias.length, values = nested(one.bias);
    const heads = numbers(n_heads).map((i) => `head ${i}`), labels = one.distance.map(String);
    const series = one.bias.map((row, i) => ({ label: `head ${i}`, colour: i % 8, dashed: i >= 8, points: row.map((value, j) => [one.distance[j], value]) }));
    return h("div", { class: "panel whole" },
      panel("Bias by distance: negative distances are the past", "bias", () => ({ distance: one.distance, bias: one.bias }),
        () => matrixTable(values, heads, labels), (say) => curves({ title: "Bias by distance", word: "distance", at: say, series })),
      h("ul", { class: "legend" }, series.map(({ label, colour }) => h("li", {}, h("span", { class: `swatch colour${colour}` }), label))),
      panel("Bias of each head", "bias-heads", () => ({ distance: one.distance, bias: one.bias }), () => matrixTable(values, heads, labels),
        (say) => matrix({ values, rows: heads, columns: labels, top: largest(values),
          title: "Bias: rows are heads, columns distances", at: (i, j) => say(`${heads[i]}, distance ${labels[j]}: ${short(values[i * labels.length + j])}`) })));
  }

  // PE(p + k) = T_k PE(p): the rotation for the k of the slider, and its error beside the errors of other shifts.
  function shift(one) {
    if (!one.shifts || !Object.keys(one.shifts).length) return null;
    const most = Math.min(Math.floor((one.n_positions - 2) / 2), MOST_SHIFT);
    state.k = Math.min(state.k, most);
    const told = h("p", { class: "shifttext", role: "status" });
    const errorReadout = h("p", { class: "readout", role: "status" }), readout = h("p", { class: "readout", role: "status" });
    let errors = Object.fromEntries(Object.entries(one.shifts).map(([k, { error }]) => [k, error]));
    const others = errors;
    let values = null;
    const control = slider({ id: "shift", label: "Shift k", min: 1, max: most, step: 1,
      change: (value) => { state.k = value; keep(); later(); } });
    control.set(state.k, most);
    const rotation = figure({ title: "T_k", name: "rotation", json: () => ({ model: context.model.name, ...values }),
      table: () => matrixTable(values.matrix.flat(), values.features.map(String), values.features.map(String)) });
    const known = figure({ title: "Error by shift", name: "errors", json: () => ({ model: context.model.name, encoding: one.name, errors }),
      table: () => ({ columns: ["k", "error"], rows: Object.entries(errors).map(([k, error]) => [k, short(error)]) }) });

    async function ask() {
      shifting.abort();
      shifting = new AbortController();
      try {
        values = await postJson("/api/positions/shift", { model: context.model?.name, name: one.name, k: state.k }, shifting.signal);
        errors = { ...others, [values.k]: values.error };
        draw();
      } catch (error) {
        showProblem(problem, error);
      }
    }
    const later = pausing(80, ask);

    function draw() {
      const { k, error, is_exact: isExact, features, matrix: rows } = values, n = features.length, flat = nested(rows);
      const name = isExact ? `T_${k}` : `R_${k}`;
      told.textContent = isExact
        ? `${name} is known: it rotates each pair of sine and cosine. Its error is ${short(error)}, which is rounding.`
        : `${name} is the best rotation for even positions. At odd positions its error is ${short(error)}: 0 would be a rotation, 1 is no better than zero.`;
      rotation.title(`${name}, first ${n} features`);
      rotation.draw(matrix({ values: flat, n_rows: n, n_columns: n, rows: features.map(String), columns: features.map(String),
        title: `${name}: a rotation by ${k}`, top: 1, at: (i, j) => { readout.textContent = `row ${features[i]}, column ${features[j]}: ${short(flat[i * n + j])}`; } }));
      const points = Object.entries(errors).map(([shifted, value]) => [Number(shifted), value]).sort((a, b) => a[0] - b[0]);
      known.draw(curves({ title: "Error by shift", word: "shift", include: [0, 1], at: (text) => { errorReadout.textContent = text; },
        series: [{ label: "error", colour: 0, points }, { label: `at ${k}`, colour: 1, points: [[k, error]] }] }));
    }

    ask();
    return h("div", { class: "panel shift" }, h("h3", {}, "A shift by k positions"), control.element, told,
      h("div", { class: "shiftfigures" }, h("div", {}, rotation.element, readout), h("div", {}, known.element, errorReadout)));
  }

  read(context.params);
  begin();
  return {
    update(params) { read(params); begin(); },
    unmount() { running.abort(); shifting.abort(); },
  };
}

export default { title: "Positions", verb: null, mount, kept: ["k"] };
