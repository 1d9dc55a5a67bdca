"""Whether two models are the same: what rounding allows, and what it does not."""

import copy
from typing import ClassVar, NamedTuple

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.surgery import proof
from normkit.surgery.proof import Unequal, _exact, describe_error, difference, prove


class Scaled(nn.Module):
    """Some layers whose result is off by a share."""

    def __init__(self, inner, share):
        super().__init__()
        self.inner, self.share = inner, share

    def forward(self, x):
        return self.inner(x) * (1 + self.share)


def apart(share, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).to(dtype).eval()
    return prove(model, Scaled(model, share), torch.randn(3, 8).to(dtype))


@pytest.mark.parametrize(
    "dtype, allowed, refused",
    [(torch.float64, 1e-10, 1e-8), (torch.float32, 1e-8, 1e-5), (torch.bfloat16, 1e-3, 3e-2)],
)
def test_what_the_models_own_type_rounds_off_is_allowed_and_no_more(dtype, allowed, refused):
    assert apart(allowed, dtype) == pytest.approx(allowed, rel=1e-4)
    with pytest.raises(Unequal, match=f"results differ by {refused:.1e} of the largest number"):
        apart(refused, dtype)


class Third(nn.Module):
    """A third of the input, rounded to float32 or not, and of a sum in which much is lost."""

    def __init__(self, single=False, lost=0, share=0.0):
        super().__init__()
        self.single, self.lost, self.share = single, lost, share

    def forward(self, x):
        x = x.float() if self.single else x
        return ((x + self.lost) - self.lost) / 3 * (1 + self.share)


def test_a_model_that_rounds_to_float32_in_every_type_may_become_one_that_does_not():
    x = torch.randn(3, 8)
    assert 1e-9 < prove(Third(single=True), Third(), x) < 1e-7
    with pytest.raises(Unequal):
        prove(Third(single=True), Third(share=1e-8), x)
    with pytest.raises(Unequal, match=r"results differ by .*e-0[3-6] of the largest number"):
        prove(Third(single=True), Third(single=True, lost=4096), x)


class Mixed(nn.Module):
    """A linear map in float32 always, by a matrix that is no parameter."""

    def __init__(self, share=0.0):
        super().__init__()
        self.matrix = [(1 + share) * torch.arange(64.0).view(8, 8) / 63]

    def forward(self, x):
        return x.float() @ self.matrix[0]


def test_a_model_that_mixes_types_is_refused_by_how_far_it_is():
    x = torch.randn(3, 8)
    assert prove(Mixed(), Mixed(), x) == 0
    with pytest.raises(Unequal, match=r"results differ by 1\.0e-03 of the largest number"):
        prove(Mixed(), Mixed(1e-3), x)


@torch.library.custom_op("normkit_tests::third", mutates_args=())
def third(x: torch.Tensor) -> torch.Tensor:
    if x.dtype is torch.float64:
        raise RuntimeError("got Double")
    return x / 3


@torch.library.custom_op("normkit_tests::third_", mutates_args=("x",))
def third_(x: torch.Tensor) -> None:
    if x.dtype is torch.float64:
        raise RuntimeError("got Double")
    x.div_(3)


class Unknowing(nn.Module):
    """Some layers, around an operation that knows no float64."""

    def __init__(self, inner, inplace=False):
        super().__init__()
        self.inner, self.inplace = inner, inplace

    def forward(self, x):
        x = self.inner(x)
        if not self.inplace:
            return self.inner(third(x))
        third_(x)
        return self.inner(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_knows_no_float64_is_done_in_float32_and_the_rest_in_float64(dtype):
    torch.manual_seed(0)
    inner, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(dtype).eval(), torch.randn(3, 8).to(dtype)
    before = Unknowing(inner)
    wide = copy.deepcopy(inner).double()
    assert 0 < difference([wide(wide(x.double()) / 3).detach()], _exact(before, x)) < 1e-7
    assert prove(before, Unknowing(inner), x) == 0
    assert 1e-12 < prove(before, Unknowing(Scaled(inner, 1e-12)), x) < 1e-7
    with pytest.raises(Unequal, match="results differ by"):
        prove(before, Unknowing(Scaled(inner, 0.1)), x)


def test_what_is_changed_in_place_in_an_unknown_type_is_no_proof():
    """The numbers that it would change are not those that the model goes on with."""
    inner = nn.Linear(8, 8).eval()
    with pytest.raises(Unequal, match="without the change, the model raises RuntimeError: got Double in float64"):
        prove(Unknowing(inner, inplace=True), Unknowing(inner, inplace=True), torch.randn(3, 8))


class Tagged(nn.Linear):
    """As QwenImage of diffusers, which asks whether sizes are a list."""

    def forward(self, x, sizes):
        return super().forward(x[0]) * (sizes[0][0] if isinstance(sizes, list) and isinstance(x, list) else sizes)


class Batch(NamedTuple):
    x: torch.Tensor
    mask: torch.Tensor


class OfBatch(nn.Linear):
    def forward(self, batch):
        return super().forward(batch.x) + batch.mask


def test_lists_and_named_tuples_in_an_example_stay_what_they_are():
    model = Tagged(4, 4).eval()
    assert prove(model, copy.deepcopy(model), {"x": [torch.randn(3, 4)], "sizes": [(1, 2)]}) == 0
    assert prove(model := OfBatch(4, 4).eval(), model, (Batch(torch.randn(3, 4), torch.zeros(3, 4)),)) == 0


class Returns(nn.Linear):
    """What a function makes of some layer's results."""

    def __init__(self, function, sign=1):
        super().__init__(8, 8)
        self.function, self.sign = function, sign

    def forward(self, x):
        return self.function(self.sign * super().forward(x))


@pytest.mark.parametrize(
    "function", [torch.fft.fft, lambda y: y.argmax(-1), lambda y: y > 0, lambda y: (y.abs(), y.argmax(-1))]
)
def test_complex_numbers_integers_and_truths_are_compared(function):
    torch.manual_seed(0)
    model, x = Returns(function).eval(), torch.randn(3, 8)
    other = copy.deepcopy(model)
    assert prove(model, other, x) == 0
    other.sign = -1
    with pytest.raises(Unequal, match="once changed, results differ"):
        prove(model, other, x)


def test_an_integer_that_rounding_moves_is_no_reason_to_refuse_or_to_allow_more():
    def off_by(share):
        return lambda y: (y * (1 + share), (y[:, 0] * (1 + share) < y[:, 1]).long())

    torch.manual_seed(0)
    model, x = Returns(off_by(0)).bfloat16().eval(), torch.randn(3000, 8).bfloat16()
    with torch.no_grad():
        model.weight[1], model.bias[1] = model.weight[0] * 1.01, model.bias[0]
    other = copy.deepcopy(model)
    other.function = off_by(1e-3)
    assert prove(model, other, x) > 0.1
    other.function = off_by(0.1)
    with pytest.raises(Unequal, match="once changed, results differ"):
        prove(model, other, x)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda y: y.tolist(), "the model returns no tensor to compare"),
        (lambda y: y * torch.nan, "the example gives no finite number to compare"),
    ],
)
def test_results_that_cannot_be_compared_prove_nothing(function, reason):
    model, x = Returns(function).eval(), torch.randn(3, 8)
    with pytest.raises(ValueError, match=f"fold: {reason}"):
        nk.fold(model, x)
    for compare in (prove, proof.apart):
        with pytest.raises(Unequal, match=reason):
            compare(model, model, x)


@pytest.mark.parametrize("masked", [-torch.inf, torch.finfo(torch.float32).min, torch.nan])
def test_what_masks_stays_where_it_is_on_other_inputs(masked):
    mask = torch.randn(3, 4).masked_fill(torch.eye(3, 4).bool(), masked)
    other = proof.fresh(mask, 0)
    same = (other == mask) | (other.isnan() & mask.isnan())
    assert torch.equal(same, torch.eye(3, 4).bool())
    assert other[~same].abs().max() < 5


def test_a_difference_is_a_share_of_the_largest_number_of_each_result():
    large, small = torch.tensor([1e6, 1.0]), torch.tensor([2.0, 0.5])
    assert difference([large, small], [large + torch.tensor([0.0, 1.0]), small]) == pytest.approx(1e-6)
    assert difference([large, small], [large, small + 0.5]) == pytest.approx(0.25)
    assert difference([large], [large, small]) == float("inf")
    broken, endless = torch.tensor([1e6, float("nan")]), torch.tensor([float("inf")])
    assert difference([broken, endless], [broken, endless]) == 0
    for one, other in ((large, broken), (broken, large), (broken[1:], endless), (endless, -endless)):
        assert difference([one], [other]) == float("inf")


def test_an_error_without_words_is_reported_by_its_line():
    with pytest.raises(AssertionError) as caught:
        torch._assert(False, "")
    assert describe_error(caught.value) == 'AssertionError at torch._assert(False, "")'
    assert describe_error(AssertionError()) == "AssertionError"
    assert describe_error(ValueError("\none\ntwo")) == "ValueError: one"


def test_other_tokens_are_those_of_a_seed_and_draw_nothing_of_the_callers():
    torch.manual_seed(0)
    words, state = torch.arange(9).view(3, 3), torch.get_rng_state()
    one, same, other = (proof.fresh(words, seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("shape", [(8,), (1, 8), (4, 2), (1, 4, 2)])
def test_integers_keep_their_column_and_are_others(shape):
    ids = torch.randperm(8, generator=torch.Generator().manual_seed(0)).view(shape)
    other = proof.fresh(ids, 1)
    assert not torch.equal(other, ids)
    columns = ids.shape[-1] if len(set(shape) - {1}) > 1 else 1
    assert torch.equal(other.view(-1, columns).sort(0).values, ids.view(-1, columns).sort(0).values)


class Tables(nn.Module):
    """Two columns of integers, each with a table of its own size; tied: other pairs are refused."""

    def __init__(self, tied=False):
        super().__init__()
        self.users, self.kinds, self.tied = nn.Embedding(200, 8), nn.Embedding(3, 8), tied
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 1)

    def forward(self, ids):
        users, kinds = ids.unbind(1)
        kinds = 2 + kinds - users % 3 if self.tied else kinds
        return self.out(self.norm(self.users(users) + self.kinds(kinds)))


def test_tables_of_several_sizes_and_inputs_that_a_model_refuses_itself():
    users = torch.arange(190, 200)
    ids, model = torch.stack([users, users % 3], 1), Tables(tied=True).eval()
    assert len(nk.convert(Tables().eval(), "pre-rmsnorm", ids).done) == 3
    refused = "without the change, the model raises IndexError: index out of range in self on an input like the example"
    with pytest.raises(ValueError, match=f"convert: refused, and the model is as it was: {refused}"):
        nk.convert(model, "pre-rmsnorm", ids)
    assert refused in {need.why_not for need in nk.ready(model, "no-norms", ids)}


def test_models_that_agree_on_the_example_alone_are_apart():
    x = torch.rand(4, 8, generator=torch.Generator().manual_seed(0))
    assert proof.apart(nn.ReLU(), nn.Identity(), x) > 0.01
    assert proof.apart(nn.ReLU(), nn.ReLU(), x) == 0
    with pytest.raises(Unequal, match="results differ by"):
        prove(nn.ReLU(), nn.Identity(), x)
    assert proof.exact(nn.ReLU(), nn.Identity(), x) > 0.01
    assert prove(nn.ReLU(), nn.ReLU(), x) == proof.exact(nn.ReLU(), nn.ReLU(), x) == 0


class Windows(nn.Module):
    """A layer over windows of four positions, behind a norm, which pads where the last one is not whole."""

    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        h, missing = self.norm(x), -x.shape[1] % 4
        if missing:
            h = nn.functional.pad(h, (0, 0, 0, missing))
        return self.up(h).unflatten(1, (-1, 4)).sum(2)


@pytest.mark.parametrize("positions", [4, 8, 12])
def test_a_model_that_pads_at_some_sizes_alone_is_not_proven_at_one(positions):
    model = Windows().eval()
    nn.init.normal_(model.norm.bias)
    differs = r"fold: refused, .* results differ by \S+ of the largest number on a smaller input"
    with pytest.raises(ValueError, match=differs):
        nk.fold(model, torch.randn(2, positions, 8))


class Positions(nn.Module):
    """A layer behind positions, of which each has a vector of its own, so that other sizes raise."""

    def __init__(self):
        super().__init__()
        self.place, self.up = nn.Parameter(torch.randn(12, 8)), nn.Linear(8, 8)

    def forward(self, x):
        return self.up(x + self.place)


def test_a_size_that_a_model_does_not_take_costs_no_copies_in_float64(monkeypatch):
    made, copied = [], proof._in
    monkeypatch.setattr(proof, "_in", lambda *given: made.append(given) or copied(*given))
    model = Positions().eval()
    assert prove(model, copy.deepcopy(model), torch.randn(2, 12, 8)) == 0
    assert len(made) == 4


class Seen(nn.Module):
    """A layer, with a tensor that may be elsewhere, and all lengths of what it was called on."""

    lengths: ClassVar[set[int]] = set()

    def __init__(self, device="cpu"):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.register_buffer("unused", torch.zeros(1, device=device))

    def forward(self, x, unused):
        self.lengths.add(x.shape[1])
        return self.up(x)


@pytest.mark.parametrize(
    ("of_model", "of_example", "lengths"), [("cpu", "cpu", {12, 7}), ("meta", "cpu", {12}), ("cpu", "meta", {12})]
)
def test_only_on_a_processor_is_a_smaller_input_tried_as_an_index_out_of_range_ends_a_gpu_s_work(
    of_model, of_example, lengths, monkeypatch
):
    monkeypatch.setattr(Seen, "lengths", set())
    model = Seen(of_model).eval()
    assert prove(model, copy.deepcopy(model), (torch.randn(2, 12, 8), torch.zeros(1, device=of_example))) == 0
    assert Seen.lengths == lengths


class Drawing(nn.Module):
    """A convolution, a batch norm and noise, of a generator for random numbers or of a count of the calls."""

    calls = 0

    def __init__(self, noise=torch.randn_like):
        super().__init__()
        self.conv, self.bn, self.noise = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), noise

    def forward(self, x):
        h = self.bn(self.conv(x))
        return h + self.noise(h)


def count(x):
    Drawing.calls += 1
    return Drawing.calls * torch.ones_like(x)


def test_a_model_that_draws_random_numbers_is_proven_on_the_same_ones():
    torch.manual_seed(0)
    model, x, state = Drawing().eval(), torch.randn(2, 3, 6, 6), torch.get_rng_state()
    with pytest.raises(Unequal, match=r"results differ by 1\.0e-05 of the largest number"):
        prove(model, Scaled(model, 1e-5), x)
    (change,) = nk.fold(model, x)
    assert change.became == "into conv"
    assert 0 < change.difference < 1e-7
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_whose_calls_differ_by_other_means_is_refused_as_such():
    model = Drawing(count).eval()
    with pytest.raises(ValueError, match=r"two calls of the model as it was differ by \d\.\de-0\d of the largest"):
        nk.fold(model, torch.randn(2, 3, 6, 6))
