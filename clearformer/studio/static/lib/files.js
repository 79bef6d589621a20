// A file that a user drops, pastes, chooses or records, or an example of the model's validation data.
//
// The bytes stay in this window: a page that is opened later still has them. Only an example is in the address.

import { getBytes, getJson } from "./api.js";
import { fill, h } from "./dom.js";

const MOST_BYTES = 25_000_000; // as the server: `upload` in serve/limits.py
const held = new Map(); // kind -> { bytes, name }

// filePicker({ kind, context, noun, formats, accept, take, fail }): take({ bytes, name, example }) is called for every
// new file, fail(error) if there is none. `thumbs` shows examples as images, `more` are further buttons.
export function filePicker({ kind, context, noun, formats, accept, take, fail, thumbs = false, more = [] }) {
  let example = null, offered = [], controller = new AbortController(), turn = 0; // a newer file ends what waits for an older one
  const input = h("input", { type: "file", accept, id: `file-${kind}`, class: "hidden", onchange: () => use(input.files[0]) });
  const name = h("p", { class: "hint filename", role: "status" });
  const shelf = h("div", { class: "examples", role: "group", "aria-label": "Examples of the validation data" });
  const zone = h("div", { class: "drop" },
    h("p", {}, h("strong", {}, `Drop ${noun} here`), kind === "image" ? ", paste it, or " : ", or "),
    h("p", { class: "row" }, input, h("label", { for: input.id, class: "button" }, `Choose ${noun}`), more),
    h("p", { class: "hint" }, `${formats}, at most ${MOST_BYTES / 1e6} MB. It is sent to this computer's server only.`), name);
  const element = h("div", { class: "files" }, zone, shelf);

  const over = (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault(); // else the browser would leave the page and open the file
    zone.classList.toggle("over", event.type === "dragover");
    if (event.type === "drop") use(event.dataTransfer.files[0]);
  };
  const paste = (event) => {
    const file = [...event.clipboardData.files].find(({ type }) => type.startsWith(`${kind}/`));
    if (file) use(file);
  };
  for (const type of ["dragover", "dragleave", "drop"]) document.addEventListener(type, over);
  if (kind === "image") document.addEventListener("paste", paste);

  async function use(file) {
    if (!file) return;
    input.value = "";
    if (file.size > MOST_BYTES) {
      fail({ message: `${file.name} has ${(file.size / 1e6).toFixed(1)} MB, but at most ${MOST_BYTES / 1e6} MB can be sent`,
        hint: `choose a smaller file` });
      return;
    }
    const mine = ++turn, bytes = await file.arrayBuffer();
    if (mine !== turn) return;
    controller.abort();
    held.set(kind, { bytes, name: file.name });
    example = null;
    show();
  }

  async function useExample(index) {
    const mine = ++turn;
    controller.abort();
    controller = new AbortController();
    try {
      const bytes = await getBytes(exampleUrl(index), controller.signal);
      if (mine !== turn) return;
      example = index;
      const place = offered.findIndex((one) => one.index === index);
      give({ bytes, name: place < 0 ? `Example ${index} of the validation data` : `Example ${place + 1}: ${offered[place].name}` });
    } catch (error) {
      if (error.name !== "AbortError") fail(error);
    }
  }

  function exampleUrl(index) { return `/api/examples/${index}?model=${encodeURIComponent(context.model.name)}`; }

  function show() { give(held.get(kind)); }

  function give(file) {
    context.keep({ example: example ?? null });
    name.textContent = file.name;
    for (const button of shelf.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.index) === example));
    }
    take({ ...file, example });
  }

  // Show what the address names, else the file that is held, else the first example.
  async function begin(params) {
    const mine = ++turn;
    try {
      offered = (await getJson(`/api/examples?model=${encodeURIComponent(context.model.name)}`)).examples;
    } catch (error) {
      fail(error);
      return;
    }
    fill(shelf, offered.length > 0 && h("span", { class: "hint" }, "Examples of the validation data"),
      offered.map(({ index, name: label }, i) => h("button", { type: "button", class: thumbs ? "example thumbnail" : "example quiet",
        "data-index": index, "aria-pressed": "false", "aria-label": `Example ${i + 1}: ${label}`, title: label,
        onclick: () => useExample(index) }, thumbs ? h("img", { src: exampleUrl(index), alt: "", width: 40, height: 40 }) : label)));
    if (mine !== turn) return;
    const wanted = params.has("example") ? Number(params.get("example")) : null;
    if (wanted !== null) await useExample(wanted);
    else if (held.has(kind)) { example = null; show(); }
    else if (offered.length) await useExample(offered[0].index);
    else name.textContent = "";
  }

  return {
    element, begin, use,
    end() {
      controller.abort();
      for (const type of ["dragover", "dragleave", "drop"]) document.removeEventListener(type, over);
      document.removeEventListener("paste", paste);
    },
  };
}
