// The frame of every picture: a caption, the picture as an SVG file, its numbers as JSON and as a table.

import { fill, h, s } from "./dom.js";

const STYLES = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "font-size",
  "font-family", "font-weight", "text-anchor", "dominant-baseline", "opacity", "shape-rendering"];

export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// The picture as a file of its own: the page's style sheet is written into its elements. An element with `vector()` has
// its part of the picture on a canvas, and as shapes here.
export function asFile(svg) {
  const copy = svg.cloneNode(true);
  const pairs = [[svg, copy]];
  while (pairs.length) {
    const [from, to] = pairs.pop();
    const style = getComputedStyle(from);
    for (const name of STYLES) to.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex"]) to.removeAttribute(name);
    [...from.children].forEach((child, i) => pairs.push([child, to.children[i]]));
    if (from.vector) to.append(...from.vector());
  }
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.prepend(s("rect", { width, height, fill: getComputedStyle(svg.closest(".card")).backgroundColor }));
  return new XMLSerializer().serializeToString(copy);
}

// figure({ title, name, json, table }): `json` returns an object and `table` { columns, rows }, both when asked for.
// The result has draw(element), with the picture inside the element, and title(text).
export function figure({ title, name, json, table, level = "h3" }) {
  const heading = h(level, {}, title);
  const picture = h("div", { class: "picture" });
  const numbers = h("div", { class: "numbers", tabindex: "0", role: "region", "aria-label": `${title}: table` });
  const details = h("details", { ontoggle: () => details.open && fill(numbers, tableOf(table(), title)) },
    h("summary", {}, "Table"), numbers);
  const tools = h("div", { class: "tools" },
    h("button", { type: "button", class: "quiet", "aria-label": `${title}: save as SVG`,
      onclick: () => save(`${name}.svg`, "image/svg+xml", asFile(picture.querySelector("svg"))) }, "SVG"),
    h("button", { type: "button", class: "quiet", "aria-label": `${title}: save numbers as JSON`,
      onclick: () => save(`${name}.json`, "application/json", JSON.stringify(json(), null, 1)) }, "JSON"));
  const frame = h("figure", { class: "figure" }, h("div", { class: "caption" }, heading, tools), picture, details);
  return {
    element: frame,
    draw(element) {
      const hadFocus = picture.contains(document.activeElement);
      fill(picture, element);
      if (hadFocus) element.focus({ preventScroll: true });
      if (details.open) fill(numbers, tableOf(table(), title));
    },
    title(text) { heading.textContent = text; },
  };
}

function tableOf({ columns, rows }, caption) {
  return h("table", {}, h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, columns.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows.map(([first, ...cells]) =>
      h("tr", {}, h("th", { scope: "row" }, first), cells.map((text) => h("td", {}, text))))));
}
