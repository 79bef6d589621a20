// Training: the curves of runs, side by side and while they are written; samples of what they write, and histograms of
// their weights, gradients and activations.

import { getJson } from "../lib/api.js";
import { curves } from "../lib/curves.js";
import { choice, fill, h, pausing, short } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { showProblem } from "../lib/problem.js";
import { ridges, ridgeTable } from "../lib/ridges.js";

const MOST = 8, SAMPLES = 20, LIST_SECONDS = 5, COLOURS = 8;
const TITLES = { loss: "Loss", lr: "Learning rate", grad_norm: "Gradient norm" };
const HIDDEN = new Set(["step", "kind", "epoch"]);
const LAST = ["lr", "grad_norm"];
const PARTS = { weights: "Weights", gradients: "Gradients", activations: "Activations" };
const ACROSS = { weights: "weight", gradients: "log10 of the gradient, before clipping", activations: "output of the layer" };

function mount(context) {
  const state = { runs: [], chosen: [], records: new Map(), problems: new Map(), isChosen: false,
    histograms: null, run: null, layer: null, part: "weights" };
  const charts = new Map();
  let source = null, isDirty = false, timer = 0;

  const problem = h("div", {}), table = h("div", { class: "runs scroll", tabindex: "0", role: "region", "aria-label": "Runs" });
  const legend = h("ul", { class: "legend", "aria-label": "Runs in the curves" });
  const place = h("div", { class: "charts" });
  const samples = h("section", { class: "card samples", hidden: true });
  const settings = h("div", { class: "row" }), note = h("p", { class: "hint" });
  const readout = h("p", { class: "readout", role: "status" });
  const bins = figure({ title: "Weights", name: "histograms", json: () => ({ run: state.run, part: state.part, layer: state.layer,
    rows: binsOf() }), table: () => ridgeTable(binsOf()) });
  const histograms = h("section", { class: "card histograms", hidden: true }, h("h2", { class: "heading" }, "Weights, gradients and activations"),
    note);
  fill(context.root, h("h1", {}, "Training"), problem, h("section", { class: "card" }, h("h2", { class: "heading" }, "Runs"), table),
    h("section", { class: "card" }, h("h2", { class: "heading" }, "Curves"), legend, place), samples, histograms);

  function read(params) {
    state.isChosen = params.has("run");
    state.chosen = (params.get("run") ?? "").split("|").filter(Boolean).slice(0, MOST);
    state.layer = params.get("layer");
    state.part = params.get("part") in PARTS ? params.get("part") : "weights";
    state.run = params.get("of");
  }

  function keep() {
    context.keep({ run: state.chosen.join("|") || null, layer: state.layer, part: state.part === "weights" ? null : state.part,
      of: state.run === state.histograms?.[0]?.run ? null : state.run });
  }

  async function refresh() {
    try {
      const { folder, runs } = await getJson("/api/runs");
      fill(problem);
      if (folder === null) {
        showProblem(problem, { message: "the studio shows no runs yet", hint: "start it with a folder of run folders: clearformer studio --runs runs/" });
      } else if (!runs.length) {
        showProblem(problem, { message: `there is no run in ${folder}`, hint: "clearformer train --out writes one" });
      }
      const isFirst = !state.runs.length;
      state.runs = runs;
      if (isFirst && !state.isChosen) {
        const shown = runs.filter(({ train }) => train);
        const live = shown.filter((run) => run.is_live);
        state.chosen = (live.length ? live : shown.slice(0, 1)).slice(0, MOST).map(({ name }) => name);
      }
      drawRuns();
      if (isFirst) follow();
    } catch (error) {
      showProblem(problem, error);
    }
  }

  // One stream for all chosen runs. The browser connects again by itself, and continues after the last line.
  function follow() {
    source?.close();
    source = null;
    keep();
    for (const name of state.records.keys()) if (!state.chosen.includes(name)) state.records.delete(name);
    state.problems.clear();
    changed();
    readMore();
    if (!state.chosen.length) return;
    for (const name of state.chosen) state.records.set(name, []);
    source = new EventSource(`/api/metrics?${state.chosen.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`);
    const on = (name, handle) => source.addEventListener(name, (event) => { handle(JSON.parse(event.data)); changed(); });
    on("records", ({ run, records }) => {
      state.records.get(run)?.push(...records);
      if (records.some(({ kind }) => kind === "valid")) readMore(); // a validation writes them
    });
    on("restart", ({ run }) => state.records.set(run, []));
    on("problem", ({ run, message }) => (message ? state.problems.set(run, message) : state.problems.delete(run)));
  }

  // The samples and histograms of the chosen runs, where there are any.
  const readMore = pausing(200, async () => {
    const read = (path, name) => getJson(`${path}?run=${encodeURIComponent(name)}`).catch(() => null);
    const names = state.chosen.filter((name) => state.runs.some((run) => run.name === name));
    const [written, counted] = await Promise.all(["/api/samples", "/api/histograms"].map((path) =>
      Promise.all(names.map((name) => read(path, name)))));
    drawSamples(written.filter((one) => one?.samples.length));
    state.histograms = counted.filter((one) => one?.steps.length);
    drawHistograms();
  });

  function drawSamples(written) {
    samples.hidden = !written.length;
    fill(samples, h("h2", { class: "heading" }, "Samples of the validations, the last first"), written.map(({ run, samples: all }) =>
      h("div", { class: "scroll numbers", tabindex: "0", role: "region", "aria-label": `Samples of ${run}` },
        h("table", {}, h("caption", {}, run), h("thead", {}, h("tr", {}, ["Step", "Sample"].map((title) => h("th", { scope: "col" }, title)))),
          h("tbody", {}, all.slice(-SAMPLES).reverse().map(({ step, text }) => h("tr", {},
            h("th", { scope: "row" }, step.toLocaleString("en")), h("td", { class: "text" }, text))))))));
  }

  function drawHistograms() {
    const [first] = state.histograms;
    histograms.hidden = !state.chosen.length;
    if (!first) for (const part of [settings, bins.element, readout]) part.remove();
    else if (!bins.element.isConnected) histograms.append(settings, bins.element, readout);
    note.textContent = first ? "The fullest bin of each step has the full height. Values far outside the bins are only counted."
      : "Train with --set train.histograms=true to see how weights, gradients and activations change.";
    if (!first) return;
    const one = state.histograms.find(({ run }) => run === state.run) ?? first;
    const names = one.layers.map(({ name }) => name);
    state.run = one.run;
    if (!names.includes(state.layer)) [state.layer] = names;
    const pick = (id, title, options, value, set) => h("label", { for: id }, `${title} `, h("select", { id, onchange: (event) => {
      set(event.target.value);
      keep();
      drawHistograms();
      document.getElementById(id)?.focus();
    } }, options.map((option) => h("option", { value: option, selected: option === value }, option))));
    fill(settings, state.histograms.length > 1 && pick("histogram-run", "Run", state.histograms.map(({ run }) => run), state.run,
      (run) => { state.run = run; }), pick("histogram-layer", "Layer", names, state.layer, (layer) => { state.layer = layer; }),
    choice("Part", PARTS, state.part, (part) => {
      state.part = part;
      keep();
      drawBins();
    }));
    drawBins();
  }

  // The histograms on the screen, in the order of the steps.
  function binsOf() {
    const one = state.histograms.find(({ run }) => run === state.run);
    const rows = one.layers.find(({ name }) => name === state.layer)[state.part];
    return rows.map((row, i) => row && { step: one.steps[i], ...row }).filter(Boolean);
  }

  function drawBins() {
    const rows = binsOf(), title = `${PARTS[state.part]} of ${state.layer}`;
    bins.title(title);
    readout.textContent = "";
    bins.draw(!rows.length ? h("p", { class: "hint" }, "No records of this layer.") : ridges({ rows, title,
      across: ACROSS[state.part],
      at: (text) => { readout.textContent = text; } }));
  }

  function changed() {
    if (isDirty) return;
    isDirty = true;
    requestAnimationFrame(() => { isDirty = false; drawCurves(); });
  }

  function colourOf(name) { return state.chosen.indexOf(name) % COLOURS; }

  function drawRuns() {
    const focus = document.activeElement?.dataset?.run;
    fill(table, state.runs.length > 0 && h("table", {}, h("caption", { class: "hidden" }, "Runs, the most recent first"),
      h("thead", {}, h("tr", {}, ["Run", "Task", "Model", "Step", "Training loss", "Validation", "State"].map((title) =>
        h("th", { scope: "col" }, title)))),
      h("tbody", {}, state.runs.map((run) => h("tr", {},
        h("th", { scope: "row" }, h("label", {}, h("input", { type: "checkbox", checked: state.chosen.includes(run.name),
          "data-run": run.name, disabled: !state.chosen.includes(run.name) && state.chosen.length >= MOST,
          onchange: (event) => toggle(run.name, event.target.checked) }), " ", run.name)),
        h("td", {}, run.task ?? "–"), h("td", {}, run.architecture ?? "–"),
        h("td", {}, run.step === null ? "–" : `${run.step.toLocaleString("en")}${run.steps ? ` of ${run.steps.toLocaleString("en")}` : ""}`),
        h("td", {}, short(run.train?.loss)), h("td", {}, metricsOf(run.valid)),
        h("td", {}, run.problem ? h("span", { class: "warning" }, run.problem) : run.is_live ? h("span", { class: "live" }, "training") : "ended"))))));
    if (focus) table.querySelector(`[data-run="${CSS.escape(focus)}"]`)?.focus();
  }

  function metricsOf(record) {
    const entries = Object.entries(record ?? {}).filter(([name, value]) => !HIDDEN.has(name) && typeof value === "number");
    return entries.slice(0, 2).map(([name, value]) => `${name} ${short(value)}`).join(", ") || "–";
  }

  function toggle(name, isOn) {
    state.chosen = isOn ? [...state.chosen, name] : state.chosen.filter((one) => one !== name);
    drawRuns();
    follow();
  }

  // Every quantity in the records, with one curve for each run: the loss of training and validation in one chart.
  function quantities() {
    const result = new Map();
    for (const run of state.chosen) {
      for (const record of state.records.get(run) ?? []) {
        for (const [name, value] of Object.entries(record)) {
          if (HIDDEN.has(name) || typeof value !== "number") continue;
          const series = result.get(name) ?? result.set(name, new Map()).get(name);
          const key = `${run}\n${record.kind}`;
          if (!series.has(key)) series.set(key, { run, kind: record.kind, points: [] });
          series.get(key).points.push([record.step, value]);
        }
      }
    }
    const rank = (name) => (name === "loss" ? 0 : LAST.includes(name) ? 2 : name.endsWith("_per_s") ? 3 : 1);
    return new Map([...result].sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b)));
  }

  function drawCurves() {
    fill(legend, state.chosen.map((name) => h("li", {}, h("span", { class: `swatch colour${colourOf(name)}` }), name,
      state.problems.has(name) && h("span", { class: "warning" }, `: ${state.problems.get(name)}`))),
    state.chosen.length > 0 && h("li", { class: "hint" }, "Dashed: validation"));
    const all = quantities();
    for (const [name, { figure: { element } }] of charts) {
      if (!all.has(name)) { element.remove(); charts.delete(name); }
    }
    for (const [name, series] of all) {
      if (!charts.has(name)) charts.set(name, chart(name));
      const { figure: one, readout, data } = charts.get(name);
      data.series = [...series.values()];
      const title = titleOf(name);
      one.draw(curves({ title, at: (text) => { readout.textContent = text; }, series: data.series.map(({ run, kind, points }) => ({
        label: data.series.length > 1 ? `${run} (${kind})` : kind, colour: colourOf(run), points,
        dashed: kind === "valid" && data.series.some((other) => other.kind === "train") })) }));
    }
    const ordered = [...all.keys()].map((name) => charts.get(name).figure.element);
    if (ordered.some((element, i) => place.children[i] !== element)) fill(place, ordered);
    if (!ordered.length) fill(place, h("p", { class: "hint" }, state.chosen.length ? nothingOf(state.chosen) : "Choose a run above."));
  }

  // Training writes the first record after train.log_every steps.
  function nothingOf(runs) {
    const last = runs.length - 1, names = last ? `${runs.slice(0, last).join(", ")} and ${runs[last]}` : runs[0];
    return `${names} ${last ? "have" : "has"} no records of loss, scores or learning rate yet: metrics.jsonl is empty or missing.`;
  }

  function chart(name) {
    const data = { series: [] }, readout = h("p", { class: "readout", role: "status" });
    const one = figure({ title: titleOf(name), name,
      json: () => ({ quantity: name, series: data.series }),
      table: () => {
        const steps = [...new Set(data.series.flatMap(({ points }) => points.map(([step]) => step)))].sort((a, b) => a - b);
        const maps = data.series.map(({ points }) => new Map(points));
        return { columns: ["step", ...data.series.map(({ run, kind }) => `${run}, ${kind}`)],
          rows: steps.map((step) => [String(step), ...maps.map((map) => short(map.get(step)))]) };
      } });
    one.element.append(readout);
    one.element.dataset.quantity = name;
    return { figure: one, readout, data };
  }

  function titleOf(name) {
    return TITLES[name] ?? (name.endsWith("_per_s") ? `${name[0].toUpperCase()}${name.slice(1, -6)} per second`
      : { bleu: "BLEU", chrf: "chrF", wer: "Word error rate", cer: "Character error rate" }[name]
      ?? name[0].toUpperCase() + name.slice(1).replaceAll("_", " "));
  }

  read(context.params);
  refresh();
  timer = setInterval(refresh, LIST_SECONDS * 1000);
  return {
    update(params) { read(params); drawRuns(); follow(); },
    unmount() { clearInterval(timer); source?.close(); },
  };
}

export default { title: "Training", mount };
