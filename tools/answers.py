"""Write down what a method answers, begins with, refuses and takes: tests/goldens/NAME/answers.jsonl.

    python tools/answers.py rmsnorm dyt   # of these methods
    python tools/answers.py               # of all that have no file yet; what is left of others is removed
    python tools/answers.py --all
    python tools/answers.py --agree soap  # null where this processor answers otherwise than what is written
    python tools/answers.py --commands    # what each command takes: tests/house/commands/NAME.json

`tests/house/test_answers.py` compares, so that a number that is another by mistake is seen: after a change that is
meant, look at what has changed in the file. These are our own numbers; that they are right is for goldens to say.

- ``answers``: a method is built small in float64 and called, forward and backward, several times if it keeps anything,
  then once in evaluation, with each of its options changed in turn; an optimizer takes three steps. Of what comes out,
  of the gradients and of what is kept one number each is written, null where rounding alone moves it.
- ``begins``: of each tensor of a new module the shape and what it holds, one number, or mean and deviation of several.
- ``refuses``: of each value that is tried for an option a letter: ``r`` refused at once, ``c`` in a call, ``.`` taken.
- ``takes``: arguments, defaults and results, as the stub has them.
"""

import argparse
import ast
import functools
import inspect
import itertools
import json
import math
import os
import pathlib
import re
import sys
import warnings

import torch

import normkit as nk
import stub
from normkit import cli
from normkit.contract import subject
from normkit.contract.subject import outputs
from normkit.kinds import ADAPTER, FITTED, FUNCTION, OPTIMIZER
from normkit.kinds.kind import example
from normkit.kinds.module import ModuleKind

TESTS = pathlib.Path(__file__).parents[1] / "tests"
GOLDENS, COMMANDS = TESTS / "goldens", TESTS / "house/commands"
FILE = "answers.jsonl"
CALLED = subject.methods(lambda kind: isinstance(kind, ModuleKind) or kind in (FITTED, FUNCTION, OPTIMIZER))
MODULES = subject.METHODS
REFUSING = [*CALLED, *subject.methods(lambda kind: kind is ADAPTER)]
WAYS = ("required", "single", "mapped", "zeros", "alike", "large")
# of large inputs no gradient is asked: what saturates leaves rounding
KEPT_AS_THEY_ARE = {"sync", "process_group", "device", "dtype", "norm", "foreach", "generator"}
FOR_NONE = {"bool": [True], "int": [2, 3], "float": [0.3, 2.5]}  # what is given where None is usual
MANY = 100  # steps
NOTHING = 1e-9  # what rounding alone may leave
NOISE = 1e-10  # by which inputs are moved to see what rounding moves
FLOATS = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, math.inf)
INTEGERS = (-1, 0, 1, 2, 3, 4)
MANY_WORDS = 20  # to choose from, such as all methods


def path(name):
    """The file of a method."""
    return GOLDENS / name / FILE


def parts(name, goldens=GOLDENS):
    """What is written down of a method: each part by its name."""
    lines = (goldens / name / FILE).read_text(encoding="utf-8").splitlines()
    parts = {"answers": {}, "begins": {}, "refuses": {}, "takes": []}
    for part, key, value in map(json.loads, lines):
        parts[part] = [*parts[part], value] if part == "takes" else {**parts[part], key: value}
    return parts


def rows(name):
    """The rows of the file of a method: part, case, value."""
    if name in CALLED:
        yield from (("answers", case, values) for case, values in lasting(name).items())
    if name in MODULES:
        yield from (("begins", key, value) for key, value in beginnings(name).items())
    if name in REFUSING:
        yield from (("refuses", option, letters) for option, letters in refusals(name).items())
    yield from (("takes", "", line) for line in takes(name))


def write(name, rows):
    """Write the file of a method, whole or not at all."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path(name).parent.mkdir(exist_ok=True)
    beside = path(name).with_name(f"{FILE}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path(name))


def agree(name):
    """Write null where this processor answers otherwise, as of the basis of a space of equal eigenvalues."""
    now, rows = answers(name), map(json.loads, path(name).read_text(encoding="utf-8").splitlines())
    write(name, [(part, case, held(values, now[case]) if part == "answers" else values) for part, case, values in rows])


def held(values, now):
    """The numbers that are the same ones now, the others null."""
    same = (v is None or math.isclose(v, own, rel_tol=1e-4, abs_tol=1e-4) for v, own in zip(values, now, strict=True))
    return [value if fits else None for value, fits in zip(values, same, strict=True)]


def takes(name):
    """The lines of the stub, but for the first of the docstring."""
    text = "\n".join(stub.blocks(nk.card(name), stub.Names()))
    return [line.strip() for line in text.splitlines() if not line.strip().startswith(('"""', 'r"""'))]


def answers(name, noise=0.0):
    """The numbers of each case of a method."""
    call = functools.partial(answer, name, noise=noise)
    tried = each(changes(nk.card(name).signature, example(nk.card(name), 8), call), call)
    tried |= {f"of {way}": [functools.partial(call, way=way)] for way in WAYS[3 * is_optimizer(name) :]}
    found = {case: first(calls) for case, calls in tried.items()}
    return {case: values for case, values in (found | others(name, noise)).items() if values is not None}


def each(changed, call):
    """The calls to try of each case: nothing changed, each option, and all but words together if they are taken."""
    changed = dict(changed)
    tried = {o: [functools.partial(call, {o.split()[0]: value}) for value in values] for o, values in changed.items()}
    plain = {option: values[0] for option, values in changed.items() if " " not in option and values}
    flags = {option: value for option, value in plain.items() if type(value) is not int}
    together = {"together": [functools.partial(call, way) for way in (plain, flags)]} if len(plain) > 1 else {}
    return {"": [call], **tried, **together}


def first(calls):
    """The answer of the first call that is not refused."""
    for call in calls:
        try:
            return call()
        except Exception:  # whatever it is refused by, another would change the record
            continue
    return None


def changes(signature, usual, call):
    """Each option that can be changed, a word as an option of its own, with values to try."""
    for option, parameter in signature.parameters.items():
        value = usual.get(option, parameter.default)
        if option in KEPT_AS_THEY_ARE or value is parameter.empty:
            continue
        kinds = {type(value).__name__, *re.findall(r"\w+", str(parameter.annotation))}
        one_of = words(option, call) if kinds & {"str", "int"} and not isinstance(value, bool) else []
        if not one_of and value is not None and "None" in str(parameter.annotation):
            yield f"{option} None", [None]
        if one_of:
            yield from ((f"{option} {word}", [word]) for word in one_of if word != value)
        elif isinstance(value, bool):
            yield option, [not value]
        elif isinstance(value, int):
            yield option, [value + 1, value + 2, 2 * value, value - 1] if value < MANY else [3]
        elif isinstance(value, float):
            yield option, [0.1 if abs(value) < 1e-3 else 1.5 * value, 0.6 * value]
        elif isinstance(value, tuple) and value and all(isinstance(one, float) for one in value):
            yield from ((f"{option} {i}", [(*value[:i], 0.6 * one, *value[i + 1 :])]) for i, one in enumerate(value))
        elif value is None and "[" not in str(parameter.annotation):
            yield option, list(itertools.chain(*(given for kind, given in FOR_NONE.items() if kind in kinds)))


def words(option, call):
    """What an option may be, where it is one of several, which the refusal of another tells."""
    try:
        call({option: "nonesuch"})
    except Exception as error:
        told = re.search(rf"\b{option} must be one of (.*), not 'nonesuch'", str(error))
        return ast.literal_eval(f"({told[1]},)") if told else []
    return []


def build(name, options):
    """A small instance in float64, its parameters moved a little, and the sizes among its arguments."""
    torch.default_generator.manual_seed(0)  # that of the processor alone, which is a tenth of the time
    card = nk.card(name)
    wide = {"dtype": torch.float64} if is_optimizer(name) else {}
    args, arguments = card.kind.arguments(card, 8, **options, **wide)
    made = card.kind.create(card, *args, **arguments)
    if isinstance(made, torch.nn.Module):
        made.to(torch.float64).train()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.2 * torch.rand(parameter.shape, dtype=torch.float64).to(parameter.dtype))
    return made, {key: value for key, value in arguments.items() if type(value) is int}


def is_optimizer(name):
    """Whether a method is an optimizer."""
    return nk.card(name).kind is OPTIMIZER


def answer(name, options=None, way="", noise=0.0):
    """What comes out, the gradients, and what is kept."""
    made, sizes = build(name, options or {})
    if is_optimizer(name):
        return stepped(made, way, noise)
    card = nk.card(name)
    if way == "mapped":
        return mapped(made, inputs(card, sizes, 0, way, noise))
    setter = card.kind.setter(card.entry) if card.kind is FITTED else None
    if setter:
        getattr(made, setter)(*inputs(card, sizes, 9, way, noise))
    keeps = isinstance(made, torch.nn.Module) and not setter and any(True for _ in made.buffers())
    for seed in range((2 if way else 5) if keeps else 1):
        given = inputs(card, sizes, seed, way, noise)[: len(card.kind.takes(card)) if setter else None]
        leaves = [x.requires_grad_() if x.is_floating_point() else x for x in given]
        came = outputs(made(*leaves))
        sources = [o for o in came if o.requires_grad]
        if sources:
            generator = torch.Generator().manual_seed(50 + seed)
            sent = [torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o.dtype) for o in sources]
            torch.autograd.backward(sources, sent)
    if not isinstance(made, torch.nn.Module):
        return [folded(came), None if way == "large" else folded([x.grad for x in leaves])]
    slopes = [x.grad for x in leaves] + [p.grad for p in made.parameters()]
    kept = [buffer.clone() for buffer in made.buffers()]
    with torch.no_grad():
        kept += outputs(made.eval()(*(x.detach() for x in leaves)))
    return [folded(came), None if way == "large" else folded(slopes), folded(kept)]


def mapped(function, given):
    """What comes out of a plain function under torch's transforms, where no number can be looked at."""
    if isinstance(function, torch.nn.Module):
        raise TypeError("the contract asks it of modules")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that something is not mapped fast
        return [folded(outputs(torch.func.vmap(function)(*(x.unsqueeze(0) for x in given))))]


def stepped(made, way, noise):
    """Where three steps lead, and what is kept."""
    learned = [p for group in made.param_groups for p in group["params"]]
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        for p in learned:
            p.grad = shaped(torch.randn(p.shape, generator=generator, dtype=torch.float64), way, noise)
        made.step()
    state = [value for own in made.state.values() for value in own.values() if torch.is_tensor(value)]
    return [folded([p.detach() for p in learned]), folded(state)]


def others(name, noise):
    """The answers of what else a method can be asked, with each option changed in turn."""
    if is_optimizer(name):
        return {}
    entry = nk.card(name).entry
    if isinstance(entry, type):
        own = [kind for kind in entry.__mro__ if kind.__module__.split(".")[:2] == entry.__module__.split(".")[:2]]
        names = [key for kind in own for key, value in vars(kind).items() if inspect.isfunction(value)]
        names = [key for key in dict.fromkeys(names) if key != "forward" and not key.startswith("_")]
    else:
        names = list(vars(entry).get("beside", {}))
    found = {}
    for asked in names:
        call = functools.partial(asking, name, asked, noise=noise)
        function = getattr(entry, asked) if isinstance(entry, type) else vars(entry)["beside"][asked]
        tried = each(changes(inspect.signature(function), {}, call), call)
        found |= {f"{asked}({option})": first(calls) for option, calls in tried.items()}
    return found


def asking(name, asked, options=None, noise=0.0):
    """What comes of another call: tensors are the inputs in turn, and numbers 3."""
    made, sizes = build(name, {})
    given = inputs(nk.card(name), sizes, 0, "", noise)
    if isinstance(made, torch.nn.Module):
        made(*given[: len(nk.card(name).kind.takes(nk.card(name)))])
    function, left = getattr(made, asked), iter(given)
    parameters = inspect.signature(function).parameters.values()
    options = {p.name: 3 for p in parameters if type(p.default) is int and p.default > MANY} | (options or {})
    wanted = [p for p in parameters if p.default is p.empty]
    args = [3 if p.annotation == "int" else next(left, None) for p in wanted if p.kind is not p.VAR_KEYWORD]
    came = function(*args, **options)
    kept = list(made.state_dict().values()) if isinstance(made, torch.nn.Module) else []
    return [folded([torch.tensor(came)] if isinstance(came, float) else outputs(came)), None, folded(kept)]


def inputs(card, sizes, seed, way, noise):
    """The inputs of a call."""
    batch, optional = (1 if way == "single" else 4), way != "required"
    drawn = card.draw(8, batch, dtype=torch.float64, optional=optional, seed=seed, trailing=(3, 4), named=sizes)
    return [shaped(x, way, noise) if x.is_floating_point() else x for x in drawn]


def shaped(x, way, noise):
    """An input as a way has it: zeros, alike, large, or with noise."""
    if noise:
        x = x * (1 + noise * torch.randn(x.shape, generator=torch.Generator().manual_seed(5)))
    if way == "alike":
        return x[:1].expand(x.shape).clone() if x.dim() else x
    return {"zeros": 0.0, "large": 1e3}.get(way, 1.0) * x


def folded(tensors):
    """One number of several tensors, which each entry of each moves."""
    found, generator = 0.0, torch.Generator().manual_seed(3)
    for place, tensor in enumerate(tensors):
        if tensor is None or not tensor.numel():
            continue
        values = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).detach().double().flatten()
        values = torch.where(values.isfinite(), values, 0.77)  # kernel and formula may differ in which it is
        most = values.abs().max().item()
        if most > NOTHING:
            weights, scaled = torch.rand(values.shape, generator=generator, dtype=torch.float64) + 0.5, values / most
            found += (1 + place / 7) * (math.log(most) + (weights * scaled).sum().item() / scaled.norm().item())
    return found


def lasting(name):
    """The answers of a method, but for those that rounding moves."""
    found, moved = answers(name), [answers(name, sign * NOISE) for sign in (1, -1)]
    return {case: [lasts(values, [m.get(case) for m in moved], i) for i in range(len(values))]
            for case, values in found.items()}  # fmt: skip


def lasts(values, moved, place):
    """The number in a place, or None where rounding moves it."""
    value = values[place]
    if value is None or not all(m and abs(m[place] - value) < 1e-6 * (1 + abs(value)) for m in moved):
        return None
    return float(f"{value:.8g}")


def beginnings(name):
    """Of each tensor the shape and what it holds: one number, or the mean and the deviation of several."""
    torch.manual_seed(0)
    module = nk.card(name).small(8)
    found = {}
    for key, tensor in [*module.named_parameters(), *module.named_buffers()]:
        values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        values = values.detach().double().flatten()
        same = values.numel() and bool((values == values[0]).all())
        held = [values[0].item()] if same else [values.mean().item(), values.std().item()] if values.numel() > 1 else []
        found[key] = [list(tensor.shape), [float(f"{value:.6g}") for value in held]]
    return found


def refusals(name):
    """The letters of each option that takes numbers."""
    card = nk.card(name)
    usual = example(card, 8)
    found = {}
    for option, parameter in card.signature.parameters.items():
        value, types = usual.get(option, parameter.default), str(parameter.annotation)
        asked = value is None or value is parameter.empty
        if isinstance(value, float) or (asked and "float" in types):
            found[option] = "".join(letter(card, {option: tried}) for tried in FLOATS)
        elif (isinstance(value, int) and not isinstance(value, bool)) or (asked and "int" in types):
            found[option] = "".join(letter(card, {option: tried}) for tried in INTEGERS)
    return found


def letter(card, option):
    """How an option is taken: refused at once, in a call, not at all, or without its name."""
    torch.manual_seed(0)
    try:
        made = card.kind.small(card, 8, **option)
    except (TypeError, ValueError) as error:
        named = any(re.match(rf"(?!{known}:).*\b{known}\b", str(error)) for known in card.signature.parameters)
        return "r" if named else "unnamed"
    try:
        if card.kind is OPTIMIZER:
            for p in made.param_groups[0]["params"]:
                p.grad = torch.ones_like(p)
            made.step()
        elif setter := card.kind is FITTED and card.kind.setter(card.entry):
            getattr(made, setter)(*card.draw(8))
        else:
            made(*card.draw(8))
    except (TypeError, ValueError) as error:
        return "c" if re.match(r"[\w-]+: ", str(error)) else "unnamed"
    return "."


def commands(parser=None, name=""):
    """Every command that takes no other, by the words it is called with."""
    parser = parser or cli.parser()
    getattr(parser, "described", lambda: None)()
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        words = [parser.usage, parser.description, parser.epilog]
        return {name: {"": words, **dict(map(option_row, parser._actions))}}
    return {
        key: own
        for word, sub in inner[0].choices.items()
        for key, own in commands(sub, f"{name} {word}".strip()).items()
    }


def option_row(action):
    """An option of a command, and all that it was made with."""
    choices = (
        None if action.choices is None or len(action.choices) > MANY_WORDS else [str(one) for one in action.choices]
    )
    kind = getattr(action.type, "__name__", None)
    values = (type(action).__name__, kind, action.nargs, action.const, action.default, choices, action.required)
    return " ".join(action.option_strings) or action.dest, [*map(plain, values)]


def plain(value):
    """A value as JSON has it."""
    return value if isinstance(value, str | int | float | list | None) else str(value)


def command_path(name):
    """The file of a command."""
    return COMMANDS / f"{name.replace(' ', '-')}.json"


def record_commands():
    """Write the file of each command; those of no command go."""
    options = commands()
    for left in {*COMMANDS.glob("*.json")} - set(map(command_path, options)):
        left.unlink()
    COMMANDS.mkdir(exist_ok=True)
    for name, own in options.items():
        lines = ",\n".join(f"{json.dumps(option)}: {json.dumps(values)}" for option, values in own.items())
        command_path(name).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def leftovers():
    """The files of methods that are not there."""
    return sorted(path for path in GOLDENS.glob(f"*/{FILE}") if path.parent.name not in nk.methods())


def main(words):
    """Write what is asked for."""
    if words == ["--commands"]:
        return record_commands()
    if words[:1] == ["--agree"]:
        return [agree(nk.card(word).name) for word in words[1:]]
    for file in leftovers():
        file.unlink()
    chosen = [nk.card(word).name for word in words if word != "--all"]
    for name in chosen or [name for name in nk.methods() if "--all" in words or not path(name).exists()]:
        write(name, rows(name))
        print(path(name))


if __name__ == "__main__":
    main(sys.argv[1:])
