// What to type when no model that the server knows fits a page.

import { fill, h } from "./dom.js";

export function showMissing(root, title, what, train) {
  fill(root, h("h1", {}, title),
    h("section", { class: "card nomodel" }, h("p", {}, `This page needs ${what}: type `, h("code", {}, train), ", then ",
      h("code", {}, "clearformer studio --runs runs/"), ".")));
}
