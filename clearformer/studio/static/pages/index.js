// All pages, in the order of the navigation. A new page is a module here and a line in this list.

export const PAGES = [
  { id: "translate", title: "Translate", load: () => import("./translate.js") },
  { id: "language", title: "Language model", load: () => import("./language.js") },
  { id: "inside", title: "Look inside", load: () => import("./inside.js") },
  { id: "embeddings", title: "Embeddings", load: () => import("./embeddings.js") },
  { id: "positions", title: "Positions", load: () => import("./positions.js") },
  { id: "classify", title: "Classify", load: () => import("./classify.js") },
  { id: "images", title: "Images", load: () => import("./images.js") },
  { id: "speech", title: "Speech", load: () => import("./speech.js") },
  { id: "training", title: "Training", load: () => import("./training.js") },
  { id: "compare", title: "Compare", load: () => import("./compare.js") },
];
