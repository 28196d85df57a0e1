// Constants and small helpers of all modules.

export const STATES = ["noise", "draft", "accepted", "committed"];
// Upper bounds of the colours, in nats: those of the bars of `redraft run --entropy-bars`.
export const BOUNDS = [0.005, 0.02, 0.1, 0.3, 0.7, 1.5, 3, 5];
// What stands for noise without a text: a masked position.
export const MASK = "░";
// Of a busy server: how often it is asked again, and after how long where it does not say.
export const RETRIES = 5, RETRY_SECONDS = 3;
// Time from picture to picture: of a replay, while an answer is written, and where motion is not wanted.
export const REPLAY_MS = 140, PICTURE_MS = 33, CALM_PICTURE_MS = 500;
// Steps that take longer fade into each other; more often that would cost more than all the rest.
export const SLOW_MS = 300;
// Logits of a canvas up to which alternatives are asked for from the start.
export const CHEAP_LOGITS = 1 << 22;
export const CALM = matchMedia("(prefers-reduced-motion: reduce)");
export const LEGEND = [
  ["noise", 7, "noise: nothing decided"], ["draft", 4, "draft: may change"],
  ["accepted", 1, "accepted in this step"], ["committed", 0, "committed: final"],
];
export const FIGURES = {
  rate: ["tokens/s", "wall tokens per second: tokens of the answer divided by the time from sending the request to its "
    + "last byte, prompt and network included"],
  tokens: ["tokens", "tokens of the answer, as the server counts them"],
  steps: ["steps", "passes of the model over a canvas, over all canvases of the answer"],
  first: ["to first draft", "time from sending the request until the first canvas with a position that is no noise"],
  total: ["in all", "time from sending the request to the last byte of the answer"],
};
export const TRIES = [
  "What is the capital of Japan?", "Sort these words: pear, fig, apple", "Write a function that adds two numbers",
];

export const $ = (id) => document.getElementById(id);

/** An element with properties and children. Strings become text nodes: no text is ever read as HTML. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

export const announce = (text) => { $("announce").textContent = text; };
export const seconds = (ms) => ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
export const nats = (x) => x < 0.1 ? x.toFixed(3) : x.toFixed(2);
export const level = (entropy) => BOUNDS.filter((bound) => entropy >= bound).length;

/** Control characters and spaces as signs, so that a token can be told from nothing. */
export const visible = (text) =>
  text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$/g, (s) => "␣".repeat(s.length));
