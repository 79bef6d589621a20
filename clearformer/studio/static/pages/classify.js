// Classify: the probabilities of all classes, what speaks for and against each of them, and how far to trust them.

import { getJson, postFile, postJson } from "../lib/api.js";
import { bars } from "../lib/bars.js";
import { choice, fill, h, pausing, percent, s, short, tokenText } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { filePicker } from "../lib/files.js";
import { missing } from "../lib/missing.js";
import { heatmap, mapTable } from "../lib/pixels.js";
import { minus, shades, signed } from "../lib/shades.js";
import { showProblem } from "../lib/problem.js";

const EXAMPLE = "A quiet, moving film that is never dull.";
const MOST = 20; // bars before "all classes"
const MODELS = "clearformer train --labels reviews.tsv --out runs/reviews";

function mount(context) {
  if (!context.model) {
    return missing(context, "No model here classifies yet. Train one on labelled texts or images, then start the studio with it:",
      MODELS, "clearformer studio --runs runs/");
  }
  const state = { facts: null, top: [], words: null, word: 0, label: null, all: false, evidence: null, bins: "after" };
  let starting = new AbortController(), running = new AbortController(), picker = null, file = null, isReady = false;

  const problem = h("div", {}), inputs = h("section", { class: "card", "aria-label": "Input" });
  const text = h("textarea", { id: "text", rows: 3, maxlength: 5000, spellcheck: "false", oninput: () => later() });
  const pair = h("textarea", { id: "pair", rows: 2, maxlength: 5000, spellcheck: "false", oninput: () => later() });
  const verdict = h("p", { class: "translation verdict", "aria-live": "polite", "aria-label": "Prediction" });
  const words = h("div", { class: "tokens", role: "group", "aria-label": "Words" });
  const status = h("p", { class: "hint", role: "status" });
  const more = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => { state.all = !state.all; keep(); drawBars(); } });
  const chart = figure({ title: "Classes", name: "classes", json: () => ({ model: context.model.name, classes: state.top }),
    table: () => ({ columns: ["class", "probability"], rows: state.top.map(({ label, probability }) => [label, probability.toFixed(4)]) }) });
  const readout = h("p", { class: "readout", role: "status" });
  const why = figure({ title: "What speaks for it", name: "evidence", json: () => state.evidence, table: () => evidenceTable() });
  const whyHint = h("p", { class: "hint" });
  const reason = h("section", { class: "card reason", "aria-label": "What speaks for a class", hidden: true }, why.element, readout, whyHint);
  const trust = h("section", { class: "card trust", "aria-label": "Calibration" });
  const classesCard = h("section", { class: "card", "aria-label": "Classes" }, verdict, words, chart.element, more, status);

  fill(context.root, h("h1", {}, "Classify"), problem, h("div", { class: "pair" }, inputs, classesCard), reason, trust);
  const later = pausing(450, () => run());

  function read(params) {
    text.value = params.get("text") ?? EXAMPLE;
    pair.value = params.get("pair") ?? "";
    Object.assign(state, { label: params.get("class"), all: params.has("all"), word: Number(params.get("word") ?? 0),
      bins: params.get("bins") === "before" ? "before" : "after" });
  }

  function keep() {
    const isText = state.facts?.input !== "image";
    context.keep({ text: isText && text.value !== EXAMPLE ? text.value : null, pair: isText ? pair.value || null : null,
      class: state.label, all: state.all ? "1" : null, word: state.word || null, bins: state.bins === "before" ? "before" : null });
  }

  async function begin(params) {
    running.abort();
    starting.abort();
    starting = new AbortController();
    isReady = false; // until the facts of the model are known, nothing can be asked
    fill(problem);
    try {
      state.facts = await getJson(`/api/classes?model=${encodeURIComponent(context.model.name)}`, starting.signal);
    } catch (error) {
      showProblem(problem, error);
      return;
    }
    isReady = true;
    picker?.end();
    picker = null;
    if (state.facts.input === "image") {
      picker = filePicker({ kind: "image", context, noun: "an image", formats: "PNG, JPEG, WebP, GIF, BMP or TIFF", thumbs: true,
        accept: "image/*", take: (one) => { file = one; run(); }, fail: (error) => showProblem(problem, error) });
      fill(inputs, h("h2", { class: "heading" }, "Image"), picker.element);
    } else {
      fill(inputs, h("form", { onsubmit: (event) => { event.preventDefault(); run(); } },
        h("label", { for: "text", class: "heading" }, "Text"), text,
        state.facts.is_pair && h("label", { for: "pair", class: "heading second" }, "Second text of the pair"), state.facts.is_pair && pair,
        h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Classify"))));
    }
    file = null;
    drawTrust();
    if (picker) await picker.begin(params);
    else await run();
  }

  function renew() {
    running.abort();
    running = new AbortController();
    return running.signal;
  }

  async function run() {
    if (!isReady) return;
    const signal = renew();
    fill(problem);
    keep();
    const isImage = state.facts.input === "image";
    if (isImage ? !file : !text.value.trim() || (state.facts.is_pair && !pair.value.trim())) {
      Object.assign(state, { top: [], words: null });
      verdict.textContent = "";
      fill(words);
      chart.element.hidden = reason.hidden = true;
      return;
    }
    try {
      status.textContent = "Classifying …";
      const row = isImage
        ? (await postFile("/api/files/classify", { model: context.model.name }, file.bytes, signal)).images[0]
        : (await postJson("/api/classify", { text: text.value, model: context.model.name,
          ...(state.facts.is_pair ? { pair: pair.value } : {}) }, signal)).texts[0];
      status.textContent = "";
      take(row);
      await explain(signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      status.textContent = "";
      showProblem(problem, error);
    }
  }

  // A row of `clearformer classify --json`: classes of a text or image, of each word, or a value.
  function take(row) {
    state.words = row.words ?? null;
    state.word = Math.min(state.word, Math.max(0, (row.words?.length ?? 1) - 1));
    state.top = (row.words ? row.words[state.word]?.top : row.top) ?? [];
    if (!state.top.some(({ label }) => label === state.label)) state.label = null;
    const value = row.value ?? row.words?.[state.word]?.value;
    verdict.textContent = value !== undefined ? `Value ${short(value)}` : state.top.length
      ? `${row.words ? `${row.words[state.word].word}: ` : ""}${state.top[0].label}, ${percent(state.top[0].probability)}` : "";
    fill(words, state.words?.map((one, i) => h("button", { type: "button", class: "token", "aria-pressed": String(i === state.word),
      style: { "--p": (one.probability ?? 0).toFixed(4) }, onclick: () => {
        state.word = i;
        keep();
        take(row);
        words.children[i].focus();
        explain(renew());
      } },
    h("span", {}, one.word), h("small", {}, one.label ?? short(one.value)))));
    drawBars();
  }

  function chosen() { return state.label ?? state.top[0]?.label; }

  function pick(label) {
    if (!isReady) return;
    state.label = label === state.top[0].label ? null : label;
    keep();
    drawBars();
    if (state.facts.input === "image") explain(running.signal);
    else drawEvidence();
  }

  function width(card) { return Math.max(220, card.clientWidth - 36); }

  function drawBars() {
    chart.element.hidden = !state.top.length;
    more.hidden = state.top.length <= MOST;
    more.textContent = state.all ? `The ${MOST} most probable` : `All ${state.top.length.toLocaleString("en")} classes`;
    if (!state.top.length) return;
    const rows = state.all ? state.top : state.top.slice(0, MOST);
    chart.draw(bars({ rows, chosen: chosen(), title: "Classes", width: Math.min(560, width(classesCard)), pick }));
  }

  // Attribution of a text, of a pair or of one word to all classes at once, or Grad-CAM of an image for the chosen class.
  async function explain(signal) {
    if (signal.aborted) return;
    reason.hidden = true;
    const { input, is_pair } = state.facts;
    if (!state.top.length) return;
    try {
      status.textContent = "Finding what speaks for each class …";
      const model = context.model.name;
      state.evidence = input === "image"
        ? await postFile("/api/files/grad-cam", { model, label: chosen() }, file.bytes, signal)
        : await postJson("/api/lens/attribution", { text: is_pair ? `${text.value}\t${pair.value}` : text.value, model,
          ...(input === "words" ? { position: state.word } : {}) }, signal);
      status.textContent = "";
      reason.hidden = false;
      drawEvidence();
    } catch (error) {
      if (error.name === "AbortError") return;
      status.textContent = "";
      showProblem(problem, error);
    }
  }

  function evidenceTable() {
    if (state.facts.input === "image") return mapTable(state.evidence.heat[0]);
    const { inputs: tokens, outputs, integrated } = state.evidence;
    return { columns: ["token", ...outputs], rows: tokens.map((token, i) => [tokenText(token), ...integrated.map((row) => signed(row[i]))]) };
  }

  function drawEvidence() {
    const label = chosen(), word = state.words?.[state.word]?.word, title = `What speaks for ${label}${word ? `, the class of ${word}` : ""}`;
    why.title(title);
    readout.textContent = "";
    if (state.facts.input === "image") {
      whyHint.textContent = `Grad-CAM at layer ${state.evidence.layer}: the stronger the orange, the more the place supports the class. ` +
        "Images has other layers.";
      why.draw(heatmap({ pixels: state.evidence.images[0], heat: state.evidence.heat[0], title, size: Math.min(320, width(reason)), room: width(reason),
        at: (place) => { readout.textContent = `Evidence at ${place}`; } }));
      return;
    }
    const { inputs: tokens, outputs, integrated, logits, baseline } = state.evidence, k = outputs.indexOf(label);
    const total = logits[k] - baseline[k];
    whyHint.textContent = `Integrated gradients: blue tokens raise the logit of ${label}, orange tokens lower it. All together change it ` +
      `by ${signed(total)}, from ${minus(baseline[k])} for ${state.facts.is_pair ? "texts" : "a text"} without content to ${minus(logits[k])}.`;
    why.draw(shades({ tokens, values: integrated[k], title, width: Math.min(900, width(reason)), at: (i) => {
      readout.textContent = `${tokenText(tokens[i])}: ${signed(integrated[k][i])} for ${label}`;
    } }));
  }

  function drawTrust() {
    const { calibration, classes, command, temperature } = state.facts;
    const code = h("pre", { tabindex: "0" }, h("code", {}, command));
    const heading = h("h2", { class: "heading" }, "Calibration");
    if (!classes.length) return fill(trust, heading, h("p", { class: "hint" }, "A regression model has no probabilities."));
    if (!calibration) {
      return fill(trust, heading, h("p", {}, "This model is not calibrated: nobody has measured yet whether predictions with a " +
        "probability of 80 % are right in 80 % of cases. This command measures and corrects it:"), code);
    }
    const before = calibration.reliability_uncalibrated, after = calibration.reliability;
    const sentence = `Calibrated: the logits are divided by ${short(temperature)}, fitted on ${calibrationExamples(calibration)}. The expected ` +
      `calibration error is ${short(calibration.ece)} (${short(calibration.ece_uncalibrated)} before).`;
    if (!after) return fill(trust, heading, h("p", {}, sentence), h("p", { class: "hint" }, "For its diagram, calibrate again:"), code);
    const bins = () => (state.bins === "before" ? before : after), at = h("p", { class: "readout", role: "status" });
    const diagram = figure({ title: "Reliability", name: "reliability", json: () => ({ model: context.model.name, ...calibration }),
      table: () => ({ columns: ["probability", "examples", "mean probability", "right"],
        rows: bins().map(({ low, high, examples, confidence, accuracy }) =>
          [`${percent(low)} to ${percent(high)}`, examples.toLocaleString("en"), percent(confidence), percent(accuracy)]) }) });
    const draw = () => diagram.draw(reliability(bins(), Math.min(360, width(context.root) - 36), (line) => { at.textContent = line; }));
    fill(trust, heading, h("p", {}, sentence), h("div", { class: "row above" },
      choice("Probabilities", { after: "Calibrated", before: "Before" }, state.bins, (value) => { state.bins = value; keep(); draw(); })),
    diagram.element, at);
    draw();
  }

  function calibrationExamples(calibration) {
    const n = Object.entries(calibration).find(([name, value]) => Number.isInteger(value) && name !== "temperature")?.[1];
    return n === undefined ? "validation data" : `${n.toLocaleString("en")} validation examples`;
  }

  read(context.params);
  begin(context.params);
  return {
    update(params) { read(params); begin(params); },
    unmount() { starting.abort(); running.abort(); picker?.end(); },
  };
}

// How often predictions are right, by their probability: on the diagonal, probabilities mean what they say.
function reliability(bins, size, at) {
  const left = 44, below = 38, side = size - left - 10, x = (value) => left + side * value, y = (value) => 8 + side * (1 - value);
  const ticks = [0, 0.25, 0.5, 0.75, 1], height = side + below + 8;
  const groups = bins.map(({ low, high, examples, confidence, accuracy }) => s("g", { class: "bin" },
    s("rect", { class: "heat", x: x(low) + 1, width: Math.max(1, x(high) - x(low) - 2), y: y(accuracy), height: side * accuracy,
      "fill-opacity": 0.45, "data-accuracy": accuracy }),
    s("circle", { class: "dot colour0", cx: x(confidence), cy: y(accuracy), r: 3.5 }),
    s("rect", { class: "hit", x: x(low), width: x(high) - x(low), y: 8, height: side })));
  const svg = s("svg", { viewBox: `0 0 ${size} ${height}`, width: size, height, role: "img", class: "fluid", "aria-label": "Reliability" },
    ticks.map((value) => [s("line", { class: "grid", x1: left, x2: left + side, y1: y(value), y2: y(value) }),
      s("text", { class: "label end", x: left - 6, y: y(value), "font-size": 11 }, `${100 * value} %`),
      s("text", { class: "label middle", x: x(value), y: side + 20, "font-size": 11 }, `${100 * value}`)]).flat(),
    groups, s("line", { class: "axis cursorline", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    s("text", { class: "label middle", x: left + side / 2, y: side + 38, "font-size": 11 }, "probability of the predicted class, %"));
  const frame = h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": "Reliability. Left and right arrow keys move from bin to bin." }, svg);
  let index = -1;
  const move = (i) => {
    index = Math.max(0, Math.min(bins.length - 1, i));
    groups.forEach((group, k) => group.classList.toggle("chosen", k === index));
    const { low, high, examples, accuracy } = bins[index];
    at(`${percent(low)} to ${percent(high)}: ${examples.toLocaleString("en")} ${examples === 1 ? "example" : "examples"}, ${percent(accuracy)} right`);
  };
  groups.forEach((group, i) => group.addEventListener("pointerenter", () => move(i)));
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    move(index + step);
    event.preventDefault();
  });
  return frame;
}

export default { title: "Classify", verb: "classify", mount };
