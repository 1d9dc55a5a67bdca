"""What the measure of MultiLexNorm is by definition."""

import normkit as nk
from normkit.claims.kinds import Identity

RAW, GOLD = [["u", "r", "new", "here"]], [["you", "are", "new", "here"]]
PERFECT, IDLE, MIXED = GOLD, RAW, [["you", "r", "knew", "here"]]


def case_error(seed, cases=((PERFECT, 1.0, 1.0), (IDLE, 0.0, 0.0), (MIXED, 0.0, 0.5))):
    """The largest error of error reduction and recall over cases made by hand."""
    measure, errors = nk.LexicalEvaluation(), []
    for predicted, reduction, recall in cases:
        scores = measure(RAW, GOLD, predicted)
        errors += [abs(scores["error_reduction"] - reduction), abs(scores["recall"] - recall)]
    return max(errors)


def swapped(seed):
    """The same with the results of two cases swapped."""
    return case_error(seed, ((IDLE, 1.0, 1.0), (PERFECT, 0.0, 0.0)))


CLAIMS = [
    Identity(
        "definition",
        says="Cases made by hand give what the definition says.",
        measure=case_error,
        bound=1e-12,
        breaks=swapped,
        against="results of two cases swapped",
        draws=1,
    )
]
