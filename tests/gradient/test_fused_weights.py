"""Parts of fused weights: seen by what models do with them, and stepped as matrices of their own."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.gradient._matrices import in_blocks
from normkit.gradient._parts import Parts
from normkit.optional import let_torchvision_load

let_torchvision_load()
SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 48, "max_position_embeddings": 32}
GROUPED = {**SMALL, "num_key_value_heads": 2}
SPARSE, FULL = {**GROUPED, "head_dim": 8, "num_experts_per_tok": 2}, ["full_attention"] * 2
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
THREE = {"vocab_size": 50, "n_layer": 1, "n_head": 4}
QKV, GATED = ("Q", "K", "V"), ("gate", "up")
# config, model, its settings; of weights by the ends of their names: labels, heights, repeats, axis
FAMILIES = {
    "gpt2": (
        ("GPT2Config", "GPT2LMHeadModel", {**THREE, "n_embd": 32, "n_positions": 32}),
        {"attn.c_attn.weight": (QKV, (32, 32, 32), 1, -1)},
    ),
    "phi3": (
        ("Phi3Config", "Phi3ForCausalLM", {**GROUPED, "pad_token_id": 0}),
        {"qkv_proj.weight": (QKV, (32, 16, 16), 1, -2), "gate_up_proj.weight": (GATED, (48, 48), 1, -2)},
    ),
    "gpt-neox": (
        ("GPTNeoXConfig", "GPTNeoXForCausalLM", SMALL),
        {"query_key_value.weight": (QKV, (8, 8, 8), 4, -2)},
    ),
    "falcon": (
        ("FalconConfig", "FalconForCausalLM", {**SMALL, "num_hidden_layers": 1}),
        {"query_key_value.weight": (QKV, (32, 8, 8), 1, -2)},
    ),
    "falcon-40b": (
        ("FalconConfig", "FalconForCausalLM", {**SMALL, "new_decoder_architecture": True, "num_kv_heads": 2}),
        {"query_key_value.weight": (QKV, (16, 8, 8), 2, -2)},
    ),
    "bloom": (
        ("BloomConfig", "BloomForCausalLM", {**THREE, "hidden_size": 32}),
        {"query_key_value.weight": (QKV, (8, 8, 8), 4, -2)},
    ),
    "mixtral": (
        ("MixtralConfig", "MixtralForCausalLM", {**GROUPED, "num_local_experts": 3}),
        {"experts.gate_up_proj": (GATED, (48, 48), 1, -2), "k_proj.weight": (("K",), (16,), 1, -2)},
    ),
    "qwen3-moe": (
        ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**SPARSE, "num_experts": 4, "moe_intermediate_size": 24}),
        {"experts.gate_up_proj": (GATED, (24, 24), 1, -2)},
    ),
    "modernbert": (
        ("ModernBertConfig", "ModernBertForMaskedLM", {**SMALL, **ENDS}),
        {"attn.Wqkv.weight": (QKV, (32, 32, 32), 1, -2), "mlp.Wi.weight": (GATED, (48, 48), 1, -2)},
    ),
    "gpt-oss": (
        ("GptOssConfig", "GptOssForCausalLM", {**SPARSE, "num_local_experts": 4, "layer_types": FULL}),
        {"experts.gate_up_proj": (GATED, (1, 1), 48, -1)},
    ),
    "mpt": (
        ("MptConfig", "MptForCausalLM", {"vocab_size": 50, "d_model": 32, "n_heads": 4, "n_layers": 1}),
        {"attn.Wqkv.weight": (QKV, (32, 32, 32), 1, -2)},
    ),
    "starcoder": (
        ("GPTBigCodeConfig", "GPTBigCodeForCausalLM", {**THREE, "n_embd": 32, "n_positions": 32}),
        {"attn.c_attn.weight": (QKV, (32, 8, 8), 1, -2)},
    ),
    "glm4": (
        ("Glm4Config", "Glm4ForCausalLM", {**GROUPED, "head_dim": 8, "pad_token_id": 0}),
        {"gate_up_proj.weight": (GATED, (48, 48), 1, -2), "v_proj.weight": (("V",), (16,), 1, -2)},
    ),
    "llama": (
        ("LlamaConfig", "LlamaForCausalLM", GROUPED),
        {"gate_proj.weight": (("gate",), (48,), 1, -2), "up_proj.weight": (("up",), (48,), 1, -2)},
    ),
}


def built(name):
    transformers = pytest.importorskip("transformers")
    (config, model, settings), wanted = FAMILIES[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**settings)), wanted


def cut(weight, heights, repeats, axis):
    """The parts of a weight, by its layout alone."""
    labels = torch.tensor(list(itertools.chain(*([i] * height for i, height in enumerate(heights)))) * repeats)
    return [weight.index_select(axis, (labels == i).nonzero().flatten()) for i in range(len(heights))]


def agrees_with_separate_matrices(groups, wanted):
    """Step fused weights in their groups, and their parts as parameters of their own, which must move alike."""
    optimizer = nk.Muon(groups, lr=0.1, weight_decay=0.1, ns_dtype=None)
    apart = {name: [nn.Parameter(x.clone()) for x in cut(p.detach(), *layout)] for name, (p, layout) in wanted.items()}
    others = nk.Muon(list(itertools.chain(*apart.values())), lr=0.1, weight_decay=0.1, ns_dtype=None)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        for name, (p, layout) in wanted.items():
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)
            for part, grad in zip(apart[name], cut(p.grad, *layout), strict=True):
                part.grad = grad.clone()
        optimizer.step(), others.step()
    for name, (p, layout) in wanted.items():
        for part, own in zip(apart[name], cut(p.detach(), *layout), strict=True):
            torch.testing.assert_close(own, part.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_divided_by_what_it_does_and_steps_as_separate_matrices(name):
    model, wanted = built(name)
    groups = nk.param_groups(model, "muon")
    model.double()  # some sparse products are for float32 alone
    weights = {}
    for end, (labels, heights, repeats, axis) in wanted.items():
        (key,) = [key for key in groups.parts if key.endswith(end) and (".0." in key)]
        parts = groups.parts[key]
        assert (parts.labels, parts.heights, parts.repeats, parts.axis) == (labels, heights, repeats, axis)
        assert parts.why == "data flow"
        weight = model.get_parameter(key)
        assert parts.experts == (len(weight) if weight.dim() == 3 else 0)
        weights[key] = weight, (heights, repeats, axis)
    agrees_with_separate_matrices(groups, weights)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"fused_attn": False}])
def test_the_vit_of_timm(options):
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", depth=1, embed_dim=32, num_heads=4, img_size=32, num_classes=5)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = options.get("fused_attn", True)
    parts = nk.param_groups(model, "muon").parts["blocks.0.attn.qkv.weight"]
    assert str(parts) == "Q 32 (4 heads) | K 32 (4 heads) | V 32 (4 heads); data flow"


def test_torchs_attention():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1).double()
    groups = nk.param_groups(model, "muon")
    agrees_with_separate_matrices(groups, {"in": (model.layers[0].self_attn.in_proj_weight, ((16, 16, 16), 1, -2))})
    assert groups.parts["layers.0.self_attn.in_proj_weight"].why == "MultiheadAttention"


class Own(nn.Module):
    """Attention with an order, a rotation of half of each head and names of its own, and a rectified gate."""

    def __init__(self, fused=True, dim=8, heads=2):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.first, self.second = nn.Linear(dim, 3 * dim), nn.Linear(dim, 4 * dim)
        self.out, self.down = nn.Linear(dim, dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        v, k, q = self.first(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        q, k = (torch.cat([y[..., 2:].cos() + y[..., 2:], y[..., :2]], -1) for y in (q, k))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.mT).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        up, gate = self.second(x).chunk(2, -1)
        return x + self.down(up * gate.relu())


@pytest.mark.parametrize("fused", [True, False])
def test_a_model_of_ones_own_by_its_features(fused):
    torch.manual_seed(0)
    model = Own(fused)
    state, noise = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    parts = nk.param_groups(model.train(), "muon").parts
    assert parts["first.weight"].labels == ("V", "K", "Q")
    assert parts["first.weight"].heads == (2, 2, 2)
    assert parts["second.weight"].labels == ("up", "gate")
    assert set(parts) == {"first.weight", "second.weight"}
    assert model.training
    assert torch.equal(torch.get_rng_state(), noise)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert nk.param_groups(model, "muon", inputs=[torch.randn(1, 20, 8)]).parts == parts


def test_parts_are_seen_within_inference_mode_as_outside_of_it():
    model = nn.Sequential(nn.LayerNorm(8), Own())
    wanted = nk.param_groups(model, "muon")
    decay = {"input gain": 0.1}
    by_inputs = nk.param_groups(model, "muon", inputs=torch.randn(1, 20, 8), weight_decay=decay)
    with torch.inference_mode():
        assert str(nk.param_groups(model, "muon")) == str(wanted)
        assert str(nk.param_groups(model, "muon", inputs=torch.randn(1, 20, 8), weight_decay=decay)) == str(by_inputs)


def test_a_gate_that_is_closed_for_every_token_is_a_gate():
    model = Own()
    for seed in range(3):  # a quarter of the gates is negative at both tokens
        torch.manual_seed(seed)
        parts = nk.param_groups(model, "muon", inputs=[torch.randn(1, 2, 8)]).parts
        assert parts["second.weight"].labels == ("up", "gate")


class ByKeyword(nn.Module):
    """Attention whose fused weight is a keyword of its product."""

    def __init__(self, product):
        super().__init__()
        self.product, self.first, self.fused = product, nn.Linear(8, 8), nn.Linear(8, 24)
        self.out, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.product(self.first(x).flatten(0, 1), self.fused.weight).chunk(3, -1)
        return self.last(self.out((q @ k.mT).softmax(-1) @ v))


@pytest.mark.parametrize(
    "product", [lambda x, w: F.linear(x, weight=w), lambda x, w: torch.addmm(x.new_zeros(24), x, mat2=w.mT)]
)
def test_a_weight_that_is_given_by_its_keyword_is_divided_too(product):
    parts = nk.param_groups(ByKeyword(product), "muon").parts
    assert parts["fused.weight"].labels == ("Q", "K", "V")


@pytest.mark.parametrize(
    "parts, words",
    [
        (Parts(("Q",), (4,), axis=-1), "Q 4; data flow"),
        (Parts(("Q", "K"), (4, 2), repeats=2), "Q 4 | K 2, 2 times; data flow"),
        (
            Parts(GATED, (8, 8), axis=-1, heads=(1, 2), experts=1),
            "gate 8 | up 8 (2 heads), columns, 1 experts; data flow",
        ),
    ],
)
def test_parts_are_written_with_all_that_is_known_of_them(parts, words):
    assert str(parts) == words


def test_heads_are_parts_where_that_is_wanted():
    groups = nk.param_groups(Own(), "muon", by_heads=True)
    settings = {(group.get("blocks"), group.get("block_repeats")) for group in groups if group.get("use_muon")}
    assert settings == {((4,), "split"), ((16, 16), None), (None, None)}


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x, wanted_by_no_one_else):
        return self.out(self.qkv(x)[..., :8])


def test_what_no_run_shows_goes_by_its_name_and_the_table_says_so():
    groups = nk.param_groups(Named(), "muon")
    assert "Q 8 | K 8 | V 8; by its name only" in str(groups)
    assert groups[0]["blocks"] == (8, 8, 8)
    assert nk.param_groups(Named(), "muon", blocks=False).parts == {}


def test_a_name_says_nothing_against_the_shape():
    model = Named()
    model.qkv = nn.Linear(8, 16)
    assert nk.param_groups(model, "muon").parts == {}
    model.qkv = nn.Module()
    model.qkv.weight = nn.Parameter(torch.ones(8, 24))
    assert nk.param_groups(model, "muon").parts["qkv.weight"].axis == -1


def test_blocks_that_a_user_knows_and_those_that_do_not_divide():
    groups = nk.param_groups(Named(), "muon", blocks={"qkv.*": (16, 4, 4)})
    assert groups[0]["blocks"] == (16, 4, 4)
    assert "part 1 16 | part 2 4 | part 3 4; as given" in str(groups)
    with pytest.raises(ValueError, match=r"\[7, 7\] rows do not divide qkv.weight of shape \(24, 8\)"):
        nk.param_groups(Named(), "muon", blocks={"qkv.*": (7, 7)})
    with pytest.raises(ValueError, match="fits no matrix"):
        nk.param_groups(Named(), "muon", blocks={"nowhere": (8,)})
    with pytest.raises(ValueError, match=r"blocks of \[5\] columns do not divide"):
        nk.Muon([nn.Parameter(torch.ones(5, 8))], blocks=(5,), block_axis="columns")


def test_others_get_no_blocks():
    assert nk.param_groups(Own(), "adamw").parts == {}
    assert all("blocks" not in group for group in nk.param_groups(Own(), "normuon"))


def test_a_module_is_a_pattern_as_it_is_for_roles():
    groups = nk.param_groups(Named(), "muon", blocks={"qkv": (16, 4, 4)}, override={"out": "vector"})
    assert groups[0]["blocks"] == (16, 4, 4)


@pytest.mark.parametrize(
    "options, name",
    [({"blocks": 5}, "blocks"), ({"by_heads": "no"}, "by_heads"), ({"blocks": {"qkv*": 8}}, r"blocks\['qkv\*'\]")],
)
def test_wrong_blocks_are_named(options, name):
    with pytest.raises(TypeError, match=f"param_groups: {name} must be"):
        nk.param_groups(Named(), "muon", **options)


def test_blocks_of_a_stack_are_those_of_each_of_its_matrices():
    stack = torch.randn(3, 10, 4, dtype=torch.float64)
    done = in_blocks(stack, [2, 3], False, lambda x: x.cumsum(-2))
    assert torch.equal(done, torch.stack([in_blocks(one, [2, 3], False, lambda x: x.cumsum(-2)) for one in stack]))
