// Look inside: every activation of a model by name, on a text, an image or a recording; from a layer to a head or feature
// map to a single cell; or a walk, step by step from the token to the next word; with heads switched off.

import { getJson } from "../lib/api.js";
import { WEIGHTS, cellOf } from "../lib/cell.js";
import { choice, fill, h, percent, short, tokenText } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { headOf } from "../lib/heads.js";
import { largest, matrix, matrixTable, numbers } from "../lib/heat.js";
import { modelInput } from "../lib/input.js";
import { mapUrl, tiles } from "../lib/pixels.js";
import { showProblem } from "../lib/problem.js";
import { headSwitches } from "../lib/switches.js";
import { walk } from "../lib/walk.js";

const EXAMPLE = "Where is the train station?";
const BLOCK = /^(.*?blocks\.\d+|.*?\.l\d+(?:_reverse)?|\w+\.\d+|\w+)\./;

function mount(context) {
  const state = { names: {}, name: null, head: 0, cell: null, one: null, image: null, view: "activations" };
  let starting = new AbortController(), running = new AbortController(), isReady = false;

  const problem = h("div", {}), fail = (error) => showProblem(problem, error);
  const switches = headSwitches({ changed: () => show(), show: (_, head) => (state.view === "walk" ? way.choose(head) : choose(head)) });
  const input = modelInput({ context, example: EXAMPLE, fail, off: () => switches.names, changed: () => isReady && show() });
  const filter = h("input", { id: "filter", type: "search", placeholder: "pattern, resid, decoder.*.q", autocomplete: "off",
    spellcheck: "false", oninput: () => list() });
  const listing = h("nav", { class: "names", "aria-label": "Activations", tabindex: "0" });
  const path = h("ol", { class: "path", "aria-label": "Where you are" });
  const facts = h("p", { class: "hint facts" });
  const heads = h("div", { class: "gridplace" });
  const readout = h("p", { class: "readout", role: "status" });
  const picture = figure({ title: "Activation", name: "activation", json: () => shown(), table: () => {
    const { rows, columns, values } = shown();
    return matrixTable(values.flat(), rows ?? values.map((_, i) => String(i)), columns ?? values[0].map((_, j) => String(j)));
  } });
  const maps = figure({ title: "Feature maps", name: "feature-maps", table: () => mapsTable(),
    json: () => ({ model: context.model.name, input: input.name, name: state.name, shape: state.one.shape, values: Array.from(state.one.values) }) });
  const mapReadout = h("p", { class: "readout", role: "status" });
  const views = h("div", { class: "row" }), way = walk({ keep: (values) => context.keep(values), drawn: drawHeadsOfBlock });
  const cell = h("section", { class: "cellpanel", "aria-label": "Cell" });
  const stage = h("div", { class: "stage" }, path, facts, heads, picture.element, readout, cell);
  const inspector = h("div", { class: "card split wide" },
    h("div", { class: "side" }, h("label", { for: "filter", class: "heading" }, "Activations"), filter, listing), stage);
  const place = h("div", {}, inspector);

  fill(context.root,
    h("h1", {}, "Look inside"),
    h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); show(); } }, input.element, views),
    problem, place);

  function read(params) {
    state.view = params.get("view") === "walk" ? "walk" : "activations";
    state.name = params.get("name");
    state.head = Number(params.get("head") ?? 0);
    state.cell = params.has("cell") ? params.get("cell").split(",").map(Number) : null;
    switches.read(params);
  }

  function keep() {
    context.keep({ ...input.keep(), view: state.view === "walk" ? "walk" : null, name: state.name, head: state.head || null,
      cell: state.cell?.join(","), ...switches.keep() });
  }

  async function begin(params) {
    running.abort();
    starting.abort();
    starting = new AbortController();
    isReady = false; // a file that comes early waits for the names
    place.hidden = true;
    fill(problem);
    try {
      const { activations: names } = await getJson(`/api/lens/list?model=${encodeURIComponent(context.model?.name)}`, starting.signal);
      state.names = Object.fromEntries(Object.entries(names).filter(([, shape]) => shape));
      if (!(state.name in state.names)) state.name = firstName(Object.keys(state.names));
      list();
      drawViews();
      isReady = true;
      await input.begin(params);
      reveal();
    } catch (error) {
      fail(error);
    }
  }

  // Cross-attention, else attention, a recurrent state, feature maps, or the first there is.
  function firstName(all) {
    const patterns = all.filter((name) => name.endsWith(".pattern"));
    return patterns.filter((name) => name.includes("cross")).at(-1) ?? patterns.at(-1) ?? all.find((name) => name.endsWith(".h")) ??
      all.find((name) => state.names[name].length === 4) ?? all[0];
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
    const sizes = Map.groupBy(Object.keys(state.names), (name) => name.match(BLOCK)?.[1]);
    const groups = Map.groupBy(matching, (name) => {
      const group = name.match(BLOCK)?.[1];
      return group && sizes.get(group).length > 1 ? group : "other";
    });
    fill(listing, [...groups].map(([group, names]) =>
      h("details", { open: Boolean(words) || names.includes(state.name) }, h("summary", {}, group),
        h("ul", {}, names.map((name) => h("li", {}, h("button", { type: "button", "data-name": name,
          "aria-current": name === state.name ? "true" : null,
          onclick: () => { Object.assign(state, { name, cell: null }); list(); show(); } },
        h("span", {}, group === "other" ? name : name.slice(group.length + 1)),
        h("small", {}, state.names[name].slice(1).join(" × ")))))))),
    !matching.length && h("p", { class: "hint" }, "No activation has such a name."));
  }

  // Scroll the list, never the page, to the name that is shown.
  function reveal() {
    const current = listing.querySelector("[aria-current]")?.getBoundingClientRect(), frame = listing.getBoundingClientRect();
    if (current && (current.top < frame.top || current.bottom > frame.bottom)) listing.scrollTop += current.top - frame.top - frame.height / 3;
  }

  async function show() {
    running.abort();
    running = new AbortController();
    keep();
    fill(problem);
    const part = state.view === "walk" ? way.element : inspector;
    if (!part.contains(switches.element)) {
      fill(place, part);
      switches.draw({ layers: {} }); // until the heads of the other view are known
      if (state.view === "walk") way.heads.append(switches.element);
      else heads.before(switches.element);
    }
    place.hidden = !input.isReady;
    if (!input.isReady) return;
    if (state.view === "walk") {
      const { params } = context;
      way.show({ ask: (options, signal) => input.view("walk", options, signal), layers: blocks(), layer: params.get("block"),
        head: Number(params.get("part") ?? 0), step: Number(params.get("step") ?? 0),
        zoom: params.get("zoom")?.split(",").map(Number) ?? null });
      return;
    }
    let names = [state.name];
    if (WEIGHTS.test(state.name)) {
      const layer = state.name.replace(WEIGHTS, "");
      names = [...new Set([state.name, ...["q", "k", "scores", "pattern"].map((leaf) => `${layer}.${leaf}`)])].filter((name) => name in state.names);
    }
    try {
      const values = await input.activations(names, running.signal);
      Object.assign(state, { all: values.activations, one: values.activations[state.name], image: values.image ?? null });
      if (state.one.shape.length > 2) state.head = Math.min(state.head, state.one.shape[0] - 1);
      const { shape: [n_rows, n_columns] } = matrixShown();
      if (state.cell && !(state.cell[0] < n_rows && state.cell[1] < n_columns)) state.cell = null; // of another input
      draw();
    } catch (error) {
      place.hidden = error.name !== "AbortError" && state.one === null;
      fail(error);
    }
  }

  // The matrix on the screen: (rows × columns) of the chosen head or feature map, or of the whole activation.
  function matrixShown() {
    const { shape, values, rows, columns } = state.one;
    if (shape.length > 2) return { values: headOf(state.one, state.head), shape: shape.slice(-2), rows, columns };
    return { values, shape: shape.length === 2 ? shape : [1, values.length], rows, columns };
  }

  function shown() {
    const { values, shape: [n_rows, n_columns], rows, columns } = matrixShown();
    const table = Array.from({ length: n_rows }, (_, i) => Array.from(values.subarray(i * n_columns, (i + 1) * n_columns)));
    return { model: context.model.name, [input.kind]: input.name, name: state.name, head: hasHeads() ? state.head : null, off: switches.names,
      channel: isMap() ? state.head : null, rows, columns, values: table };
  }

  function isMap() { return input.kind === "image" && state.one.shape.length === 3 && state.name.endsWith("out"); }
  function hasHeads() { return state.one.shape.length > 2 && !isMap(); }
  function partTitle() {
    return isMap() ? `channel ${state.head}` : `head ${state.head}${switches.isOff(layerShown(), state.head) ? " (off)" : ""}`;
  }
  function layerShown() { return state.name.replace(/\.\w+$/, ""); } // decoder.blocks.1.cross.q -> decoder.blocks.1.cross

  function draw() {
    const { values, shape: [n_rows, n_columns], rows, columns } = matrixShown();
    const isPattern = state.name.endsWith(".pattern");
    if (isMap()) drawMaps();
    else fill(heads);
    if (hasHeads()) drawAllHeads();
    else switches.draw({ layers: {} });
    describe(values);
    const title = state.one.shape.length > 2 ? `${state.name}, ${partTitle()}` : state.name;
    picture.title(title);
    readout.textContent = "";
    picture.draw(matrix({ values, rows: rows ?? (isMap() ? numbers(n_rows) : null), columns: columns ?? numbers(n_columns), n_rows,
      title, top: strongest(values), isSquare: isMap(),
      chosen: state.cell,
      at(i, j) {
        const value = values[i * n_columns + j], from = rows ? tokenText(rows[i]) : isMap() ? `row ${i}` : i;
        readout.textContent = `${from} → ${columns ? tokenText(columns[j]) : isMap() ? `column ${j}` : `feature ${j}`}: ` +
          (isPattern ? percent(value) : short(value));
      },
      pick(i, j) { state.cell = [i, j]; keep(); drawPath(); drawCell(); } }));
    drawPath();
    drawCell();
  }

  function choose(head) {
    state.head = head;
    keep();
    draw();
  }

  // The value of the strongest colour: 100 % for weights, unless all of them are small, as over many patches.
  function strongest(values) {
    const top = largest(values);
    return state.name.endsWith(".pattern") && top > 0.3 ? 1 : top;
  }

  function drawAllHeads() {
    const top = strongest(state.one.values), one = { ...state.one, values: state.one.values.map((value) => value / top) };
    const layer = layerShown(), n_heads = state.names[`${layer}.z`]?.[1]; // keys and values may have fewer
    switches.draw({ layers: { [layer]: one }, chosen: { layer, head: state.head }, canFlip: one.shape[0] === n_heads });
  }

  // The patterns of the layers that the walk goes through.
  async function drawHeadsOfBlock(block, head, signal) {
    const layers = ["attn", "cross"].map((leaf) => `${block}.${leaf}`).filter((layer) => `${layer}.pattern` in state.names);
    const { activations: maps } = await input.activations(layers.map((layer) => `${layer}.pattern`), signal);
    switches.draw({ layers: Object.fromEntries(layers.map((layer) => [layer, maps[`${layer}.pattern`]])), chosen: { layer: layers, head } });
  }

  function rowsOf(channel) {
    const [n_rows, n_columns] = state.one.shape.slice(-2), values = headOf(state.one, channel);
    return Array.from({ length: n_rows }, (_, i) => values.subarray(i * n_columns, (i + 1) * n_columns));
  }

  function drawMaps() {
    const [n_channels, n_rows, n_columns] = state.one.shape, title = `${n_channels} feature maps (${n_rows} × ${n_columns})`;
    maps.title(title);
    mapReadout.textContent = "";
    if (!heads.contains(maps.element)) fill(heads, maps.element, mapReadout);
    else if (state.drawn === state.one) return; // another map of the same layer
    state.drawn = state.one;
    const items = Array.from({ length: n_channels }, (_, i) => ({ url: mapUrl(rowsOf(i)), caption: String(i), name: `Channel ${i}` }));
    maps.draw(tiles({ items, title, width: Math.max(240, stage.clientWidth - 4), size: 44, captions: n_channels <= 128, chosen: state.head,
      at: (name) => { mapReadout.textContent = name; }, pick: choose }));
  }

  function mapsTable() {
    return { columns: ["channel", "lowest", "highest", "mean"], rows: Array.from({ length: state.one.shape[0] }, (_, i) => {
      const values = headOf(state.one, i);
      return [String(i), short(Math.min(...values)), short(Math.max(...values)), short(values.reduce((a, b) => a + b) / values.length)];
    }) };
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
    const steps = [[state.name, () => { state.cell = null; keep(); draw(); }]];
    if (state.one.shape.length > 2) steps.push([partTitle(), steps[0][1]]);
    if (state.cell) {
      const { rows, columns } = matrixShown(), [i, j] = state.cell;
      steps.push([`${rows ? tokenText(rows[i]) : i} → ${columns ? tokenText(columns[j]) : j}`, null]);
    }
    fill(path, steps.map(([title, go], i) => h("li", {}, go && i < steps.length - 1
      ? h("button", { type: "button", class: "link", onclick: go }, title) : h("span", { "aria-current": "true" }, title))));
  }

  function drawCell() {
    if (!state.cell) return fill(cell);
    return fill(cell, cellOf({ ...state, part: matrixShown(), isMap: isMap() }));
  }

  read(context.params);
  begin(context.params);
  return {
    update(params) { read(params); begin(params); },
    unmount() { starting.abort(); running.abort(); way.stop(); input.end(); },
  };
}

export default { title: "Look inside", verb: null, kept: ["text", "pair"], mount };
