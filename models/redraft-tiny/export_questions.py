"""Writes the question set: the held-out prompts of `dataset.test_set`, with the scoring rule in the header.

  python export_questions.py ../../testdata/redraft-tiny/questions.json            # write
  python export_questions.py ../../testdata/redraft-tiny/questions.json --check    # compare with what is there

Needs nothing but Python.  The same call always gives the same bytes.
"""
import argparse
import json
import sys

import dataset as D

SEED, PER_TASK = 1234, 40
HEADER = {
    "name": "redraft-tiny questions",
    "license": "CC0-1.0",
    "made_by": f"models/redraft-tiny/export_questions.py: dataset.test_set(seed={SEED}, per_task={PER_TASK})",
    "scoring": "A reply is right when its text, without leading and trailing white space, equals `answer`. The text is what "
               "was generated before the first end token (<eos> or <turn|>), special tokens left out, 96 tokens at most.",
    "max_tokens": 96,
}


def text():
    """The file: a JSON object with one question per line."""
    questions = [{k: e[k] for k in ("task", "messages", "answer")} for e in D.test_set(seed=SEED, per_task=PER_TASK)]
    assert all(q["answer"] == q["answer"].strip() for q in questions)
    head = json.dumps({**HEADER, "count": len(questions)}, indent=1)
    rows = ",\n".join("  " + json.dumps(q) for q in questions)
    return f'{head[:-2]},\n "questions": [\n{rows}\n ]\n}}\n'


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("path")
    a.add_argument("--check", action="store_true", help="write nothing; exit status 1 when the file differs")
    a = a.parse_args()
    t = text()
    if a.check:
        with open(a.path, encoding="utf-8") as f:
            same = f.read() == t
        print("same" if same else f"{a.path} differs from what this script makes")
        return 0 if same else 1
    with open(a.path, "w", encoding="utf-8", newline="\n") as f:
        f.write(t)
    print(f"wrote {a.path}: {len(json.loads(t)['questions'])} questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
