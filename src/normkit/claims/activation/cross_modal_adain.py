"""What StyleStudio claims of its cross-modal AdaIN."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn


def drawn():
    """A content, a style, and the output."""
    content, style = 2 * randn(2, 9, 4) + 1, 3 * randn(2, 9, 4) - 2
    return {"content": content, "style": style, "output": nk.CrossModalAdaIN(4)(content, style)}


def statistics_error(seed, of="output"):
    """How far means and deviations over the tokens are from the style's."""
    tokens = drawn()
    one, style = tokens[of], tokens["style"]
    return max(gap(one.mean(1), style.mean(1)), gap(one.std(1), style.std(1)))


def reordered(seed, of="output"):
    """The share of channels whose tokens are not ranked as the content's."""
    tokens = drawn()
    same = (tokens[of].argsort(1) == tokens["content"].argsort(1)).all(1)
    return 1 - same.double().mean()


CLAIMS = [
    Identity(
        "statistics",
        says="Each feature has the style's mean and deviation over the tokens.",
        measure=statistics_error,
        bound=1e-12,
        breaks=partial(statistics_error, of="content"),
        against="the content as it is",
    ),
    Identity(
        "ranking",
        says="The content's ranking of the tokens stays, in every feature.",
        measure=reordered,
        bound=0.0,
        breaks=partial(reordered, of="style"),
        against="the style's tokens",
        number="share of features ranked otherwise",
    ),
]
