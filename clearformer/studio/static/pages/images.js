// Images: what a network sees in an image. Evidence for a class, attention, feature maps, filters, reconstruction.

import { getJson, postFile } from "../lib/api.js";
import { bars } from "../lib/bars.js";
import { choice, fill, h, short } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { filePicker } from "../lib/files.js";
import { missing } from "../lib/missing.js";
import { heatmap, imageUrl, mapTable, mapUrl, tiles } from "../lib/pixels.js";
import { showProblem } from "../lib/problem.js";

const TASKS = ["image-classification", "reconstruction"];
const MOST = 10; // classes

function mount(context) {
  if (!context.model) {
    return missing(context, "No model here reads images yet. Train one on a folder with one subfolder per class, then start the studio with it:",
      "clearformer train --images photos/ --out runs/photos", "clearformer studio --runs runs/");
  }
  const state = { looks: [], view: null, label: null, at: null, layer: null, channel: null, top: [], heat: null, features: null, filters: null,
    reconstruction: null };
  let starting = new AbortController(), running = new AbortController(), file = null, isReady = false;

  const problem = h("div", {}), status = h("p", { class: "hint", role: "status" });
  const picker = filePicker({ kind: "image", context, noun: "an image", formats: "PNG, JPEG, WebP, GIF, BMP or TIFF", thumbs: true,
    accept: "image/*", take: (one) => { file = one; if (isReady) run(); }, fail: (error) => showProblem(problem, error) });
  const input = h("section", { class: "card", "aria-label": "Image" }, h("h2", { class: "heading" }, "Image"), picker.element, status);

  const chart = figure({ title: "Classes", name: "classes", json: () => ({ model: context.model.name, classes: state.top }),
    table: () => ({ columns: ["class", "probability"], rows: state.top.map(({ label, probability }) => [label, probability.toFixed(4)]) }) });
  const classes = h("section", { class: "card", "aria-label": "Classes", hidden: true },
    chart.element, h("p", { class: "hint" }, "A click on a class shows what speaks for it below."));

  const views = h("div", {}), heatLayer = select("layer", "Layer", (value) => { state.at = value; keep(); attempt(heat); });
  const heatReadout = h("p", { class: "readout", role: "status" }), heatHint = h("p", { class: "hint" });
  const heatFigure = figure({ title: "Evidence", name: "evidence", json: () => state.heat, table: () => mapTable(state.heat.heat[0]) });
  const heatCard = h("section", { class: "card", "aria-label": "Where the model looks", hidden: true }, h("h2", { class: "heading" }, "Where the model looks"),
    h("div", { class: "row above" }, views, heatLayer.element), heatFigure.element, heatReadout, heatHint);

  const mapLayer = select("maps", "Layer", (value) => { Object.assign(state, { layer: value, channel: null }); keep(); attempt(features); });
  const mapReadout = h("p", { class: "readout", role: "status" });
  const mapFigure = figure({ title: "Feature maps", name: "features", json: () => state.features,
    table: () => ({ columns: ["channel", "lowest", "highest", "mean"], rows: state.features.channels.map((channel, i) => {
      const values = state.features.tiles[i + 1].flat();
      return [String(channel), short(Math.min(...values)), short(Math.max(...values)), short(values.reduce((a, b) => a + b) / values.length)];
    }) }) });
  const oneReadout = h("p", { class: "readout", role: "status" });
  const oneFigure = figure({ title: "Channel", name: "channel", json: () => ({ layer: state.features.layer, channel: state.channel, values: oneMap() }),
    table: () => mapTable(oneMap()) });
  const mapCard = h("section", { class: "card features", "aria-label": "Feature maps", hidden: true }, h("h2", { class: "heading" }, "Feature maps"),
    h("p", { class: "hint" }, "What each channel of a layer responds to, from dark to bright. A click enlarges a map."),
    h("div", { class: "row above" }, mapLayer.element),
    h("div", { class: "maps" }, h("div", {}, mapFigure.element, mapReadout), h("div", {}, oneFigure.element, oneReadout)));

  const filterReadout = h("p", { class: "readout", role: "status" });
  const filterFigure = figure({ title: "Filters", name: "filters", json: () => state.filters, table: () => ({
    columns: ["filter", "pixels from 0 to 255"], rows: state.filters.tiles.map((tile, i) => [String(i), tile.flat(2).join(" ")]) }) });
  const filterCard = h("section", { class: "card", "aria-label": "Filters", hidden: true }, h("h2", { class: "heading" }, "Filters of the first layer"),
    h("p", { class: "hint" }, "A filter responds most to what looks like it."), filterFigure.element, filterReadout);

  const againReadout = h("p", { class: "readout", role: "status" });
  const againFigure = figure({ title: "Reconstruction", name: "reconstruction", json: () => state.reconstruction, table: () => ({
    columns: ["", "value"], rows: [["mean squared error, normalised pixels", short(state.reconstruction.error)],
      ["largest difference, of 255", short(Math.max(...difference().flat()))]] }) });
  const againCard = h("section", { class: "card", "aria-label": "Reconstruction", hidden: true }, h("h2", { class: "heading" }, "Reconstruction"),
    againFigure.element, againReadout);

  fill(context.root, h("h1", {}, "Images"), problem, h("div", { class: "pair" }, input, classes), againCard, heatCard, mapCard, filterCard);

  function select(id, label, choose) {
    const element = h("select", { id, onchange: () => choose(element.value) });
    return { element: h("label", { class: "hint" }, `${label} `, element), select: element };
  }

  function offer({ select: element }, names, chosen) {
    fill(element, names.map((name) => h("option", { value: name }, name)));
    element.value = chosen;
  }

  function read(params) {
    Object.assign(state, { view: params.get("view"), label: params.get("class"), at: params.get("at"), layer: params.get("layer"),
      channel: params.has("channel") ? Number(params.get("channel")) : null });
  }

  function keep() {
    context.keep({ view: state.view, class: state.label, at: state.at, layer: state.layer, channel: state.channel });
  }

  async function begin(params) {
    renew();
    starting.abort();
    starting = new AbortController();
    isReady = false; // a file that comes before the looks of the model are known waits for them
    const { signal } = starting;
    fill(problem);
    for (const card of [classes, heatCard, mapCard, filterCard, againCard]) card.hidden = true;
    try {
      const name = encodeURIComponent(context.model.name);
      state.looks = (await getJson(`/api/looks?model=${name}`, signal)).looks;
      const options = { "grad-cam": "Grad-CAM", rollout: "Attention rollout" };
      for (const one of Object.keys(options)) if (!has(one)) delete options[one];
      if (!(state.view in options)) state.view = null;
      fill(views, Object.keys(options).length > 1 && choice("View", options, view(), (value) => {
        state.view = value === Object.keys(options)[0] ? null : value;
        keep();
        attempt(heat);
      }));
      if (has("filters")) {
        state.filters = await getJson(`/api/filters?model=${name}`, signal);
        filterCard.hidden = false;
        drawFilters();
      }
    } catch (error) {
      showProblem(problem, error);
      return;
    }
    if (signal.aborted) return;
    isReady = true;
    await picker.begin(params);
  }

  function has(look) { return state.looks.includes(look); }
  function view() { return state.view ?? (has("grad-cam") ? "grad-cam" : "rollout"); }
  function width(card) { return Math.max(220, card.clientWidth - 36); }

  // New work ends the work before it, whose model or file may be another one.
  function renew() {
    running.abort();
    running = new AbortController();
    return running.signal;
  }

  function ask(look, signal, options = {}) {
    signal.throwIfAborted();
    return postFile(`/api/files/${look}`, { model: context.model.name, ...options }, file.bytes, signal);
  }

  // The first error ends the work, and is shown unless newer work has begun.
  async function attempt(work) {
    const { signal } = running;
    try {
      fill(problem);
      await work(signal);
    } catch (error) {
      if (signal.aborted) return;
      showProblem(problem, error);
    }
    if (!signal.aborted) status.textContent = "";
  }

  async function run() {
    renew();
    keep();
    status.textContent = "Looking …";
    await attempt(async (signal) => {
      if (has("classify")) {
        state.top = (await ask("classify", signal)).images[0].top;
        if (!state.top.some(({ label }) => label === state.label)) state.label = null;
        classes.hidden = false;
        drawClasses();
      }
      if (has("reconstruction")) {
        state.reconstruction = await ask("reconstruction", signal);
        againCard.hidden = false;
        drawReconstruction();
      }
      await features(signal);
      await heat(signal);
    });
  }

  function chosen() { return state.label ?? state.top[0]?.label; }

  function drawClasses() {
    chart.draw(bars({ rows: state.top.slice(0, MOST), chosen: chosen(), title: "Classes", width: Math.min(560, width(classes)), pick(label) {
      state.label = label === state.top[0].label ? null : label;
      state.view = view() === "rollout" && has("grad-cam") ? null : state.view; // rollout is the same for all classes
      const radio = views.querySelector("input[value=grad-cam]");
      if (radio) radio.checked = true;
      keep();
      drawClasses();
      attempt(heat);
    } }));
  }

  async function heat(signal) {
    if (!file || !(has("grad-cam") || has("rollout"))) return;
    const isEvidence = view() === "grad-cam", layers = state.features?.layers ?? [];
    if (isEvidence && !layers.includes(state.at)) state.at = null;
    heatLayer.element.hidden = !isEvidence;
    state.heat = await ask(view(), signal, isEvidence ? { label: chosen(), layer: state.at } : {});
    heatCard.hidden = false;
    if (isEvidence) offer(heatLayer, layers, state.heat.layer);
    const title = isEvidence ? `What speaks for ${chosen()}, layer ${state.heat.layer}` : state.heat.title;
    heatHint.textContent = isEvidence ? "Grad-CAM: the stronger the orange, the more a place supports the class."
      : "The stronger the orange, the more attention of all layers together reaches the patch. It is the same for all classes.";
    heatFigure.title(title);
    heatReadout.textContent = "";
    heatFigure.draw(heatmap({ pixels: state.heat.images[0], heat: state.heat.heat[0], title, size: Math.min(360, width(heatCard)), room: width(heatCard),
      at: (place) => { heatReadout.textContent = `${isEvidence ? "Evidence" : "Attention"} at ${place}`; } }));
  }

  async function features(signal) {
    if (!file || !has("features")) return;
    try {
      state.features = await ask("features", signal, { layer: state.layer });
    } catch (error) {
      if (state.layer === null || error.name === "AbortError") throw error;
      state.layer = null; // a layer of another model
      state.features = await ask("features", signal);
    }
    mapCard.hidden = false;
    offer(mapLayer, state.features.layers, state.features.layer);
    if (!state.features.channels.includes(state.channel)) state.channel = null;
    drawFeatures();
  }

  function oneMap() { return state.features.tiles[state.features.channels.indexOf(state.channel ?? state.features.channels[0]) + 1]; }

  function drawFeatures() {
    const { tiles: [image, ...maps], channels, title } = state.features;
    mapFigure.title(title);
    mapReadout.textContent = "";
    const shown = state.channel ?? channels[0];
    const items = [{ url: imageUrl(image), caption: "image", name: "The image" },
      ...maps.map((map, i) => ({ url: mapUrl(map), caption: String(channels[i]), name: `Channel ${channels[i]}` }))];
    const room = width(mapCard);
    mapFigure.draw(tiles({ items, title, width: Math.min(620, room), chosen: channels.indexOf(shown) + 1,
      at: (name) => { mapReadout.textContent = name; }, pick(i) {
        if (i === 0) return;
        state.channel = channels[i - 1];
        keep();
        drawOne();
      } }));
    drawOne();
  }

  function drawOne() {
    const channel = state.channel ?? state.features.channels[0], title = `Channel ${channel} of ${state.features.layer}`;
    oneFigure.title(title);
    oneReadout.textContent = "";
    oneFigure.draw(heatmap({ map: oneMap(), title, size: Math.min(300, width(mapCard)), at: (place) => { oneReadout.textContent = place; } }));
  }

  function drawFilters() {
    filterFigure.title(state.filters.title);
    filterFigure.draw(tiles({ items: state.filters.tiles.map((tile, i) => ({ url: imageUrl(tile), caption: String(i), name: `Filter ${i}` })),
      title: state.filters.title, width: Math.min(1100, width(filterCard)), size: 48, at: (name) => { filterReadout.textContent = name; } }));
  }

  function difference() {
    const { image, reconstruction } = state.reconstruction;
    return image.map((row, i) => row.map((pixel, j) => {
      const other = reconstruction[i][j];
      if (typeof pixel === "number") return Math.abs(pixel - other);
      return Math.max(...pixel.map((value, k) => Math.abs(value - other[k])));
    }));
  }

  function drawReconstruction() {
    const { image, reconstruction, error, title } = state.reconstruction, names = ["The image", "Its reconstruction", "The difference"];
    againReadout.textContent = `Mean squared error ${short(error)}, on pixels normalised to a standard deviation of 1.`;
    const urls = [imageUrl(image), imageUrl(reconstruction), mapUrl(difference())];
    const room = width(againCard);
    againFigure.draw(tiles({ items: urls.map((url, i) => ({ url, name: names[i], caption: names[i] })), title, width: room,
      size: Math.min(220, Math.floor(room / 3) - 8) }));
  }

  read(context.params);
  begin(context.params);
  return {
    update(params) { read(params); begin(params); },
    unmount() { starting.abort(); running.abort(); picker.end(); },
  };
}

export default { title: "Images", verb: null, accepts: ({ task }) => TASKS.includes(task), mount };
