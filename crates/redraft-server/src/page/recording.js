// What arrived of an answer.

import { MASK, SLOW_MS, STATES, seconds } from "./common.js";
import { Refusal } from "./server.js";

export const interned = new Map();
const intern = (text) => interned.get(text) ?? (interned.set(text, text), text);

/** One step of a canvas, in typed arrays: an answer of thousands of tokens has hundreds of thousands of positions. */
class Frame {
  constructor(diffusion, begins, committed) {
    const { positions } = diffusion;
    this.canvas = diffusion.canvas;
    this.step = diffusion.step;
    this.stepsMax = diffusion.steps_max;
    /** Characters of the answer that were committed before this canvas. */
    this.begins = begins;
    /** Characters that had been committed when the frame came. */
    this.committed = committed;
    this.states = Uint8Array.from(positions, (p) => Math.max(0, STATES.indexOf(p.state)));
    this.texts = positions.map((p, i) => intern(p.text || (this.states[i] === 0 ? MASK : "")));
    this.entropy = Float32Array.from(positions, (p) => p.entropy ?? NaN);
    this.alternatives = positions.some((p) => p.alternatives?.length) ? positions.map((p) => p.alternatives) : null;
    const known = this.entropy.filter((x) => !Number.isNaN(x));
    this.meanEntropy = diffusion.mean_entropy ?? (known.length ? known.reduce((a, b) => a + b) / known.length : NaN);
  }

  get drafted() { return this.states.some((s) => s > 0); }
}

/** Everything that arrived of an answer, with the times at which it did. */
export class Recording {
  constructor() {
    Object.assign(this, { text: "", thoughts: "", frames: [], usage: null, finish: null, sent: performance.now() });
    Object.assign(this, { firstDraft: null, ended: null });
  }

  /** Takes a chunk of the stream; errors of the server in the middle of it are thrown. */
  take(chunk) {
    if (chunk.error) throw new Refusal(500, chunk);
    const choice = chunk.choices?.[0];
    this.text += choice?.delta?.content ?? "";
    this.thoughts += choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? "";
    this.finish = choice?.finish_reason ?? this.finish;
    this.usage = chunk.usage ?? this.usage;
    this.report = choice?.diffusion ?? this.report;
    if (!chunk.diffusion?.positions) return;
    const last = this.frames.at(-1);
    const same = last && last.canvas === chunk.diffusion.canvas;
    const frame = new Frame(chunk.diffusion, same ? last.begins : this.text.length, this.committed);
    frame.time = performance.now();
    this.slow = frame.time - last?.time > SLOW_MS;
    frame.number = same ? last.number : (last?.number ?? 0) + 1;
    this.frames.push(frame);
    if (this.firstDraft === null && frame.drafted) this.firstDraft = frame.time;
  }

  /** Characters of final text, said or thought. */
  get committed() { return this.text.length + this.thoughts.length; }

  /** The figures that can be told: name and text, in the order of FIGURES. */
  figures() {
    const tokens = this.usage?.completion_tokens, total = this.ended - this.sent;
    // A slow connection is not shown every step; the server counts them.
    const counted = this.report?.canvases?.reduce((sum, canvas) => sum + canvas.steps, 0);
    const steps = counted ?? this.frames.length;
    return {
      ...(tokens && { rate: (tokens / total * 1000).toFixed(1), tokens }),
      ...(steps && { steps }),
      ...(this.firstDraft && { first: seconds(this.firstDraft - this.sent) }),
      total: seconds(total),
    };
  }
}
