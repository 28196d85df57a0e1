// Requests to the server.

import { RETRY_SECONDS } from "./common.js";

/** What the server refused: `status`, and of OpenAI's error body `message`, `param`; `retryAfter` in seconds. */
export class Refusal extends Error {
  constructor(status, body, retryAfter) {
    const error = body?.error ?? {};
    super(error.message || `The server answered with status ${status}.`);
    Object.assign(this, { status, param: error.param, retryAfter });
  }
}

export async function request(path, options = {}) {
  const headers = { "Content-Type": "application/json" };
  const key = sessionStorage.getItem("key");
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Refusal(response.status, body, Number(response.headers.get("Retry-After")) || RETRY_SECONDS);
}

/** The objects of a stream of server-sent events, until `[DONE]`. A stream that ends before it is an error. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new TypeError("The stream ended before the answer did.");
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      const data = lines.map((line) => line.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}
