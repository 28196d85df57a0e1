// Answers on the page, and the conversation that they make.

import { CanvasView, Timeline } from "./canvas.js";
import { $, CALM, CALM_PICTURE_MS, FIGURES, PICTURE_MS, RETRIES, announce, el, nats } from "./common.js";
import { Recording, interned } from "./recording.js";
import { events, request } from "./server.js";
import { askForKey, comparing, forms, shared, showSettings } from "./settings.js";

class Answer {
  /** `settings` as SettingsForm.value() has them; `messages` to be answered; `turn` that it stands in. */
  constructor(turn, settings, messages) {
    Object.assign(this, { turn, settings, messages, recording: new Recording(), running: false });
    this.canvas = new CanvasView();
    this.timeline = new Timeline(() => this.draw());
    this.status = el("span", { className: "small num status" });
    this.thoughts = el("details", { className: "thoughts small", hidden: true },
      el("summary", {}, "Thoughts"), el("div"));
    this.problem = el("div", { className: "problem", role: "alert", hidden: true });
    this.figures = el("span", { className: "small num figures" });
    this.acts = el("span", { className: "acts" });
    const changed = Object.entries(settings.changed).map(([name, value]) => `${name} ${value}`);
    const about = [settings.sampler, `seed ${settings.seed}`, ...changed];
    this.node = el("article", { className: "answer" },
      el("header", {}, el("span", { className: "small" }, about.filter(Boolean).join(" · ")), this.status),
      this.thoughts, this.canvas.node, this.problem, this.timeline.node, el("footer", {}, this.figures, this.acts));
  }

  /** Asks the server until there is an answer, a stop or an error that asking again does not help. */
  async run() {
    this.running = true;
    this.abort = new AbortController();
    this.acts.replaceChildren();
    try {
      for (let tries = 0; ; tries++) {
        try {
          await this.stream();
          break;
        } catch (error) {
          if (error.status !== 429 || tries === RETRIES) throw error;
          await this.wait(error.retryAfter);
        }
      }
      this.problem.hidden = true;
    } catch (error) {
      this.fail(error);
    }
    this.running = false;
    this.recording.ended ??= performance.now();
    this.finish();
  }

  async stream() {
    this.recording = new Recording();
    this.problem.hidden = true;
    this.canvas.node.classList.add("waiting");
    const { system, maxTokens, model, alternatives } = shared();
    const { sampler, seed, changed } = this.settings;
    const diffusion = { ...(sampler && { sampler }), ...changed };
    const body = {
      ...(model && { model }),
      messages: [...(system ? [{ role: "system", content: system }] : []), ...this.messages],
      stream: true,
      stream_options: { include_usage: true, include_drafts: true, ...(alternatives && { include_alternatives: true }) },
      seed,
      ...(maxTokens && { max_tokens: maxTokens }),
      ...(Object.keys(diffusion).length && { diffusion }),
    };
    const { signal } = this.abort;
    const response = await request("/v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
    for await (const chunk of events(response)) {
      this.recording.take(chunk);
      this.schedule();
    }
    this.recording.ended = performance.now();
  }

  /** Counts down to the next try of a busy server. */
  async wait(left) {
    this.canvas.node.classList.remove("waiting");
    let now;
    const text = el("span");
    const button = el("button", { type: "button", onclick: () => now() }, "Retry now");
    this.problem.replaceChildren(text, button);
    this.problem.hidden = false;
    for (; left > 0; left--) {
      text.textContent = `The server is busy. Trying again in ${left} s.`;
      const early = await new Promise((resolve, reject) => {
        now = () => resolve(true);
        setTimeout(resolve, 1000, false);
        this.abort.signal.addEventListener("abort", () => reject(this.abort.signal.reason), { once: true });
      });
      if (early) break;
    }
  }

  fail(error) {
    if (error.name === "AbortError") {
      this.stopped = true;
      this.problem.hidden = true;
      return;
    }
    let text = error.message;
    if (error.status === 401) text = "The server asks for an API key. Enter it in the settings.";
    else if (error.param && !text.includes(error.param)) text = `${text} (${error.param})`;
    else if (error instanceof TypeError) text = "The connection to the server was lost.";
    if (this.recording.text) text += " What had arrived is kept.";
    const again = el("button", { type: "button", onclick: () => submit(this.turn, [this]) }, "Try again");
    this.problem.replaceChildren(el("span", {}, text), again);
    this.problem.hidden = false;
    if (error.status === 401) askForKey();
  }

  /** Draws what is newest, after the time between two pictures. */
  schedule() {
    if (this.planned) return;
    this.planned = true;
    setTimeout(() => requestAnimationFrame(() => {
      this.planned = false;
      this.draw();
    }), CALM.matches ? CALM_PICTURE_MS : PICTURE_MS);
  }

  draw() {
    const { frames, text, thoughts, finish } = this.recording;
    const follow = atBottom();
    this.timeline.update(frames);
    // The last place is the newest text: without an end that is the last frame, unless it was committed since.
    const last = frames.at(-1);
    const open = last && finish === null && this.recording.committed === last.committed ? last : null;
    const frame = this.timeline.atEnd ? open : frames[this.timeline.value];
    this.canvas.node.classList.toggle("waiting", this.running && !frame && !text);
    this.canvas.node.classList.toggle("slow", this.running && Boolean(this.recording.slow));
    this.canvas.draw(frame ? text.slice(0, frame.begins) : text, frame);
    // Text of changing width would move everything below it: while it is written a canvas only grows.
    const { style, offsetHeight } = this.canvas.node;
    if (this.running) style.minHeight = `${Math.max(parseFloat(style.minHeight) || 0, offsetHeight)}px`;
    else if (this.timeline.atEnd) style.minHeight = "";
    const shown = frame ?? (this.running ? last : null);
    this.status.textContent = shown ? this.describe(shown) : "";
    this.timeline.slider.ariaValueText = frame ? this.describe(frame) : "final text";
    this.thoughts.hidden = !thoughts;
    this.thoughts.lastChild.textContent = thoughts;
    if (follow && this.running) $("main").scrollTop = $("main").scrollHeight;
  }

  describe({ number, step, stepsMax, meanEntropy }) {
    const entropy = Number.isNaN(meanEntropy) ? "" : ` · entropy ${nats(meanEntropy)}`;
    return `canvas ${number} · step ${step}${stepsMax ? `/${stepsMax}` : ""}${entropy}`;
  }

  finish() {
    this.draw();
    const { recording } = this, values = recording.text || recording.frames.length ? recording.figures() : {};
    const parts = Object.entries(values).map(([name, value]) => {
      const [unit, title] = FIGURES[name];
      return el("abbr", { title }, `${value} ${unit}`);
    });
    if (this.stopped) parts.unshift("stopped");
    else if (!recording.text && recording.finish) parts.unshift("no text");
    if (recording.finish === "length") parts.push("cut by the limit of tokens");
    this.figures.replaceChildren(...parts.flatMap((part, i) => i ? [" · ", part] : [part]));
    const act = (text, title, onclick) => el("button", { type: "button", title, onclick }, text);
    this.acts.replaceChildren(
      ...(recording.text ? [act("Copy", "Copy this answer", (event) => copy(recording.text, event.target))] : []),
      act("Again", `Another answer, with seed ${this.settings.seed + 1}`, () => this.turn.again(this)),
      ...(this.turn.answers.length > 1 ? [act("Continue", "Go on with this answer", () => this.turn.pick(this))] : []));
  }
}

/** A question and its answers: one, or two side by side. The conversation goes on with the picked one. */
class Turn {
  constructor(question, forms) {
    this.question = question;
    const messages = [...history(), { role: "user", content: question }];
    this.answers = forms.map((form) => new Answer(this, form, messages));
    this.picked = this.answers[0];
    this.row = el("div", { className: "answers" }, ...this.answers.map((a) => a.node));
    const className = forms.length > 1 ? "turn pair" : "turn column";
    this.node = el("section", { className, ariaLabel: "Question and answer" },
      el("div", { className: "question" }, question), this.row);
    this.pick(this.picked);
  }

  pick(answer) {
    this.picked = answer;
    for (const a of this.answers) a.node.classList.toggle("picked", a === answer);
  }

  /** Puts an answer with the next seed into the place of one. */
  again(old) {
    if (running()) return;
    const next = new Answer(this, { ...old.settings, seed: old.settings.seed + 1 }, old.messages);
    this.answers[this.answers.indexOf(old)] = next;
    old.timeline.pause();
    old.node.replaceWith(next.node);
    if (this.picked === old) this.pick(next);
    submit(this, [next]);
  }
}

let turns = [];
export const running = () => turns.some((t) => t.answers.some((a) => a.running));
const atBottom = () => $("main").scrollHeight - $("main").scrollTop - $("main").clientHeight < 80;

/** Messages so far; a question without an answer is no part of the conversation. */
function history() {
  return turns.filter((t) => t.picked.recording.text).flatMap((t) => [
    { role: "user", content: t.question }, { role: "assistant", content: t.picked.recording.text }]);
}

/** Stop stands in the place of Send while something is written. */
function showButtons() {
  $("send").hidden = running();
  $("stop").hidden = !running();
}

/** Runs answers of a turn at once. */
async function submit(turn, answers) {
  if (running()) return;
  const done = Promise.all(answers.map((a) => { a.stopped = false; return a.run(); }));
  showButtons();
  $("main").scrollTop = $("main").scrollHeight;
  await done;
  showButtons();
  announce(answers.map((a) => a.recording.text || a.problem.textContent).join(" — "));
}

export function send() {
  const question = $("prompt").value.trim();
  const used = comparing() ? forms : forms.slice(0, 1);
  const fields = [...used.flatMap((f) => [...f.node.elements]), $("max-tokens")];
  const wrong = fields.find((field) => !field.checkValidity());
  if (wrong) {
    showSettings(true);
    wrong.closest("details")?.setAttribute("open", "");
    wrong.reportValidity();
    return;
  }
  if (!question || running()) return;
  const turn = new Turn(question, used.map((f) => f.value()));
  turns.push(turn);
  $("turns").append(turn.node);
  $("welcome").hidden = true;
  $("prompt").value = "";
  submit(turn, turn.answers);
}

export function stop() {
  for (const turn of turns) for (const answer of turn.answers) if (answer.running) answer.abort.abort();
}

/** Begins a conversation anew. */
export function forget() {
  stop();
  for (const turn of turns) for (const answer of turn.answers) answer.timeline.pause();
  turns = [];
  interned.clear();
  $("turns").replaceChildren();
  $("welcome").hidden = false;
  $("prompt").focus();
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages without TLS have no clipboard of their own; a selection can still be copied.
    const area = el("textarea", { value: text, className: "away" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
