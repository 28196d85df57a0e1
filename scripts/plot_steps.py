#!/usr/bin/env python3
"""Draws how the time of a step grows, from reports of `redraft bench --json`, as an SVG file.

    redraft bench -m FILE -t 1 --rows 32,64,128,256,512 --json >> steps.jsonl
    redraft bench -m FILE -t 2 --prompt 64,256,1024,4096 --json >> steps.jsonl
    python3 scripts/plot_steps.py steps.jsonl docs/media/steps.svg

Two panels with logarithmic axes: CPU seconds of a step by rows (at the shortest prompt) and by prompt length (at
the most frequent number of rows). A line is one mode and number of threads. Needs nothing but Python.
"""
import collections
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 220, 60, 30, 90
COLOURS = ["#1b6ca8", "#d1495b", "#2e8b57", "#8a5a9e", "#c17c00", "#555555"]


def points(paths):
    """(label, rows, prompt, seconds) of every step in the reports."""
    for path in paths:
        with open(path) as lines:
            for line in lines:
                report = json.loads(line)
                plural = "s" if report["threads"] > 1 else ""
                label = f'{report["numerics"]}, {report["threads"]} thread{plural}'
                for step in report["steps"]:
                    spread = step["cpu_s"] or step["wall_s"]
                    yield label, step["rows"], step["prompt"], spread["median"]


def ticks(low, high):
    """Powers of two or ten between the bounds, with both ends inside."""
    base = 10 if high / low > 64 else 2
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    return [float(base) ** e for e in range(first, last + 1)]


def number(x):
    return f"{x:g}" if x >= 0.01 else f"{x:.0e}"


def panel(out, x0, title, series):
    """One diagram: series is {label: [(x, y)]}."""
    xs = [x for line in series.values() for x, _ in line]
    ys = [y for line in series.values() for _, y in line]
    tx, ty = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))
    scale = lambda v, t, size: size * (math.log(v) - math.log(t[0])) / max(math.log(t[-1]) - math.log(t[0]), 1e-9)
    px = lambda x: x0 + scale(x, tx, WIDTH)
    py = lambda y: TOP + HEIGHT - scale(y, ty, HEIGHT)
    out.append(f'<text x="{x0}" y="{TOP - 12}" font-weight="bold">{title}</text>')
    for t in tx:
        out.append(f'<path d="M{px(t):.1f} {TOP}V{TOP + HEIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{px(t):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{number(t)}</text>')
    for t in ty:
        out.append(f'<path d="M{x0} {py(t):.1f}H{x0 + WIDTH}" stroke="#ddd"/>')
        out.append(f'<text x="{x0 - 6}" y="{py(t) + 4:.1f}" text-anchor="end">{number(t)}</text>')
    for i, (label, line) in enumerate(sorted(series.items())):
        colour = COLOURS[i % len(COLOURS)]
        places = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in sorted(line))
        out.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.extend(f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" fill="{colour}"/>' for x, y in line)
        out.append(f'<text x="{x0 + 10}" y="{TOP + 16 + 15 * i}" fill="{colour}">{label}</text>')


def main():
    *sources, target = sys.argv[1:]
    found = list(points(sources))
    shortest = min(p for _, _, p, _ in found)
    usual = collections.Counter(r for _, r, _, _ in found).most_common(1)[0][0]
    by_rows, by_prompt = collections.defaultdict(list), collections.defaultdict(list)
    for label, rows, prompt, seconds in found:
        if prompt == shortest:
            by_rows[label].append((rows, seconds))
        if rows == usual and prompt > 0:
            by_prompt[label].append((prompt, seconds))
    panels = [(f"CPU seconds by rows, prompt {shortest}", by_rows)]
    panels += [(f"CPU seconds by prompt, {usual} rows", by_prompt)] if by_prompt else []
    width = LEFT + len(panels) * (WIDTH + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 30}" '
           'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>']
    for i, (title, series) in enumerate(panels):
        panel(out, LEFT + i * (WIDTH + GAP), title, series)
    with open(target, "w") as file:
        file.write("\n".join(out + ["</svg>\n"]))


if __name__ == "__main__":
    main()
