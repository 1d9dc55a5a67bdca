"""Norms within a vector: defaults that show in small numbers, where rounding happens, eps of zero, second gradients."""

import math

import pytest
import torch

import normkit as nk
from normkit import ops
from normkit.ops import paths
from normkit.ops.rope import turns_of
from normkit.ops.row import row_formula

D = torch.float64


@pytest.mark.parametrize("path", [lambda norm: norm, torch.func.vmap], ids=["kernel", "formula"])
@pytest.mark.parametrize("name, eps", [("scalenorm", 1e-5), ("factorized-layernorm", 1e-12)])
def test_lengths_below_the_default_eps_are_divided_by_it(name, eps, path):
    norm = nk.create(name, 2, **({"project": False} if name == "factorized-layernorm" else {}), dtype=D)
    x = torch.tensor([[3.0, 4.0]], dtype=D)
    torch.testing.assert_close(path(norm)(x * eps / 10), math.sqrt(2) * x / 10)
    torch.testing.assert_close(path(norm)(x * eps), math.sqrt(2) * x / 5)


def test_the_default_eps_of_an_absolute_deviation_is_added_to_it():
    x = 1e-5 * torch.tensor([[1.0, -1.0]], dtype=D)
    want = x / (nk.create("l1-layernorm", 2, eps=0.0, dtype=D)(x).pow(-1).abs() * 1e-5 + 1e-5)
    torch.testing.assert_close(nk.create("l1-layernorm", 2, dtype=D)(x), want)


@pytest.mark.parametrize("offset, early", [(0.0, True), (1.0, False)])
def test_a_half_precision_result_is_rounded_before_the_gain_unless_there_is_an_offset(offset, early):
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    norms = {cast: nk.create("rmsnorm", 16, offset=offset, cast=cast) for cast in ("auto", "early", "late")}
    for norm in norms.values():
        torch.nn.init.constant_(norm.weight, 1.3)
    y = {cast: norm(x) for cast, norm in norms.items()}
    assert not torch.equal(y["early"], y["late"])
    assert torch.equal(y["auto"], y["early" if early else "late"])


def _factor_rounded(x, weight, eps):
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    return weight * (x * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps).to(x.dtype))


def _rounded_throughout(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(("cast", "written"), [("factor", _factor_rounded), ("native", _rounded_throughout)])
def test_where_every_step_is_rounded_bits_and_gradients_are_those_of_the_same_steps(cast, written, dtype):
    generator = torch.Generator().manual_seed(0)
    x, g = (torch.randn(7, 9, 48, generator=generator).to(dtype) for _ in range(2))
    norm = nk.create("rmsnorm", 48, eps=1e-5, cast=cast).to(dtype)
    torch.nn.init.normal_(norm.weight, generator=generator)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    gain = norm.weight.detach().clone().requires_grad_()
    y, want = norm(ours), written(theirs, gain, 1e-5)
    y.backward(g), want.backward(g)
    exact = dtype in (torch.bfloat16, torch.float16)
    near = {"rtol": 0, "atol": 0} if exact else {}
    torch.testing.assert_close(y, want, **near)
    steps = {"rtol": 0.02, "atol": 2 ** (-6 if dtype is torch.bfloat16 else -9)} if exact else {}
    torch.testing.assert_close(ours.grad, theirs.grad, **steps)
    torch.testing.assert_close(norm.weight.grad, gain.grad, **steps)
    with torch.inference_mode():
        torch.testing.assert_close(norm(x), want.detach(), **near)


@pytest.mark.parametrize("cast", ["factor", "native"])
def test_rounding_at_every_step_is_refused_by_the_kernels_by_name_and_only_in_half_precision(cast):
    norm, x = nk.create("rmsnorm", 8, cast=cast), torch.randn(2, 3, 8)
    angles = turns_of(x)
    for call in (norm, lambda x: norm.add_norm(x, x), lambda x: norm.norm_rotate(x, angles)):
        with paths.watch() as taken:
            call(x.bfloat16()), call(x.half()), call(x)
        assert [f"cast={cast!r} rounds" in str(path.why) for path in taken] == [True, True, False]


def test_an_offset_and_a_shift_are_added_in_the_type_that_is_rounded_to():
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(64, generator=generator).bfloat16() for _ in range(3))
    x = x.view(4, 16)
    weight, bias = weight[:16], bias[:16]
    rule = ops.Row(cast="native", offset=1.0, center=True)
    z = x - x.mean(-1, keepdim=True)
    want = z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-6) * (1 + weight) + bias
    assert torch.equal(ops.row_norm(x, weight, bias, rule), want)
    wide = ops.row_norm(x, weight.float(), bias, rule)
    assert wide.dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_floor_of_zero_leaves_every_length_at_one(dtype):
    x = torch.tensor([[3.0, 4.0], [3e-15, 4e-15], [3e15, 4e15]], dtype=dtype, requires_grad=True)
    rule = ops.Row(eps=0.0, eps_place="floor")
    y = ops.row_norm(x, rule=rule)
    torch.testing.assert_close(row_formula(x, None, None, rule), y)
    torch.testing.assert_close(y, torch.tensor([[0.6, 0.8]], dtype=dtype).expand(3, 2))
    y[:, 0].sum().backward()
    want = torch.tensor([[0.128, -0.096]], dtype=dtype) / x.detach()[:, :1] * 3  # 1 / |x| - x1² / |x|³, and so on
    torch.testing.assert_close(x.grad, want)


def test_the_gradient_of_a_fused_addition_has_a_gradient():
    """Of both results, where the graph is kept."""
    generator = torch.Generator().manual_seed(0)
    x, residual, g, h = (torch.randn(3, 5, dtype=D, generator=generator) for _ in range(4))

    def total_gradient(add):
        a, b = x.clone().requires_grad_(), residual.clone().requires_grad_()
        y, total = add(a, b)
        (first,) = torch.autograd.grad((y * g).sum() + (total**3 * h).sum(), a, create_graph=True)
        return torch.autograd.grad((first**2).sum(), (a, b))

    rule = ops.Row(center=True, eps=1e-3)
    got = total_gradient(lambda a, b: ops.add_row_norm(a, b, rule=rule))
    want = total_gradient(lambda a, b: (torch.nn.functional.layer_norm(a + b, (5,), eps=1e-3), a + b))
    torch.testing.assert_close(got, want)


HEADS, LENGTH, WIDTH = 3, 5, 8


def _of_heads(method="layernorm", **more):
    norm = nk.create(method, WIDTH, heads=HEADS, **more)
    for seed, parameter in enumerate(norm.parameters()):
        torch.nn.init.normal_(parameter, 0.5, generator=torch.Generator().manual_seed(seed))
    return norm


def _by_heads(norm, x):
    """Each head of (..., heads, dim) by a norm of its own."""
    whole = torch.nn.functional.layer_norm if norm.rule.center else torch.nn.functional.rms_norm
    whole = whole(x.double(), (WIDTH,), eps=norm.eps)
    weight, bias = norm.weight.double() + norm.offset, 0 if norm.bias is None else norm.bias.double()
    return torch.stack([whole[..., h, :] * weight[h] for h in range(HEADS)], -2) + bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("more", [{}, {"offset": 1.0}, {"bias": False}, {"method": "rmsnorm", "bias": True}])
def test_a_gain_for_each_head_stands_on_the_axis_before_the_vectors(more, dtype):
    torch.manual_seed(0)
    norm, front = _of_heads(**more), _of_heads(**more, heads_first=True)
    assert norm.weight.shape == front.weight.shape == (HEADS, WIDTH)
    x, other = (torch.randn(2, LENGTH, HEADS, WIDTH).to(dtype) for _ in range(2))
    near = {"rtol": 2**-7, "atol": 2**-5} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(norm(x).double(), _by_heads(norm, x), **near)
    assert torch.equal(front(x.transpose(1, 2)), norm(x).transpose(1, 2))
    y, total = norm.add_norm(x, other)
    assert torch.equal(total, x + other)
    assert torch.equal(y, norm(total))
    angles = turns_of(x.transpose(1, 2))
    turned = norm.norm_rotate(x.transpose(1, 2), angles)
    assert torch.equal(turned, front.norm_rotate(x.transpose(1, 2), angles))
    want = ops.rotate(_by_heads(norm, x).transpose(1, 2), tuple(angle.double() for angle in angles))
    torch.testing.assert_close(turned.double(), want, **near)
    assert turned.dtype == y.dtype == dtype


@pytest.mark.parametrize("more", [{"eps": None}, {"eps_floor": True, "eps": 1e-12}, {"p": 0.5}, {"cast": "late"}])
def test_gains_of_heads_go_with_the_dialects_of_rms_norm(more):
    norm, x = _of_heads("rmsnorm", heads_first=True, **more), torch.randn(2, HEADS, LENGTH, WIDTH)
    for head in range(HEADS):
        one = nk.create("rmsnorm", WIDTH, **more)
        one.weight.data.copy_(norm.weight[head])
        torch.testing.assert_close(norm(x)[:, head], one(x[:, head]))


def test_heads_that_are_not_there_are_reported():
    with pytest.raises(ValueError, match=r"LayerNorm: x must end in axes of sizes \(3, 8\)"):
        _of_heads()(torch.ones(2, 4, 8))
    with pytest.raises(ValueError, match=r"\(2, 3, 4, 8\); heads_first=True takes heads before tokens$"):
        _of_heads("rmsnorm")(torch.ones(2, 3, 4, 8))
    with pytest.raises(ValueError, match="LayerNorm: heads must be at least 1, not 0"):
        nk.create("layernorm", 8, heads=0)
    with pytest.raises(ValueError, match=r"LayerNorm: residual must have shape \(2, 3, 8\)"):
        _of_heads().add_norm(torch.ones(2, 3, 8), torch.ones(3, 8))
    for norm, call in ((_of_heads(), "norm_rotate"), (_of_heads("rmsnorm", heads_first=True), "forward")):
        for sizes in ((2, 4, 5, 8), (3, 8), (8,)):
            more = [turns_of(torch.ones(5, 8))] if call == "norm_rotate" else []
            with pytest.raises(ValueError, match=r"x must end in axes of sizes \(3, T, 8\)"):
                getattr(norm, call)(torch.ones(sizes), *more)
    with pytest.raises(ValueError, match="RMSNorm: heads_first=True needs heads, but heads is None"):
        nk.create("rmsnorm", 8, heads_first=True)
    with pytest.raises(ValueError, match="RMSNorm: gain_first=True goes without heads"):
        nk.create("rmsnorm", 8, heads=2, gain_first=True)


@pytest.mark.parametrize("more", [{}, {"offset": 1.0, "eps": None}, {"bias": True, "eps_inside": False}])
def test_a_gain_may_come_before_the_root_mean_square(more):
    norm = nk.create("rmsnorm", WIDTH, gain_first=True, dtype=D, **more)
    for seed, parameter in enumerate(norm.parameters()):
        torch.nn.init.normal_(parameter, 0.5, generator=torch.Generator().manual_seed(seed))
    x, other = (torch.randn(2, LENGTH, WIDTH, dtype=D) for _ in range(2))
    eps = torch.finfo(D).eps if norm.eps is None else norm.eps
    scaled = x * (norm.weight + norm.rule.offset)
    mean = scaled.square().mean(-1, keepdim=True)
    root = (mean + eps).sqrt() if more.get("eps_inside", True) else mean.sqrt() + eps
    want = scaled / root + (norm.bias if more.get("bias") else 0)
    torch.testing.assert_close(norm(x), want)
    torch.testing.assert_close(norm.norm_rotate(x, turns_of(x)), ops.rotate(want, turns_of(x)))
    y, total = norm.add_norm(x, other)
    assert torch.equal(total, x + other)
    assert torch.equal(y, norm(total))
    assert torch.autograd.gradcheck(norm, x.requires_grad_())


def test_a_gain_first_is_nothing_without_a_gain_and_adds_like_to_like():
    x = torch.randn(2, WIDTH)
    assert torch.equal(
        nk.create("rmsnorm", WIDTH, affine=False, gain_first=True)(x), nk.RMSNorm(WIDTH, affine=False)(x)
    )
    with pytest.raises(ValueError, match=r"RMSNorm: residual must have shape \(2, 8\)"):
        nk.create("rmsnorm", WIDTH, gain_first=True).add_norm(x, torch.ones(8))


@pytest.mark.parametrize("more", [{}, {"offset": 1.0}, {"affine": False}, {"bias": True}, {"eps": None}])
def test_eps_may_be_the_least_length_as_in_torchs_normalize(more):
    norm = nk.create("rmsnorm", WIDTH, dtype=D, **{"eps": 1e-3, "eps_floor": True, **more})
    for seed, parameter in enumerate(norm.parameters()):
        torch.nn.init.normal_(parameter, 0.5, generator=torch.Generator().manual_seed(seed))
    x, other = (torch.randn(2, LENGTH, WIDTH, dtype=D) for _ in range(2))
    x[0, 0], x[0, 1], x[1, 0] = 0, 1e-6, 1e-4
    gain = 1 if norm.weight is None else norm.weight + more.get("offset", 0)
    eps = torch.finfo(D).eps if norm.eps is None else 1e-3
    want = torch.nn.functional.normalize(x, dim=-1, eps=eps) * WIDTH**0.5 * gain + (norm.bias if "bias" in more else 0)
    torch.testing.assert_close(norm(x), want)
    torch.testing.assert_close(norm.norm_rotate(x, turns_of(x)), ops.rotate(want, turns_of(x)))
    y, total = norm.add_norm(x, other)
    assert torch.equal(total, x + other)
    assert torch.equal(y, norm(total))


@pytest.mark.parametrize("more", [{"p": 0.5}, {"eps_inside": False}, {"gain_first": True}])
def test_a_least_length_goes_with_the_plain_form_alone(more):
    with pytest.raises(ValueError, match="RMSNorm: eps_floor=True goes with p=1, eps_inside=True and gain_first=False"):
        nk.create("rmsnorm", WIDTH, eps_floor=True, **more)


@pytest.mark.parametrize("floor", [False, True])
def test_channels_have_a_shift_and_a_least_length_as_rows_do(floor):
    options = {"bias": True, "eps": 1e-3, "eps_floor": floor, "dtype": D}
    norm, rows = nk.create("rmsnorm2d", WIDTH, **options), nk.create("rmsnorm", WIDTH, **options)
    for parameter, other in zip(norm.parameters(), rows.parameters(), strict=True):
        torch.nn.init.normal_(parameter, 0.5, generator=torch.Generator().manual_seed(3))
        other.data.copy_(parameter.data)
    x = torch.randn(2, WIDTH, 3, 4, dtype=D)
    x[0, :, 0, 0] = 1e-6
    torch.testing.assert_close(norm(x), rows(x.movedim(1, -1)).movedim(-1, 1))


def test_a_layer_norm_of_unbiased_deviations_keeps_its_eps_where_it_is_set_anew():
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0)) * 1e-3
    norm = nk.LayerNorm(6, unbiased=True, eps_inside=False, affine=False)
    norm.eps = 1e-2
    torch.testing.assert_close(norm(x), (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-2))
    assert norm.eps == 1e-2


@pytest.mark.parametrize("dim", [1, [1, 1]])
def test_a_single_number_has_no_unbiased_variance(dim):
    with pytest.raises(ValueError, match=r"LayerNorm: unbiased=True divides by n - 1; dim is .*1.*at least 2"):
        nk.LayerNorm(dim, unbiased=True)


@pytest.mark.parametrize(
    "norm",
    [
        nk.LayerNorm(6, eps=1e-3, offset=1.0),
        nk.RMSNorm(6, eps=1e-3, offset=1.0),
        nk.RMSNorm(6, eps=1e-3, offset=1.0, eps_floor=True),
    ],
)
def test_a_norm_that_was_pickled_before_is_what_it_was(norm):
    """Then a layer norm had its eps in the rule alone, and an RMS norm the root of the number of entries."""
    state = {name: value for name, value in vars(norm).items() if name not in ("_eps", "unbiased")}
    state["root"] = norm.rule.scale
    old = type(norm).__new__(type(norm))
    old.__setstate__(state)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(old(x), norm(x))
    assert (old.eps, old.offset) == (1e-3, 1.0)


@pytest.mark.parametrize("norm_before_gate", [False, True])
def test_a_gated_norm_rounds_before_its_gain_or_once_at_the_end_as_its_cast_says(norm_before_gate):
    g = torch.Generator().manual_seed(0)
    x, gate = (torch.randn(64, 16, generator=g).bfloat16() for _ in range(2))
    weight, opened = torch.full((16,), 1.3), torch.nn.functional.silu(gate.float())
    for cast in ("early", "late"):
        norm = nk.create("gated-rmsnorm", 16, eps=1e-6, norm_before_gate=norm_before_gate, cast=cast)
        torch.nn.init.constant_(norm.weight, 1.3)
        z = x.float() if norm_before_gate else x.float() * opened
        y = z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-6)
        y = (y.bfloat16() if cast == "early" else y) * weight
        want = (y * opened if norm_before_gate else y).bfloat16()
        assert (norm(x, gate) == want).double().mean() > 0.99, cast  # sums in another order may round otherwise


def test_a_part_may_be_the_whole_of_a_vector_and_no_more():
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    whole, part = (ops.row_norm(x, rule=ops.Row(center=False, eps=1e-6, part=part)) for part in (None, 8))
    assert torch.equal(whole, part)
    assert torch.equal(whole, ops.row_norm(x, torch.ones(1), rule=ops.Row(center=False, eps=1e-6, part=8)))
    with pytest.raises(ValueError, match="part must lie within the one normalized axis"):
        ops.row_norm(x, rule=ops.Row(center=False, eps=1e-6, part=9))
