"""One case goes over many values: one id a method and line, whose failure names each value that fails."""

import functools
import inspect
import itertools
from collections.abc import Mapping
from textwrap import indent

import pytest

import normkit as nk
from normkit import kinds
from normkit.families import family_of_line

LOOSE = {"offsets", "batches"}  # how far rounding leads astray, and in which order torch sums, differs by processor


def cases(item):
    """The line of the contract, the method and the words of each case of a test; none for tests of no line."""
    marker = item.get_closest_marker("line")
    if marker is None:
        return []
    params = dict(item.callspec.params)
    (line, *words), name = marker.args, params.pop("name")
    combinations = getattr(item.obj, "combinations", [{}])
    return [(line, name, [*words, *map(word, {**params, **values}.values())]) for values in combinations]


def word(value):
    """How a card names a value of a case; of a mapping, by its keys."""
    return " ".join(value) if isinstance(value, Mapping) else str(value).removeprefix("torch.")


def exemption(line, name, words):
    """Why a case need not be kept, or None."""
    family = family_of_line(line)
    return kinds.exemption(nk.card(name).exempt if family is None else family.exempt(name), line, *words)


def over(**values):
    """Let a test go over all combinations of values in one case, the last value fastest.

    A combination that a card exempts must fail, as a case of its own would. One that skips is passed over, and where
    all do the case skips.
    """
    combinations = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]

    def decorate(test):
        @functools.wraps(test)
        def case(request, **params):
            __tracebackhide__ = True
            own = cases(request.node)
            exempt = [exemption(*each) for each in own] or [None] * len(combinations)
            ends = [end(test, {**params, **combination}) for combination in combinations]
            strict = not LOOSE & {line for line, *_ in own}
            wrong = [
                (" ".join(map(word, combination.values())), error)
                for combination, *each in zip(combinations, ends, exempt, strict=True)
                if (error := failure(*each, strict)) is not None
            ]
            if wrong:
                raise AssertionError(summary(wrong, len(combinations))) from wrong[0][1]
            if all(isinstance(error, pytest.skip.Exception) for error in ends):
                raise ends[0]
            if all(exempt):
                pytest.xfail(exempt[0])

        parameters = inspect.signature(test).parameters
        request = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        others = [parameter for name, parameter in parameters.items() if name not in values]
        case.__signature__ = inspect.Signature([request, *others])
        case.combinations = combinations
        return case

    return decorate


def end(test, params):
    """What a test raises, or None."""
    try:
        test(**params)
    except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
        return error


def failure(error, reason, strict):
    """What is wrong with how a case ended, which may be exempt for a reason; None if nothing is."""
    if isinstance(error, pytest.skip.Exception):
        return None
    if reason is None:
        return error
    return AssertionError(f"it is kept, and exempt: {reason}") if error is None and strict else None


def summary(wrong, count):
    """The values first, since pytest's last lines show no more, then what each failed with."""
    texts = [indent(f"{words}: {type(error).__name__}: {error}", "  ") for words, error in wrong]
    return "\n".join([f"{len(wrong)} of {count} values: {', '.join(words for words, _ in wrong)}", *texts])
