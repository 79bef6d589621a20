// Language model: the distribution of the next token as temperature, top-k and top-p shape it; step by step; what is
// surprising in a text; words for a blank, and rival sentences; all of it with heads switched off.

import { drawAlternatives } from "../lib/alternatives.js";
import { postJson } from "../lib/api.js";
import { attentionOf } from "../lib/attention.js";
import { fill, h, pausing, percent, short } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { showMissing } from "../lib/nomodel.js";
import { showProblem } from "../lib/problem.js";
import { ranking, roomOf } from "../lib/ranking.js";
import { slider } from "../lib/slider.js";
import { surprising, visible } from "../lib/surprise.js";

const EXAMPLE = "The man pulled", BLANK = "The man ___ a cart", RIVALS = "The man pulled a cart\nThe man pooled a cart";
const TOP = 20, MOST_NEW = 60;
const TRAIN = "clearformer train --text play.txt --out runs/play";
const SETTINGS = { temperature: 1, top_k: 0, top_p: 1, seed: 0 };

function mount(context) {
  if (!context.model) {
    showMissing(context.root, "Language model", "a language model", TRAIN);
    return { update() {}, unmount() {} };
  }
  const state = { tokens: [], next: null, surprise: null, token: null, words: [], scores: [] };
  let running = new AbortController(), reading = new AbortController(), filling = new AbortController(), scoring = new AbortController(),
    looking = new AbortController();
  let isWriting = false, isCurrent = false, latest = null; // isCurrent: the distribution is that of the text as it stands
  const can = (verb) => context.model.verbs.includes(verb);

  // ── The next token
  const text = h("textarea", { id: "prompt", rows: 3, maxlength: 5000, spellcheck: "false", oninput: () => { state.token = null; cut(); later(); } });
  const written = h("p", { class: "written", "aria-live": "polite", "aria-label": "Text so far" });
  const status = h("p", { class: "hint", role: "status" });
  const problem = h("div", {});
  const change = pausing(40, () => { keep(); refresh(); });
  const temperature = slider({ id: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, change,
    text: (value) => (value === 0 ? "0: the most probable" : value.toFixed(2)) });
  const topK = slider({ id: "topk", label: "Top-k", min: 0, max: 50, step: 1, change, text: (value) => (value === 0 ? "all" : String(value)) });
  const topP = slider({ id: "topp", label: "Top-p", min: 0.05, max: 1, step: 0.01, change, text: (value) => value.toFixed(2) });
  const seed = h("input", { id: "seed", type: "number", min: 0, max: 2 ** 31, step: 1, oninput: change });
  const step = h("button", { type: "submit", class: "primary" }, "Step");
  const write = h("button", { type: "button", class: "quiet", onclick: () => (isWriting ? stop() : writeOn()) }, "Write");
  const undo = h("button", { type: "button", class: "quiet", onclick: () => { stop(); state.tokens.pop(); settle(); } }, "Undo");
  const clear = h("button", { type: "button", class: "quiet", onclick: () => { stop(); state.tokens = []; settle(); } }, "Clear");
  const facts = h("p", { class: "hint facts" });
  const readout = h("p", { class: "readout", role: "status" });
  const later = pausing(450, () => settle());
  const distribution = figure({ title: "Next token", name: "next-token", json: () => ({ model: context.model.name, text: text.value,
    tokens: state.tokens, ...settings(), ...state.next }), table: () => ({
    columns: ["token", "probability", "at temperature 1"],
    rows: state.next.next.map((row) => [visible(row.token), short(row.probability), short(row.unshaped)]) }) });
  const form = h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); stop(); append(); } },
    h("label", { for: "prompt", class: "heading" }, "Text"), text, written,
    h("div", { class: "row" }, step, write, undo, clear, h("label", { for: "seed", class: "seed" }, "Seed ", seed)), status);
  const next = h("section", { class: "card next" }, h("h2", { class: "heading" }, "The next token"),
    h("p", { class: "hint" }, "A bar is the probability with which a token is drawn, a mark its probability at temperature 1. Choose a token to append it."),
    h("div", { class: "split wide" }, h("div", { class: "side sliders" }, temperature.element, topK.element, topP.element, facts),
      h("div", { class: "stage" }, distribution.element, readout)));

  // ── Surprise
  const said = h("p", { class: "readout", role: "status" });
  const total = h("p", { class: "hint total" });
  const alternatives = h("div", { class: "alternatives" });
  const attention = attentionOf({ model: () => context.model.name, keep, changed: changeHeads, fail: (error) => showProblem(problem, error) });
  const surprises = figure({ title: "Tokens of the text", name: "surprise", json: () => ({ model: context.model.name, text: text.value,
    ...state.surprise }), table: () => ({ columns: ["token", "probability", "log-probability", "rank"],
    rows: state.surprise.tokens.map((row) => [visible(row.token), short(row.probability), row.logprob.toFixed(3), row.rank]) }) });
  const surpriseCard = h("section", { class: "card surprise" }, h("h2", { class: "heading" }, "Surprise"),
    h("p", { class: "hint" }, "The stronger the colour, the less probable a token is after the text before it."),
    total, surprises.element, said, alternatives);

  // ── Blanks and rival sentences
  const blank = h("input", { id: "blank", type: "text", maxlength: 2000, autocomplete: "off", spellcheck: "false" });
  const words = h("input", { id: "words", type: "text", maxlength: 2000, autocomplete: "off", spellcheck: "false",
    placeholder: "proposed by the model" });
  const blankProblem = h("div", {});
  const wordReadout = h("p", { class: "readout", role: "status" });
  const fillings = figure({ title: "Words for the blank", name: "blank", json: () => ({ model: context.model.name, words: state.words }),
    table: () => ({ columns: ["word", "log-probability", "probability"],
      rows: state.words.map((row) => [row.word, row.logprob.toFixed(3), short(row.probability)]) }) });
  const blankCard = h("section", { class: "card blanks" }, h("h2", { class: "heading" }, "Blank"),
    h("form", { onsubmit: (event) => { event.preventDefault(); state.blank = blank.value; keep(); fillBlank(); } },
      h("label", { for: "blank" }, "Sentence with ___ in place of a word"), blank,
      h("label", { for: "words" }, "Words to choose from, separated by commas"), words,
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Rank words"))),
    blankProblem, fillings.element, wordReadout);
  const rivals = h("textarea", { id: "rivals", rows: 3, maxlength: 20000, spellcheck: "false" });
  const rivalProblem = h("div", {});
  const rivalReadout = h("p", { class: "readout", role: "status" });
  const scores = figure({ title: "Sentences by probability", name: "scores", json: () => ({ model: context.model.name, scores: state.scores }),
    table: () => ({ columns: ["sentence", "log-probability", "difference", "tokens", "perplexity"],
      rows: state.scores.map((row) => [row.text, row.logprob.toFixed(3), (row.logprob - state.scores[0].logprob).toFixed(3), row.tokens,
        short(row.perplexity)]) }) });
  const rivalCard = h("section", { class: "card rivals" }, h("h2", { class: "heading" }, "Rival sentences"),
    h("form", { onsubmit: (event) => { event.preventDefault(); keep(); rank(); } },
      h("label", { for: "rivals" }, "One sentence per line"), rivals,
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Compare sentences"))),
    rivalProblem, scores.element, rivalReadout);

  fill(context.root, h("h1", {}, "Language model"), h("p", { class: "hint kind" }), form, problem, next, surpriseCard, attention.element,
    h("div", { class: "pair" }, blankCard, rivalCard));

  function read(params) {
    const number = (name) => (Number.isFinite(Number(params.get(name) ?? NaN)) ? Number(params.get(name)) : SETTINGS[name]);
    text.value = params.get("text") ?? EXAMPLE;
    state.tokens = (params.get("tokens") ?? "").split(",").filter(Boolean).map(Number);
    state.token = params.has("at") ? Number(params.get("at")) : null;
    temperature.set(number("temperature"));
    topK.set(number("top_k"));
    topP.set(number("top_p"));
    seed.value = number("seed");
    blank.value = state.blank = params.get("blank") ?? BLANK;
    words.value = params.get("words") ?? "";
    rivals.value = params.get("rivals") ?? RIVALS;
    attention.read(params);
    const isWriter = can("generate");
    for (const card of [form, next, surpriseCard]) card.hidden = !isWriter;
    blankCard.hidden = !can("fill");
    rivalCard.hidden = !can("score");
    const kind = context.root.querySelector(".kind");
    kind.hidden = isWriter;
    kind.textContent = `${context.model.name} reads a whole sentence at once: it has no next token. Choose a language model for that.`;
  }

  function settings() {
    return { temperature: temperature.value, top_k: topK.value, top_p: topP.value, seed: Math.trunc(Number(seed.value)) || 0 };
  }

  function keep() {
    const moved = Object.entries(settings()).map(([name, value]) => [name, value === SETTINGS[name] ? null : value]);
    context.keep({ text: text.value === EXAMPLE ? null : text.value, tokens: state.tokens.join(",") || null, ...Object.fromEntries(moved), at: state.token,
      blank: blank.value === BLANK ? null : blank.value, words: words.value || null,
      rivals: rivals.value === RIVALS ? null : rivals.value, ...attention.keep() });
  }

  // The model with the heads that are off, as the server takes it.
  function changed() { return { model: context.model.name, off: attention.off }; }

  function changeHeads() {
    stop();
    if (can("generate")) settle();
    if (can("fill") && !fillings.element.hidden) fillBlank();
    if (can("score")) rank();
  }

  // Who attends to whom in a text: of a model that reads whole sentences, the first of the rival ones.
  async function look(sentence) {
    looking.abort();
    looking = new AbortController();
    if (!sentence.trim()) {
      attention.hide();
      return;
    }
    try {
      await attention.look({ ...changed(), text: sentence }, looking.signal);
    } catch (error) {
      showProblem(problem, error);
    }
  }

  // The distribution after the text and its tokens. Returns whether it is there; a request that is overtaken waits for
  // the one that takes its place, so that a click during an edit is not lost.
  function refresh() {
    return (latest = ask());
  }

  async function ask() {
    running.abort();
    running = new AbortController();
    isCurrent = false;
    const { signal } = running;
    try {
      const body = { ...changed(), text: text.value, tokens: state.tokens, top: TOP, ...settings() };
      const next = await postJson("/api/next", body, signal);
      if (signal.aborted) return signal === running.signal ? false : latest;
      state.next = next;
      isCurrent = true;
      fill(problem);
      draw();
      return true;
    } catch (error) {
      if (error.name === "AbortError" && signal !== running.signal) return latest;
      showProblem(problem, error);
      return false;
    }
  }

  async function settle() {
    status.textContent = "";
    keep();
    if (await refresh()) await lookBack();
  }

  function canGrow() {
    if (state.next.drawn.id === state.next.end) status.textContent = "The text ends here: the end-of-text token was drawn. Another seed may go on.";
    else if (state.next.room <= 1) status.textContent = "The text is as long as the model can read.";
    else return true;
    return false;
  }

  // Append the token that the seed draws, once it is drawn for the text as it stands.
  async function append() {
    if ((!isCurrent && !(await refresh())) || !canGrow()) return;
    state.tokens.push(state.next.drawn.id);
    await settle();
  }

  async function writeOn() {
    isWriting = true;
    status.textContent = "";
    write.textContent = "Stop";
    const isReady = isCurrent || (await refresh());
    for (let n = 0; n < MOST_NEW && isReady && isWriting && canGrow(); n++) {
      state.tokens.push(state.next.drawn.id);
      if (!(await refresh())) break;
    }
    if (!isWriting) return;
    stop();
    keep();
    await lookBack();
  }

  function stop() {
    isWriting = false;
    write.textContent = "Write";
  }

  // An edited text has no tokens after it yet.
  function cut() {
    stop();
    running.abort();
    isCurrent = false;
    state.tokens = [];
  }

  function draw() {
    const { next: rows, drawn, candidates, vocabulary, entropy } = state.next;
    topK.set(topK.value, Math.min(vocabulary, 100));
    undo.disabled = clear.disabled = !state.tokens.length;
    written.hidden = !state.tokens.length;
    fill(written, h("span", { class: "given" }, text.value), h("strong", {}, state.next.text));
    facts.textContent = `${candidates.toLocaleString("en")} of ${vocabulary.toLocaleString("en")} tokens can be drawn. ` +
      `Entropy ${entropy.toFixed(2)} nats. Seed ${settings().seed} draws ${visible(drawn.token)}.`;
    readout.textContent = "";
    distribution.draw(ranking({ title: "Next token", width: roomOf(distribution.element, 620), note: ", which appends it",
      rows: rows.map((row) => ({ label: visible(row.token), values: [row.probability], ghost: row.unshaped, isOut: row.probability === 0,
        text: row.probability === 0 ? "–" : percent(row.probability) })),
      at(i) {
        const row = rows[i];
        readout.textContent = `${visible(row.token)}: drawn with ${percent(row.probability)}; ${percent(row.unshaped)} at temperature 1` +
          (row.id === drawn.id ? `; seed ${settings().seed} draws it` : "");
      },
      pick(i) {
        stop();
        if (rows[i].id === state.next.end) {
          status.textContent = "The end-of-text token ends the text.";
        } else if (state.next.room > 1) {
          state.tokens.push(rows[i].id);
          settle();
        }
      } }));
  }

  async function lookBack() {
    reading.abort();
    reading = new AbortController();
    try {
      const body = { ...changed(), text: text.value, tokens: state.tokens, top: 6 };
      state.surprise = await postJson("/api/surprise", body, reading.signal);
      drawSurprise();
    } catch (error) {
      showProblem(problem, error);
    }
    await look(text.value + state.next.text);
  }

  function drawSurprise() {
    const { tokens, logprob, perplexity } = state.surprise;
    total.textContent = tokens.length ? `Log-probability ${logprob.toFixed(2)} in ${tokens.length} token${tokens.length === 1 ? "" : "s"}, ` +
      `perplexity ${short(perplexity)}.` : "The text is empty.";
    said.textContent = "";
    surprises.draw(surprising({ tokens, title: "Tokens of the text", width: roomOf(surprises.element, 1150),
      at(i) {
        said.textContent = `${visible(tokens[i].token)}: ${percent(tokens[i].probability)}, rank ${tokens[i].rank.toLocaleString("en")}`;
      },
      pick(i) {
        state.token = state.token === i ? null : i;
        keep();
        drawAlternatives(alternatives, tokens[state.token], visible);
      } }));
    drawAlternatives(alternatives, tokens[state.token], visible);
  }

  async function fillBlank() {
    filling.abort();
    filling = new AbortController();
    const candidates = words.value.split(",").map((word) => word.trim()).filter(Boolean);
    const body = { ...changed(), text: blank.value, n: 12, ...(candidates.length ? { candidates } : {}) };
    fill(blankProblem, h("p", { class: "hint", role: "status" }, "Ranking words …"));
    try {
      state.words = (await postJson("/api/fill", body, filling.signal)).words;
      fill(blankProblem, !state.words.length && h("p", { class: "hint" }, "The model proposes no word: name some to choose from."));
      drawWords();
    } catch (error) {
      showProblem(blankProblem, error);
    }
  }

  function drawWords() {
    fillings.element.hidden = !state.words.length;
    if (!state.words.length) return;
    wordReadout.textContent = "";
    fillings.draw(ranking({ title: "Words for the blank", width: roomOf(fillings.element), top: 1,
      rows: state.words.map((row) => ({ label: row.word, values: [row.probability], text: `${percent(row.probability)}, log p ${row.logprob.toFixed(2)}` })),
      at(i) { wordReadout.textContent = `${state.words[i].text}: log-probability ${state.words[i].logprob.toFixed(3)}`; } }));
  }

  async function rank() {
    scoring.abort();
    scoring = new AbortController();
    const texts = rivals.value.split("\n").map((line) => line.trim()).filter(Boolean);
    fill(rivalProblem);
    if (!texts.length) return;
    try {
      state.scores = (await postJson("/api/score", { ...changed(), texts }, scoring.signal)).scores;
      drawScores();
    } catch (error) {
      showProblem(rivalProblem, error);
    }
    if (!can("generate")) await look(texts[0]);
  }

  // Each bar is the probability among the sentences compared, so that a difference of one log-probability is visible.
  function drawScores() {
    const best = state.scores[0].logprob, weights = state.scores.map((row) => Math.exp(row.logprob - best));
    const sum = weights.reduce((a, b) => a + b, 0);
    rivalReadout.textContent = "";
    scores.draw(ranking({ title: "Sentences by probability", width: roomOf(scores.element), top: 1, above: true,
      rows: state.scores.map((row, i) => ({ label: row.text, values: [weights[i] / sum],
        text: `${percent(weights[i] / sum)}, log p ${row.logprob.toFixed(2)}` })),
      at(i) {
        const row = state.scores[i];
        rivalReadout.textContent = `${row.text}: log-probability ${row.logprob.toFixed(3)} in ${row.tokens} tokens, perplexity ${short(row.perplexity)}`;
      } }));
  }

  function begin(params) {
    stop();
    read(params);
    keep();
    if (can("generate")) settle();
    fillings.element.hidden = true;
    fill(blankProblem);
    if (can("fill") && params.has("blank")) fillBlank(); // a language model samples continuations to propose words: not unasked
    if (can("score")) rank();
  }

  begin(context.params);
  return {
    update: begin,
    unmount() { stop(); attention.stop(); for (const one of [running, reading, filling, scoring, looking]) one.abort(); },
  };
}

// Translators have a page of their own, and score translations of a source only.
const accepts = ({ verbs }) => verbs.includes("score") && !verbs.includes("translate");
export default { title: "Language model", verb: "generate", accepts, mount,
  kept: ["text", "temperature", "top_k", "top_p", "seed", "blank", "words", "rivals"] };
