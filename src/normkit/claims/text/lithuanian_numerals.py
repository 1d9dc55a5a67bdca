"""What is claimed of Lithuanian numbers by rule."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Identity

WORDS = """
    vienas du trys keturi penki šeši septyni aštuoni devyni
    dešimt vienuolika dvylika trylika keturiolika penkiolika šešiolika septyniolika aštuoniolika devyniolika
    dvidešimt trisdešimt keturiasdešimt penkiasdešimt šešiasdešimt septyniasdešimt aštuoniasdešimt devyniasdešimt"""
ONES, TEENS, TENS = (line.split() for line in WORDS.strip().split("\n"))


def in_words(number):
    """A number below 10,000 in the nominative, as num2words has it; one hundred and one thousand without a one."""
    if number == 0:
        return "nulis"
    thousands, hundreds, rest = number // 1000, number // 100 % 10, number % 100
    words = counted(thousands, "tūkstantis", "tūkstančiai") + counted(hundreds, "šimtas", "šimtai")
    if rest >= 20:
        words += [TENS[rest // 10 - 2], *ONES[rest % 10 - 1 : rest % 10]]
    elif rest >= 10:
        words += [TEENS[rest - 10]]
    elif rest:
        words += [ONES[rest - 1]]
    return " ".join(words)


def counted(digit, one, many):
    """A digit with the noun it counts."""
    return [] if not digit else [one] if digit == 1 else [ONES[digit - 1], many]


def differing(seed, case="nominative"):
    """How many numbers below 10,000 are written otherwise."""
    numerals = nk.LithuanianNumerals()
    return sum(numerals.number(str(n), case, "masculine")["words"] != in_words(n) for n in range(10_000))


CLAIMS = [
    Identity(
        "numbers",
        says="All numbers from 0 to 9,999 are written rightly in the nominative.",
        measure=differing,
        bound=0.0,
        breaks=partial(differing, case="genitive"),
        against="the genitive",
        number="numbers written otherwise",
        draws=1,
    )
]
