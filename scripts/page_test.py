#!/usr/bin/env python3
"""Drives the page of `redraft serve` in a real browser, with real clicks and keys.

    sudo apt-get install chromium
    python3 -m venv venv && venv/bin/pip install playwright
    venv/bin/python scripts/page_test.py                     # against a mock of the server, all checks
    venv/bin/python scripts/page_test.py --url http://127.0.0.1:8080 [--key KEY]   # a server: what holds of any
    venv/bin/python scripts/page_test.py --pictures DIR      # also screenshots

The mock (Python's standard library) speaks the wire format of `POST /v1/chat/completions` with drafts and plays a
simulated denoising: no model runs. Words in a question choose what goes wrong. It serves the page under the
Content-Security-Policy that `docs/page.md` gives, so that a page that needs
more fails here. `cargo xtask page` runs both.
"""

import argparse
import json
import pathlib
import random
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from playwright.sync_api import expect, sync_playwright

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "crates/redraft-server/src/page"
FILES = {"/": PAGE / "index.html"} | {f"/page/{file.name}": file for file in PAGE.iterdir()}
KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
POLICY = " ".join(re.search(r"Content-Security-Policy: (.*?)\n```", (ROOT / "docs/page.md").read_text(), re.S)[1].split())
CANVAS, STEPS = 64, 12
ANSWERS = [
    "Tokyo is the capital of Japan. It has been the seat of the emperor since 1868, when the court moved there from "
    "Kyoto and the city, until then called Edo, was given its present name.\n\nAbout fourteen million people live in "
    "the prefecture, and more than twice as many in the whole of the region around the bay.",
    "The capital of Japan is Tokyo, a city on the eastern coast of Honshu.\n\nIt was a fishing village named Edo for "
    "most of its history. The shogun made it the place of his government in 1603, and by the eighteenth century more "
    "people lived there than anywhere else on earth; only the name of a capital came later.",
]
HOSTILE = "A tag <b id=injected>is text</b> and <img src=x onerror=alert(1)> too."
PIECES = " the| of| river|ing| night|<|ed| was| 7| blue| Ki|ation| to|;| law|er| sea| and|qu| stone|es| if".split("|")


def tokens_of(text):
    return re.findall(r"\s?\w{1,7}|\s?[^\w\s]|\s", text)


def denoising(text, seed, masks):
    """Yields `diffusion` objects and, after each canvas, its text. Noise is other tokens, or masks."""
    tokens = tokens_of(text)
    for canvas, start in enumerate(range(0, len(tokens), CANVAS)):
        part = tokens[start : start + CANVAS]
        rng = random.Random(f"{seed} {canvas}")
        hard = [min(1.0, max(0.02, 0.35 + 0.5 * i / len(part) + rng.gauss(0, 0.16))) for i in range(len(part))]
        for step in range(1, STEPS + 1):
            positions = []
            for token, h in zip(part, hard):
                left = max(0.0, h - 1.08 * step / STEPS) * rng.uniform(0.75, 1.25)
                entropy = round(5.5 * left**1.3, 4)
                other = rng.choice(PIECES)
                state = "noise" if entropy > 1.3 else "draft" if entropy > 0.06 else "accepted"
                shown = other if state == "noise" or (state == "draft" and rng.random() < 0.3) else token
                if masks:
                    state = "noise" if entropy > 0.6 else "accepted" if entropy > 0 else "committed"
                    shown = "" if state == "noise" else token
                p = max(0.05, 1 - entropy / 3)
                second = {"text": token if other == shown else other, "p": (1 - p) / 2}
                alternatives = sorted([{"text": shown, "p": p}, second], key=lambda a: -a["p"])
                positions.append({"text": shown, "state": state, "entropy": entropy, "alternatives": alternatives})
            mean = sum(p["entropy"] for p in positions) / len(positions)
            yield {"canvas": canvas, "step": step, "steps_max": STEPS, "positions": positions, "mean_entropy": mean}
        yield "".join(part)


class Mock(BaseHTTPRequestHandler):
    """The server's side of the wire format, and its faults."""

    protocol_version = "HTTP/1.1"
    def reset():
        Mock.key, Mock.busy, Mock.step_seconds, Mock.requests, Mock.gone = None, 0, 0.02, [], 0
        Mock.gate = threading.Event()  # answers to a question with "hold" wait for it at their fifth step

    def log_message(self, *args):
        pass

    def reply(self, status, body, kind="application/json", **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, message, param=None, **headers):
        self.reply(status, {"error": {"message": message, "type": "error", "param": param, "code": None}}, **headers)

    def do_GET(self):
        if self.path in FILES:
            file = FILES[self.path]
            return self.reply(200, file.read_bytes(), KINDS[file.suffix], Content_Security_Policy=POLICY)
        if Mock.key and self.headers.get("Authorization") != f"Bearer {Mock.key}":
            return self.refuse(401, "no key")
        model = {"id": "simulated", "object": "model", "created": 0, "owned_by": "redraft"}
        if self.path == "/v1/models":
            return self.reply(200, {"object": "list", "data": [model]})
        parameter = lambda name, preset, least, most, kind, text: {
            "name": name, "default": preset, "minimum": least, "maximum": most, "type": kind, "description": text}
        steps = parameter("steps", 48, 1, 4096, "integer", "denoising steps of a canvas at most")
        t_min = parameter("t_min", 0.4, 0.001, 100, "number", "temperature that the schedule approaches")
        samplers = [{"name": "entropy-bound", "description": "accepts the easiest positions", "parameters": [steps, t_min]},
                    {"name": "threshold", "description": "reveals what is likely enough", "parameters": [steps]}]
        diffusion = {"sampler": "entropy-bound", "samplers": samplers}
        self.reply(200, model | {"vocabulary_length": 1000, "canvas_length": CANVAS, "diffusion": diffusion})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if Mock.key and self.headers.get("Authorization") != f"Bearer {Mock.key}":
            return self.refuse(401, "no key")
        Mock.requests.append(body)
        question, seed = body["messages"][-1]["content"], body.get("seed", 0)
        if Mock.busy:
            Mock.busy -= 1
            return self.refuse(429, "busy", Retry_After="2")
        if "refuse" in question:
            return self.refuse(400, "temperature must not be negative", "diffusion.t_min")
        text = HOSTILE if "tag" in question else ANSWERS[seed % 2] * (20 if "long" in question else 1)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self.asked = body.get("stream_options", {})
            self.stream(text, seed, question, body.get("diffusion", {}).get("sampler") == "threshold")
        except (BrokenPipeError, ConnectionResetError):
            Mock.gone += 1
        self.close_connection = True

    def stream(self, text, seed, question, masks):
        n = 0
        for n, event in enumerate(denoising(text, seed, masks)):
            if isinstance(event, dict):
                if not self.asked.get("include_alternatives"):
                    for position in event["positions"]:
                        del position["alternatives"]
                self.chunk({}, diffusion=event)
                time.sleep(0.5 if "slow" in question else Mock.step_seconds)
                if n == 4 and "hold" in question:
                    Mock.gate.wait(20)
            else:
                self.chunk({"content": event})
            if n == 15 and "drop" in question:
                return
            if n == 15 and "break" in question:
                return self.send({"error": {"message": "out of memory", "type": "server_error", "param": None}})
        self.chunk({}, finish="stop")
        n_tokens = len(tokens_of(text))
        usage = {"prompt_tokens": 9, "completion_tokens": n_tokens, "total_tokens": 9 + n_tokens}
        self.send({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def chunk(self, delta, finish=None, **more):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self.send({"object": "chat.completion.chunk", "choices": [choice], "usage": None, **more})

    def send(self, value):
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


class Browser:
    """A fresh page for each check; whatever it says on the console or asks of others is an error."""

    def __init__(self, chromium, url, args):
        self.chromium, self.url, self.args, self.problems = chromium, url, args, []

    def open(self, width=1180, height=820, **context):
        page = self.chromium.new_context(viewport={"width": width, "height": height}, **context).new_page()
        page.set_default_timeout(60_000 if self.args.url else 8_000)
        foreign = lambda url: not url.startswith((self.url, "data:"))
        page.on("request", lambda r: foreign(r.url) and self.problems.append(f"asked for {r.url}"))
        page.on("pageerror", lambda e: self.problems.append(f"error of the page: {e}"))
        page.on("console", lambda m: m.type == "error" and "Failed to load resource" not in m.text
                and self.problems.append(f"console: {m.text}"))
        if self.args.key:
            page.add_init_script(f"sessionStorage.setItem('key', {json.dumps(self.args.key)})")
        page.goto(self.url)
        expect(page.locator("#model-name")).not_to_be_empty()  # what is known of the model has come
        return page

    def picture(self, page, name):
        if self.args.pictures:
            page.wait_for_timeout(300)  # colours settle
            page.screenshot(path=f"{self.args.pictures}/{name}.png")


def ask(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def done(page):
    expect(page.locator("#send")).to_be_visible(timeout=120_000)


def shown(page, n=0):
    return page.locator(".canvas").nth(n).text_content()


# Checks that hold of any server -----------------------------------------------------------------------------------


def sends_and_goes_back(browser):
    page = browser.open()
    ask(page, "What is the capital of Japan?")
    done(page)
    final = shown(page)
    assert final.strip() and page.locator(".canvas span").count() == 0, "the answer ends as plain text"
    figures = page.locator(".figures").text_content()
    form = r"[\d.]+ tokens/s · \d+ tokens · \d+ steps · [\d.]+ m?s to first draft · [\d.]+ m?s in all"
    assert re.fullmatch(form, figures), figures
    slider = page.get_by_label("Step of the answer")
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator(".canvas span").count() > 0, "Home shows the positions of the first step"
    first = page.locator(".status").text_content()
    assert first.startswith("canvas 1 · step 1"), first
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "1" and page.locator(".status").text_content() != first
    page.keyboard.press("End")
    assert shown(page) == final, "End shows the final text"
    browser.picture(page, "answer")


def hover_tells_alternatives(browser):
    page = browser.open()
    setting = page.get_by_label("Alternatives on hover")
    for wanted in (True, False):
        page.get_by_role("button", name="Settings", exact=True).click()
        setting.set_checked(wanted)
        page.get_by_label("Close settings").click()
        ask(page, "What is the capital of Japan?")
        done(page)
        page.get_by_label("Step of the answer").last.fill("0")
        page.locator(".answer").last.locator(".canvas span").first.hover()
        others = page.locator("#tip div")
        expect(others.first).to_be_visible() if wanted else expect(others).to_have_count(0)
        if wanted:
            chances = [float(text) for text in others.locator(".num").all_text_contents()]
            assert chances == sorted(chances, reverse=True) and 0 < sum(chances) < 1.01, chances


def compares_two_seeds(browser):
    page = browser.open(width=1120, height=660)
    page.get_by_role("button", name="Compare").click()
    page.get_by_label("Close settings").click()
    ask(page, "What is the capital of Japan?")
    done(page)
    assert page.locator(".answer").count() == 2 and shown(page, 0).strip() and shown(page, 1).strip()
    boxes = [page.locator(".answer").nth(i).bounding_box() for i in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"], "side by side"
    abouts = [page.locator(".answer header span:first-child").nth(i).text_content() for i in (0, 1)]
    assert "seed 0" in abouts[0] and "seed 1" in abouts[1], abouts
    page.get_by_role("button", name="Continue").nth(1).click()
    assert "picked" in page.locator(".answer").nth(1).get_attribute("class")
    return page


def fits_a_phone(browser):
    page = browser.open(width=360, height=740)
    parts = "['html', 'main', 'aside', '.ask']"
    wide = lambda: page.evaluate(f"Math.max(...{parts}.map(q => document.querySelector(q).scrollWidth))")
    assert wide() <= 360, "welcome is wider than the screen"
    browser.picture(page, "phone-welcome")
    ask(page, "What is the capital of Japan?")
    done(page)
    assert wide() <= 360, "an answer is wider than the screen"
    browser.picture(page, "phone")
    page.get_by_role("button", name="Compare").click()
    assert wide() <= 360, "settings are wider than the screen"
    browser.picture(page, "phone-settings")


def follows_dark_and_light(browser):
    paper = lambda page: page.evaluate("getComputedStyle(document.body).backgroundColor")
    light, dark = browser.open(color_scheme="light"), browser.open(color_scheme="dark")
    assert paper(light) != paper(dark), "the system's colours are followed"
    toggle = dark.get_by_role("button", name="Colours")
    toggle.click()
    assert paper(dark) == paper(light) and "light" in toggle.get_attribute("aria-label")
    dark.reload()
    assert paper(dark) == paper(light), "the choice is remembered"
    toggle.click()
    assert paper(dark) != paper(light)


def can_be_used_with_keys_alone(browser):
    page = browser.open()
    assert page.evaluate("document.activeElement.id") == "prompt", "one can type at once"
    named = page.evaluate("""[...document.querySelectorAll('button, input, select, textarea')].filter(e =>
        !(e.ariaLabel || e.textContent.trim() || e.title || e.labels?.length)).map(e => e.outerHTML)""")
    assert named == [], f"controls without a name: {named}"
    page.get_by_role("button", name="Help").focus()
    page.keyboard.press("Enter")
    assert page.get_by_text("wall tokens per second").is_visible(), "figures are defined"
    browser.picture(page, "help")
    page.keyboard.press("Escape")
    assert not page.get_by_text("wall tokens per second").is_visible()
    page.get_by_role("button", name="Settings", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Close settings")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Settings", exact=True)).to_be_focused()


# Checks that need the mock ------------------------------------------------------------------------------------------


def canvas_settles_in_place(browser):
    Mock.step_seconds = 0.35
    page = browser.open()
    ask(page, "hold the fifth step")
    expect(page.locator(".status")).to_contain_text("step 1/12")
    page.evaluate("window.kept = document.querySelector('.canvas span')")
    first = shown(page)
    expect(page.locator(".status")).to_contain_text("step 5/12", timeout=15_000)
    assert shown(page) != first and page.evaluate("window.kept.isConnected"), "spans are updated, not made anew"
    states = page.evaluate("[...document.querySelectorAll('.canvas span')].map(s => s.dataset.state)")
    assert sorted(set(states)) == ["accepted", "draft", "noise"], states
    browser.picture(page, "live")
    slider = page.get_by_label("Step of the answer")
    slider.fill("0")
    assert shown(page) == first, "one can look back while the answer is written"
    slider.fill(slider.get_attribute("max"))
    Mock.step_seconds = 0.02
    Mock.gate.set()
    done(page)
    assert shown(page) == ANSWERS[0]


def hover_and_keys_tell_entropy(browser):
    page = browser.open()
    ask(page, "What is the capital of Japan?")
    done(page)
    slider = page.get_by_label("Step of the answer")
    slider.focus()
    for _ in range(18):
        page.keyboard.press("ArrowLeft")
    page.locator(".canvas span").nth(8).hover()
    tip = page.locator("#tip")
    assert re.search(r"· (noise|draft|accepted) · entropy \d\.\d+ nats", tip.text_content()), tip.text_content()
    assert tip.locator("div").count() == 2, "alternatives are listed"
    before = tip.text_content()
    page.locator(".canvas").focus()
    page.keyboard.press("ArrowRight")
    assert tip.text_content() != before and page.locator("#announce").text_content() in tip.text_content()


def stops(browser):
    page = browser.open()
    ways = [lambda: page.keyboard.press("Escape"), lambda: page.get_by_role("button", name="Stop").click()]
    for n, stop in enumerate(ways, 1):
        ask(page, "slow, please")
        page.wait_for_selector(".turn:last-child .canvas span")
        stop()
        done(page)
        assert page.locator(".figures").last.text_content().startswith("stopped")
        ends = time.monotonic() + 10
        while Mock.gone < n and time.monotonic() < ends:
            time.sleep(0.05)
        assert Mock.gone == n, "the request is aborted"
    asked = [m["role"] for m in Mock.requests[1]["messages"]]
    assert asked == ["user"], "a question without an answer is no part of the conversation"


def shows_errors(browser):
    page = browser.open()
    problem = page.locator(".problem").last
    ask(page, "refuse this")
    expect(problem).to_contain_text("temperature must not be negative (diffusion.t_min)")
    ask(page, "drop this")
    expect(problem).to_contain_text("connection to the server was lost")
    assert ANSWERS[0].startswith(shown(page, 1)[:100]), "what had arrived is kept"
    browser.picture(page, "lost")
    ask(page, "break this")
    expect(problem).to_contain_text("out of memory")
    done(page)
    Mock.busy = 1
    ask(page, "What is the capital of Japan?")
    expect(problem).to_contain_text("busy. Trying again in")
    done(page)
    assert shown(page, 3) == ANSWERS[0] and not problem.is_visible(), "a busy server is asked again"
    Mock.busy = 1
    ask(page, "What is the capital of Japan?")
    page.get_by_role("button", name="Retry now").click()
    done(page)
    assert shown(page, 4) == ANSWERS[0]


def asks_for_the_key(browser):
    Mock.key = "secret"
    page = browser.open()
    field = page.get_by_label("API key")
    expect(field).to_be_focused()
    ask(page, "What is the capital of Japan?")
    expect(page.locator(".problem")).to_contain_text("API key")
    field.fill("secret")
    page.keyboard.press("Enter")
    expect(page.locator("#model-name")).to_have_text("simulated")
    page.get_by_role("button", name="Try again").click()
    done(page)
    assert shown(page) == ANSWERS[0]
    assert page.evaluate("sessionStorage.getItem('key')") == "secret"
    assert "secret" not in page.evaluate("JSON.stringify(localStorage)")


def settings_travel(browser):
    page = browser.open()
    page.get_by_role("button", name="Settings", exact=True).click()
    page.get_by_label("System message").fill("Be brief.")
    page.get_by_label("Tokens at most").fill("99")
    page.get_by_label("Seed", exact=True).first.fill("4")
    page.get_by_label("steps").first.fill("7")
    page.get_by_text("All parameters").first.click()
    page.get_by_label("t min").first.fill("-1")
    browser.picture(page, "settings")
    Mock.requests = []
    ask(page, "hello")
    assert Mock.requests == [], "a value out of range is not sent"
    page.get_by_label("t min").first.fill("0.5")
    ask(page, "hello")
    done(page)
    ask(page, "and then?")
    done(page)
    first, second = Mock.requests
    assert first == {
        "model": "simulated", "stream": True,
        "stream_options": {"include_usage": True, "include_drafts": True, "include_alternatives": True},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        "max_tokens": 99, "seed": 4, "diffusion": {"sampler": "entropy-bound", "steps": 7, "t_min": 0.5},
    }, first
    assert [m["content"] for m in second["messages"]] == ["Be brief.", "hello", ANSWERS[0], "and then?"], "history"
    page.get_by_role("button", name="Again").last.click()
    done(page)
    again = Mock.requests[2]
    assert again["seed"] == 5 and again["messages"] == second["messages"] and shown(page, 1) == ANSWERS[1]
    ask(page, "slow")
    page.get_by_role("button", name="New").click()
    done(page)
    assert page.locator(".turn").count() == 0 and page.locator("#welcome").is_visible()


def compare_uses_both_forms(browser):
    page = compares_two_seeds(browser)
    assert sorted(r["seed"] for r in Mock.requests) == [0, 1] and (shown(page, 0), shown(page, 1)) == tuple(ANSWERS)
    sliders = page.get_by_label("Step of the answer")
    for i, step in (0, 4), (1, 6):
        sliders.nth(i).fill(str(step))
    page.locator(".canvas").first.locator("span").nth(27).hover()
    browser.picture(page, "page")
    ask(page, "and?")
    done(page)
    assert [m["content"] for m in Mock.requests[-1]["messages"]][1] == ANSWERS[1], "the picked answer is continued"


def compares_two_samplers(browser):
    page = browser.open()
    page.get_by_role("button", name="Compare").click()
    page.get_by_label("Sampler").nth(1).select_option("threshold")
    page.get_by_label("Seed", exact=True).nth(1).fill("0")
    ask(page, "What is the capital of Japan?")
    done(page)
    assert {r["diffusion"]["sampler"] for r in Mock.requests} == {"entropy-bound", "threshold"}
    assert shown(page, 0) == shown(page, 1) == ANSWERS[0]
    page.get_by_label("Step of the answer").nth(1).fill("5")
    states = page.locator(".answer").nth(1).locator(".canvas span").evaluate_all(
        "spans => spans.map(s => [s.dataset.state, s.textContent])")
    assert {s for s, _ in states} == {"noise", "accepted", "committed"}
    assert {text for s, text in states if s == "noise"} == {"░"}, "masks without a text are drawn"


def long_answers_stay_whole(browser):
    page = browser.open(reduced_motion="reduce")
    Mock.step_seconds = 0.002
    ask(page, "a long one")
    done(page)
    assert shown(page) == ANSWERS[0] * 20
    n = int(page.get_by_label("Step of the answer").get_attribute("max"))
    assert n == STEPS * -(-len(tokens_of(ANSWERS[0] * 20)) // CANVAS), n
    page.get_by_label("Step of the answer").fill(str(n // 2))
    assert page.locator(".canvas span").count() == CANVAS and len(shown(page)) < len(ANSWERS[0] * 20)
    page.get_by_label("Play the steps").click()
    expect(page.get_by_label("Step of the answer")).not_to_have_value(str(n // 2))
    page.get_by_label("Pause").click()


def text_is_text(browser):
    page = browser.open(permissions=["clipboard-read", "clipboard-write"])
    ask(page, "a tag")
    done(page)
    assert shown(page) == HOSTILE and page.locator("#injected").count() == 0 and page.locator("main img").count() == 0
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == HOSTILE


ANY = [sends_and_goes_back, hover_tells_alternatives, compares_two_seeds, fits_a_phone, follows_dark_and_light,
       can_be_used_with_keys_alone]
MOCKED = [canvas_settles_in_place, hover_and_keys_tell_entropy, stops, shows_errors, asks_for_the_key, settings_travel,
          compare_uses_both_forms, compares_two_samplers, long_answers_stay_whole, text_is_text]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url", help="a running server; without it a mock")
    options.add_argument("--key", help="its API key")
    options.add_argument("--browser", default="/usr/bin/chromium")
    options.add_argument("--pictures", help="folder for screenshots")
    options.add_argument("--only", help="checks whose name contains this")
    args = options.parse_args()
    url = args.url
    if not url:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Mock)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
    checks = [c for c in (ANY if args.url else ANY + MOCKED) if not args.only or args.only in c.__name__]
    failed = 0
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        for check in checks:
            browser = Browser(chromium, url.rstrip("/"), args)
            Mock.reset()
            try:
                check(browser)
                assert browser.problems == [], browser.problems
                print(f"ok      {check.__name__}", flush=True)
            except Exception as error:  # all failures are reported together
                failed += 1
                print(f"FAILED  {check.__name__}: {error} {browser.problems}", flush=True)
            for context in chromium.contexts:
                context.close()
        chromium.close()
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
