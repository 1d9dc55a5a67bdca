"""A mixture of experts in the reference transformer: numbers, room, generation, compilation, refusals."""

import copy
import math
import pickle

import pytest
import torch
from torch.nn import functional as F

import normkit as nk
from normkit.transformer.attention import clamped_swiglu
from normkit.transformer.moe import MixtureOfExperts

TOKENS = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(0))


def model(router="router:experts=4,top_k=2", depth=2, **arguments):
    torch.manual_seed(0)
    sizes = {"vocab": 11, "dim": 16, "depth": depth, "heads": 2, "hidden": 8}
    return nk.Decoder(**sizes, feedforward="moe", router=router, **arguments).double()


def by_hand(moe, x, act, kept=None):
    """Token by token, expert by expert."""
    weights, experts = moe.router(x)
    y = torch.zeros_like(x)
    for token in range(len(x)):
        for rank in range(experts.shape[1]):
            one = int(experts[token, rank])
            if kept is not None and not kept[token][rank]:
                continue
            h = moe.up.weight[one] @ x[token] + (0 if moe.up.bias is None else moe.up.bias[one])
            z = moe.down.weight[one] @ act(h) + (0 if moe.down.bias is None else moe.down.bias[one])
            y[token] += weights[token, rank] * z
    return y


def swiglu(h):
    u, gate = h.chunk(2)
    return u * F.silu(gate)


@pytest.mark.parametrize("router", ["router:experts=4,top_k=2", "deepseek-v3-router:experts=4,top_k=3,scale=2.5"])
@pytest.mark.parametrize("activation, act", [("swiglu", swiglu), ("gelu", F.gelu)])
@pytest.mark.parametrize("bias", [False, True])
def test_equals_experts_one_by_one(router, activation, act, bias):
    torch.manual_seed(0)
    moe = MixtureOfExperts(6, 5, router=router, activation=activation, bias=bias).double()
    x = torch.randn(7, 6, dtype=torch.float64)
    torch.testing.assert_close(moe(x), by_hand(moe, x, act))
    torch.testing.assert_close(moe(x.view(1, 7, 6))[0], moe(x))
    assert moe.dropped == 0


def test_the_gate_of_gpt_oss_is_clamped_from_above_and_u_on_both_sides():
    u, gate = torch.tensor([[-9.0, 9.0, 0.5, 0.5], [2.0, 2.0, -10.0, 10.0]], dtype=torch.float64)
    want = [
        (min(max(a, -7), 7) + 1) * min(b, 7) / (1 + math.exp(-1.702 * min(b, 7))) for a, b in zip(u, gate, strict=True)
    ]
    torch.testing.assert_close(
        clamped_swiglu(torch.cat([u, gate])), torch.tensor(want, dtype=torch.float64), atol=0, rtol=1e-12
    )


def test_a_shared_expert_has_the_gate_of_gpt_oss_too():
    torch.manual_seed(0)
    experts = MixtureOfExperts(4, 3, router="router:experts=2,top_k=1", activation="clamped_swiglu", shared=5)
    x = torch.randn(6, 4)
    apart = F.linear(clamped_swiglu(F.linear(x, experts.shared.up.weight)), experts.shared.down.weight)
    torch.testing.assert_close(experts(x) - by_hand(experts, x, lambda h: clamped_swiglu(h[None])[0]), apart)


def test_a_full_expert_drops_later_tokens_and_second_choices():
    torch.manual_seed(0)
    moe = MixtureOfExperts(2, 3, router="router:experts=2,top_k=2", capacity=0.5).double()
    with torch.no_grad():
        moe.router.weight.copy_(torch.eye(2))
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    kept = [[True, False], [True, False], [False, False], [True, False]]  # room for two; the last is 1's first choice
    kept[0][1] = True  # and token 0 is the first of the second choices of 1, which has one place left
    torch.testing.assert_close(moe(x), by_hand(moe, x, F.gelu, kept))
    torch.testing.assert_close(moe.dropped, torch.tensor(1 / 2))
    torch.testing.assert_close(moe.load, torch.tensor([1.0, 1.0]))


def test_padding_takes_no_room_of_an_expert():
    decoder = model(feedforward_options={"capacity": 1.0})
    mask = torch.arange(9) < torch.tensor([[3], [9]])
    one, other = (decoder(torch.where(mask, TOKENS, padding), mask)[mask] for padding in (0, 7))
    assert torch.equal(one, other)
    experts = decoder.layers[0].feedforward
    experts(torch.randn(2, 9, 16).double(), mask=torch.zeros(2, 9, dtype=torch.bool))
    assert experts.load.sum() == 0
    experts(torch.ones(1, 9, 16).double(), mask=torch.arange(9)[None] < 3)
    assert experts.load.max() == 1
    assert experts.dropped == 0


@pytest.mark.parametrize("options", [{}, {"capacity": 4.0}])
def test_padding_moves_no_selection_bias_and_counts_in_no_load(options):
    router = "router:experts=4,top_k=2,selection_bias=True"
    decoder = model(router, depth=1, placement="pre-norm", feedforward_options=options)
    experts, mask = decoder.layers[0].feedforward, torch.arange(9) < torch.tensor([[9], [2]])
    seen = []
    experts.router.register_forward_hook(lambda module, inputs, output: seen.append(output[1]))
    decoder(TOKENS, mask)
    load = torch.bincount(seen[-1][mask.flatten()].flatten(), minlength=4) / 22
    torch.testing.assert_close(experts.load / 2, load)
    assert experts.dropped == 0
    torch.testing.assert_close(experts.balance(0.5), load)
    assert torch.equal(experts.router.selection_bias, 0.5 * torch.sign(1 / 4 - load))
    decoder(TOKENS)
    torch.testing.assert_close(experts.balance(0.0), torch.bincount(seen[-1].flatten(), minlength=4) / 36)


def test_a_mask_of_another_size_or_type_is_named_by_a_mixture():
    experts = model().layers[0].feedforward
    x = torch.zeros(2, 9, 16).double()
    with pytest.raises(ValueError, match=r"MixtureOfExperts: mask must have shape \(2, 9\)"):
        experts(x, mask=torch.ones(2, 8, dtype=torch.bool))
    with pytest.raises(TypeError, match="MixtureOfExperts: mask must be a boolean tensor, not torch"):
        experts(x, mask=torch.ones(2, 9))


def test_a_shared_expert_and_its_gate():
    torch.manual_seed(0)
    moe = MixtureOfExperts(6, 5, router="router:experts=4,top_k=2", shared=3, shared_gate=True).double()
    x = torch.randn(7, 6, dtype=torch.float64)
    want = by_hand(moe, x, F.gelu) + torch.sigmoid(moe.shared_gate(x)) * moe.shared(x)
    torch.testing.assert_close(moe(x), want)


@pytest.mark.parametrize("capacity", [None, 1.0])
def test_no_tokens_give_none(capacity):
    moe = MixtureOfExperts(6, 5, router="router:experts=4,top_k=2", capacity=capacity)
    assert moe(torch.zeros(0, 6)).shape == (0, 6)


def test_generation_with_a_cache_is_that_without():
    decoder = model().eval()
    cached = decoder.generate(TOKENS, 6, temperature=0)
    assert torch.equal(cached, decoder.generate(TOKENS, 6, temperature=0, cached=False))


@pytest.mark.parametrize("options", [{}, {"capacity": 1.0}])
def test_compiles_in_one_graph(options):
    decoder = model(depth=1, feedforward_options=options)  # a second layer is traced as the first is
    compiled = torch.compile(copy.deepcopy(decoder), fullgraph=True, backend="aot_eager")
    for tokens in (TOKENS, TOKENS[:, :5]):
        ours, theirs = decoder(tokens), compiled(tokens)
        torch.testing.assert_close(theirs, ours)
    compiled(TOKENS).sum().backward()


def test_every_parameter_learns_and_a_used_model_is_copied():
    decoder = model("router:experts=4,top_k=2,bias=True", bias=True, feedforward_options={"shared": 3})
    decoder(TOKENS).square().sum().backward()
    names = [name for name, p in decoder.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert [name for name in names if "key.bias" not in name] == []
    again = pickle.loads(pickle.dumps(decoder))
    assert torch.equal(again(TOKENS), decoder(TOKENS))


def test_balance_moves_loads_together():
    decoder = model("deepseek-v3-router:experts=4,top_k=1")
    moe = decoder.layers[0].feedforward
    with pytest.raises(ValueError, match="call the model in training first"):
        moe.balance()
    tokens = torch.randint(11, (8, 32), generator=torch.Generator().manual_seed(1))
    moe.router.selection_bias.copy_(torch.tensor([1.0, 0, 0, 0]))
    decoder(tokens)
    assert moe.load.max() == 1
    for _ in range(300):
        moe.balance(0.01)
        decoder(tokens)
    assert moe.load.max() < 0.5


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"router": None}, "router must be one of 'router', not None"),
        ({"router": "rmsnorm"}, "router must be one of 'router', not 'rmsnorm'"),
        ({"router": "router"}, "router='router' must say experts and top_k"),
        ({"router": "router:experts=4,top_k=5"}, "top_k must be at most 4, not 5"),
        ({"feedforward": "mlp"}, "router='router:experts=4,top_k=2' needs feedforward='moe'"),
        ({"feedforward": "glu"}, "feedforward must be one of 'mlp', 'moe', not 'glu'"),
        ({"placement": "ngpt"}, "placement 'ngpt' reaches into the feedforward, which must be 'mlp'"),
        ({"placement": "deepnorm"}, "placement 'deepnorm' reaches into the feedforward, which must be 'mlp'"),
        ({"linear": "sdd-linear"}, "linear='sdd-linear' reaches into the feedforward, which must be 'mlp'"),
        ({"feedforward_options": {"capacity": 0.0}}, "capacity must lie in (0.0"),
        ({"feedforward_options": {"shared_gate": True}}, "shared_gate needs a shared expert"),
    ],
)
def test_what_does_not_go_together_is_named(arguments, message):
    sizes = {"vocab": 11, "dim": 16, "depth": 1, "heads": 2, "feedforward": "moe", "router": "router:experts=4,top_k=2"}
    with pytest.raises(ValueError, match=r"\w+: ") as error:
        nk.Decoder(**{**sizes, **arguments})
    assert message in str(error.value)


def test_an_option_of_the_other_feedforward_is_named():
    with pytest.raises(ValueError, match=r"feedforward_options must be one of .*'sparsity', not 'capacity'"):
        nk.Decoder(vocab=7, dim=4, depth=1, heads=1, feedforward_options={"capacity": 1.0})
    with pytest.raises(ValueError, match=r"feedforward_options must be one of .*'shared_gate'.*, not 'sparsity'"):
        model(feedforward_options={"sparsity": 0.5})
