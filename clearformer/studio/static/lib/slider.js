// A labelled slider: slider({ label, min, max, step, text, change }), with set(value) and the number `value`.

import { h } from "./dom.js";

export function slider({ id, label, min, max, step, text = String, change }) {
  const shown = h("output", { for: id });
  const show = () => {
    shown.textContent = text(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  const input = h("input", { id, type: "range", min, max, step, oninput: () => { show(); change(Number(input.value)); } });
  show();
  return {
    element: h("div", { class: "slider" }, h("label", { for: id }, label), input, shown),
    get value() { return Number(input.value); },
    set(value, most = max) {
      input.max = most;
      input.value = value;
      show();
    },
  };
}
