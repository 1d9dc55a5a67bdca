"""Functions of symmetric matrices: values, and derivatives where eigenvalues are equal, near and far apart."""

import pytest
import torch

import normkit as nk
from normkit.manifold import _frechet, _subspaces, _symmetric

FUNCTIONS = {
    "log": (_symmetric.log, torch.log),
    "sqrt": (_symmetric.sqrt, torch.sqrt),
    "rsqrt": (_symmetric.rsqrt, torch.rsqrt),
    "exp": (_symmetric.exp, torch.exp),
    "power": (lambda s: _symmetric.power(s, 0.3), lambda e: e**0.3),
}
SPECTRA = {
    "apart": [0.5, 1.0, 2.0, 3.0],
    "equal": [2.0, 2.0, 2.0, 0.5],
    "nearly equal": [2.0, 2.0 + 1e-9, 2.0 + 1e-6, 2.0 + 1e-5],
    "ill-conditioned": [1e-4, 2e-4, 1.0, 1e4],
}


def matrix(values, seed=0):
    generator = torch.Generator().manual_seed(seed)
    u, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))
    return _symmetric.symmetric(u * torch.tensor(values, dtype=torch.float64) @ u.mT)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("spectrum", [name for name in SPECTRA if name != "ill-conditioned"])
def test_the_derivative_is_that_of_differences(name, spectrum):
    function, _ = FUNCTIONS[name]
    s = matrix(SPECTRA[spectrum]).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: function(_symmetric.symmetric(s)), s, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "exp"])
def test_derivatives_of_ill_conditioned_matrices_are_divided_differences(name):
    function, plain = FUNCTIONS[name]
    e = torch.tensor(SPECTRA["ill-conditioned"], dtype=torch.float64)
    got = torch.autograd.functional.jacobian(function, torch.diag(e))
    for i, j in [(0, 1), (1, 2), (2, 3), (0, 3)]:
        want = (plain(e[i]) - plain(e[j])) / (e[i] - e[j])
        torch.testing.assert_close(got[i, j, i, j] + got[i, j, j, i], want, rtol=1e-10, atol=0)


def test_an_exponent_gets_its_gradient():
    s, k = matrix(SPECTRA["apart"]), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda k: _symmetric.power(s, k), k)


def test_functions_are_seen_by_torch_func():
    s = torch.stack([matrix(values) for values in list(SPECTRA.values())[:3]])
    v = _symmetric.symmetric(torch.ones_like(s))
    _, tangent = torch.func.jvp(_symmetric.log, (s,), (v,))
    one = torch.func.vmap(lambda s: torch.func.grad(lambda s: (_symmetric.log(s) * v[0]).sum())(s))(s)
    torch.testing.assert_close(tangent.sum((-2, -1)), (one * v).sum((-2, -1)))


SECOND = {
    "log": nk.manifold.log,
    "exp": nk.manifold.exp,
    "power": lambda s: nk.manifold.power(s, 0.3),
    "learned power": lambda s: _symmetric.power(s, torch.tensor(0.3, dtype=torch.float64, requires_grad=True)),
    "polar": nk.create("polar-decomposition"),
    "liebn": nk.create("liebn", 4, momentum=0.5).double(),
    "gbw-batchnorm": nk.create("gbw-batchnorm", 4).double(),
    "gyrobn": lambda s: nk.create("gyrobn", 4).double()(s[0] / 10),
    "mean of a ball": lambda s: _frechet.mean(s[0] / 10, 1.0),
    "subspaces": lambda s: _subspaces.log0(s[:, :, :2] / 10 + torch.eye(4, 2, dtype=s.dtype) / 2),
    "gyrobn-grassmann": lambda s: nk.create("gyrobn-grassmann", 4, p=2).double()(
        s.new_tensor(BASES)[:, None] + 0 * s[0, 0, 0]
    ),
}
BASES = torch.linalg.qr(
    torch.randn(3, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
).Q.tolist()


@pytest.mark.parametrize("name", SECOND)
def test_a_second_derivative_is_refused_as_it_would_be_wrong(name):
    x = torch.stack([matrix(SPECTRA["apart"], seed) for seed in (0, 1)]).requires_grad_()
    given = SECOND[name](x)
    (gradient,) = torch.autograd.grad(
        (given[0] if isinstance(given, tuple) else given).square().sum(), x, create_graph=True
    )
    with pytest.raises(NotImplementedError, match="have a first derivative, and no second one"):
        torch.autograd.grad(gradient.square().sum(), x)


def over_a_dual(gradient, x, v):
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.unpack_dual(gradient(torch.autograd.forward_ad.make_dual(x, v))).tangent


TWICE = {  # ways to the second derivative of f at x along v, as torch has them
    "hessian": lambda f, x, v: torch.func.hessian(f)(x),
    "twice back": lambda f, x, v: torch.func.jacrev(torch.func.jacrev(f))(x),
    "back over forward": lambda f, x, v: torch.func.grad(lambda x: torch.func.jvp(f, (x,), (v,))[1])(x),
    "forward over forward": lambda f, x, v: torch.func.jvp(lambda x: torch.func.jvp(f, (x,), (v,))[1], (x,), (v,)),
    "back over a transform": lambda f, x, v: torch.autograd.functional.jacobian(lambda x: torch.func.grad(f)(x) * v, x),
    "a dual number": lambda f, x, v: over_a_dual(
        lambda x: torch.autograd.grad(f(x.requires_grad_()), x, create_graph=True)[0], x, v
    ),
    "a dual number in a plain graph": lambda f, x, v: torch.autograd.functional.jacobian(
        lambda x: over_a_dual(f, x, v), x
    ),
}


@pytest.mark.parametrize("way", TWICE)
@pytest.mark.parametrize("name", ["log", "learned power", "polar", "mean of a ball", "subspaces"])
def test_a_second_derivative_is_refused_however_torch_takes_it(name, way):
    x = torch.stack([matrix(SPECTRA["apart"], seed) for seed in (0, 1)])

    def call(x):
        given = SECOND[name](x)
        return (given[0] if isinstance(given, tuple) else given).square().sum()

    with pytest.raises(NotImplementedError, match="have a first derivative, and no second one"):
        TWICE[way](call, x, torch.ones_like(x))


def test_an_exponents_gradient_has_no_derivative_by_the_matrix():
    s = matrix(SPECTRA["apart"]).requires_grad_()
    k = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    of_matrix, of_exponent = torch.autograd.grad(_symmetric.power(s, k).sum(), (s, k), create_graph=True)
    for gradient, other in [(of_matrix, k), (of_exponent, s)]:
        with pytest.raises(NotImplementedError, match="have a first derivative, and no second one"):
            torch.autograd.grad(gradient.sum(), other, retain_graph=True)
    alone = lambda k: _symmetric.power(s.detach(), k)  # noqa: E731
    assert torch.autograd.gradgradcheck(alone, k)


def test_what_a_function_of_numbers_learns_gets_its_gradient():
    s, k = matrix(SPECTRA["apart"]), torch.tensor(0.7, dtype=torch.float64)
    both = lambda s, k: nk.manifold.spectral(  # noqa: E731
        _symmetric.symmetric(s), lambda e: (k * e).sin(), lambda e: k * (k * e).cos()
    )
    assert torch.autograd.gradcheck(both, (s.requires_grad_(), k.requires_grad_()))


def test_a_compiled_hessian_is_refused_and_a_compiled_gradient_is_not():
    torch._dynamo.reset()
    s = matrix(SPECTRA["apart"])
    gradient = torch.func.grad(lambda s: _symmetric.log(s).square().sum())
    torch.testing.assert_close(torch.compile(gradient, backend="aot_eager", fullgraph=True)(s), gradient(s))
    for second in (torch.func.jacrev(gradient), lambda s: torch.func.jvp(gradient, (s,), (s,))):
        with pytest.raises(NotImplementedError, match="have a first derivative, and no second one"):
            torch.compile(second, backend="aot_eager")(s)
