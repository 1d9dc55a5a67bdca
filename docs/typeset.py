"""Equations as MathML, from the plain text that docstrings write them in; no file of another site is needed.

What stands in a line is kept sign by sign. A quotient becomes a fraction where its parts are clear; in a line with
words of prose the stroke stays.

>>> typeset("y = x / sqrt(v + eps)")  # doctest: +ELLIPSIS
'<div><math display="block"><mi>y</mi><mo>=</mo><mfrac><mi>x</mi><msqrt>...</msqrt></mfrac></math></div>'
"""

from __future__ import annotations

import html
import re

LETTERS = "alpha beta gamma delta epsilon eps eta theta kappa lambda lam mu nu xi pi rho sigma tau phi chi psi omega"
GREEK = dict(
    zip(
        LETTERS.split(),
        "αβγδεεηθκλλμνξπρστφχψω",
        strict=True,
    )
)
GREEK |= {
    name.capitalize(): sign.upper() for name, sign in GREEK.items() if name in ("gamma", "delta", "sigma", "omega")
}
MINUS = "\N{MINUS SIGN}"
SIGNS = {"<-": "←", "->": "→", "<=": "≤", ">=": "≥", "!=": "≠", "*": "·", "-": MINUS, "||": "‖", "...": "…"}
RAISED = dict(zip("²³⁴⁻¹ᵀ", f"234{MINUS}1T", strict=True))
BIG = {"sum", "mean", "max", "min", "prod", "log", "exp", "softmax", "tanh", "arg", "median", "ln"}
PROSE = re.compile(
    r"\b(of|over|where|the|if|its|each|by|is|as|from|for|so|not|which|whose|likewise|without|with|else|times|"
    r"and|between|inverse|first|last|has|are|divided|turned|otherwise|or|length|then|once|every)\b(?! *[=<(])"
)
WORDS = re.compile(  # a part that is no equation: words, or names of models
    r"(?=.*\b(?:the|with|and|of)\b)[a-z]{2,}(?:[ ,]+[a-z]+){2,}[.,;]?"
    r"|[A-Z][\w-]{2,}(?: \d)?(?:, [A-Z][\w-]{2,}(?: \d)?)+"
)
TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<quoted>\"[\w -]+\")"
    r"|(?P<name>[^\W\d_²³⁴⁻¹ᵀ]+[0-9]*(?:_\{[^{}]*\}|_[^\W²³⁴⁻¹ᵀ]+(?:\.\w+)*)?(?:'+(?!\w))?)|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)"
    r"|(?P<raised>[²³⁴⁻¹ᵀ]+)|(?P<sign><-|->|<=|>=|!=|\|\||\.\.\.|.)"
)
PAIRS = {"(": ")", "[": "]", "{": "}"}
STOPS = {"+", "-", "=", ",", ";", "<-", "->", "<", ">", "<=", ">=", "!=", ":", "|"}
BREAKS = {"+", "-", "=", "<-", "<=", ">="}  # before which a long line may go on below
CALLED = ("name", "number")  # what brackets belong to that begin right behind it
AFTER = [("sign", sign) for sign in ",;(["]  # brackets are signs where what is between them is long
SHORT, LONG = 8, 32  # signs of a piece that is too short for a line, and of one that fits


def typeset(line: str) -> str:
    """Write one line of an equation as MathML, what stands far apart in it as equations beside each other."""
    parts = [_part(part) for part in re.split(r"\s{3,}", line.replace("`", "").strip())]
    return "<div>" + "".join(f"<span>{part}</span>" if part.count("<math") > 1 else part for part in parts) + "</div>"


def is_table(block: str) -> bool:
    """Whether an indented block is columns of words rather than equations: it keeps its own lines then.

    >>> is_table('"mean":  a'), is_table("y = x / s"), is_table("none    log p"), is_table("a = b      where it is")
    (True, False, True, False)
    """
    lines = block.split("\n")
    return any(re.match(r'"|[\w,.-]+( [\w,.-]+)?\s{2,}(?=[A-Za-z(])', line.strip()) for line in lines)


def _part(text: str) -> str:
    if WORDS.fullmatch(text):
        return f'<math display="block"><mtext>{html.escape(text)}</mtext></math>'
    nodes = _grouped(_tokens(text))
    pieces = _pieces(nodes if PROSE.search(text) else _fractions(nodes))
    return "".join(f'<math display="block">{_row(piece)}</math>' for piece in pieces)


def _pieces(nodes: list[Node]) -> list[list[Node]]:
    """Cut a line where it may go on below, into pieces that are long enough to be read."""
    pieces: list[list[Node]] = []
    for term in _terms([part for node in nodes for part in _opened(node)], BREAKS):
        for factor in _terms(term, {"*"}) if _length(term) > LONG else [term]:
            room = LONG + SHORT * (_length(factor) < SHORT)
            if pieces and (_length(pieces[-1]) < SHORT or _length(pieces[-1]) + _length(factor) <= room):
                pieces[-1] += factor
            else:
                pieces.append(factor)
    return pieces[:1] + [[_between(piece[0]), *piece[1:]] for piece in pieces[1:]]


def _opened(node: Node) -> list[Node]:
    """Brackets around more than a line holds, as signs between which a line may be cut."""
    if _length(node) <= LONG or node[0] not in ("call", "group") or node[1] == ("name", "sqrt"):
        return [node]
    name, group = ([node[1]], node[2]) if node[0] == "call" else ([], node)
    inside = [part for inner in group[2] for part in _opened(inner)]
    return [*name, ("sign", group[1]), *inside, ("sign", group[3])]


def _between(node: Node) -> Node:
    """A sign that begins a piece stands between two terms all the same."""
    return ("infix", node[1]) if node[0] == "sign" else node


def _terms(nodes: list[Node], breaks: set[str]) -> list[list[Node]]:
    """Cut before operations, before words of prose, behind commas, and behind brackets that are open."""
    terms: list[list[Node]] = [[]]
    for at, node in enumerate(nodes):
        word = node[0] == "name" and at and nodes[at - 1][0] == "gap" and PROSE.fullmatch(node[1])
        if terms[-1] and ((node[0] == "sign" and node[1] in breaks) or word or nodes[at - 1] in AFTER):
            terms.append([])
        terms[-1].append(node)
    return terms


def _length(node: Node | list[Node] | str) -> int:
    """How many signs wide something is, nearly."""
    if isinstance(node, str):
        return len(node)
    if node and node[0] == "sign" and node[1] in BREAKS:
        return 2  # with the room around it
    if node and node[0] == "fraction":
        return max(_length(node[1]), _length(node[2]))
    return sum(map(_length, node[1:] if node and isinstance(node[0], str) else node))


def _tokens(text: str) -> list[tuple[str, str]]:
    return [(str(found.lastgroup), found[0]) for found in TOKEN.finditer(text)]


Node = (
    tuple  # (kind, text or nodes); kinds are "name", "number", "sign", "infix", "gap", "group", "call", "raised", ...
)


def _grouped(tokens: list[tuple[str, str]]) -> list[Node]:
    """Put what is between brackets or bars together, and raise what is raised."""
    nodes, _ = _until(tokens, 0, "")
    return nodes


def _until(tokens: list[tuple[str, str]], at: int, end: str) -> tuple[list[Node], int]:
    nodes: list[Node] = []
    while at < len(tokens):
        kind, text = tokens[at]
        before = tokens[at - 1][0] if at else "space"
        after = tokens[at + 1][0] if at + 1 < len(tokens) else "space"
        if text == end and (end not in ("|", "||") or before != "space"):
            return nodes, at + 1
        if text in PAIRS or (text in ("|", "||") and after != "space" and text != end):
            closing = PAIRS.get(text, text)
            inner, past = _until(tokens, at + 1, closing)
            if past > len(tokens):
                nodes.append(("sign", text))
                at += 1
                continue
            group = ("group", text, inner, closing)
            if text in ("(", "[") and nodes and before in CALLED and nodes[-1][0] in (*CALLED, "raised", "call"):
                nodes[-1] = ("call", nodes[-1], group)
            else:
                nodes.append(group)
            at = past
            continue
        if kind == "raised" and nodes:
            nodes[-1] = ("raised", nodes[-1], [("number", "".join(RAISED[sign] for sign in text))])
        elif (text == "^" and nodes and after in ("space", "raised")) or (text == "^" and at + 1 == len(tokens)):
            nodes[-1] = ("hat", nodes[-1])
        elif text == "^" and nodes:
            power, at = _power(tokens, at + 1)
            nodes[-1] = ("raised", nodes[-1], power)
            continue
        elif kind != "space":
            nodes.append((kind, text))
        elif nodes and nodes[-1][0] not in ("sign", "gap") and at + 1 < len(tokens) and _opens(tokens[at + 1]):
            nodes.append(("gap", " "))
        at += 1
    return nodes, len(tokens) + 1 if end else at


def _opens(token: tuple[str, str]) -> bool:
    """Whether a factor or a word begins with it."""
    return token[0] in ("name", "number", "quoted") or token[1] in PAIRS or token[1] in ("|", "||")


def _power(tokens: list[tuple[str, str]], at: int) -> tuple[list[Node], int]:
    """What stands behind ``^``: a sign, and a name, a number or a group."""
    power: list[Node] = []
    if tokens[at][1] == "-":
        power, at = [("sign", "-")], at + 1
    if at < len(tokens) and tokens[at][1] in PAIRS:
        inner, past = _until(tokens, at + 1, PAIRS[tokens[at][1]])
        return [*power, *inner], past
    if at < len(tokens):
        power.append(tokens[at])
    if [token[1] for token in tokens[at + 1 : at + 2]] == ["/"] and tokens[at + 2][0] == "number":  # ^1/4
        return [*power, ("sign", "/"), tokens[at + 2]], at + 3
    return power, at + 1


def _fractions(nodes: list[Node]) -> list[Node]:
    """Make fractions of quotients, from left to right."""
    made: list[Node] = []
    at = 0
    while at < len(nodes):
        node = _inside(nodes[at])
        if node == ("sign", "/") and made and at + 1 < len(nodes):
            start = _start(made)
            past = _end(nodes, at + 1)
            if start < len(made) and past > at + 1:
                below = _fractions(nodes[at + 1 : past])
                if max(_length(made[start:]), _length(below)) > LONG + SHORT:  # which could not be cut as a fraction
                    made += [node, *below]
                    at = past
                    continue
                made[start:] = [("fraction", made[start:], below)]
                at = past
                continue
        made.append(node)
        at += 1
    return made


def _inside(node: Node) -> Node:
    if node[0] == "group":
        return ("group", node[1], _fractions(node[2]), node[3])
    if node[0] == "call":
        return ("call", node[1], _inside(node[2]))
    if node[0] == "raised":
        return ("raised", _inside(node[1]), node[2])
    return node


def _start(made: list[Node]) -> int:
    """Where the numerator begins: at its factor, or at the sum or mean that it is within."""
    own = len(made) - 1 if _factor(made[-1]) else len(made)
    for back in range(len(made) - 1, -1, -1):
        if made[back][0] == "sign" and made[back][1] in STOPS:
            break
        if _operator(made[back]):
            own = back
    return own


def _end(nodes: list[Node], at: int) -> int:
    """Where the denominator ends: behind one factor, and behind all that a sum or mean is of."""
    if not _operator(nodes[at]):
        return at + 1 if _factor(nodes[at]) else at
    while at < len(nodes) and not (nodes[at][0] == "sign" and nodes[at][1] in STOPS):
        at += 1
    return at


def _operator(node: Node) -> bool:
    return node[0] == "name" and node[1].partition("_")[0] in BIG


def _factor(node: Node) -> bool:
    return node[0] not in ("sign", "gap")


def _written(node: Node) -> str:
    kind = node[0]
    if kind == "name":
        return _name(node[1])
    if kind == "quoted":
        return f"<mtext>{html.escape(node[1])}</mtext>"
    if kind == "number":
        return f"<mn>{node[1]}</mn>"
    if kind == "gap":
        return '<mspace width="0.25em"/>'
    if kind == "group":
        return (
            f"<mrow><mo>{SIGNS.get(node[1], node[1])}</mo>{_row(node[2])}<mo>{SIGNS.get(node[3], node[3])}</mo></mrow>"
        )
    if kind == "call":
        name, group = node[1], node[2]
        if name == ("name", "sqrt"):
            return f"<msqrt>{_row(group[2])}</msqrt>"
        return _written(name) + _written(group)
    if kind == "raised":
        return f"<msup>{_one([node[1]], bare=False)}{_one(node[2], bare=False)}</msup>"
    if kind == "infix":
        return _written(("sign", node[1])).replace("<mo>", '<mo form="infix">')
    if kind == "hat":
        return f"<mover><mrow>{_written(node[1])}</mrow><mo>^</mo></mover>"
    if kind == "fraction":
        return f"<mfrac>{_one(node[1])}{_one(node[2])}</mfrac>"
    return f"<mo>{html.escape(SIGNS.get(node[1], node[1]))}</mo>"


def _one(nodes: list[Node], bare: bool = True) -> str:
    """A part of a fraction as one element, without round brackets around all of it; or of a power, with them."""
    if bare and len(nodes) == 1 and nodes[0][0] == "group" and nodes[0][1] == "(":
        nodes = nodes[0][2]
    alone = len(nodes) == 1 and (nodes[0][0] not in ("sign", "call") or nodes[0][1] == ("name", "sqrt"))
    return _written(nodes[0]) if alone else f"<mrow>{_row(nodes)}</mrow>"


def _row(nodes: list[Node]) -> str:
    return "".join(map(_written, nodes))


def _name(text: str) -> str:
    """A name: a letter and its index apart, Greek letters as such, any other as it is written."""
    base, _, index = text.partition("_")
    digits = re.fullmatch(r"([^\W\d_]+)(\d+)", base)
    if digits and not index and (len(digits[1]) == 1 or digits[1] in GREEK):
        base, index = digits[1], digits[2]
    index = index.strip("{}")
    if index and (len(base) == 1 or len(index) == 1 or base in GREEK or base in BIG):
        return f"<msub><mi>{GREEK.get(base, base)}</mi><mtext>{html.escape(GREEK.get(index, index))}</mtext></msub>"
    return f"<mi>{html.escape(GREEK.get(text, text))}</mi>"
