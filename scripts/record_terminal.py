#!/usr/bin/env python3
"""Records `redraft` on a terminal for the documentation.

    python3 -m venv venv && venv/bin/pip install pyte
    venv/bin/python scripts/record_terminal.py target/release/redraft docs/media/redraft

writes docs/media/redraft.cast (asciicast v2, for players) and docs/media/redraft.svg (an animation without
scripts, for pages). The program runs on a real pseudo-terminal; a person's typing is imitated. The embedded model
answers within two frames, so the recording takes the reference backend, which is slower, and the animation shows
canvases in slow motion.
"""

import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios
import time
from html import escape

import pyte

COLUMNS, ROWS = 76, 18
# How much slower than in the recording a canvas is shown in the animation.
SLOW_MOTION = 6
# What is typed, and what must be on the screen before the next line.
SCENE = [
    ('redraft run "Who are you?"', "tok/s]"),
    ("redraft chat", "> "),
    ("What is the capital of Japan?", "tok/s]"),
    ("/regenerate", "tok/s]"),
    ("Write a function that adds two numbers", "tok/s]"),
    ("/exit", "$ "),
]
SETTINGS = {
    "REDRAFT_BACKEND": "reference",
    "REDRAFT_STABILITY": "4",
    "REDRAFT_ENTROPY_BARS": "1",
}


class Recorder:
    """A shell on a pseudo-terminal, and everything that it wrote with the time."""

    def __init__(self, program):
        self.events, self.began = [], time.time()
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self.stream = pyte.ByteStream(self.screen)
        folder = os.path.dirname(os.path.abspath(program))
        env = {k: v for k, v in os.environ.items() if not k.startswith("REDRAFT_") and k != "NO_COLOR"}
        env |= SETTINGS | {"TERM": "xterm-256color", "PS1": "$ ", "PATH": folder + os.pathsep + env["PATH"]}
        pid, self.fd = pty.fork()
        if pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def read(self, seconds):
        end = time.time() + seconds
        while (left := end - time.time()) > 0:
            if not select.select([self.fd], [], [], left)[0]:
                continue
            data = os.read(self.fd, 65536)
            self.stream.feed(data)
            self.events.append((time.time() - self.began, data))

    def until(self, text, seconds=60):
        """Waits for a last line with `text`."""
        end = time.time() + seconds
        seen = len(self.events)
        while time.time() < end:
            self.read(0.1)
            written = b"".join(data for _, data in self.events[seen:]).decode(errors="replace")
            if text in written and self.screen.display[self.screen.cursor.y].strip() in ("$", ">"):
                return
        sys.exit(f"no {text!r} on the screen:\n" + "\n".join(self.screen.display))

    def type(self, line):
        for key in line:
            os.write(self.fd, key.encode())
            self.read(0.045)
        self.read(0.4)
        os.write(self.fd, b"\r")


def record(program):
    r = Recorder(program)
    r.read(1.0)
    for line, seen in SCENE:
        r.type(line)
        r.until(seen)
        r.read(1.2)
    return r.events


def write_cast(path, events):
    with open(path, "w", encoding="utf-8") as f:
        header = {"version": 2, "width": COLUMNS, "height": ROWS, "env": {"TERM": "xterm-256color"}}
        f.write(json.dumps(header) + "\n")
        pending = b""
        for at, data in events:
            pending += data
            # A character may be spread over two reads.
            text = pending.decode(errors="ignore")
            if text.encode() == pending:
                f.write(json.dumps([round(at, 3), "o", text], ensure_ascii=False) + "\n")
                pending = b""


COLORS = {"default": "#d0d7de", "cyan": "#56d4dd", "magenta": "#d2a8ff", "red": "#ff7b72", "green": "#7ee787"}


class Faint(pyte.Screen):
    """A screen that knows dim text, which pyte does not: it becomes a colour."""

    def select_graphic_rendition(self, *attrs, **kwargs):
        super().select_graphic_rendition(*[a for a in attrs if a != 2], **kwargs)
        if 2 in attrs:
            self.cursor.attrs = self.cursor.attrs._replace(fg="8b949e")
        if 0 in attrs or not attrs:
            self.cursor.attrs = self.default_char


def rows_of(screen):
    """Each row as runs of (column, text, colour, bold, italic), and the cursor."""
    rows = []
    for y in range(ROWS):
        runs = []
        for x in range(COLUMNS):
            c = screen.buffer[y][x]
            style = (COLORS.get(c.fg, "#" + c.fg), c.bold, c.italics)
            if c.data == " " and (not runs or runs[-1][1].endswith("  ")):
                continue
            if runs and runs[-1][2:] == style and runs[-1][0] + len(runs[-1][1]) == x:
                runs[-1] = (runs[-1][0], runs[-1][1] + c.data, *style)
            elif c.data.strip():
                runs.append((x, c.data, *style))
        rows.append(tuple((x, t.rstrip(), *s) for x, t, *s in runs if t.strip()))
    cursor = None if screen.cursor.hidden else (screen.cursor.x, screen.cursor.y)
    return tuple(rows), cursor


def frames_of(events):
    """Pictures of the screen with the times at which they come, at most 20 a second."""
    screen = Faint(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    frames = []
    for i, (at, data) in enumerate(events):
        stream.feed(data)
        if i + 1 < len(events) and events[i + 1][0] - at < 0.02:
            continue
        picture = rows_of(screen)
        if frames and (frames[-1][1] == picture or at - frames[-1][0] < 0.05):
            frames[-1] = (frames[-1][0], picture)
        else:
            frames.append((at, picture))
    return frames


def slow_motion(frames):
    """The frames with new times: while there is no cursor, a canvas is refined."""
    slow, late = [], 0.0
    for i, (at, picture) in enumerate(frames):
        slow.append((at + late, picture))
        if picture[1] is None and i + 1 < len(frames):
            late += (frames[i + 1][0] - at) * (SLOW_MOTION - 1)
    return slow


def write_svg(path, events):
    frames = slow_motion(frames_of(events))
    total = frames[-1][0] + 2.0
    w, h, pad = 8.43, 18, 14
    width, height = COLUMNS * w + 2 * pad, ROWS * h + 2 * pad
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">',
        "<title>redraft on a terminal</title>",
        "<style>text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}",
        f"use,rect.c{{visibility:hidden;animation:{total:.2f}s step-end infinite}}",
    ]
    rows, uses = {}, []
    # A row is shown from the frame in which it appears to the one in which it changes.
    shown = [None] * (ROWS + 1)
    spans = []
    for at, (picture, cursor) in frames + [(total, ((None,) * ROWS, None))]:
        for y, item in enumerate((*picture, cursor and ("cursor", *cursor))):
            before = shown[y]
            if before is None or before[0] != item:
                if before is not None and before[0]:
                    spans.append((y, before[0], before[1], at))
                shown[y] = (item, at)
    for i, (y, item, start, end) in enumerate(spans):
        a, b = 100 * start / total, min(100 * end / total, 100)
        if item[0] == "cursor":
            x, y = item[1] * w + pad, item[2] * h + pad
            uses.append(f'<rect class="c" x="{x:.1f}" y="{y}" width="{w}" height="{h}" fill="#8b949e" style="animation-name:k{i}"/>')
        else:
            key = rows.setdefault(item, len(rows))
            uses.append(f'<use href="#r{key}" y="{y * h + pad}" style="animation-name:k{i}"/>')
        first = "" if a == 0 else "0%{visibility:hidden}"
        last = "" if b >= 100 else f"{b:.3f}%{{visibility:hidden}}"
        out.append(f"@keyframes k{i}{{{first}{a:.3f}%{{visibility:visible}}{last}}}")
    out.append("</style><defs>")
    for runs, key in rows.items():
        texts = []
        for x, text, color, bold, italic in runs:
            style = (' font-weight="bold"' if bold else "") + (' font-style="italic"' if italic else "")
            length = f' textLength="{len(text) * w:.1f}" lengthAdjust="spacingAndGlyphs"'
            texts.append(f'<text x="{x * w + pad:.1f}" y="14" fill="{color}"{style}{length}>{escape(text)}</text>')
        out.append(f'<g id="r{key}">{"".join(texts)}</g>')
    out.append(f'</defs><rect width="100%" height="100%" rx="8" fill="#0d1117"/>{"".join(uses)}</svg>\n')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out))


def main():
    program, target = sys.argv[1:]
    events = record(program)
    write_cast(target + ".cast", events)
    write_svg(target + ".svg", events)


if __name__ == "__main__":
    main()
