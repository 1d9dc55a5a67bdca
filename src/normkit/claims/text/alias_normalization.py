"""What is claimed of names of parameters that vendors write in their own ways."""

import random
from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, above

VOCABULARY = {
    "VDS": ["drain-source voltage", "V(BR)DSS", "drain to source voltage"],
    "VGS": ["gate-source voltage", "gate to source voltage"],
    "ID": ["continuous drain current", "drain current"],
    "IDM": ["pulsed drain current", "drain current pulse"],
    "RDS(on)": ["drain-source on-resistance", "on-state resistance", "static drain to source on resistance"],
    "VGS(th)": ["gate threshold voltage", "threshold voltage"],
    "Ciss": ["input capacitance"],
    "Coss": ["output capacitance"],
    "Crss": ["reverse transfer capacitance"],
    "Qg": ["total gate charge"],
    "Qgs": ["gate-source charge"],
    "Qgd": ["gate-drain charge", "miller charge"],
    "td(on)": ["turn-on delay time"],
    "td(off)": ["turn-off delay time"],
    "Ptot": ["total power dissipation", "power dissipation"],
    "Tj": ["junction temperature", "operating junction temperature"],
}
STYLES = (str.upper, lambda name: name.replace("-", " ").title(), lambda name: name.replace("(", " ").replace(")", ""))
OUTSIDE = ("body diode forward recovery slope", "solder bath dip profile", "marking code lot trace", "reel quantity")


def mistyped(name, generator):
    """A name with two neighbouring letters changed over."""
    at = generator.randrange(len(name) - 1)
    return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


def written_names(seed):
    """The names that three vendors write, a fifth of the long ones with a typing error, and what they mean."""
    generator = random.Random(seed)
    for style in STYLES:
        for name, aliases in VOCABULARY.items():
            written = style(generator.choice([name, *aliases]))
            yield (mistyped(written, generator) if len(written) > 8 and generator.random() < 0.2 else written), name


def share_right(seed, normalized=True):
    """The share of vendors' names that are right."""
    method = nk.AliasNormalization(VOCABULARY)
    pairs = [*written_names(seed)]
    return sum((method([written])[0][0] if normalized else written) == name for written, name in pairs) / len(pairs)


def gain(seed, normalized=True):
    """By how much the share grows."""
    return share_right(seed, normalized) - share_right(seed, normalized=False)


def share_unmatched(seed, threshold=0.8):
    """The share of names outside the vocabulary that stay without a meaning."""
    answers = nk.AliasNormalization(VOCABULARY, threshold=threshold)(list(OUTSIDE))
    return sum(name is None for name, _, _ in answers) / len(OUTSIDE)


CLAIMS = [
    Measured(
        "share",
        says="Normalized, 0.8 or more of three vendors' names of parameters are right.",
        measure=share_right,
        wanted=above(0.8),
        control=partial(share_right, normalized=False),
        against="names as they are written",
        number="share that is right",
        reach="proxy",
    ),
    Measured(
        "gain",
        says="That is 0.3 more than as they are written, or more.",
        measure=gain,
        wanted=above(0.3),
        control=partial(gain, normalized=False),
        against="names as they are written",
        number="gain of the share",
        reach="proxy",
    ),
    Measured(
        "outside",
        says="Names that are not in the vocabulary stay without a meaning.",
        measure=share_unmatched,
        wanted=above(1.0),
        control=partial(share_unmatched, threshold=0.0),
        against="no threshold",
        number="share that stays",
        draws=1,
        reach="proxy",
    ),
]
