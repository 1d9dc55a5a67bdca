"""Lithuanian numerals: numbers, dates and times in words, in the case and gender that a sentence asks for."""

from __future__ import annotations

import re

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text

CASES = ("nominative", "genitive", "dative", "accusative", "instrumental")
LETTERS = dict(zip(CASES, "VKNGI", strict=True))
GENDERS = ("masculine", "feminine")
WRITTEN = {  # the words of each case, in the order of CASES
    "masculine": """
        vienas du trys keturi penki šeši septyni aštuoni devyni
        vieno dviejų trijų keturių penkių šešių septynių aštuonių devynių
        vienam dviem trims keturiems penkiems šešiems septyniems aštuonims devyniems
        vieną du tris keturis penkis šešis septynis aštuonis devynis
        vienu dviem trimis keturiais penkiais šešiais septyniais aštuoniais devyniais""",
    "feminine": """
        viena dvi trys keturios penkios šešios septynios aštuonios devynios
        vienos dviejų trijų keturių penkių šešių septynių aštuonių devynių
        vienai dviem trims keturioms penkioms šešioms septynioms aštuonioms devynioms
        vieną dvi tris keturias penkias šešias septynias aštuonias devynias
        viena dviem trimis keturiomis penkiomis šešiomis septyniomis aštuoniomis devyniomis""",
    "teens": "vienuolika dvylika trylika keturiolika penkiolika šešiolika septyniolika aštuoniolika devyniolika",
    "stems": "dvi tris keturias penkias šešias septynias aštuonias devynias",
    "ten": "dešimt dešimties dešimčiai dešimt dešimt",
    "tens": "dešimt dešimties dešimčiai dešimt dešimčia",
    "hundred": "šimtas šimto šimtui šimtą šimtu šimtai šimtų šimtams šimtus šimtais",
    "thousand": "tūkstantis tūkstančio tūkstančiui tūkstantį tūkstančiu "
    "tūkstančiai tūkstančių tūkstančiams tūkstančius tūkstančiais",
    "years": "pirmų antrų trečių ketvirtų penktų šeštų septintų aštuntų devintų dešimtų vienuoliktų dvyliktų tryliktų "
    "keturioliktų penkioliktų šešiolktų septynioliktų aštuonioliktų devynioliktų",
    "days": "pirma antra trečia ketvirta penkta šešta septinta aštunta devinta dešimta vienuolikta dvylikta trylikta "
    "keturiolikta penkiolikta šešiolikta septyniolikta aštuoniolikta devyniolikta dvidešimta",
    "months": "sausio vasario kovo balandžio gegužės birželio liepos rugpjūčio rugsėjo spalio lapkričio gruodžio",
    "genitive": "anot ant arti aukščiau be dėka dėl dėlei greta iki lig ligi iš link linkui netoli nuo pasak pirmiau "
    "pirm prie pusiau šalia tarp toliau žemiau vidury vidur vietoj virš viršum viršuj išilgai įstrižai įkypai skersai "
    "kiaurai skradžiai abipus anapus šiapus abigaliai",
    "accusative": "apie aplink aplinkui į pagal palei pas paskui paskum prieš priešais pro",
    "instrumental": "su sulig ties",
}
WORDS = {name: text.split() for name, text in WRITTEN.items()}
DIGITS = {gender: {case: WORDS[gender][9 * i : 9 * i + 9] for i, case in enumerate(CASES)} for gender in GENDERS}
DAYS = [*WORDS["days"], *(f"dvidešimt {day}" for day in WORDS["days"][:9]), "trisdešimta", "trisdešimt pirma"]


def _bent(words: list[str]) -> dict[str, dict[str, str]]:
    """Singular, plural and genitive plural in each case."""
    return {
        "one": dict(zip(CASES, words[:5], strict=True)),
        "few": dict(zip(CASES, words[5:], strict=True)),
        "many": dict.fromkeys(CASES, words[6]),
    }


def _million(stem: str) -> dict[str, dict[str, str]]:
    return _bent([stem + end for end in ("as", "o", "ui", "ą", "u", "ai", "ų", "ams", "us", "ais")])


HUNDRED = _bent(WORDS["hundred"])
NAMES = [_bent(WORDS["thousand"]), _million("milijon"), _million("milijard")]
ENDS = {"genitive": "os", "dative": "ai"}
LETTER = "A-Za-zĄČĘĖĮŠŲŪŽąčęėįšųūž"
AFTER_PO = "min val s sek ms h d mėn"
AFTER_UZ = f"mm cm dm m km ft yd mi {AFTER_PO}"


def _one_of(words: list[str]) -> str:
    return "|".join(sorted({w for word in words for w in (word, word[0].upper() + word[1:])}, key=len, reverse=True))


def _before(words: list[str]) -> re.Pattern:
    return re.compile(f"(?<![{LETTER}])(?:{_one_of(words)})$")


def _right(units: str) -> re.Pattern:
    return re.compile(f" *(?:{'|'.join(units.split())})(?![{LETTER}])")


BEFORE = {
    "genitive": _before([*WORDS["genitive"], "iš po", "iš už"]),
    "accusative": re.compile(f"{_before(WORDS['accusative']).pattern}|(?<![{LETTER}])Per$"),
    "instrumental": _before(WORDS["instrumental"]),
}
BY_UNIT = {"už": (_before(["už"]), _right(AFTER_UZ)), "po": (_before(["po"]), _right(AFTER_PO))}
NUMBER = re.compile(r"([+-]?)([0-9]+)(?:,([0-9]+))?")


@method(
    "lithuanian-numerals",
    paper="Normalization of Lithuanian Text Using Regular Expressions (Kasparaitis, 2023), arXiv 2312.17660",
    shape="",
)
class LithuanianNumerals(Text):
    """Write numbers, dates and times in Lithuanian words, inflected as the sentence needs.

    For speech synthesis and for rules that expand what is not a word: the part that a regular expression cannot do.

    ``number(digits, case, gender)``: digits with a sign and a comma, if any; gives words, and agrees, what a following
    noun takes: ``Vns`` or ``Dgs`` (singular, plural) and the letter of a case, V K N G I. More than twelve digits are
    read one by one. ``date(year, month, day, spoken)`` and ``time(hour, minute, spoken)`` give text, spoken with the
    words for year and day, and the abbreviations of hour and minute. ``case_before(left, right)`` is the case that the
    text on both sides of a number asks for. Lower case, words apart by one space; code points are compared as they are.

    Normalization of Lithuanian Text Using Regular Expressions (Kasparaitis, 2023), arXiv 2312.17660. As in the author's
    earlier engine, three words differ from the language: the dative of eight, the year sixteen, and ``per``, which asks
    for a case with a capital alone.
    """

    calls = {
        "number": ("-1234,05", "genitive", "feminine"),
        "date": (1990, 12, 31, True),
        "time": (9, 5, True),
        "case_before": ("iki ", " val"),
    }

    def number(self, digits: str, case: str, gender: str) -> dict[str, str]:
        """Return a number in words, and what a following noun agrees with."""
        match = NUMBER.fullmatch(digits)
        if match is None:
            raise ValueError(f"LithuanianNumerals: digits must be like -12,5, not {digits!r}")
        check.choice(self, "case", case, CASES)
        check.choice(self, "gender", gender, GENDERS)
        sign = {"+": ["plius"], "-": ["minus"], "": []}[match[1]]
        words, count = _whole(match[2], case, gender)
        agrees = {"one": f"Vns{LETTERS[case]}", "few": f"Dgs{LETTERS[case]}", "many": "DgsK"}[count]
        if match[3]:
            words, agrees = [*words, "kablelis", *_whole(match[3], case, gender)[0]], "VnsK"
        return {"words": " ".join([*sign, *words]), "agrees": agrees}

    def date(self, year: int, month: int, day: int, spoken: bool) -> str:
        """Return a date in words."""
        check.size(self, "year", year, least=0)
        check.size(self, "month", month, most=12)
        check.size(self, "day", day, most=31)
        parts = [_year(year), "metų" if spoken else "", WORDS["months"][month - 1], DAYS[day - 1]]
        return " ".join(filter(None, [*parts, "diena" if spoken else ""]))

    def time(self, hour: int, minute: int, spoken: bool) -> str:
        """Return a time of day in words."""
        hours = _plain(check.size(self, "hour", hour, least=0, most=24), "feminine")
        minutes = _plain(check.size(self, "minute", minute, least=0, most=59), "feminine")
        minutes = f"nulis {minutes}" if minute < 10 else minutes
        return f"{hours} val {minutes} min" if spoken else f"{hours} {minutes}"

    def case_before(self, left: str, right: str) -> str:
        """Return the case of a number between two texts."""
        left = left.rstrip(" ")
        for case, words in BEFORE.items():
            if words.search(left):
                return case
        for word, units in BY_UNIT.values():
            if word.search(left):
                return "genitive" if units.match(right) else "accusative"
        return "nominative"


def _plain(value: int, gender: str = "masculine") -> str:
    return " ".join(_whole(str(value), "nominative", gender)[0])


def _whole(digits: str, case: str, gender: str) -> tuple[list[str], str]:
    """The words of a whole number, and whether one, few or many are counted."""
    rest = digits.lstrip("0")
    zeros = ["nulis"] * (len(digits) - len(rest))
    if not rest:
        return zeros, "many"
    if len(rest) > 12:
        words = [DIGITS["masculine"]["nominative"][int(d) - 1] if d != "0" else "nulis" for d in rest]
        return zeros + words, {"0": "many", "1": "one"}.get(rest[-1], "few")
    count, words = "many", zeros
    groups = [rest[max(end - 3, 0) : end] for end in range(len(rest), 0, -3)]
    for place, group in reversed(list(enumerate(groups))):
        own, count = _group(int(group), case, gender if place == 0 else "masculine")
        if int(group) and place:
            own = [*([] if int(group) == 1 else own), NAMES[place - 1][count][case]]
        words = words + own
    return words, count


def _group(value: int, case: str, gender: str) -> tuple[list[str], str]:
    """The words of three digits, and whether one, few or many are counted."""
    a, b, c = value // 100, value // 10 % 10, value % 10
    words = []
    if a:
        words = [HUNDRED["one"][case]] if a == 1 else [DIGITS["masculine"][case][a - 1], HUNDRED["few"][case]]
    if b == 1:
        return [*words, _teen(c, case)], "many"
    if b:
        ten = dict(zip(CASES, WORDS["tens"], strict=True))["nominative" if c else case]
        words = [*words, WORDS["stems"][b - 2] + ten]
    if c == 0:
        return words, "many"
    return [*words, DIGITS[gender][case][c - 1]], "one" if c == 1 else "few"


def _teen(c: int, case: str) -> str:
    if c == 0:
        return dict(zip(CASES, WORDS["ten"], strict=True))[case]
    word = WORDS["teens"][c - 1]
    return word.removesuffix("a") + ENDS[case] if case in ENDS else word


def _year(year: int) -> str:
    """A year in words, the last an ordinal in the genitive plural."""
    if year == 0:
        return "nulinių"
    for divisor, ends in ((1000, "tūkstantis|tūkstančiai"), (100, "šimtas|šimtai"), (10, "dešimt")):
        if year % divisor == 0:
            ordinal = {1000: "tūkstantųjų", 100: "šimtųjų", 10: "dešimtųjų"}[divisor]
            return re.sub(f"(.*)(?:{ends})", rf"\g<1>{ordinal}", _plain(year), count=1)
    last = year % 100 if year % 100 < 20 else year % 10
    return " ".join(filter(None, [_plain(year - last) if year > last else "", WORDS["years"][last - 1]]))
