"""Torch's own database of optimizers: each with each of its settings, under ours that go around another's step."""

import inspect

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

import normkit as nk

LEFT_OUT = {
    "LBFGS": "its step calls a closure several times, between which gradients cannot be changed",
    "SparseAdam": "it takes sparse gradients, which are refused by name",
}
DATABASE = {info.optim_cls.__name__: info for info in optim_db}
USED = [name for name in DATABASE if name not in LEFT_OUT]
OF_OUR_OWN = ("Adafactor", "Muon")  # a base of this name is ours, which has other arguments
AROUND = {
    "agc": {"clipping": None},
    "lawn": {"free_steps": 100},
    "relevance-decay": {"gamma": 0.0},
}
STEPS = 4


def test_what_is_left_out_is_in_the_database():
    assert set(LEFT_OUT) < set(DATABASE)


def settings(name):
    """The arguments of an optimizer in the database, and what it says of them."""
    for given in DATABASE[name].optim_inputs_func(device="cpu"):
        options = dict(given.kwargs)
        yield {"lr": 0.01, **options}, given.desc


def parameters(name):
    shapes = [(4, 3), (3, 3)] if name == "Muon" else [(4, 3), (5,), (), (2, 3, 2, 2)]
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64)) for s in shapes]


def trained(params, optimizer):
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        optimizer.step()
        if step == 1:
            optimizer.load_state_dict(optimizer.state_dict())
    return params


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", [name for name in USED if name not in OF_OUR_OWN])
def test_around_torchs_steps_nothing_changes(name, around):
    for options, said in settings(name):
        want = trained(params := parameters(name), DATABASE[name].optim_cls(params, **options))
        got = trained(params := parameters(name), nk.create(around, params, base=name, **options, **AROUND[around]))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13, msg=lambda text, said=said: f"{said}: {text}")


@pytest.mark.parametrize("name", USED)
def test_wrong_settings_are_refused(name):
    """What torch refuses of a class of its own is refused around it as well."""
    for wrong in ({"lr": -1.0}, {"lr": torch.tensor([0.1, 0.2])}, {"weight_decay": -1.0}):
        if "weight_decay" in wrong and "weight_decay" not in inspect.signature(DATABASE[name].optim_cls).parameters:
            continue
        with pytest.raises(ValueError, match=r"lr|[Ll]earning rate|weight_decay"):
            nk.AGC(parameters(name), base=name, **{"lr": 0.01, **wrong})


def test_muon_and_adafactor_are_torchs_in_all_their_settings():
    for options, said in settings("Adafactor"):
        ours = {"lr": 0.01, **options}
        if "eps" in ours:
            ours["eps1"], ours["eps2"] = ours.pop("eps")
        if "d" in ours:
            ours["clip"] = ours.pop("d")
        want = trained(params := parameters("Adafactor"), torch.optim.Adafactor(params, **options))
        got = trained(params := parameters("Adafactor"), nk.Adafactor(params, **ours))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11, msg=lambda text, said=said: f"{said}: {text}")
    for options, said in settings("Muon"):
        ours = {"adjust_lr": options.get("adjust_lr_fn") or "original", **options}
        ours.pop("adjust_lr_fn", None), ours.pop("eps", None)
        want = trained(params := parameters("Muon"), torch.optim.Muon(params, **options))
        got = trained(params := parameters("Muon"), nk.Muon.like("torch", params, **ours))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-3, msg=lambda text, said=said: f"{said}: {text}")
