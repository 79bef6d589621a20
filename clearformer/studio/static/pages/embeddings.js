// Embeddings: the neighbours of a word or of a sum of words, and a map of words in two and three dimensions.

import { postJson } from "../lib/api.js";
import { choice, fill, h, pausing, percent, tokenText } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { largest, matrix, matrixTable } from "../lib/heat.js";
import { showMissing } from "../lib/nomodel.js";
import { showProblem } from "../lib/problem.js";
import { ranking, roomOf } from "../lib/ranking.js";
import { scatter } from "../lib/scatter.js";

const TURN = [0.6, 0.35];
const TRAIN = "clearformer train --text play.txt --out runs/play";

// ▁king -> king: a word as it can be typed.
const typed = (token) => token.replace(/^([▁Ġ]|##)/, "");

function mount(context) {
  if (!context.model) {
    showMissing(context.root, "Embeddings", "a model of text", TRAIN);
    return { update() {}, unmount() {} };
  }
  const state = { neighbours: [], map: null, word: null, words: null, view: "2d", turn: TURN, table: null };
  let asking = new AbortController(), drawing = new AbortController();

  const word = h("input", { id: "word", type: "text", maxlength: 500, autocomplete: "off", spellcheck: "false",
    oninput: pausing(450, () => { state.word = word.value; keep(); ask(); }) });
  const problem = h("div", {});
  const readout = h("p", { class: "readout", role: "status" });
  const add = h("button", { type: "button", class: "quiet", onclick: () => addToMap() }, "Show on the map");
  const list = figure({ title: "Neighbours", name: "neighbours", json: () => ({ model: context.model.name, word: word.value,
    neighbours: state.neighbours }), table: () => ({ columns: ["word", "cosine"],
    rows: state.neighbours.map((row) => [tokenText(row.word), row.cosine.toFixed(4)]) }) });

  const words = h("textarea", { id: "words", rows: 2, maxlength: 5000, spellcheck: "false",
    oninput: pausing(450, () => { state.words = words.value; keep(); place(); }) });
  const mapProblem = h("div", {});
  const views = h("div", {}), tables = h("div", {});
  const mapReadout = h("p", { class: "readout", role: "status" });
  const explained = h("p", { class: "hint explained" });
  const map = figure({ title: "Map", name: "embeddings", json: () => ({ model: context.model.name, ...state.map }), table: () => ({
    columns: ["word", "1st", "2nd", "3rd", "norm"], rows: state.map.tokens.map((name, i) => [name,
      ...[0, 1, 2].map((k) => state.map.points[i][k]?.toFixed(3) ?? "–"), state.map.norms[i].toFixed(3)]) }) });
  const cosines = figure({ title: "Cosines", name: "cosines", json: () => ({ model: context.model.name, tokens: state.map.tokens,
    cosines: state.map.cosines }), table: () => matrixTable(state.map.cosines.flat(), state.map.tokens, state.map.tokens) });
  const cosineReadout = h("p", { class: "readout", role: "status" });

  fill(context.root, h("h1", {}, "Embeddings"),
    h("section", { class: "card" }, h("h2", { class: "heading" }, "Neighbours"),
      h("form", { onsubmit: (event) => { event.preventDefault(); keep(); ask(); } },
        h("label", { for: "word" }, "A word, or a sum such as king - man + woman"), word), problem,
      h("p", { class: "hint" }, "The words whose embeddings point in the most similar direction. Choose one to see its neighbours."),
      list.element, readout, h("div", { class: "row" }, add)),
    h("section", { class: "card" }, h("h2", { class: "heading" }, "Map"),
      h("form", { onsubmit: (event) => { event.preventDefault(); keep(); place(); } }, h("label", { for: "words" }, "Words"), words,
        h("div", { class: "row" }, views, tables)),
      mapProblem, explained,
      h("div", { class: "twofigures" }, h("div", {}, map.element, mapReadout), h("div", {}, cosines.element, cosineReadout))));

  function read(params) {
    state.word = params.get("word");
    state.words = params.get("words");
    word.value = state.word ?? "";
    words.value = state.words ?? "";
    state.view = params.get("view") === "3d" ? "3d" : "2d";
    const turn = (params.get("turn") ?? "").split(",").map(Number);
    state.turn = turn.length === 2 && turn.every(Number.isFinite) ? turn : TURN;
    state.table = params.get("table");
    const isPair = context.model.verbs.includes("translate");
    if (!isPair) state.table = null;
    fill(views, choice("Map", { "2d": "Flat", "3d": "Turnable" }, state.view, (value) => { state.view = value; keep(); drawMap(); }));
    fill(tables, isPair && choice("Vocabulary", { source: "Source", target: "Target" }, state.table ?? "source", (value) => {
      state.table = value;
      keep();
      place();
    }));
  }

  function keep() {
    const isTurned = state.turn.some((angle, i) => Math.abs(angle - TURN[i]) > 1e-6);
    context.keep({ word: state.word, words: state.words,
      view: state.view === "3d" ? "3d" : null, table: state.table === "target" ? "target" : null,
      turn: isTurned ? state.turn.map((angle) => angle.toFixed(3)).join(",") : null });
  }

  async function ask() {
    asking.abort();
    asking = new AbortController();
    if (!word.value.trim()) return;
    try {
      const body = { model: context.model.name, word: word.value, n: 12 };
      state.neighbours = (await postJson("/api/neighbours", body, asking.signal)).neighbours;
      fill(problem);
      drawNeighbours();
    } catch (error) {
      showProblem(problem, error);
    }
  }

  function drawNeighbours() {
    list.title(`Neighbours of ${word.value}`);
    readout.textContent = "";
    list.draw(ranking({ title: `Neighbours of ${word.value}`, width: roomOf(list.element, 620), top: 1,
      rows: state.neighbours.map((row) => ({ label: tokenText(row.word), values: [Math.max(row.cosine, 0)], text: row.cosine.toFixed(3) })),
      at(i) { readout.textContent = `${tokenText(state.neighbours[i].word)}: cosine ${state.neighbours[i].cosine.toFixed(4)}`; },
      pick(i) { word.value = state.word = typed(state.neighbours[i].word); keep(); ask(); } }));
  }

  function addToMap() {
    const terms = word.value.split(/\s+/).filter((term) => !/^[+\-−]$/.test(term));
    const near = state.neighbours.slice(0, 5).map((row) => typed(row.word)).filter(Boolean);
    words.value = [...new Set([...words.value.split(/[\s,]+/).filter(Boolean), ...terms, ...near])].join(" ");
    state.words = words.value;
    keep();
    place();
  }

  // A word that the vocabulary does not have is left out of the map, and named. Without words, the server chooses some.
  async function place() {
    drawing.abort();
    drawing = new AbortController();
    const layer = context.model.verbs.includes("translate") ? { layer: state.table ?? "source" } : {};
    try {
      const body = { model: context.model.name, ...(state.words === null ? {} : { words: words.value }), ...layer };
      const { maps: [map], unknown } = await postJson("/api/vectors", body, drawing.signal);
      state.map = map;
      if (state.words === null) words.value = map.tokens.join(" ");
      fill(mapProblem, unknown.length > 0 && h("p", { class: "hint warning" }, `Not in the vocabulary: ${unknown.join(", ")}.`));
      drawMap();
    } catch (error) {
      showProblem(mapProblem, error);
    }
  }

  function drawMap() {
    if (!state.map) return;
    const { tokens, points, explained: parts, cosines: all } = state.map;
    const is3d = state.view === "3d";
    const shown = parts.slice(0, is3d ? 3 : 2);
    explained.textContent = `Principal components of these words. The map shows ${percent(shown.reduce((a, b) => a + b, 0))} of their variance` +
      (is3d ? ": drag it, or use the arrow keys." : ".");
    mapReadout.textContent = cosineReadout.textContent = "";
    const title = is3d ? "Map in three dimensions" : "Map in two dimensions";
    map.title(title);
    map.draw(scatter({ points, names: tokens, title, width: roomOf(map.element, 620), turn: is3d ? state.turn : null,
      marked: new Set(word.value.split(/\s+/)), axes: parts.map((part, k) => `${["1st", "2nd", "3rd"][k]} (${percent(part)})`),
      at(i) {
        const near = tokens.map((name, j) => [all[i][j], name]).filter((_, j) => j !== i).sort((a, b) => b[0] - a[0]).slice(0, 3);
        mapReadout.textContent = `${tokens[i]}: nearest ${near.map(([cosine, name]) => `${name} ${cosine.toFixed(2)}`).join(", ")}`;
      },
      turnTo(turn) { state.turn = turn; keep(); } }));
    const values = Float32Array.from(all.flat());
    cosines.draw(matrix({ values, rows: tokens, columns: tokens, title: "Cosines", top: largest(values),
      at(i, j) { cosineReadout.textContent = `${tokens[i]}, ${tokens[j]}: cosine ${all[i][j].toFixed(4)}`; } }));
  }

  async function begin(params) {
    read(params);
    if (state.word !== null) ask();
    await place();
    if (state.word !== null || !state.map) return;
    word.value = state.map.tokens[0]; // the map has found a word that the vocabulary has
    ask();
    drawMap();
  }

  begin(context.params);
  return {
    update: begin,
    unmount() { asking.abort(); drawing.abort(); },
  };
}

export default { title: "Embeddings", verb: "neighbours", mount, kept: ["word", "words", "view", "turn"] };
