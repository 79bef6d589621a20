// The server's HTTP API. An error has the server's message and hint.

const TENSORS = "application/vnd.safetensors";

export class ServerError extends Error {
  constructor({ message, hint }) {
    super(message);
    this.hint = hint;
  }
}

async function answer(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError({ message: "the server does not answer", hint: "start clearformer studio again" });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new ServerError(body.error ?? { message: `the server answered ${response.status}`, hint: null });
}

function post(path, body, signal, accept = "application/json") {
  const headers = { "content-type": "application/json", accept };
  return answer(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

export async function getJson(path, signal) {
  return (await answer(path, { signal })).json();
}

export async function postJson(path, body, signal) {
  return (await post(path, body, signal)).json();
}

// The answer to a file, whose bytes are the body. Options that are null are left out, and lists repeated.
function sendFile(path, options, file, signal, accept = "application/json") {
  const given = Object.entries(options).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(given.flatMap(([name, value]) => [value].flat().map((one) => [name, one])));
  const headers = { "content-type": "application/octet-stream", accept };
  return answer(`${path}?${query}`, { method: "POST", headers, body: file, signal });
}

export async function postFile(path, options, file, signal) {
  return (await sendFile(path, options, file, signal)).json();
}

export async function tensorsOfFile(path, options, file, signal) {
  const response = await sendFile(path, options, file, signal, TENSORS);
  return readTensors(await response.arrayBuffer());
}

export async function getBytes(path, signal) {
  return (await answer(path, { signal })).arrayBuffer();
}

// Activations and thumbnails by name, as float32 arrays with a shape, and the other values of the answer.
export async function activations(body, signal) {
  return tensors("/api/activations", body, signal);
}

export async function tensors(path, body, signal) {
  const response = await post(path, body, signal, TENSORS);
  return readTensors(await response.arrayBuffer());
}

export function readTensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const { __metadata__: metadata, ...header } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const values = JSON.parse(metadata.values);
  for (const [name, { data_offsets: [start, end] }] of Object.entries(header)) {
    const bytes = buffer.slice(8 + length + start, 8 + length + end); // a copy, since the data may not be aligned
    const [, isSmall, key] = name.match(/^(thumbnails\.)?(.*)$/);
    values[isSmall ? "thumbnails" : "activations"][key].values = new Float32Array(bytes);
  }
  return values;
}

// Calls on[event](data) for every event of a streamed answer.
export async function stream(path, body, on, signal) {
  const response = await post(path, body, signal, "text/event-stream");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (name === "error") throw new ServerError(JSON.parse(data));
      if (name) on[name]?.(JSON.parse(data));
    }
  }
}
