// What a model reads, as a form: a text, the two texts of a pair, an image or a recording.

import { activations, getJson, postFile, postJson, tensorsOfFile } from "./api.js";
import { fill, h, pausing } from "./dom.js";
import { filePicker } from "./files.js";
import { canRecord, recorder } from "./record.js";

const IMAGES = ["image-classification", "reconstruction"];
const FILES = {
  image: { kind: "image", title: "Image", noun: "an image", formats: "PNG, JPEG, WebP, GIF, BMP or TIFF", accept: "image/*", thumbs: true },
  audio: { kind: "audio", title: "Recording", noun: "a recording", formats: "WAV, FLAC, OGG, MP3 or AIFF of at most 60 seconds",
    accept: "audio/*,.flac,.opus,.aiff,.aif" },
};

function kindOf(model) {
  return IMAGES.includes(model.task) ? "image" : model.verbs.includes("transcribe") ? "audio" : "text";
}

// modelInput({ context, example, off, changed, fail }): off() names the heads that are off, changed() is called for every
// new input, fail(error) if there is none.
// The result has element, begin(params), end(), keep(), and what the model shows of the input: activations and view.
export function modelInput({ context, example, off, changed, fail }) {
  let kind = "text", isPair = false, picker = null, file = null;
  const line = (id) => h("input", { id, type: "text", maxlength: 5000, autocomplete: "off", spellcheck: "false", oninput: pausing(450, changed) });
  const text = line("text"), pair = line("pair"), element = h("div", {});
  const model = () => context.model?.name;
  const written = () => (isPair ? `${text.value}\t${pair.value}` : text.value);

  function end() {
    picker?.end();
    picker = null;
  }

  // Show the form for the model that is chosen, with the input that the address names.
  async function begin(params) {
    end();
    file = null;
    kind = kindOf(context.model);
    text.value = params.get("text") ?? example;
    pair.value = params.get("pair") ?? "";
    if (kind !== "text") {
      const microphone = kind === "audio" && canRecord() ? recorder({ take: (one) => picker?.use(one), fail }) : null;
      picker = filePicker({ ...FILES[kind], context, fail, more: microphone ? [microphone.element] : [], take: (one) => { file = one; changed(); } });
      fill(element, h("h2", { class: "heading" }, FILES[kind].title), picker.element);
      await picker.begin(params);
      return;
    }
    isPair = context.model.verbs.includes("classify") && (await getJson(`/api/classes?model=${encodeURIComponent(model())}`)).is_pair;
    fill(element, h("label", { for: "text", class: "heading" }, "Text"), text,
      isPair && h("label", { for: "pair", class: "heading second" }, "Second text of the pair"), isPair && pair);
    await changed();
  }

  return {
    element, begin, end,
    get kind() { return kind; },
    get name() { return kind === "text" ? written() : file?.name; },
    get isReady() { return kind === "text" ? Boolean(text.value.trim() && (!isPair || pair.value.trim())) : file !== null; },
    keep() {
      const isText = kind === "text";
      return { text: isText && text.value !== example ? text.value : null, pair: isText && isPair ? pair.value : null };
    },
    activations(names, signal) {
      if (kind === "text") return activations({ text: written(), model: model(), names, off: off() }, signal);
      return tensorsOfFile("/api/files/activations", { model: model(), names, off: off() }, file.bytes, signal);
    },
    view(name, options, signal) {
      if (kind === "text") return postJson(`/api/lens/${name}`, { text: written(), model: model(), off: off(), ...options }, signal);
      return postFile(`/api/files/lens/${name}`, { model: model(), off: off(), ...options }, file.bytes, signal);
    },
  };
}
