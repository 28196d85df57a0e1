// The JavaScript package `openai`: node openai_javascript.mjs URL LOCKED-URL KEY BUSY-URL, where the last one has no place for
// a few seconds. One line for each check.

import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, locked, key, busy] = process.argv.slice(2);
const client = (base, more = {}) => new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0, ...more });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const question = { model: "redraft-tiny", messages };
const endless = { max_tokens: 200, diffusion: { steps: 4096, confidence: 0 } };

async function refused(kind, promise) {
  const error = await promise.then(() => null, (e) => e);
  assert.ok(error instanceof kind, `expected ${kind.name}, found ${error}`);
  return error;
}

async function running() {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(text.match(/^redraft_batch_running (\d+)/m)[1]);
}

async function idle() {
  for (let i = 0; await running(); i++) {
    assert.ok(i < 1000, "the answer goes on");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const checks = {
  // First, while the place is taken.
  async retries() {
    const error = await refused(OpenAI.RateLimitError, client(busy).chat.completions.create(question));
    assert.equal(error.code, "queue_full");
    const answer = await client(busy, { maxRetries: 10 }).chat.completions.create(question);
    assert.match(answer.choices[0].message.content, /Paris/);
  },
  async models() {
    const { data } = await client(url).models.list();
    assert.equal((await client(url).models.retrieve(data[0].id)).id, data[0].id);
  },
  async chat() {
    const answer = await client(url).chat.completions.create({ ...question, seed: 3 });
    assert.match(answer.choices[0].message.content, /Paris/);
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  },
  async stream() {
    const whole = (await client(url).chat.completions.create(question)).choices[0].message.content;
    const options = { stream: true, stream_options: { include_usage: true, include_drafts: true } };
    let text = "", drafts = 0, usage = null;
    for await (const chunk of await client(url).chat.completions.create({ ...question, ...options })) {
      text += chunk.choices[0]?.delta?.content ?? "";
      drafts += chunk.diffusion ? 1 : 0;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole);
    assert.ok(drafts > 0 && usage.completion_tokens > 0);
  },
  async infilling() {
    const gap = { model: "redraft-tiny", prompt: "55 + ", suffix: " = 123", max_tokens: 4 };
    assert.ok((await client(url).completions.create(gap)).choices[0].text);
  },
  async structured() {
    const schema = { type: "object", properties: { capital: { enum: ["Paris", "Rome"] } }, required: ["capital"],
      additionalProperties: false };
    const response_format = { type: "json_schema", json_schema: { name: "capital", strict: true, schema } };
    const answer = await client(url).chat.completions.create({ ...question, response_format, max_tokens: 40 });
    assert.deepEqual(Object.keys(JSON.parse(answer.choices[0].message.content)), ["capital"]);
  },
  async errors() {
    const ask = (more) => client(url).chat.completions.create({ ...question, ...more });
    assert.equal((await refused(OpenAI.BadRequestError, ask({ temperature: -1 }))).param, "temperature");
    assert.equal((await refused(OpenAI.BadRequestError, ask({ unheard_of: 1 }))).param, "unheard_of");
    assert.equal((await refused(OpenAI.NotFoundError, ask({ model: "another" }))).code, "model_not_found");
  },
  async keys() {
    await refused(OpenAI.AuthenticationError, client(locked).chat.completions.create(question));
    const answer = await client(locked, { apiKey: key }).chat.completions.create(question);
    assert.match(answer.choices[0].message.content, /Paris/);
  },
  async cancellation() {
    const options = { stream: true, stream_options: { include_drafts: true } };
    const stream = await client(url).chat.completions.create({ ...question, ...endless, ...options });
    for await (const _ of stream) break;
    stream.controller.abort();
    await idle();
    const aborted = new AbortController();
    const answer = client(url).chat.completions.create({ ...question, ...endless }, { signal: aborted.signal });
    setTimeout(() => aborted.abort(), 200);
    await refused(OpenAI.APIUserAbortError, answer);
    await idle();
  },
};

for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      openai_javascript: ${name}`);
  } catch (error) {
    console.log(`FAILED  openai_javascript: ${name}: ${String(error).split("\n")[0]}`);
    process.exitCode = 1;
  }
}
