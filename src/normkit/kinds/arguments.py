"""How a method's arguments may be given: as its own signature has them, or as a class has them that it stands in for.

>>> def norm(dim, *, eps=1e-5, affine: bool = True): ...
>>> torch = {"torch.nn.LayerNorm": "normalized_shape=dim eps elementwise_affine=affine"}
>>> bind("norm", inspect.signature(norm), (8, 1e-3), {"elementwise_affine": False}, torch)
<BoundArguments (dim=8, eps=0.001, affine=False)>

The width, which a method takes first, may have any name that libraries give it:

>>> bind("norm", inspect.signature(norm), (), {"num_features": 8})
<BoundArguments (dim=8)>

What is annotated as ``bool`` takes nothing else, so that no word such as "no" is taken for a yes:

>>> bind("norm", inspect.signature(norm), (8,), {"affine": "no"})
Traceback (most recent call last):
ValueError: norm: affine must be True or False, not 'no'
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from normkit import check

WIDTHS = (
    *("dim", "num_features", "in_features", "in_channels"),  # ours, by layout
    *("normalized_shape", "num_channels", "channels", "features", "hidden_size", "hidden"),
)


def read(form: str) -> dict[str, str]:
    """Read the arguments of another class, in its order: its name of each, and ours.

    >>> read("normalized_shape=dim eps")
    {'normalized_shape': 'dim', 'eps': 'eps'}
    """
    pairs = (word.partition("=") for word in form.split())
    return {theirs: ours or theirs for theirs, _, ours in pairs}


def bind(
    name: str,
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    called: Mapping[str, str] | None = None,
    *,
    brought: Mapping[str, Any] | None = None,
    sensible: Callable[..., bool] | None = None,
) -> inspect.BoundArguments:
    """Tell which argument is which; what fits no form is refused by name, with the nearest name that is known.

    Args:
        name: whom an error names.
        signature: the method's own, which is tried first.
        args, kwargs: what was given.
        called: the arguments of the classes that it stands in for; see :func:`read`.
        brought: what an alias gives where the call does not.
        sensible: whether the values make sense as they were understood; if not, the next form is tried.
    """
    forms = [read(text) for text in (called or {}).values()]
    args = [*map(check.plain, args)]
    kwargs = {key: check.plain(value) for key, value in kwargs.items()}
    kwargs = kwargs if args else _with_own_width(signature, kwargs)
    bindings = []
    problem = no_flag = None
    for pair in _readings(forms, args, kwargs):
        try:
            bound = signature.bind_partial(*pair[0], **pair[1]) if brought else signature.bind(*pair[0], **pair[1])
            if brought:
                bound.arguments = {**brought, **bound.arguments}
                bound = signature.bind(*bound.args, **bound.kwargs)
        except TypeError as error:
            problem = problem or error
            continue
        if wrong := _no_flag(name, bound, forms, kwargs):
            no_flag = no_flag or wrong
            continue
        if sensible is None or sensible(**bound.arguments):
            return bound
        bindings.append(bound)
    if no_flag and not bindings:
        raise ValueError(no_flag)
    if not bindings:
        raise TypeError(_refusal(name, signature, forms, kwargs, problem)) from None
    return bindings[0]


def _no_flag(name: str, bound: inspect.BoundArguments, forms: list[dict[str, str]], kwargs: Mapping[str, Any]) -> str:
    """What is given for a flag and is none, as an error names it; nothing where all are. 0 and 1 are flags."""
    for key, value in bound.arguments.items():
        is_flag = isinstance(value, int) and value in (0, 1)
        if bound.signature.parameters[key].annotation in ("bool", bool) and not is_flag:
            written = (theirs for form in forms for theirs, ours in form.items() if ours == key and theirs in kwargs)
            return f"{name}: {next(written, key)} must be True or False, not {value!r}"
    return ""


def rename(names: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """The same values in the same order, one under another name."""
    return {new if key == old else key: value for key, value in names.items()}


def _with_own_width(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keywords, with the method's name of its width where a call has another's."""
    width = next(iter(signature.parameters), "")
    others = [key for key in kwargs if key in WIDTHS and key not in signature.parameters]
    if width not in WIDTHS or width in kwargs or len(others) != 1:
        return kwargs
    return rename(kwargs, others[0], width)


def take_forms(cls: type, called: Mapping[str, str]) -> None:
    """Wrap a class's ``__init__``, so that it takes its arguments in any form, and names what it cannot take."""
    plain = cls.__init__  # type: ignore[misc]
    signature = inspect.signature(plain)
    own = signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.wraps(plain)
    def init(self, *args, **kwargs):
        bound = bind(type(self).__name__, own, args, kwargs, called)
        plain(self, *bound.args, **bound.kwargs)

    cls.__init__ = init  # type: ignore[misc]


def _readings(
    forms: list[dict[str, str]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[Sequence[Any], Mapping[str, Any]]]:
    """The call as it was made, then as each form understands it, under our names."""
    yield args, kwargs
    for form in forms:
        named = [(form.get(key, key), value) for key, value in kwargs.items()]
        named += zip(form.values(), args, strict=False)
        if len(args) <= len(form) and len(dict(named)) == len(named):
            yield (), dict(named)


def _refusal(name, signature, forms, kwargs, problem) -> str:
    takes = signature.parameters.values()
    known = dict.fromkeys([*signature.parameters, *(key for form in forms for key in form)])
    if not any(p.kind is p.VAR_KEYWORD for p in takes):
        for keyword in kwargs:
            if keyword not in known:
                return f"{name} takes no argument {keyword!r}; {nearest(keyword, list(known))}"
    return f"{name}: {problem}; its arguments are {signature}"


def near(word: str, known: Sequence[str]) -> list[str]:
    """Return up to three names that are like the word, or hold it."""
    return difflib.get_close_matches(word, known, n=3, cutoff=0.5) or [k for k in known if word in k][:3]


def nearest(word: str, known: Sequence[str], all_of_them: str = "") -> str:
    """Suggest what was meant: the nearest names, else all, or where they are many what ``all_of_them`` says."""
    close = near(word, known)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    return "it takes " + (", ".join(known) or "none") if len(known) < 20 or not all_of_them else all_of_them
