// How answers are asked for.

import { $, CHEAP_LOGITS, el } from "./common.js";
import { request } from "./server.js";

/** Sampler, its parameters and the seed of one answer; controls only for what the server lists. */
class SettingsForm {
  constructor(title) {
    this.samplers = this.inputs = [];
    this.select = el("select");
    this.select.addEventListener("change", () => this.list());
    this.samplerRow = el("label", { className: "wide", hidden: true }, "Sampler", this.select);
    this.about = el("div", { className: "small" });
    this.main = el("div");
    this.more = el("div");
    this.details = el("details", { hidden: true }, el("summary", { className: "small" }, "All parameters"), this.more);
    const max = Number.MAX_SAFE_INTEGER;
    this.seed = el("input", { type: "number", min: 0, max, step: 1, value: "0", required: true, ariaLabel: "Seed" });
    const dice = el("button", { type: "button", title: "A random seed", ariaLabel: "A random seed" }, "⚄");
    dice.addEventListener("click", () => { this.seed.value = crypto.getRandomValues(new Uint32Array(1))[0]; });
    this.legend = el("legend", {}, title);
    this.node = el("fieldset", {}, this.legend, this.samplerRow, this.about, this.main,
      el("div", { className: "field" }, "Seed", el("span", { className: "row" }, this.seed, dice)), this.details);
  }

  /** Takes over what `/v1/models/{id}` says; unknown forms of it leave the seed alone. */
  describe(diffusion) {
    this.samplers = diffusion.samplers ?? [];
    this.select.replaceChildren(...this.samplers.map((s) => el("option", { value: s.name }, s.name)));
    if (diffusion.sampler) this.select.value = diffusion.sampler;
    this.samplerRow.hidden = this.samplers.length === 0;
    this.list();
  }

  list() {
    const sampler = this.samplers.find((s) => s.name === this.select.value);
    const parameters = sampler?.parameters ?? [];
    const main = parameters.filter((p) => p.name === "steps" || p.name === "temperature");
    this.about.textContent = sampler?.description ?? "";
    this.inputs = parameters.map((p) => [p, SettingsForm.input(p)]);
    const rows = (wanted) => this.inputs.filter(([p]) => main.includes(p) === wanted)
      .map(([p, input]) => el("label", { title: p.description ?? "" }, p.name.replaceAll("_", " "), input));
    this.main.replaceChildren(...rows(true));
    this.more.replaceChildren(...rows(false));
    this.details.hidden = main.length === parameters.length;
  }

  /** Empty is the default, which the placeholder shows. */
  static input(parameter) {
    const { minimum: min = "", maximum: max = "", type, default: preset = "default" } = parameter;
    const step = type === "integer" ? 1 : "any";
    return el("input", { type: "number", step, min, max, placeholder: String(preset) });
  }

  value() {
    const set = this.inputs.filter(([, input]) => input.value !== "");
    const changed = Object.fromEntries(set.map(([parameter, input]) => [parameter.name, input.valueAsNumber]));
    return { sampler: this.select.value, seed: this.seed.valueAsNumber, changed };
  }
}

export const forms = [new SettingsForm("Answer"), new SettingsForm("Second answer")];
$("forms").append(...forms.map((f) => f.node));
forms[1].node.hidden = true;
export const comparing = () => $("compare").ariaPressed === "true";

export function shared() {
  const maxTokens = $("max-tokens").valueAsNumber || null;
  const alternatives = $("alternatives").checked;
  return { system: $("system").value.trim(), maxTokens, model: $("model").value, alternatives };
}

/** Reads the list of models and what the chosen one can do. Without it the server's defaults are used. */
export async function loadModels() {
  try {
    const { data = [] } = await (await request("/v1/models")).json();
    const chosen = $("model").value;
    $("model").replaceChildren(...data.map((m) => el("option", { value: m.id }, m.id)));
    if (data.some((m) => m.id === chosen)) $("model").value = chosen;
    $("model-row").hidden = data.length === 0;
    await loadModel();
  } catch (error) {
    $("model-name").textContent = error.status === 401 ? "an API key is needed" : "no connection";
    if (error.status === 401) askForKey();
  }
}

export async function loadModel() {
  const id = $("model").value;
  if (!id) return;
  const model = await (await request(`/v1/models/${encodeURIComponent(id)}`)).json();
  $("model-name").textContent = id;
  for (const form of forms) form.describe(model.diffusion ?? {});
  // Where they cost little; the server makes and looks through a canvas of logits for them in every step.
  $("alternatives").checked = model.vocabulary_length * model.canvas_length <= CHEAP_LOGITS;
}

export function showSettings(open) {
  $("settings").hidden = !open;
  $("open-settings").ariaExpanded = String(open);
  if (!open) $("open-settings").focus();
}

export function askForKey() {
  showSettings(true);
  $("key").focus();
}
