// Translate: the translation as it is written, with the probability of every token and what else it could have been;
// who attends to whom, in every layer and head; and what happens without some of the heads.

import { drawAlternatives } from "../lib/alternatives.js";
import { postJson, stream } from "../lib/api.js";
import { attentionOf } from "../lib/attention.js";
import { choice, fill, h, pausing, percent, tokenText } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { showProblem } from "../lib/problem.js";
import { tree, treeTable } from "../lib/tree.js";

const EXAMPLE = "Where is the train station?";
const ALTERNATIVES = 6;

function mount(context) {
  const state = { steps: [], translation: "", token: null, tree: null };
  let running = new AbortController();

  const source = h("textarea", { id: "source", rows: 3, maxlength: 5000, spellcheck: "false",
    oninput: () => { state.token = null; later(); } });
  const status = h("p", { class: "hint", role: "status" });
  const output = h("div", { class: "tokens", id: "output", "aria-label": "Tokens of the translation", role: "group" });
  const plain = h("p", { class: "translation", "aria-live": "polite", "aria-label": "Translation" });
  const alternatives = h("div", { class: "alternatives" });
  const reference = h("p", { class: "hint reference", hidden: true });
  const problem = h("div", {});
  const attention = attentionOf({ model: () => context.model.name, keep, changed: changeHeads, fail: (error) => showProblem(problem, error) });
  const beam = figure({ title: "Beam search", name: "beam-search", level: "h2", json: () => state.tree, table: () => treeTable(state.tree) });
  const branch = h("p", { class: "readout", role: "status" });
  const beams = h("section", { class: "card beams" }, beam.element,
    h("p", { class: "hint" }, "Each step extends the live hypotheses. Solid: kept. ■ finished. Dashed: dropped. " +
      "Thick: the way to the translation."), branch);
  const searches = h("div", {});

  fill(context.root,
    h("h1", {}, "Translate"),
    h("form", { class: "pair", onsubmit: (event) => { event.preventDefault(); run(); } },
      h("section", { class: "card" }, h("label", { for: "source", class: "heading" }, "Text"), source,
        h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Translate"), searches)),
      h("section", { class: "card", "aria-label": "Translation" }, h("h2", { class: "heading" }, "Translation"),
        plain, output, alternatives, reference, status)),
    problem, attention.element);
  const later = pausing(450, () => run());

  function read(params) {
    source.value = params.get("text") ?? EXAMPLE;
    state.search = params.get("search") === "beam" ? "beam" : "greedy";
    state.token = params.has("token") ? Number(params.get("token")) : null;
    attention.read(params);
    fill(searches, choice("Search", { greedy: "Greedy, streamed", beam: "Beam search" }, state.search, (value) => {
      state.search = value;
      run();
    }));
  }

  function keep() {
    context.keep({ text: source.value === EXAMPLE ? null : source.value, search: state.search === "beam" ? "beam" : null,
      token: state.token, ...attention.keep() });
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
      Object.assign(state, { steps: [], translation: "" });
      attention.hide();
      drawTokens();
      return;
    }
    const body = { text, model: context.model?.name, off: attention.off };
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
    plain.textContent = state.translation = translation;
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

  // All heads while the model reads the text and a translation, and what it predicts.
  async function look(body, signal) {
    const { predictions } = await attention.look(body, signal, ALTERNATIVES);
    if (!predictions) return;
    state.steps = predictions.map((step) => ({ ...step, text: null }));
    drawTokens();
  }

  // What the model writes with all heads on, beside the translation without some of them.
  async function compare(body, translation, signal) {
    reference.hidden = !attention.off.length;
    if (!attention.off.length) return;
    const { translations: [before] } = await postJson("/v1/translate",
      { ...body, off: [], ...(state.search === "beam" ? {} : { beam: 1 }) }, signal);
    fill(reference, before.translation === translation ? "The same with all heads on." : "With all heads on: ",
      before.translation === translation ? null : h("q", {}, before.translation));
  }

  function changeHeads() {
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

  read(context.params);
  run();
  return {
    update(params) { read(params); run(); },
    unmount() { running.abort(); attention.stop(); },
  };
}

export default { title: "Translate", verb: "translate", mount };
