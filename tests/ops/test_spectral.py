"""Kernels of small symmetric matrices: held to float64, on every instruction set, and to their formulas."""

import pytest
import torch

from normkit import ops
from normkit.kernels import special
from normkit.ops.spectral import by_lapack

F64 = torch.float64
SPECTRA = {
    "apart": lambda n: torch.linspace(-1, 2, n, dtype=F64),
    "equal": lambda n: (torch.arange(n) // 3 + 1).to(F64),
    "ill-conditioned": lambda n: torch.logspace(-8, 0, n, dtype=F64),
    "of rank two": lambda n: (torch.arange(n) < 2).to(F64),
    "zero": lambda n: torch.zeros(n, dtype=F64),
    "graded": lambda n: torch.logspace(-300, 0, n, dtype=F64),
    "huge": lambda n: 1e300 * torch.linspace(-1, 1, n, dtype=F64),
    "tiny": lambda n: 1e-300 * torch.linspace(1, 2, n, dtype=F64),
}


def drawn(values, count=11, seed=0):
    n = len(values)
    q = torch.linalg.qr(torch.randn(count, n, n, generator=torch.Generator().manual_seed(seed), dtype=F64))[0]
    x = q * values @ q.mT
    return (x + x.mT) / 2


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("name", SPECTRA)
def test_eigenvalues_and_vectors_are_those_of_the_matrices(name):
    for n in (1, 2, 3, 7, 20, 64):
        values = SPECTRA[name](n)
        x, size = drawn(values), values.abs().max().clamp(min=1e-320)
        with ops.paths.watch() as taken:
            found, vectors = ops.eigh(x)
        assert taken[0].why is None
        bound = 2e-15 * n**0.5 + 4e-15
        assert ((found - values.sort().values) / size).abs().max() < bound
        assert ((vectors * (found / size).unsqueeze(-2) @ vectors.mT) - x / size).abs().max() < bound
        assert (vectors.mT @ vectors - torch.eye(n, dtype=F64)).abs().max() < bound
        torch.testing.assert_close(ops.eigvalsh(x), found, rtol=0, atol=(1e-16 * size).item())
        single = ops.eigh(x.float())[0] if name not in ("graded", "huge", "tiny") else None
        if single is not None:
            torch.testing.assert_close(single.double(), found, rtol=0, atol=2e-7 * size.item())


@pytest.mark.usefixtures("widest")
def test_a_matrix_is_decomposed_alike_wherever_it_stands():
    x = torch.cat([drawn(make(6), 3) for name, make in SPECTRA.items() if name != "huge"])
    values, vectors = ops.eigh(x)
    for i in (0, 4, 9, 16):
        alone = ops.eigh(x[i])
        assert all((one == all_of[i]).all() for one, all_of in zip(alone, (values, vectors), strict=True))
    back = ops.eigh(x.flip(0).reshape(3, 7, 6, 6))
    assert (back[0].reshape(21, 6).flip(0) == values).all()


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("dtype, bound", [(F64, 1e-13), (torch.float32, 2e-6)])
def test_factors_and_their_gradients_are_those_of_torch(dtype, bound):
    for n in (1, 2, 5, 20, 33):
        x = drawn(torch.linspace(0.5, 3, n, dtype=F64)).to(dtype)
        sent = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=F64)
        one, other = x.clone().requires_grad_(), x.double().requires_grad_()
        with ops.paths.watch() as taken:
            factor = ops.cholesky(one)
            (factor * sent.to(dtype)).sum().backward()
        assert [path.why for path in taken] == [None, None]
        want = torch.linalg.cholesky(other)
        (want * sent).sum().backward()
        torch.testing.assert_close(factor.double(), want, rtol=0, atol=bound)
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=0, atol=bound * other.grad.abs().max().item())


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("dtype, bound", [(F64, 1e-13), (torch.float32, 2e-6)])
def test_log_cholesky_charts_and_the_way_back_are_their_formulas(dtype, bound):
    for n in (1, 2, 5, 20, 33):
        x = drawn(torch.linspace(0.5, 3, n, dtype=F64)).to(dtype)
        sent = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=F64)
        for call, given in ((ops.log_cholesky, x), (ops.from_log_cholesky, sent.to(dtype) / n)):
            one, other = given.clone().requires_grad_(), given.double().requires_grad_()
            with ops.paths.watch() as taken:
                found = call(one)
                (found * sent.to(dtype)).sum().backward()
            assert [path.why for path in taken] == [None, None]
            with ops.paths.formula_only():
                want = call(other)
                (want * sent).sum().backward()
            torch.testing.assert_close(found.double(), want, rtol=0, atol=bound * want.abs().max().item())
            torch.testing.assert_close(
                one.grad.double(), other.grad, rtol=0, atol=bound * other.grad.abs().max().item()
            )
        back = ops.from_log_cholesky(ops.log_cholesky(x))
        torch.testing.assert_close(back, x, rtol=0, atol=bound)
        assert (back == back.mT).all()


def test_log_cholesky_charts_have_second_derivatives_and_refuse_what_has_no_factor():
    x = drawn(torch.arange(1.0, 4.0, dtype=F64), 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: ops.log_cholesky(ops.symmetric(x)), x)
    assert torch.autograd.gradgradcheck(ops.from_log_cholesky, x)
    with pytest.raises(torch.linalg.LinAlgError, match="positive-definite"):
        ops.log_cholesky(-torch.eye(3).expand(2, 3, 3))


@pytest.mark.usefixtures("widest")
def test_symmetric_parts_and_what_is_noted_are_those_of_the_formulas():
    x = torch.randn(9, 5, 5, generator=torch.Generator().manual_seed(0), dtype=F64).requires_grad_()
    x.data[::2] += 8 * torch.eye(5, dtype=F64)
    results = []
    for forced in (False, True):
        x.grad = None
        with ops.paths.formula_only() if forced else ops.paths.watch():
            y = ops.symmetric(x.mT)
            (y * torch.arange(25.0).reshape(5, 5)).sum().backward()
            results.append([y.detach(), x.grad.clone(), *(value.double() for value in ops.soundness(x))])
    torch.testing.assert_close(*results, rtol=1e-15, atol=1e-15)
    assert set(results[0][-1].tolist()) == {0.0, 1.0}
    assert torch.autograd.gradgradcheck(ops.symmetric, x)
    definite = drawn(torch.arange(1.0, 4.0, dtype=F64), 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: ops.cholesky(ops.symmetric(x)), definite)


def test_what_has_no_answer_is_torchs_error():
    for call in (ops.eigh, ops.eigvalsh):
        with pytest.raises(torch.linalg.LinAlgError):
            call(torch.full((2, 3, 3), torch.nan))
    with pytest.raises(torch.linalg.LinAlgError, match="positive-definite"):
        ops.cholesky(-torch.eye(3).expand(2, 3, 3))


def test_c_holds_a_record_against_itself():
    if special.library() is None:
        pytest.skip(special.absent())
    library, x = special.library(), torch.eye(3).expand(4, 3, 3).contiguous()
    values, rows = torch.empty(4, 3), torch.empty(4, 3, 3)
    for plan, count, arrays, word in (
        ((1, 3, 0), 5, (x, values, rows), "x of 144 bytes"),
        ((1, 3, 0), 4, (x, values[:2], rows), "values of 24 bytes"),
        ((1, 3, 0), 4, (x, values, rows[1:]), "vectors of 108 bytes"),
        ((2, 3, 0), 4, (x, values, rows), "an element type"),
        ((1, 65, 0), 4, (x, values, rows), "a size"),
        ((1, 3, 0), -1, (x, values, rows), "a size"),
        ((1, 3, 0), 2**62, (x, values, rows), "a size"),
        ((1, 3, 2), 4, (x, values, rows), "the rule"),
    ):
        with pytest.raises(ValueError, match=f"refuses {word}"):
            library.eigen(special.MATRIX.pack(*plan), count, *arrays)
    for plan, arrays, word in (((1, 3, 1), (x, rows[1:]), "y of 108"), ((1, 3, 1), (values, rows), "factor of 48")):
        with pytest.raises(ValueError, match=f"refuses {word} bytes"):
            library.product(special.MATRIX.pack(*plan), 4, *arrays)
    for at, word in enumerate(("factor", "grad", "dfactor")):
        arrays = [x, x, rows]
        arrays[at] = values
        with pytest.raises(ValueError, match=f"refuses {word} of 48 bytes"):
            library.product_backward(special.MATRIX.pack(1, 3, 1), 4, *arrays)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_rows_of_zeros_end_no_decomposition(dtype):
    """As of embeddings that a batch does not ask for: LAPACK ends with an error there, or gives NaN."""
    for seed in range(10):
        g = torch.Generator().manual_seed(seed)
        x = torch.zeros(300, 16, dtype=dtype)
        x[torch.randint(300, (64,), generator=g)] = 0.01 * torch.randn(64, 16, generator=g, dtype=dtype)
        s = x @ x.mT
        values, vectors = by_lapack(torch.linalg.eigh, s)
        torch.testing.assert_close(vectors * values @ vectors.mT, s, rtol=0, atol=1e-6)
        torch.testing.assert_close(by_lapack(torch.linalg.eigvalsh, s), values, rtol=0, atol=1e-6)
