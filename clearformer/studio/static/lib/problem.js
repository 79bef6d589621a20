// An error as a sentence and a hint.

import { h, fill } from "./dom.js";

export function showProblem(where, error) {
  if (error.name === "AbortError") return;
  fill(where, h("div", { class: "problem", role: "alert" }, h("p", {}, sentence(error.message)),
    error.hint && h("p", { class: "hint" }, sentence(error.hint))));
}

function sentence(text) {
  const first = text[0].toUpperCase() + text.slice(1);
  return /[.?!)]$/.test(text) ? first : `${first}.`;
}
