"""The router beside transformers' modules of each family, at the ends of its range, and what it refuses."""

import importlib
import itertools

import pytest
import torch

import normkit as nk
from normkit.optional import let_torchvision_load
from normkit.router.router import SCORES
from normkit.transformer.moe import MixtureOfExperts

SIZES = {
    "hidden_size": 6,
    "num_attention_heads": 2,
    "num_experts": 8,
    "num_local_experts": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
}
GROUPS = {"n_group": 4, "topk_group": 2}
PLAIN = {"n_group": 1, "topk_group": 1}

# our name and arguments, their module and class, and what their configuration says
THEIRS = {
    "mixtral": ("mixtral-router", {}, "mixtral", "Mixtral", {}),
    "qwen3-moe": ("qwen3-moe-router", {}, "qwen3_moe", "Qwen3Moe", {"norm_topk_prob": True}),
    "minimax": ("minimax-router", {}, "minimax", "MiniMax", {}),
    "qwen2-moe": ("qwen2-moe-router", {}, "qwen2_moe", "Qwen2Moe", {}),
    "olmoe": ("olmoe-router", {}, "olmoe", "Olmoe", {}),
    "gpt-oss": ("gpt-oss-router", {}, "gpt_oss", "GptOss", {}),
    "ernie-4.5": ("ernie-4.5-router", {}, "ernie4_5_moe", "Ernie4_5_Moe", {"moe_num_experts": 8, "moe_k": 3}),
    "deepseek-v2": (
        *("deepseek-v2-router", {"scale": 16.0, "groups": 4, "kept_groups": 2}, "deepseek_v2", "DeepseekV2"),
        {**GROUPS, "topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0},
    ),
    "deepseek-v3": (
        *("deepseek-v3-router", {"scale": 2.5, "groups": 4, "kept_groups": 2}, "deepseek_v3", "DeepseekV3"),
        {**GROUPS, "routed_scaling_factor": 2.5},
    ),
    "glm-4": ("glm-4-router", {}, "glm4_moe", "Glm4Moe", {**PLAIN, "routed_scaling_factor": 1.0}),
    "minimax-m2": ("minimax-m2-router", {}, "minimax_m2", "MiniMaxM2", {}),
    "deepseek-v4": ("deepseek-v4-router", {"scale": 1.5}, "deepseek_v4", "DeepseekV4", {"routed_scaling_factor": 1.5}),
}


def theirs(module, name, settings):
    place = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    config = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
    cls = next(getattr(place, name + end) for end in ("TopKRouter", "TopkRouter") if hasattr(place, name + end))
    return cls(getattr(config, f"{name}Config")(**{**SIZES, **settings}))


@pytest.mark.parametrize("family", THEIRS)
def test_equals_the_module_of_its_family(family):
    let_torchvision_load()
    pytest.importorskip("transformers")
    name, arguments, module, cls, settings = THEIRS[family]
    torch.manual_seed(0)
    their = theirs(module, cls, settings)
    our = nk.create(name, 6, 8, top_k=3, **arguments)
    with torch.no_grad():
        state = {key.rpartition(".")[2]: value.normal_() for key, value in their.state_dict().items()}
    further = []
    if our.selection_bias is not None:  # MiniMax-M2 hands it in with each call
        bias = state.pop("e_score_correction_bias", None)
        further = [torch.randn(8)] if bias is None else []
        state["selection_bias"] = further[0] if bias is None else bias.reshape(-1)
    our.load_state_dict(state)
    x = torch.randn(20, 6)
    outputs = their(x, *further)
    want, experts = next((w, e) for w, e in itertools.pairwise(outputs) if e.dtype is torch.int64)
    order = experts.argsort(-1)
    weights, chosen = our(x)
    ours = chosen.argsort(-1)
    torch.testing.assert_close(chosen.gather(-1, ours), experts.gather(-1, order))
    torch.testing.assert_close(weights.gather(-1, ours), want.gather(-1, order))


def test_llama_4_scales_one_expert_by_a_sigmoid():
    router = nk.create("llama-4-router", 2, 3)
    with torch.no_grad():
        router.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    weights, experts = router(torch.tensor([0.5, 2.0]))
    assert experts.tolist() == [1]
    torch.testing.assert_close(weights, torch.sigmoid(torch.tensor([2.0])))


def drawn(**arguments):
    """A router of 6 features and 8 experts in float64, all its numbers drawn."""
    torch.manual_seed(0)
    router = nk.create("router", 6, 8, **arguments).double()
    with torch.no_grad():
        for tensor in router.state_dict().values():
            tensor.normal_()
    return router, torch.randn(5, 4, 6, dtype=torch.float64)


def test_tokens_may_be_normalized_first_and_each_expert_have_a_factor():
    router, x = drawn(top_k=3, input_norm=True, eps=1e-2, expert_scale=True, logit_scale=0.3, scale=2.0)
    unit = x / (x.square().mean(-1, keepdim=True) + 1e-2).sqrt() * router.gain
    p, experts = torch.softmax(0.3 * unit @ router.weight.T, -1).topk(3)
    weights, chosen = router(x)
    assert torch.equal(chosen, experts)
    torch.testing.assert_close(weights, 2.0 * router.expert_scale[experts] * p / p.sum(-1, keepdim=True))


def test_a_shift_of_logits_chooses_others_than_one_of_scores():
    arguments = {"top_k": 2, "score": "sigmoid", "selection_bias": True, "renormalize": False}
    (by_logits, x), (by_scores, _) = drawn(**arguments, choose_by="logits"), drawn(**arguments)
    z = x @ by_logits.weight.T
    weights, experts = by_logits(x)
    assert torch.equal(experts, (z + by_logits.selection_bias).topk(2).indices)
    torch.testing.assert_close(weights, z.sigmoid().gather(-1, experts))
    assert (by_scores(x)[1] != experts).any()


@pytest.mark.parametrize("grouping", [{}, {"groups": 2, "kept_groups": 1}])
def test_shared_experts_take_every_token_and_a_part_of_the_weight(grouping):
    router, x = drawn(top_k=4, shared=2, score="sigmoid", selection_bias=True, **grouping)
    p = (x @ router.weight.T).sigmoid()
    choice = p[..., :6] + router.selection_bias
    if grouping:
        groups = choice.unflatten(-1, (2, 3))
        best = groups.topk(2).values.sum(-1).argmax(-1)
        choice = choice.masked_fill(torch.arange(6) // 3 != best[..., None], -torch.inf)
    want = torch.cat([choice.topk(2).indices, torch.tensor([6, 7]).expand(5, 4, 2)], -1)
    weights, experts = router(x)
    assert torch.equal(experts, want)
    p = p.gather(-1, experts)
    torch.testing.assert_close(weights, p / p.sum(-1, keepdim=True))
    before = router.selection_bias.clone()
    load = router.balance(experts, 0.5)
    torch.testing.assert_close(load.sum(), torch.tensor(1.0))
    torch.testing.assert_close(router.selection_bias, before + 0.5 * (load[:6].mean() - load[:6]).sign())


def test_a_mixture_s_tokens_pass_through_the_shared_experts():
    torch.manual_seed(0)
    mixture = MixtureOfExperts(6, 5, router="router:experts=4,top_k=3,shared=2,score=sigmoid")
    mixture(torch.randn(7, 6))
    torch.testing.assert_close(mixture.load[2:], torch.ones(2))


def test_the_selection_bias_says_who_and_never_how_much():
    router = nk.create("router", 4, 6, top_k=2, score="sigmoid", renormalize=False, selection_bias=True)
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    router.selection_bias.copy_(torch.tensor([0.0, 0, 0, 0, 5, 5]))
    weights, experts = router(x)
    assert set(experts.flatten().tolist()) == {4, 5}
    torch.testing.assert_close(weights, torch.sigmoid(x @ router.weight.T).gather(-1, experts))


def test_a_hidden_group_does_not_win_by_a_negative_bias():
    router = nk.create("router", 2, 4, top_k=2, selection_bias=True, groups=2, group_score="max")
    with torch.no_grad():
        router.weight.zero_()
    router.selection_bias.copy_(torch.tensor([-3.0, -4.0, -5.0, -6.0]))
    assert router(torch.zeros(1, 2))[1].tolist() == [[0, 1]]


def test_equal_scores_go_to_the_first():
    router = nk.create("router", 3, 64, top_k=5)
    assert router(torch.zeros(4, 3))[1].tolist() == [[0, 1, 2, 3, 4]] * 4


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "sqrt-softplus"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_scores_give_finite_weights_and_gradients(score, dtype):
    router = nk.create("router", 1, 3, top_k=2, score=score, dtype=dtype)
    with torch.no_grad():
        router.weight.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    for size in (-1000.0, -90.0, -40.0, 0.0, 1000.0):
        x = torch.full((1, 1), size, dtype=dtype, requires_grad=True)
        weights, _ = router(x)
        weights[0, 0].backward()
        assert all(t.isfinite().all() for t in (weights, x.grad, router.weight.grad))


def test_sqrt_softplus_is_smooth_where_its_forms_meet():
    z = torch.linspace(-45, -35, 1001, dtype=torch.float64)
    want = torch.log1p(torch.exp(z)).sqrt()
    torch.testing.assert_close(SCORES["sqrt-softplus"](z), want, rtol=1e-13, atol=0)


def test_balance_evens_the_load():
    torch.manual_seed(0)
    router = nk.create("deepseek-v3-router", 8, 6, top_k=2)
    x = torch.randn(2000, 8) + 1
    first = router.balance(router(x)[1], rate=0.0)
    assert torch.equal(router.selection_bias, torch.zeros(6))
    for _ in range(300):
        last = router.balance(router(x)[1], rate=0.005)
    torch.testing.assert_close(last.sum(), torch.tensor(1.0))
    assert first.max() > 0.3
    assert last.max() < 0.2  # an even load is 1/6


def test_small_moves_of_the_selection_bias_add_up_in_a_model_of_half_precision():
    router = nk.Router(4, 2, top_k=1, score="sigmoid", selection_bias=True).bfloat16()
    for _ in range(1000):
        router.balance(torch.zeros(8, 1, dtype=torch.long))
    assert router.weight.dtype is torch.bfloat16
    torch.testing.assert_close(router.selection_bias, torch.tensor([-1.0, 1.0]), rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_router_made_in_half_precision_has_a_selection_bias_in_float32(dtype):
    was = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        router = nk.create("deepseek-v3-router", 8, 4, top_k=2)
    finally:
        torch.set_default_dtype(was)
    assert router.weight.dtype is dtype
    assert router.selection_bias.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    router.selection_bias.fill_(0.6)
    router.balance(torch.zeros(5, 2, dtype=torch.int64))
    want = torch.tensor([0.599, 0.601, 0.601, 0.601])
    torch.testing.assert_close(router.selection_bias.float(), want, rtol=1e-6, atol=0)


def test_a_selection_bias_of_half_precision_gets_float32_and_a_place_after_the_meta_device():
    with torch.device("meta"):
        router = nk.create("deepseek-v3-router", 8, 4, top_k=2)
    state = {name: value.bfloat16() for name, value in router.state_dict().items()}
    router.load_state_dict(state, assign=True)
    router.to_empty(device="cpu")
    assert router.weight.dtype is torch.bfloat16
    assert (router.selection_bias.dtype, router.selection_bias.device.type) == (torch.float32, "cpu")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"top_k": 7}, "top_k must be at most 6, not 7"),
        ({"top_k": 4, "groups": 2}, "top_k must be at most 3, not 4"),
        ({"groups": 4}, "groups=4 does not divide experts=6"),
        ({"groups": 2, "kept_groups": 3}, "kept_groups must be at most 2, not 3"),
        ({"groups": 6, "kept_groups": 2}, "group_score='top2' needs two experts a group"),
        ({"score": "softplus"}, "score must be one of 'softmax', 'sigmoid', 'sqrt-softplus', not 'softplus'"),
        ({"scale": 0.0}, "scale must lie in"),
    ],
)
def test_what_cannot_be_chosen_is_named(arguments, message):
    with pytest.raises(ValueError, match="Router: ") as error:
        nk.create("router", 4, 6, **{"top_k": 2, **arguments})
    assert message in str(error.value)


def test_scores_that_are_nan_are_refused():
    router = nk.create("router", 4, 6, top_k=2)
    x = torch.zeros(2, 4)
    x[1, 2] = torch.nan
    with pytest.raises(ValueError, match="scores of experts are NaN; x and weight must be finite"):
        router(x)


def test_balance_without_a_selection_bias_is_refused():
    router = nk.create("router", 4, 6, top_k=2)
    with pytest.raises(ValueError, match="build it with selection_bias=True"):
        router.balance(router(torch.zeros(2, 4))[1])
