"""Moments by number: every layout, size class, type and instruction set against float64, at offsets up to a million.

The inputs are what they are once rounded to their type, so that float64 sees the same numbers as the kernel. With the
bounds that `kernels/cpu/moments.h` states, e = 120 u for a mean in deviations and 2 f = 400 u for a variance, the
normalized values h are known within e + f |h| + 5 u (1 + |h|) and what a double loses of the mean, and what is made of
them within what follows below.
"""

import pytest
import torch
from torch import Tensor

from normkit import kernels, ops

needs_kernels = pytest.mark.skipif(not kernels.status().live, reason=str(kernels.status().reason))
OFFSETS = [0.0, 1e2, 1e4, 1e6]
# Around a row of lanes (2 to 16), the pivot's four of them, 64 additions, 16 rows, 1024 of a stretch, 65536 of a chunk.
POINTS = [(1, 3), (2, 1), (3, 5), (4, 8), (15, 63), (17, 65), (64, 16), (65, 17), (1025, 3), (1100, 1), (1030, 64)]
IMAGES = [(2, 17, 4, 3), (1, 4, 1, 2), (5, 24, 3, 3), (2, 6, 33, 31), (1, 3, 150, 150), (3, 64, 4, 17), (2, 130, 8, 8)]
ROWS = [(3, d) for d in (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 1023, 1024, 1025, 4101)] + [(70, 768)]
UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-24, torch.float16: 2.0**-24}
EPS = 1e-5


def values(x: Tensor, name: str) -> Tensor:
    """The values of a unit along the last axis."""
    if name == "batch":
        return x.transpose(0, 1).flatten(1)
    if name == "layer2d":
        return x.movedim(1, -1).flatten(0, -2)
    return x.flatten(0, 1).flatten(1) if name == "instance" else x.flatten(1)


OPERATIONS = {
    "batch": lambda x, w, b: ops.batch_norm(x, w, b, eps=EPS)[0],
    "group": lambda x, w, b: ops.group_norm(x, 1, w, b, eps=EPS),
    "instance": lambda x, w, b: ops.instance_norm(x, w, b, eps=EPS),
    "layer2d": lambda x, w, b: ops.layer_norm2d(x, w, b, eps=EPS),
    "row": lambda x, w, b: ops.layer_norm(x, x.shape[-1:], w, b, EPS),
}


def draw(shape, offset: float, dtype, last: bool, kind: str) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind == "stray":  # what a pivot is made of is far from the rest
        x.view(-1)[:: max(1, x.numel() // 48)] -= 1e3
    x = (x + offset).to(dtype)
    grad = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    weight, bias = torch.randn(2, shape[1], generator=generator, dtype=torch.float64).to(dtype)
    return x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x, grad, weight, bias


def expected(name: str, x: Tensor, grad: Tensor, weight: Tensor, bias: Tensor) -> list[tuple[Tensor, Tensor]]:
    """y, dx and the gradients of weight and bias, each with its bound."""
    u = UNIT[x.dtype]
    channels = values(torch.arange(x.shape[1]).view(1, -1, *[1] * (x.dim() - 2)).expand(x.shape), name)
    x, g, weight, bias = values(x.double(), name), values(grad.double(), name), weight.double(), bias.double()
    deep = 0 if u > 2**-50 else x.shape[-1] / 1024 + 64
    e, f = (120 + deep) * u, (200 + 2 * deep) * u
    near = x - x[:, :1]  # in float64 too, an offset would cost digits
    r = (near.var(-1, correction=0, keepdim=True) + EPS).rsqrt()
    h, w, b = (near - near.mean(-1, keepdim=True)) * r, weight[channels], bias[channels]
    coarse = 2.0**-52 * x.mean(-1, keepdim=True).abs() * r  # of a mean kept as one double, and of its use
    off = e + f * h.abs() + (5 * u + 2 * coarse) * (1 + h.abs())  # of h
    k = g * w
    along, most = (k * h).mean(-1, keepdim=True), (k.abs() * (h.abs() + 1)).mean(-1, keepdim=True)
    dx = r * (k - k.mean(-1, keepdim=True) - h * along)
    # sums lose e of their terms' sizes, h enters them and multiplies one
    doubt = r * (e * most + h.abs() * (e * most + (k.abs() * off).mean(-1, keepdim=True)) + off * along.abs())
    doubt += (f + coarse) * dx.abs() + 5 * u * r * (k.abs() + (1 + h.abs()) * most)
    zero = torch.zeros_like(weight)
    per_channel = lambda t: zero.index_add(0, channels.flatten(), t.flatten())  # noqa: E731
    chunk = (x.shape[0] / 64 + 64) * u if name == "row" else 0  # rows whose shares are added up in the type
    doubts = [w.abs() * off + 2 * u * (h * w).abs() + u * b.abs(), doubt]
    doubts += [per_channel(g.abs() * (off + (e + chunk) * (1 + h.abs()))), per_channel((e + chunk) * g.abs())]
    return list(zip([h * w + b, dx, per_channel(g * h), per_channel(g)], doubts, strict=True))


def assert_within(got: Tensor, want: Tensor, doubt: Tensor, where: str) -> None:
    """Beside the bound one rounding to the type."""
    info = torch.finfo(got.dtype)
    allowed = doubt * (1 + info.eps) + 0.5 * info.eps * want.abs() + info.smallest_normal * info.eps
    worst = ((got.double() - want).abs() / allowed).nan_to_num(torch.inf).max().item()
    assert worst <= 1, f"{where}: {worst:.3g} times the bound"


def check(name: str, shape, offset: float, dtype, last: bool = False, kind: str = "plain") -> None:
    x, grad, *parameters = draw(shape, offset, dtype, last, kind)
    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in (x, *parameters)]
    assert ops.refusal(*leaves) is None
    y = OPERATIONS[name](*leaves)
    y.backward(grad)
    want = expected(name, x, grad, *parameters)
    got = [values(y.detach(), name), values(leaves[0].grad, name), leaves[1].grad, leaves[2].grad]
    for part, found, (number, doubt) in zip(("y", "dx", "dweight", "dbias"), got, want, strict=True):
        assert_within(found, number, doubt, f"{part} of {name} {shape} {dtype} at {offset:g}, last={last}, {kind}")


def cases(name: str):
    if name == "row":
        return [(shape, False) for shape in ROWS]
    flat = [(shape, False) for shape in POINTS if name != "instance"]
    return flat + [(shape, last) for shape in IMAGES for last in (False, True)]


@needs_kernels
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_offset_costs_no_digits_at_any_size(name, offset, isa):
    for shape, last in cases(name):
        check(name, shape, offset, torch.float32, last)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_other_types_keep_to_the_bound_too(name, dtype, isa):
    for offset in (1e4, 1e6 if dtype == torch.float64 else 1e2):
        for shape, last in cases(name)[::2]:
            check(name, shape, offset, dtype, last)


@needs_kernels
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_pivot_gone_astray_costs_no_digits(name, offset, isa):
    for shape, last in cases(name):
        check(name, shape, offset, torch.float32, last, "stray")


@needs_kernels
@pytest.mark.parametrize("name, last", [("row", False), ("instance", False), ("instance", True), ("position", False)])
def test_a_pivot_astray_from_very_many_values_costs_no_digits(name, last, isa):
    """All that a pivot is taken from is far off; without a second pass some 2,000 units of the variance would go."""
    n = 1 << 18
    x = torch.randn(n, generator=torch.Generator().manual_seed(0))
    for at in (0, n // 3, 2 * n // 3, n):
        x[max(at - 32, 0) : at + 32] = 1e3
    want = x.double() - x.double().mean()
    want /= (want.square().mean() + EPS).sqrt()
    if name == "row":
        y = ops.layer_norm(x, (n,), eps=EPS)
    elif name == "instance":
        planes = x.expand(1, 2, n).contiguous()
        y = ops.instance_norm(planes.movedim(1, -1).contiguous().movedim(-1, 1) if last else planes, eps=EPS)[0, 1]
    else:
        y = ops.layer_norm2d(x.view(1, n, 1).expand(1, n, 3).contiguous(), eps=EPS)[0, :, 2]
    assert ((y - want).abs() / want.abs().clamp(min=0.01)).max() < 400 * 2.0**-24


@needs_kernels
@pytest.mark.parametrize("name", OPERATIONS)
def test_equal_values_have_no_variance(name, isa):
    for shape, last in cases(name):
        for value in (0.1, -1e4 / 3, 1e6 + 0.0625):
            x = torch.full(shape, value)
            x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
            assert OPERATIONS[name](x, None, None).abs().max() == 0, f"{name} {shape} of {value}, last={last}"


RULES = {
    "square": ops.Row(center=True),
    "absolute": ops.Row(center=True, statistic="absolute"),
    "maximum": ops.Row(center=True, statistic="maximum"),
    "outside": ops.Row(center=True, eps_place="outside"),
    "floor": ops.Row(center=True, eps_place="floor"),
}


@needs_kernels
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("rule", RULES)
def test_every_centered_row_keeps_its_digits(rule, offset, isa):
    for shape in ROWS[1:]:  # of one entry nothing is left
        x, grad, *_ = draw(shape, offset, torch.float32, False, "plain")
        leaf, exact = x.clone().requires_grad_(), (x.double() - offset).requires_grad_()
        y, want = (ops.row_norm(t, rule=RULES[rule]) for t in (leaf, exact))
        (dx,), (dwant,) = torch.autograd.grad(y, leaf, grad), torch.autograd.grad(want, exact, grad.double())
        # h is known within 1e-5 (1 + |h|), as above; its gradient is a difference of terms r g and r h mean(g h)
        centered = exact - exact.mean(-1, keepdim=True)
        r = (want.norm(dim=-1) / centered.norm(dim=-1)).unsqueeze(-1)
        h = want / want.square().mean(-1, keepdim=True).sqrt()
        doubt = 1e-4 * r * (1 + h.abs()) * (grad.abs() * (1 + h.abs())).amax(-1, keepdim=True)
        assert ((y.double() - want).abs() <= 2e-5 * want.abs() + 1e-5 * (want / h).abs()).all(), f"y of {shape}"
        assert ((dx.double() - dwant).abs() <= doubt.detach()).all(), f"dx of {shape}"


@needs_kernels
@pytest.mark.parametrize("name", OPERATIONS)
def test_moments_do_not_depend_on_threads(name):
    """Few samples and many, pieces of one sample and whole ones: two and eight threads give the bits of one."""
    threads = torch.get_num_threads()
    shapes = [(1, 3, 150, 150), (2, 64, 40, 33), (40, 6, 33, 31)] if name != "row" else [(1030, 64), (70, 4101)]
    for shape in shapes:
        for last in (False, True) if len(shape) > 2 else (False,):
            x, grad, *parameters = draw(shape, 1e4, torch.float32, last, "stray")
            found = []
            try:
                for number in (1, 2, 8):
                    torch.set_num_threads(number)
                    leaves = [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in (x, *parameters)]
                    y = OPERATIONS[name](*leaves)
                    found.append([y, *torch.autograd.grad(y, leaves, grad)])
            finally:
                torch.set_num_threads(threads)
            for other in found[1:]:
                assert all(torch.equal(a, b) for a, b in zip(other, found[0], strict=True)), f"{shape}, last={last}"
