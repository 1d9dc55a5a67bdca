"""What each claim says of itself, in words and numbers, is what is on record: a page and a verdict repeat it.

python tests/claims/test_claim_words.py    # records it anew
"""

import dataclasses
import json
from pathlib import Path

import forked
from normkit.claims import shelf

RECORD = Path(__file__).with_suffix(".jsonl")


def declared():
    """A line a claim, of methods and of beds."""
    for entry in [entry for entry in (*shelf.every(), *shelf.beds()) if entry.claim is not None]:
        given = {field.name: getattr(entry.claim, field.name) for field in dataclasses.fields(entry.claim)}
        words = {name: str(value) for name, value in given.items() if not callable(value)}
        yield json.dumps({"method": entry.method, "kind": entry.kind, **words}, ensure_ascii=False)


def test_claims_of_a_fresh_process_are_those_on_record():
    """Most are put together as their modules are imported."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import test_claim_words as own; print(*own.declared(), sep=chr(10))"
    )
    done = forked.run("-c", code, RECORD.parent, RECORD.parents[1])
    assert done.stdout.splitlines() == RECORD.read_text(encoding="utf-8").splitlines(), done.stderr


if __name__ == "__main__":
    RECORD.write_text("\n".join(declared()) + "\n", encoding="utf-8")
