"""What was done to a model, as values: each says where, of what form, in which words, and is applied and written."""

from normkit.surgery.edits.edit import (
    RECORD,
    Edit,
    all_places,
    comparison,
    edits_between,
    edits_in,
    edits_of,
    edits_since,
    inside,
    load_numbers,
    of_words,
    replace_parts,
    replay,
    tie,
    ties_in,
)
from normkit.surgery.edits.guarding import guard

__all__ = [
    "RECORD",
    "Edit",
    "all_places",
    "comparison",
    "edits_between",
    "edits_in",
    "edits_of",
    "edits_since",
    "guard",
    "inside",
    "load_numbers",
    "of_words",
    "replace_parts",
    "replay",
    "tie",
    "ties_in",
]
