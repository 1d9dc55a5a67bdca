"""Contract, numbers: derivatives to the third order, half precision, mixed precision."""

import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import METHODS, build, draw, outputs
from normkit.contract.values import over
from normkit.optional import let_torchvision_load

EPSILON = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


@pytest.fixture(autouse=True)
def _no_report_of_a_failure_that_is_expected(request, monkeypatch):
    """To say by how much a gradient is wrong, torch takes all of its Jacobian, one number after the other."""
    if request.node.get_closest_marker("xfail"):
        module = sys.modules["torch.autograd.gradcheck"]  # which a function of the same name hides
        monkeypatch.setattr(module, "_run_slow_mode_and_get_error", lambda *given: "", raising=False)


def as_function(module, inputs):
    """A function of everything that can be differentiated; every call starts from the same state."""
    names = [n for n, p in module.named_parameters() if p.requires_grad]
    moving = [i for i, x in enumerate(inputs) if x.is_floating_point()]

    def call(*values):
        given = list(inputs)
        for where, value in zip(moving, values, strict=False):
            given[where] = value
        state = dict(zip(names, values[len(moving) :], strict=True)) | subject.state(module)
        returned = torch.func.functional_call(module, state, tuple(given))
        return tuple(o for o in outputs(returned) if o.is_floating_point())

    parameters = dict(module.named_parameters())
    values = [inputs[i] for i in moving] + [parameters[n].detach() for n in names]
    return call, [v.clone().requires_grad_(True) for v in values]


@pytest.mark.line("gradcheck")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", METHODS)
def test_the_gradient_is_the_derivative(name, mode):
    module = build(name, 4, train=mode == "train")
    call, values = as_function(module, draw(name, 4, 3))
    assert torch.autograd.gradcheck(call, values, fast_mode=True, atol=1e-5)


@pytest.mark.line("higher-derivatives")
@pytest.mark.parametrize("name", METHODS)
@sdpa_kernel(SDPBackend.MATH)  # torch's fused attention has no second derivative
def test_second_and_third_derivatives(name):
    """What has a gradient is one vector: torch evaluates a function twice for each input."""
    module = build(name, 4)
    call, values = as_function(module, draw(name, 4, 3))

    def total(values):
        given = call(*values)
        return sum((o * torch.linspace(0.5, 1.5, o.numel(), dtype=o.dtype).view(o.shape)).sum() for o in given)

    grads = torch.autograd.grad(total(values), values, allow_unused=True)
    moving, others = ([at for at, grad in enumerate(grads) if (grad is None) == none] for none in (False, True))
    sizes = [values[at].numel() for at in moving]

    def gradient(vector, *rest):
        split = [part.view_as(values[at]) for at, part in zip(moving, vector.split(sizes), strict=True)]
        parts = dict(zip([*moving, *others], [*split, *rest], strict=True))
        parts = [parts[at] for at in range(len(values))]
        grads = torch.autograd.grad(total(parts), parts, create_graph=True, allow_unused=True, materialize_grads=True)
        # a gradient that is constant (a bias') stays tied to the inputs, since gradcheck would drop it and lose count
        tie = 0 * sum(v.sum() for v in (vector, *rest))
        return torch.cat([grads[at].flatten() for at in moving]) + tie, *(grads[at] + tie for at in others)

    inputs = [torch.cat([values[at].detach().flatten() for at in moving]).requires_grad_()]
    inputs += [values[at].detach().clone().requires_grad_() for at in others]
    # that gradients may be missing in a backward pass is checked of the first derivative
    closely = {"fast_mode": True, "atol": 1e-6, "rtol": 1e-4, "check_undefined_grad": False}
    assert torch.autograd.gradcheck(gradient, inputs, **closely)
    assert torch.autograd.gradgradcheck(gradient, inputs, **closely)


@pytest.mark.line("half")
@pytest.mark.parametrize("name", METHODS)
@over(dtype=EPSILON, parameters=["pure", "mixed"])
def test_half_precision_stays_close_to_double(name, dtype, parameters):
    module = build(name, 16, dtype=dtype)
    exact = subject.fresh(module).double()
    inputs = draw(name, 16, 4, dtype=dtype)
    got, gradients, _ = subject.run(module.float() if parameters == "mixed" else module, inputs)
    want, exact_gradients, _ = subject.run(exact, [i.double() if i.is_floating_point() else i for i in inputs])
    for a, b in zip(got, want, strict=True):
        if not b.is_floating_point():  # which of several were chosen
            assert torch.equal(a, b)
            continue
        assert a.dtype == dtype
        # the result is rounded once or twice, and the parameters' own rounding is shared: four units in the last place
        # of the largest value leave room for one more rounding inside.
        scale = b.abs().max().item()
        subject.close(a.double(), b, rtol=4 * EPSILON[dtype], atol=4 * EPSILON[dtype] * scale)
    for a, b in zip(gradients, exact_gradients, strict=True):
        if b is None:  # an input that is not looked at, such as keys that are the queries
            assert a is None
            continue
        assert a.dtype == dtype
        scale = b.abs().max().item()
        subject.close(a.double(), b, rtol=8 * EPSILON[dtype], atol=8 * EPSILON[dtype] * scale)


@pytest.mark.parametrize("name", METHODS)
def test_double_stays_double(name):
    module = build(name)
    for output in outputs(module(*draw(name))):
        assert not output.is_floating_point() or output.dtype == torch.float64


@pytest.mark.parametrize("name", [n for n in METHODS if nk.card(n).peer])
def test_equals_its_peer(name):
    let_torchvision_load()  # for the peers that are timm's

    try:
        peer = nk.card(name).peer(16).double()
    except ImportError as error:
        pytest.importorskip(error.name, reason=str(error))
    module = nk.card(name).small(16).double()
    inputs = draw(name, 16, optional=False)
    subject.close(outputs(module(*inputs)), outputs(peer(*inputs)))


def stabilizers(name):
    """The arguments that are added to, or hold up, what is divided by."""
    parameters = nk.card(name).signature.parameters.items()
    return [key for key, given in parameters if key.endswith("eps") and isinstance(given.default, float)]


@torch.no_grad()
def in_units(module, unit):
    """The same running estimates where the input is measured in other units."""
    for key, buffer in module.named_buffers():
        squares = key.rpartition(".")[2].count("var") and 2
        if squares or key.endswith(("mean", "deviation")):
            buffer.mul_(unit ** (squares or 1))
    return module


@pytest.mark.line("units")
@pytest.mark.parametrize("name", [n for n in METHODS if "scale" in nk.card(n).invariant and stabilizers(n)])
def test_eps_has_a_unit_wherever_it_stands(name):
    """It is in the input's unit, or its square; one that is left out, or is the default's somewhere, is not."""
    inputs, unit = draw(name), 4.0
    scaled = [unit * inputs[0], *inputs[1:]]
    apart = []
    for power in (1, 2):
        plain, other = (build(name, **dict.fromkeys(stabilizers(name), eps)) for eps in (3.0, 3.0 * unit**power))
        in_units(other, unit)
        pairs = []
        for mode in (True, False):
            for module, given in ((plain.train(mode), inputs), (other.train(mode), scaled)):
                torch.manual_seed(0)
                pairs.append(outputs(module(*given))[0])
        apart.append(max((a - b).abs().max().item() for a, b in zip(pairs[::2], pairs[1::2], strict=True)))
    assert min(apart) < 1e-9
    assert max(apart) > 1e-5  # it acts
