// The page: puts its parts together and listens to keys and buttons.

import { forget, running, send, stop } from "./answer.js";
import { $, BOUNDS, FIGURES, LEGEND, TRIES, announce, el } from "./common.js";
import { comparing, forms, loadModel, loadModels, showSettings } from "./settings.js";

function legend() {
  return [...LEGEND.map(([state, e, text]) => {
    const [word, ...rest] = text.split(":");
    const sign = el("b", {}, word);
    Object.assign(sign.dataset, { state, e });
    return el("span", {}, sign, rest.length ? `:${rest}` : "");
  }), el("span", {}, "entropy: sure", el("span", { className: "ramp" }, ...[...BOUNDS, 0].map((_, i) => {
    const part = el("i");
    part.dataset.e = i;
    return part;
  })), "open")];
}

$("legend").append(...legend());
$("help-legend").append(...legend());
$("definitions").append(...Object.values(FIGURES).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
$("tries").append(...TRIES.map((text) => {
  const onclick = () => { $("prompt").value = text; send(); };
  return el("button", { type: "button", onclick }, text);
}));

// Where the field cannot grow with its text.
if (!CSS.supports("field-sizing", "content")) $("prompt").rows = 3;
$("ask").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("stop").addEventListener("click", stop);
$("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || $("help-box").open) return;
  if (running()) stop();
  else if (!$("settings").hidden) showSettings(false);
});
$("main").addEventListener("scroll", () => { $("tip").hidden = true; });
$("new").addEventListener("click", forget);
$("compare").addEventListener("click", () => {
  const on = !comparing();
  $("compare").ariaPressed = String(on);
  forms[1].node.hidden = !on;
  forms[0].legend.textContent = on ? "First answer" : "Answer";
  if (!on) return;
  // Two equal requests would have two equal answers.
  if (forms[1].seed.value === forms[0].seed.value) forms[1].seed.value = forms[0].seed.valueAsNumber + 1;
  showSettings(true);
});
$("open-settings").addEventListener("click", () => {
  showSettings($("settings").hidden);
  if (!$("settings").hidden) $("close-settings").focus();
});
$("close-settings").addEventListener("click", () => showSettings(false));
$("model").addEventListener("change", () => loadModel().catch((error) => announce(error.message)));
$("key").value = sessionStorage.getItem("key") ?? "";
$("key").addEventListener("change", () => {
  sessionStorage.setItem("key", $("key").value);
  loadModels();
});
$("help").addEventListener("click", () => $("help-box").showModal());
$("help-close").addEventListener("click", () => $("help-box").close());

const THEMES = { auto: "◐", light: "☀", dark: "☾" };
function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = THEMES[name];
  $("theme").title = $("theme").ariaLabel = `Colours: ${name === "auto" ? "as the system" : name}`;
  localStorage.setItem("theme", name);
}
theme(localStorage.getItem("theme") in THEMES ? localStorage.getItem("theme") : "auto");
$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
});

loadModels();
