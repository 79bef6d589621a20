// A page without a model of its kind: one sentence, and what to type.

import { fill, h } from "./dom.js";

export function missing(context, sentence, ...commands) {
  fill(context.root, h("h1", {}, context.page.title), h("section", { class: "card missing" }, h("p", {}, sentence),
    commands.map((command) => h("pre", { tabindex: "0" }, h("code", {}, command)))));
  return { update() {}, unmount() {} };
}
