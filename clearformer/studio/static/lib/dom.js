// Elements by function call: h("button", { class: "quiet", onclick: run }, "Run"), and s(…) for SVG.

const SVG = "http://www.w3.org/2000/svg";

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, item] of Object.entries(value)) element.style.setProperty(key, item);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

// Put new children in place of the old ones.
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Radio buttons that look like one switch: choice("View", { matrix: "Matrix", lines: "Lines" }, "matrix", choose).
export function choice(legend, options, chosen, choose) {
  const name = `choice-${(choice.count = (choice.count ?? 0) + 1)}`;
  return h("fieldset", { class: "choice" }, h("legend", { class: "hidden" }, legend),
    Object.entries(options).map(([value, text]) => h("label", {},
      h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => choose(value) }),
      h("span", {}, text))));
}

// A function that waits until calls have paused.
export function pausing(milliseconds, call) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...args), milliseconds);
  };
}

export function percent(probability) {
  if (probability >= 0.9995) return "100 %";
  return probability >= 0.1 ? `${(100 * probability).toFixed(0)} %` : `${(100 * probability).toPrecision(2)} %`;
}

export function short(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 1e5 || size < 1e-3) return number.toExponential(1).replace("e+", "e");
  return size >= 100 ? number.toFixed(0) : size >= 1 ? number.toFixed(2) : number.toFixed(3);
}

// A token as it is shown: the sign for a space of many tokenizers stays visible, but small.
export function tokenText(token) {
  return token.replace(/^[▁Ġ]/, "␣").replaceAll(/[▁Ġ]/g, " ");
}
