// The frame of the studio: navigation, the choice of a model, light and dark, and routes.
//
// A page is a module in pages/ with `title`, `verb` (what its models must be able to do; null for any model, undefined
// for a page without models; instead, `accepts(model)` may decide) and `mount(context)`, which returns
// { update(params), unmount() }. `kept` names what stays in the address when another model is chosen. The route
// #/page?name=value holds everything that a page shows, so that a link reproduces it.

import { getJson } from "./lib/api.js";
import { h, fill } from "./lib/dom.js";
import { showProblem } from "./lib/problem.js";
import { PAGES } from "./pages/index.js";

const content = document.getElementById("content");
const picker = document.getElementById("model");
const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
let known = { models: [], default: null }, current = null;

export function readRoute(hash = location.hash) {
  const [id, query] = hash.replace(/^#\/?/, "").split("?");
  return { id: PAGES.some((page) => page.id === id) ? id : PAGES[0].id, params: new URLSearchParams(query ?? "") };
}

function writeRoute(id, params) {
  const query = params.toString();
  return `#/${id}${query ? `?${query}` : ""}`;
}

class Context {
  constructor(page) {
    this.page = page;
    this.root = h("div", { class: `page ${page.id}` });
  }

  get params() { return readRoute().params; }
  get model() { return known.models.find(({ name }) => name === picker.value); }

  // Write what the page shows to the address, without going there.
  keep(values) {
    const params = this.params;
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === undefined || value === "") params.delete(name);
      else params.set(name, value);
    }
    history.replaceState(null, "", writeRoute(this.page.id, params));
  }
}

function offerModels(page, params) {
  const fits = page.accepts ?? (({ verbs }) => page.verb === null || verbs.includes(page.verb));
  const models = known.models.filter((model) => !model.problem && fits(model));
  picker.parentElement.hidden = page.verb === undefined || !models.length;
  if (page.verb === undefined) return true;
  fill(picker, models.map(({ name }) => h("option", { value: name }, name)));
  const wanted = params.get("model");
  const isThere = models.some(({ name }) => name === wanted);
  if (wanted && !isThere) {
    const bad = known.models.find(({ name }) => name === wanted);
    const unfit = page.verb ? `${wanted} cannot ${page.verb}` : `${wanted} is not for this page`;
    showProblem(content, { message: bad?.problem ?? (bad ? unfit : `there is no model called ${wanted}`),
      hint: models.length ? "choose another model" : "start the studio with --model RUN" });
  }
  picker.value = isThere ? wanted : models.some(({ name }) => name === known.default) ? known.default : models[0]?.name ?? "";
  return !wanted || isThere;
}

// A link names its model, unless it is the one that every page begins with.
function keepModel(context) {
  if (!picker.parentElement.hidden && !context.params.has("model") && picker.value !== known.default) context.keep({ model: picker.value });
}

async function show() {
  const { id, params } = readRoute();
  const page = PAGES.find((one) => one.id === id);
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.dataset.page === id) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" }); // on a phone, not all pages fit
    } else link.removeAttribute("aria-current");
  }
  document.title = `${page.title} – Clearformer studio`;
  if (current?.page.id === id && current.mounted) {
    if (offerModels(current.module, params)) {
      keepModel(current.context);
      current.mounted.update(params);
    }
    return;
  }
  current?.mounted?.unmount?.();
  const mine = (current = { page });
  try {
    const module = (await page.load()).default;
    if (mine !== current) return;
    mine.module = module;
    const context = new Context({ ...module, id });
    if (!offerModels(module, params)) return;
    mine.context = context;
    keepModel(context);
    fill(content, context.root);
    mine.mounted = module.mount(context);
  } catch (error) {
    showProblem(content, error);
    throw error;
  }
}

function setTheme(theme) {
  localStorage.setItem("theme", theme);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = THEMES[theme];
  button.setAttribute("aria-label", `Colours: ${THEMES[theme].toLowerCase()}. Change`);
  document.dispatchEvent(new Event("theme")); // for pictures on a canvas
}

async function start() {
  if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", `/${location.hash}`);
  setTheme(localStorage.getItem("theme") in THEMES ? localStorage.getItem("theme") : "auto");
  document.getElementById("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    setTheme(names[(names.indexOf(localStorage.getItem("theme")) + 1) % names.length]);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    content.focus();
  });
  fill(document.getElementById("pages"), PAGES.map(({ id, title }) =>
    h("a", { href: `#/${id}`, "data-page": id }, title)));
  picker.addEventListener("change", () => {
    const { id, params } = readRoute();
    const kept = new URLSearchParams();
    for (const name of current.module?.kept ?? ["text", "search"]) if (params.has(name)) kept.set(name, params.get(name));
    kept.set("model", picker.value);
    location.hash = writeRoute(id, kept);
  });
  try {
    known = await getJson("/api/models");
  } catch (error) {
    showProblem(content, error);
    return;
  }
  addEventListener("hashchange", show);
  await show();
}

start();
