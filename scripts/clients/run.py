#!/usr/bin/env python3
"""Runs other people's clients of the API against the built program: what they send is understood, what comes back they
can read, and they find out about errors as they do with other servers.

    python3 -m venv venv && venv/bin/pip install openai anthropic
    npm install --prefix DIR openai
    venv/bin/python scripts/clients/run.py target/debug/redraft [--node-modules DIR/node_modules] [--only NAME]

`cargo xtask clients` does it with what is installed. Each client is tried against a server with the demo model, one that
asks for a key, and one with a single place that is taken for a while.
"""

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
KEY = "a-key"


@contextlib.contextmanager
def server(program, *args, key=None):
    """A server on a free port; its address."""
    environment = os.environ | ({"REDRAFT_API_KEY": key} if key else {})
    command = [program, "serve", "--port", "0", "--json", "--quiet", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.wait()


def metric(url, name):
    text = urllib.request.urlopen(f"{url}/metrics").read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


# Steps that change nothing for a long time.
ENDLESS = {"steps": 4096, "confidence": 0}


@contextlib.contextmanager
def held(url):
    """Takes the only place of a server."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "stream": True, "diffusion": ENDLESS}
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), head)
    try:
        with urllib.request.urlopen(request):
            until(lambda: metric(url, "redraft_batch_running") == 1)
            yield
    finally:
        until(lambda: metric(url, "redraft_batch_running") == 0)


class Servers:
    """What a check gets: addresses, and a place that can be taken."""

    def __init__(self, url, locked, single):
        self.url, self.locked, self.single, self.key = url, locked, single, KEY

    def taken(self):
        return held(self.single)

    @contextlib.contextmanager
    def taken_for(self, seconds):
        """The place is given back after some time."""
        free = threading.Event()

        def hold():
            with held(self.single):
                began.set()
                free.wait(seconds)

        began, thread = threading.Event(), threading.Thread(target=hold)
        thread.start()
        try:
            assert began.wait(10), "the place could not be taken"
            yield
        finally:
            free.set()
            thread.join()

    def is_idle(self):
        until(lambda: metric(self.url, "redraft_batch_running") == 0)


def python(name, servers):
    """The checks of a module, in turn; those that failed."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        print(f"skipped {name}: {missing}")
        return 0, 0
    paths = json.load(urllib.request.urlopen(f"{servers.url}/openapi.json"))["paths"]
    if module.PATH not in paths:
        print(f"skipped {name}: the server has no {module.PATH}")
        return 0, 0
    checks = [value for key, value in vars(module).items() if key.startswith("check_")]
    failed = 0
    for check in checks:
        try:
            check(servers)
            print(f"ok      {name}: {check.__name__[6:]}", flush=True)
        except Exception as error:  # all failures are reported together
            failed += 1
            print(f"FAILED  {name}: {check.__name__[6:]}: {type(error).__name__}: {error}", flush=True)
    return len(checks), failed


def javascript(servers, modules):
    if not shutil.which("node") or not modules or not (pathlib.Path(modules) / "openai").is_dir():
        print("skipped openai_javascript: node, or its package openai, is missing")
        return 0, 0
    # Packages are looked for beside the file that imports them.
    folder = pathlib.Path(modules).parent
    script = shutil.copy(HERE / "openai_javascript.mjs", folder)
    command = ["node", script, servers.url, servers.locked, servers.key, servers.single]
    with servers.taken_for(3):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")
    lines = done.stdout.splitlines()
    failed = sum(line.startswith("FAILED") for line in lines)
    return len(lines), failed or int(done.returncode != 0)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program")
    options.add_argument("--node-modules", help="folder with the package openai")
    options.add_argument("--only", default="", help="clients whose name contains this")
    args = options.parse_args()
    ran = failed = 0
    with server(args.program) as url, server(args.program, key=KEY) as locked, \
            server(args.program, "--parallel", "1", "--max-queue", "0") as single:
        servers = Servers(url, locked, single)
        clients = {name: lambda name=name: python(name, servers) for name in ("openai_python", "anthropic_python")}
        clients["openai_javascript"] = lambda: javascript(servers, args.node_modules)
        for name, run in clients.items():
            if args.only in name:
                n, wrong = run()
                ran, failed = ran + n, failed + wrong
    print(f"{ran - failed} passed, {failed} failed")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    raise SystemExit(main())
