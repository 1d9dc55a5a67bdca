"""Every operator of our own keeps what torch asks of one: its schema, its shapes without numbers, autograd, and AOT."""

import importlib
import pathlib
import re

import pytest
import torch

import normkit as nk

HOME = pathlib.Path(nk.__file__).parent
REGISTERED = re.compile(r'"(normkit::\w+)"')


def registered():
    """The operators' names, and the modules that enter them, read off the sources."""
    for path in sorted(HOME.rglob("*.py")):
        for name in REGISTERED.findall(path.read_text(encoding="utf-8")):
            yield name, ".".join(["normkit", *path.relative_to(HOME).with_suffix("").parts])


def numbers(*shape, dtype=torch.float64, low=-1.0):
    return torch.empty(shape, dtype=dtype).uniform_(low, 1.0, generator=torch.Generator().manual_seed(sum(shape)))


CALLS = {  # operator -> what it is called with
    "normkit::poincare_mean": [(numbers(7, 3) / 3, 1.0), (numbers(5, 2, dtype=torch.float32) / 3, -0.5)],
    "normkit::scan": [(numbers(n, 3), numbers(n, 3, low=0.0)) for n in (1, 2, 7)],
    "normkit::snapshot": [(numbers(5),), (numbers(2, 3, dtype=torch.bfloat16),), (numbers(3, 4).T,)],
    "normkit::tap": [
        (torch.zeros(1, dtype=torch.int64), [numbers(2, 3)], [numbers(2, 3)], [numbers(3)], "weight", "call", True),
        (torch.zeros(1, dtype=torch.int64), [], [], [], "", "call", False),
    ],
}


def test_each_operator_is_called_below_and_is_there_once():
    names = [name for name, _ in registered()]
    assert sorted(names) == sorted(CALLS)
    for _, module in registered():
        importlib.import_module(module)
    known = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("normkit::")}
    assert known == set(CALLS)


@pytest.mark.parametrize("name, module", [*registered()])
def test_keeps_what_torch_asks_of_an_operator(name, module):
    importlib.import_module(module)
    operator = getattr(torch.ops.normkit, name.partition("::")[2]).default
    for arguments in CALLS[name]:
        assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}


@pytest.mark.parametrize("name, module", [*registered()])
def test_refuses_a_gradient_that_it_does_not_have(name, module):
    """No operator has a derivative of its own: one that is asked for is an error, not a zero."""
    importlib.import_module(module)
    operator = getattr(torch.ops.normkit, name.partition("::")[2]).default
    arguments = [
        argument.clone().requires_grad_()
        if isinstance(argument, torch.Tensor) and argument.is_floating_point()
        else argument
        for argument in CALLS[name][0]
    ]
    outputs = operator(*arguments)
    for output in outputs if isinstance(outputs, tuple) else () if outputs is None else (outputs,):
        with pytest.raises(RuntimeError, match=r"no autograd formula was registered|does not require grad"):
            output.sum().backward()
