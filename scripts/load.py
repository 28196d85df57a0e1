#!/usr/bin/env python3
"""Many clients at once on the demo model: errors, the longest time that a client heard nothing, memory over time, and what
answers together bring against the same requests one by one.

    python3 -m venv venv && venv/bin/pip install httpx
    venv/bin/python scripts/load.py target/release/redraft [--clients 64] [--minutes 10] [--parallel 16]

`cargo xtask load` builds the program and does it. Every client asks, reads, and asks again; each fourth one watches the
canvas. Every request has its seed, so that an answer of the crowd must be the one that it has alone: the second part asks
a sample again, one by one, and compares. Prints one JSON object; ends with 1 after an error or a difference.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import time

import httpx

KINDS = ["What is the capital of {}?", "What is {} + 58?", "Sort {}, 3, 27, 9 in ascending order.", "Spell {}."]
THINGS = ["France", "17", "41", "river", "Italy", "8", "33", "window", "Japan", "26", "74", "garden"]


def request(n):
    text = KINDS[n % len(KINDS)].format(THINGS[n // len(KINDS) % len(THINGS)])
    return {"messages": [{"role": "user", "content": text}], "seed": n, "max_tokens": 32 + 16 * (n % 3)}


async def ask(client, n, drafts, pauses):
    """The answer to a request and its tokens; appends the longest time without a byte."""
    options = {"include_usage": True, **({"include_drafts": True} if drafts else {})}
    body = request(n) | {"stream": True, "stream_options": options}
    last, longest = time.monotonic(), 0.0
    text, tokens, done = "", 0, False
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise RuntimeError(f"status {response.status_code}: {(await response.aread())[:200]!r}")
        async for line in response.aiter_lines():
            now = time.monotonic()
            last, longest = now, max(longest, now - last)
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: ") and '"positions"' not in line:
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise RuntimeError(f"event {chunk}")
                for choice in chunk["choices"]:
                    text += choice["delta"].get("content") or ""
                tokens = (chunk["usage"] or {}).get("completion_tokens", tokens)
    if not done:
        raise RuntimeError("the stream ended before the answer")
    pauses.append(longest)
    return text, tokens


def memory(process):
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


async def crowd(url, process, clients, seconds):
    answers, errors, pauses, mib = {}, [], [], []
    numbers = iter(range(10**9))
    end = time.monotonic() + seconds

    async def one(i):
        async with httpx.AsyncClient(base_url=url, timeout=600) as client:
            while time.monotonic() < end:
                n = next(numbers)
                try:
                    answers[n] = await ask(client, n, i % 4 == 0, pauses)
                except (RuntimeError, httpx.HTTPError) as error:
                    errors.append(f"{n}: {type(error).__name__} {error}")

    async def watch():
        while True:
            mib.append(memory(process))
            await asyncio.sleep(1)

    watcher = asyncio.create_task(watch())
    begin = time.monotonic()
    await asyncio.gather(*(one(i) for i in range(clients)))
    took = time.monotonic() - begin
    watcher.cancel()
    return answers, errors, pauses, mib, took


async def alone(url, numbers):
    answers = {}
    begin = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        for n in numbers:
            answers[n] = await ask(client, n, False, [])
    return answers, time.monotonic() - begin


def rate(answers, seconds):
    return {"requests": len(answers), "seconds": round(seconds, 1), "requests_per_s": round(len(answers) / seconds, 1),
            "tokens_per_s": round(sum(tokens for _, tokens in answers.values()) / seconds)}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program")
    options.add_argument("--clients", type=int, default=64)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--parallel", type=int, default=16)
    options.add_argument("--sample", type=int, default=500, help="requests that are asked again one by one")
    args = options.parse_args()
    serve = [args.program, "serve", "--port", "0", "--json", "--quiet", "--parallel", str(args.parallel),
             "--max-queue", str(args.clients)]
    process = subprocess.Popen(serve, stdout=subprocess.PIPE)
    try:
        url = json.loads(process.stdout.readline())["url"]
        before = memory(process.pid)
        answers, errors, pauses, mib, took = asyncio.run(crowd(url, process.pid, args.clients, 60 * args.minutes))
        sample = sorted(answers)[:: max(1, len(answers) // args.sample)]
        single, single_took = asyncio.run(alone(url, sample))
        ended = process.poll()
    finally:
        process.kill()
        process.wait()
    different = [n for n in sample if single[n] != answers[n]]
    tenth = max(1, len(mib) // 10)
    together, one_by_one = rate(answers, took), rate(single, single_took)
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores", "clients": args.clients, "parallel": args.parallel,
        "minutes": args.minutes, "together": together, "one_by_one": one_by_one,
        "gain": round(together["tokens_per_s"] / max(1, one_by_one["tokens_per_s"]), 2),
        "errors": len(errors), "first_errors": errors[:5], "different": len(different), "server_ended": ended is not None,
        "longest_stall_s": round(max(pauses, default=0), 2),
        "median_stall_s": round(sorted(pauses)[len(pauses) // 2], 2) if pauses else None,
        "rss_mib": {"before": round(before), "after_a_tenth": round(max(mib[:tenth])), "most": round(max(mib)),
                    "in_the_last_tenth": round(max(mib[-tenth:]))},
    }
    print(json.dumps(report, indent=1))
    return 1 if errors or different or ended is not None else 0


if __name__ == "__main__":
    raise SystemExit(main())
