#!/usr/bin/env python3
"""Runs `redraft trace --like` on every golden of a forward pass or sampler and has the oracle's own golden.py judge it.

    python3 scripts/judge_goldens.py [PATH OF redraft]

Needs numpy. Every stored file variant is judged at `--preset f32 --all`, in f32 on the default backend (numerics `exact`) and
in f64 on the reference at 1 - cos <= 1e-12. Exit status 1 if any case fails.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORACLE = ROOT / "testdata" / "oracle"
FOLDERS = [ORACLE, ROOT / "testdata" / "block-diffusion", ROOT / "testdata" / "llada2"]
MODES = {
    "f32": ["--preset", "f32", "--all"],
    "f64": ["--cos", "0.999999999999", "--nmse", "1e-12", "--all"],
}


def model_of(case):
    raw = case.read_bytes()
    head = json.loads(raw[8:8 + struct.unpack_from("<Q", raw)[0]])
    return head["__metadata__"]["model"]


def main():
    redraft = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target" / "debug" / "redraft")
    cases = [case for folder in FOLDERS for case in sorted((folder / "cases").glob("*.safetensors"))]
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "candidate.safetensors"
        for case in cases:
            for mode, limits in MODES.items():
                model = case.parent.parent / "models" / model_of(case)
                trace = [redraft, "trace", "-q", "-m", str(model), "--like", str(case),
                         "--numerics", "exact", "--precision", mode, "-o", str(out)]
                judge = [sys.executable, str(ORACLE / "golden.py"), str(case), str(out), *limits]
                for command in (trace, judge):
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode:
                        failed.append(f"{case.stem} in {mode}")
                        print(done.stdout + done.stderr)
                        break
    print(f"{len(cases)} goldens in {len(MODES)} precisions, {len(failed)} failures")
    print("\n".join(failed))
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
