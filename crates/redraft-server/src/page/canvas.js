// A canvas, and the slider through its steps.

import { $, REPLAY_MS, STATES, announce, el, level, nats, svg, visible } from "./common.js";

/** Committed text and the positions of one frame. Nodes are kept and only what differs is written. */
export class CanvasView {
  constructor() {
    this.before = document.createTextNode("");
    this.spans = [];
    this.frame = null;
    this.node = el("div", { className: "canvas", tabIndex: 0, role: "group", ariaLabel: "Answer" }, this.before);
    this.node.addEventListener("keydown", (event) => this.walk(event));
    this.node.addEventListener("pointerover", (event) => this.point(this.spans.indexOf(event.target)));
    this.node.addEventListener("pointerleave", () => this.point(-1));
    this.node.addEventListener("blur", () => this.point(-1));
  }

  draw(text, frame) {
    if (text.startsWith(this.before.data)) {
      if (text.length > this.before.length) this.before.appendData(text.slice(this.before.length));
    } else {
      this.before.data = text;
    }
    this.frame = frame;
    const n = frame?.texts.length ?? 0;
    while (this.spans.length > n) this.spans.pop().remove();
    while (this.spans.length < n) {
      const span = el("span", {}, "");
      span.append(document.createTextNode(""));
      this.spans.push(span);
      this.node.append(span);
    }
    for (let i = 0; i < n; i++) {
      const { lastChild, dataset } = this.spans[i];
      const state = STATES[frame.states[i]], e = Number.isNaN(frame.entropy[i]) ? "" : String(level(frame.entropy[i]));
      if (lastChild.data !== frame.texts[i]) lastChild.data = frame.texts[i];
      if (dataset.state !== state) dataset.state = state;
      if (dataset.e !== e) dataset.e = e;
    }
    if (this.at >= 0) this.point(Math.min(this.at, n - 1));
  }

  /** Shows what is known of a position; -1 takes it away. */
  point(i) {
    this.spans[this.at]?.classList.remove("active");
    this.at = i;
    const span = this.spans[i], tip = $("tip");
    tip.hidden = !span;
    if (!span) return;
    span.classList.add("active");
    const entropy = this.frame.entropy[i];
    const what = `${visible(this.frame.texts[i]) || "(empty)"} · ${STATES[this.frame.states[i]]}`
      + (Number.isNaN(entropy) ? "" : ` · entropy ${nats(entropy)} nats`);
    const others = (this.frame.alternatives?.[i] ?? []).map(({ text, p }) =>
      el("div", {}, el("span", {}, visible(text)), el("span", { className: "num" }, p.toFixed(3))));
    tip.replaceChildren(what, ...others);
    const box = span.getClientRects()[0] ?? this.node.getBoundingClientRect();
    const left = Math.min(box.left, innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.transform = `translate(${Math.max(8, left)}px, ${above > 8 ? above : box.bottom + 6}px)`;
    if (document.activeElement === this.node) announce(what);
  }

  walk(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !this.spans.length) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(this.spans.length - 1, (this.at ?? -1) + by)));
  }
}

/** The slider through the steps, above it the mean entropy of each. The last place is the newest text. */
export class Timeline {
  constructor(onMove) {
    this.chart = svg("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
    this.slider = el("input", { type: "range", min: 0, max: 0, value: 0, step: 1, ariaLabel: "Step of the answer" });
    this.button = el("button", { type: "button", ariaLabel: "Play the steps" }, "▶");
    this.node = el("div", { className: "timeline", hidden: true }, this.chart, this.button, this.slider);
    this.slider.addEventListener("input", () => { this.pause(); onMove(); });
    this.button.addEventListener("click", () => this.timer ? this.pause() : this.play(onMove));
  }

  get value() { return Number(this.slider.value); }
  get atEnd() { return this.slider.value === this.slider.max; }

  /** Takes the frames that there are by now; a slider at the end stays there. */
  update(frames) {
    const follow = this.atEnd;
    this.node.hidden = frames.length === 0;
    this.slider.max = frames.length;
    if (follow) this.slider.value = frames.length;
    // A square root, so that the long calm end of a canvas does not look like a line at zero.
    const heights = frames.map((f) => Math.sqrt(Math.max(0, f.meanEntropy || 0)));
    const top = Math.max(...heights, 0.1);
    const line = [...heights, heights.at(-1) ?? 0].map((h, i) => `${i},${(24 - 22 * h / top).toFixed(1)}`).join(" ");
    const edges = frames.flatMap((f, i) => i && f.number !== frames[i - 1].number ? [i] : []);
    this.chart.setAttribute("viewBox", `0 0 ${Math.max(1, frames.length)} 24`);
    this.chart.replaceChildren(
      svg("polygon", { class: "area", points: `0,24 ${line} ${frames.length},24` }),
      ...edges.map((x) => svg("line", { class: "edge", x1: x, x2: x, y1: 0, y2: 24 })),
      svg("polyline", { class: "curve", points: line }));
  }

  play(onMove) {
    if (this.atEnd) this.slider.value = 0;
    onMove();
    this.button.textContent = "❚❚";
    this.button.ariaLabel = "Pause";
    this.timer = setInterval(() => {
      this.slider.value = this.value + 1;
      onMove();
      if (this.atEnd) this.pause();
    }, REPLAY_MS);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "▶";
    this.button.ariaLabel = "Play the steps";
  }
}
