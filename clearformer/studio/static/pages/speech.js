// Speech: a recording from the waveform to the transcript, with the frames in which the model hears each token.

import { postFile } from "../lib/api.js";
import { ticks } from "../lib/curves.js";
import { fill, h, percent, s, tokenText } from "../lib/dom.js";
import { figure } from "../lib/figure.js";
import { filePicker } from "../lib/files.js";
import { missing } from "../lib/missing.js";
import { mapUrl } from "../lib/pixels.js";
import { showProblem } from "../lib/problem.js";
import { canRecord, recorder } from "../lib/record.js";
import { textWidth } from "../lib/shades.js";

const LEFT = 64, RIGHT = 10, WAVE = 70, MEL = 110, SPIKES = 120, WORDS = 24, GAP = 14, LABEL = 17, COLOURS = 8;
const LONGEST = 6000; // pixels

function mount(context) {
  if (!context.model) {
    return missing(context, "No model here recognises speech yet. Train one on recordings with transcripts, then start the studio with it:",
      "clearformer train --recordings digits.tsv --out runs/digits", "clearformer studio --runs runs/");
  }
  const state = { values: null, at: null, file: null };
  let running = new AbortController(), url = null, drawn = null, frame = 0;

  const problem = h("div", {}), status = h("p", { class: "hint", role: "status" });
  const microphone = canRecord() ? recorder({ take: (file) => picker.use(file), fail: (error) => showProblem(problem, error) }) : null;
  const picker = filePicker({ kind: "audio", context, noun: "a recording", formats: "WAV, FLAC, OGG, MP3 or AIFF of at most 60 seconds",
    accept: "audio/*,.flac,.opus,.aiff,.aif", more: microphone ? [microphone.element] : [], take: (file) => { state.file = file; run(); },
    fail: (error) => showProblem(problem, error) });
  const sound = h("audio", { controls: true, preload: "auto", "aria-label": "The recording", hidden: true,
    onplay: () => follow(), onseeked: () => move(sound.currentTime), onerror: () => { if (url) status.textContent = "This browser cannot play the file."; } });
  const transcript = h("p", { class: "translation", "aria-live": "polite", "aria-label": "Transcript" });
  const words = h("div", { class: "tokens", role: "group", "aria-label": "Words of the transcript" });
  const readout = h("p", { class: "readout" });
  const picture = figure({ title: "What the model hears", name: "speech", json: () => state.values, table: () => ({
    columns: ["token", "from", "to", "probability"], rows: state.values.spikes.map(({ token, start, end, probability }) =>
      [tokenText(token), seconds(start * step()), seconds(end * step()), percent(probability)]) }) });
  const card = h("section", { class: "card", "aria-label": "What the model hears", hidden: true }, picture.element, readout,
    h("p", { class: "hint" }, "From above: waveform, log-mel frames, and the probability of each token by frame (CTC). Between the spikes, the " +
      "model hears the blank, dashed. Left and right arrow keys move along the frames, Enter plays and pauses."));

  fill(context.root, h("h1", {}, "Speech"), problem, h("div", { class: "pair" },
    h("section", { class: "card", "aria-label": "Recording" }, h("h2", { class: "heading" }, "Recording"), picker.element),
    h("section", { class: "card", "aria-label": "Transcript" }, h("h2", { class: "heading" }, "Transcript"), transcript, words, sound, status)), card);

  function read(params) { state.at = params.has("at") ? Number(params.get("at")) : null; }
  function step() { return state.values.seconds_per_frame; }

  async function run() {
    running.abort();
    running = new AbortController();
    fill(problem);
    status.textContent = "Transcribing …";
    try {
      state.values = await postFile("/api/files/lens/ctc", { model: context.model.name }, state.file.bytes, running.signal);
      status.textContent = "";
      play();
      draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      status.textContent = "";
      card.hidden = sound.hidden = true;
      transcript.textContent = "";
      fill(words);
      showProblem(problem, error);
    }
  }

  function play() {
    if (url) URL.revokeObjectURL(url);
    url = URL.createObjectURL(new Blob([state.file.bytes]));
    sound.src = url;
    sound.hidden = false;
  }

  function draw() {
    const { values } = state;
    transcript.textContent = values.transcript || "–";
    if (!values.transcript) status.textContent = "The model hears no words.";
    fill(words, values.words.map(({ word, start, end }) => h("button", { type: "button", class: "token", style: { "--p": "0" },
      "aria-label": `${word}, from ${seconds(start)} to ${seconds(end)}: play`, onclick: () => { seek(start); sound.play(); } },
    h("span", {}, word), h("small", {}, seconds(start)))));
    card.hidden = false;
    drawn = hearing(values, Math.max(280, card.clientWidth - 36));
    drawn.svg.addEventListener("pointermove", (event) => say(drawn.timeAt(event)));
    drawn.svg.addEventListener("click", (event) => seek(drawn.timeAt(event)));
    drawn.frame.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) seek((Math.floor((state.at ?? -step()) / step() + 1e-6) + by + 0.5) * step());
      else if (event.key === "Home" || event.key === "End") seek(event.key === "Home" ? 0 : values.seconds);
      else if (event.key === "Enter" || event.key === " ") sound.paused ? sound.play() : sound.pause();
      else return;
      event.preventDefault();
    });
    picture.draw(drawn.frame);
    readout.textContent = "";
    if (state.at !== null) { move(state.at); say(state.at); }
  }

  // Move the cursor, in the address too.
  function seek(time) {
    state.at = Math.max(0, Math.min(state.values.seconds, time));
    context.keep({ at: Number(state.at.toFixed(3)) });
    sound.currentTime = state.at;
    move(state.at);
    say(state.at);
  }

  function move(time) { drawn?.move(time); }

  function say(time) {
    const { tokens, probabilities, blank } = state.values, t = Math.max(0, Math.min(blank.length - 1, Math.floor(time / step())));
    const some = [["blank", blank[t]], ...tokens.map((token, k) => [tokenText(token), probabilities[k][t]])].sort((a, b) => b[1] - a[1]);
    readout.textContent = `${seconds(time)}: ${some.slice(0, 3).map(([token, value]) => `${token} ${percent(value)}`).join(", ")}`;
  }

  function follow() {
    cancelAnimationFrame(frame);
    move(sound.currentTime);
    say(sound.currentTime);
    if (!sound.paused && !sound.ended) frame = requestAnimationFrame(follow);
  }

  read(context.params);
  picker.begin(context.params);
  return {
    update(params) { running.abort(); read(params); picker.begin(params); },
    unmount() {
      running.abort();
      picker.end();
      microphone?.end();
      cancelAnimationFrame(frame);
      sound.pause();
      if (url) URL.revokeObjectURL(url);
    },
  };
}

function seconds(time) { return `${time.toFixed(2)} s`; }

// The figure: panels above each other, with time from left to right.
function hearing(values, room) {
  const width = Math.min(LONGEST, Math.max(room, LEFT + RIGHT + values.seconds * 70)), inside = width - LEFT - RIGHT;
  const x = (time) => LEFT + inside * (time / values.seconds);
  const levels = labelLevels(values, x), top = 6, mel = top + WAVE + GAP, spikes = mel + MEL + GAP + levels.n * LABEL;
  const below = spikes + SPIKES + GAP, axis = below + WORDS, height = axis + 26;
  const { low, high } = values.wave, loudest = Math.max(0.05, ...high.map(Math.abs), ...low.map(Math.abs));
  const y = (value) => top + (WAVE / 2) * (1 - value / loudest), at = (i) => LEFT + (inside * (i + 0.5)) / low.length;
  const outline = [...high.map((value, i) => `${at(i).toFixed(1)} ${y(value).toFixed(1)}`),
    ...low.map((value, i) => `${at(i).toFixed(1)} ${(y(value) + 0.5).toFixed(1)}`).reverse()].join("L");
  const p = (value) => (spikes + SPIKES * (1 - value)).toFixed(1), middle = (t) => x(Math.min(values.seconds, (t + 0.5) * values.seconds_per_frame)).toFixed(1);
  const line = (row) => row.map((value, t) => `${middle(t)},${p(value)}`).join(" ");
  const cursor = s("line", { class: "axis now", y1: top, y2: axis, visibility: "hidden" });
  const name = (text, y0) => s("text", { class: "label end soft", x: LEFT - 8, y: y0, "font-size": 11 }, text);
  const melEnd = Math.min(values.seconds, values.mel[0].length * values.mel_hop);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "hearing",
    "aria-label": `What the model hears: ${values.transcript || "no words"}` },
  name("waveform", top + WAVE / 2), name("log-mel", mel + MEL / 2), name("100 %", spikes + 5), name("tokens", spikes + SPIKES / 2), name("0 %", spikes + SPIKES - 4),
  values.words.length > 0 && name("words", below + 9),
  s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(0), y2: y(0) }), s("path", { class: "heat wave", d: `M${outline}Z` }),
  s("image", { href: mapUrl([...values.mel].reverse()), x: LEFT, y: mel, width: x(melEnd) - LEFT, height: MEL, preserveAspectRatio: "none",
    "image-rendering": "pixelated" }),
  [0, 0.5, 1].map((value) => s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: p(value), y2: p(value) })),
  s("polyline", { class: "curve dashed colour7 blank", points: line(values.blank) }),
  values.probabilities.map((row, k) => s("polyline", { class: `curve colour${k % (COLOURS - 1)} spike`, points: line(row), "data-token": values.tokens[k] })),
  levels.labels.map(({ text, at: place, level }) => s("text", { class: "label middle", x: place.toFixed(1), y: spikes - 9 - level * LABEL, "font-size": 12 }, text)),
  wordPlaces(values.words, x, width).map(({ word, start, end, at: place }) => s("g", { class: "word" },
    s("rect", { class: "heat", "fill-opacity": 0.16, x: x(start).toFixed(1), width: Math.max(3, x(end) - x(start)).toFixed(1), y: below, height: WORDS - 6, rx: 3 }),
    place !== null && s("text", { class: "label middle", "font-size": 12, y: below + 9, x: place.toFixed(1) }, word))),
  s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: axis, y2: axis }),
  ticks(0, values.seconds, Math.max(2, Math.round(inside / 110))).map((time) => s("text", { class: "label middle", x: x(time), y: axis + 13, "font-size": 11 },
    `${Number(time.toFixed(3))} s`)), cursor);
  const frame = h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": `What the model hears: ${values.transcript || "no words"}. Left and right arrow keys move along the frames, Enter plays.` }, svg);
  return {
    svg, frame,
    timeAt(event) {
      const box = svg.getBoundingClientRect(), place = ((event.clientX - box.left) / box.width) * width;
      return Math.max(0, Math.min(values.seconds, ((place - LEFT) / inside) * values.seconds));
    },
    move(time) {
      cursor.setAttribute("x1", x(time));
      cursor.setAttribute("x2", x(time));
      cursor.setAttribute("visibility", "visible");
      const place = x(time) * (svg.getBoundingClientRect().width / width);
      if (place < frame.scrollLeft || place > frame.scrollLeft + frame.clientWidth) frame.scrollLeft = place - frame.clientWidth / 3;
    },
  };
}

// Where the words are written: below their times, unless the word before is in the way.
function wordPlaces(words, x, width) {
  let free = LEFT;
  return words.map((one) => {
    const half = textWidth(one.word, 12) / 2, at = Math.max(LEFT + half, Math.min(width - RIGHT - half, (x(one.start) + x(one.end)) / 2));
    if (at - half < free) return { ...one, at: null };
    free = at + half + 4;
    return { ...one, at };
  });
}

// A label above each spike; labels that would overlap go to another level.
function labelLevels({ spikes, seconds_per_frame, seconds: end }, x) {
  const free = [], labels = spikes.map(({ token, start, end: stop }) => {
    const text = tokenText(token), at = x(Math.min(end, ((start + stop) / 2) * seconds_per_frame)), half = textWidth(text, 12) / 2 + 4;
    let level = free.findIndex((from) => from <= at - half);
    if (level < 0) level = free.length < 3 ? free.length : free.indexOf(Math.min(...free));
    free[level] = at + half;
    return { text, at, level };
  });
  return { n: Math.max(1, free.length), labels };
}

export default { title: "Speech", verb: "transcribe", mount };
