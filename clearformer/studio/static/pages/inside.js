// Look inside: every activation of a model by name, on a text; from a layer to a head to a single cell; or a walk, step by
// step from the token to the next word.

import { activations, getJson } from "../lib/api.js";
import { choice, fill, h, pausing, percent, s, short, tokenText } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { drawHeads, headOf, layerOf } from "../lib/heads.js";
import { largest, matrix, matrixTable } from "../lib/heat.js";
import { showProblem } from "../lib/problem.js";
import { walk } from "../lib/walk.js";

const EXAMPLE = "Where is the train station?";
const WEIGHTS = /\.(pattern|scores)$/;

function mount(context) {
  const state = { names: {}, name: null, head: 0, cell: null, one: null, view: "activations" };
  let running = new AbortController();

  const text = h("input", { id: "text", type: "text", maxlength: 5000, autocomplete: "off", spellcheck: "false",
    oninput: pausing(450, () => { state.cell = null; show(); }) });
  const filter = h("input", { id: "filter", type: "search", placeholder: "pattern, resid, decoder.*.q", autocomplete: "off",
    spellcheck: "false", oninput: () => list() });
  const listing = h("nav", { class: "names", "aria-label": "Activations", tabindex: "0" });
  const path = h("ol", { class: "path", "aria-label": "Where you are" });
  const problem = h("div", {});
  const facts = h("p", { class: "hint facts" });
  const heads = h("div", { class: "gridplace" });
  const readout = h("p", { class: "readout", role: "status" });
  const picture = figure({ title: "Activation", name: "activation", json: () => shown(), table: () => {
    const { rows, columns, values } = shown();
    return matrixTable(values.flat(), rows ?? values.map((_, i) => String(i)), columns ?? values[0].map((_, j) => String(j)));
  } });
  const views = h("div", { class: "row" }), way = walk({ keep: (values) => context.keep(values) });
  const cell = h("section", { class: "cellpanel", "aria-label": "Cell" });
  const stage = h("div", { class: "stage" }, path, facts, heads, picture.element, readout, cell);
  const inspector = h("div", { class: "card split wide" },
    h("div", { class: "side" }, h("label", { for: "filter", class: "heading" }, "Activations"), filter, listing), stage);
  const place = h("div", {}, inspector);

  fill(context.root,
    h("h1", {}, "Look inside"),
    h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); show(); } },
      h("label", { for: "text", class: "heading" }, "Text"), text, views),
    problem, place);

  function read(params) {
    text.value = params.get("text") ?? EXAMPLE;
    state.view = params.get("view") === "walk" ? "walk" : "activations";
    state.name = params.get("name");
    state.head = Number(params.get("head") ?? 0);
    state.cell = params.has("cell") ? params.get("cell").split(",").map(Number) : null;
  }

  function keep() {
    context.keep({ text: text.value === EXAMPLE ? null : text.value, view: state.view === "walk" ? "walk" : null, name: state.name, head: state.head || null,
      cell: state.cell?.join(",") });
  }

  async function begin() {
    try {
      const model = context.model?.name;
      const { activations: names } = await getJson(`/api/lens/list?model=${encodeURIComponent(model)}`);
      state.names = Object.fromEntries(Object.entries(names).filter(([, shape]) => shape));
      const all = Object.keys(state.names), patterns = all.filter((name) => name.endsWith(".pattern"));
      if (!all.includes(state.name)) {
        state.name = patterns.filter((name) => name.includes("cross")).at(-1) ?? patterns.at(-1) ?? all[0];
      }
      list();
      drawViews();
      await show();
    } catch (error) {
      showProblem(problem, error);
    }
  }

  // The Transformer blocks of the model, each with its number of heads.
  function blocks() {
    const found = Object.entries(state.names).map(([name, shape]) => [name.match(/^(.*blocks\.\d+)\.attn\.pattern$/)?.[1], shape]);
    return Object.fromEntries(found.filter(([block]) => block).map(([block, shape]) => [block, shape[1]]));
  }

  function drawViews() {
    if (!Object.keys(blocks()).length) {
      state.view = "activations";
      fill(views);
      return;
    }
    fill(views, choice("View", { activations: "By name", walk: "Step by step" }, state.view, (view) => {
      state.view = view;
      show();
    }));
  }

  // The names that match the filter, in groups: a text, or a pattern with asterisks.
  function list() {
    const words = filter.value.trim();
    const escaped = words.replaceAll(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*");
    const matching = Object.keys(state.names).filter((name) => new RegExp(escaped, "i").test(name));
    const groups = Map.groupBy(matching, (name) => name.match(/^(.*?blocks\.\d+)\./)?.[1] ?? "other");
    fill(listing, [...groups].map(([group, names]) =>
      h("details", { open: Boolean(words) || names.includes(state.name) }, h("summary", {}, group),
        h("ul", {}, names.map((name) => h("li", {}, h("button", { type: "button", "data-name": name,
          "aria-current": name === state.name ? "true" : null,
          onclick: () => { Object.assign(state, { name, cell: null }); list(); show(); } },
        h("span", {}, group === "other" ? name : name.slice(group.length + 1)),
        h("small", {}, state.names[name].slice(1).join(" × ")))))))),
    !matching.length && h("p", { class: "hint" }, "No activation has such a name."));
  }

  async function show() {
    running.abort();
    running = new AbortController();
    keep();
    fill(problem);
    const part = state.view === "walk" ? way.element : inspector;
    if (place.firstChild !== part) fill(place, part);
    if (!text.value.trim()) return;
    if (state.view === "walk") {
      const { params } = context;
      way.show({ body: { text: text.value, model: context.model?.name }, layers: blocks(), layer: params.get("block"),
        head: Number(params.get("part") ?? 0), step: Number(params.get("step") ?? 0) });
      return;
    }
    const body = { text: text.value, model: context.model?.name, names: [state.name] };
    if (WEIGHTS.test(state.name)) {
      const layer = state.name.replace(WEIGHTS, "");
      body.names = [`${layer}.q`, `${layer}.k`, `${layer}.scores`, `${layer}.pattern`].filter((name) => name in state.names);
    }
    try {
      const values = await activations(body, running.signal);
      state.all = values.activations;
      state.one = values.activations[state.name];
      if (state.one.shape.length > 2) state.head = Math.min(state.head, state.one.shape[0] - 1);
      draw();
    } catch (error) {
      showProblem(problem, error);
    }
  }

  // The matrix on the screen: (rows × columns) of the chosen head, or of the whole activation.
  function part() {
    const { shape, values, rows, columns } = state.one;
    if (shape.length > 2) return { values: headOf(state.one, state.head), shape: shape.slice(-2), rows, columns };
    return { values, shape: shape.length === 2 ? shape : [1, values.length], rows, columns };
  }

  function shown() {
    const { values, shape: [n_rows, n_columns], rows, columns } = part();
    const table = Array.from({ length: n_rows }, (_, i) => Array.from(values.subarray(i * n_columns, (i + 1) * n_columns)));
    return { model: context.model.name, text: text.value, name: state.name, head: hasHeads() ? state.head : null,
      rows, columns, values: table };
  }

  function hasHeads() { return state.one.shape.length > 2; }

  function draw() {
    const { values, shape: [n_rows, n_columns], rows, columns } = part();
    const isPattern = state.name.endsWith(".pattern");
    if (!hasHeads()) fill(heads);
    else {
      const top = isPattern ? 1 : largest(state.one.values);
      const one = isPattern ? state.one : { ...state.one, values: state.one.values.map((value) => value / top) };
      drawHeads(heads, { layers: { [layerOf(state.name)]: one }, off: new Set(),
        chosen: { layer: layerOf(state.name), head: state.head },
        show(_, head) { state.head = head; keep(); draw(); } });
    }
    describe(values);
    const title = hasHeads() ? `${state.name}, head ${state.head}` : state.name;
    picture.title(title);
    readout.textContent = "";
    picture.draw(matrix({ values, rows, columns, n_rows, n_columns, title, top: isPattern ? 1 : largest(values),
      chosen: state.cell && state.cell[0] < n_rows && state.cell[1] < n_columns ? state.cell : null,
      at(i, j) {
        const value = values[i * n_columns + j];
        readout.textContent = `${rows ? tokenText(rows[i]) : i} → ${columns ? tokenText(columns[j]) : `feature ${j}`}: ` +
          (isPattern ? percent(value) : short(value));
      },
      pick(i, j) { state.cell = [i, j]; keep(); drawPath(); drawCell(); } }));
    drawPath();
    drawCell();
  }

  function describe(values) {
    let sum = 0, square = 0, low = Infinity, high = -Infinity, n = 0;
    for (const value of values) {
      if (!Number.isFinite(value)) continue; // scores that a mask removes
      sum += value; square += value * value; n++;
      low = Math.min(low, value); high = Math.max(high, value);
    }
    const mean = sum / n, deviation = Math.sqrt(Math.max(square / n - mean * mean, 0));
    facts.textContent = `Shape ${state.one.shape.join(" × ")}. From ${short(low)} to ${short(high)}, ` +
      `mean ${short(mean)}, standard deviation ${short(deviation)}.`;
  }

  function drawPath() {
    const steps = [[state.name, () => { state.cell = null; keep(); drawPath(); drawCell(); }]];
    if (hasHeads()) steps.push([`head ${state.head}`, steps[0][1]]);
    if (state.cell) {
      const { rows, columns } = part(), [i, j] = state.cell;
      steps.push([`${rows ? tokenText(rows[i]) : i} → ${columns ? tokenText(columns[j]) : j}`, null]);
    }
    fill(path, steps.map(([title, go], i) => h("li", {}, go && i < steps.length - 1
      ? h("button", { type: "button", class: "link", onclick: go }, title) : h("span", { "aria-current": "true" }, title))));
  }

  // How one weight comes about: query and key, their product, the softmax of the row.
  function drawCell() {
    const layer = state.name.replace(WEIGHTS, ""), { [`${layer}.q`]: q, [`${layer}.k`]: k } = state.all;
    const { [`${layer}.scores`]: scores, [`${layer}.pattern`]: pattern } = state.all;
    if (!state.cell || !WEIGHTS.test(state.name) || !q || !k) return fill(cell);
    const [i, j] = state.cell, width = q.shape.at(-1), head = state.head;
    const keyHead = Math.floor((head * k.shape[0]) / q.shape[0]); // several heads may use one key head
    const query = headOf(q, head).subarray(i * width, (i + 1) * width);
    const key = headOf(k, keyHead).subarray(j * width, (j + 1) * width);
    const products = query.map((value, n) => (value * key[n]) / Math.sqrt(width));
    const dot = products.reduce((a, b) => a + b, 0), n_columns = scores.shape.at(-1);
    const score = headOf(scores, head)[i * n_columns + j], weight = headOf(pattern, head)[i * n_columns + j];
    const bias = score - dot, hasBias = Number.isFinite(score) && Math.abs(bias) > 1e-3 * (1 + Math.abs(score));
    const from = tokenText(pattern.rows[i]), to = tokenText(pattern.columns[j]);
    fill(cell, h("h3", {}, `${from} → ${to}`),
      h("dl", {}, [["q · k / √" + width, short(dot)], hasBias && ["position bias", short(bias)], ["score", short(score)],
        ["weight, the softmax over the row", percent(weight)]].filter(Boolean)
        .map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value)))),
      vector("query", `of ${from}`, query), vector("key", `of ${to}`, key),
      vector("q × k / √" + width, "feature by feature; the sum is q · k / √" + width, products));
  }

  function vector(name, note, values) {
    const top = largest(values), bar = Math.max(4, Math.min(12, 600 / values.length));
    const svg = s("svg", { viewBox: `0 0 ${bar * values.length} 44`, width: bar * values.length, height: 44, role: "img",
      "aria-label": `${name} ${note}, ${values.length} features from ${short(Math.min(...values))} to ${short(Math.max(...values))}` },
    s("line", { class: "axis", x1: 0, x2: bar * values.length, y1: 22, y2: 22 }),
    Array.from(values, (value, n) => s("rect", { class: value < 0 ? "heat cold" : "heat", x: n * bar + 0.5, width: bar - 1,
      y: value < 0 ? 22 : 22 - (21 * value) / top, height: Math.abs((21 * value) / top) })));
    return h("div", { class: "vector" }, h("span", { class: "hint" }, h("strong", {}, name), ` ${note}`),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": name }, svg));
  }

  read(context.params);
  begin();
  return {
    update(params) { read(params); begin(); },
    unmount() { running.abort(); way.stop(); },
  };
}

export default { title: "Look inside", verb: null, mount };

