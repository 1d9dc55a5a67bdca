"""What a parameter is, read off modules, and the groups that optimizers get by it."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import normkit as nk
from normkit.parameters import buffers_apart, hidden_matrices, is_norm, roles
from sizes import calls


def told(model, *inputs, **options):
    return {row.name: row.role for row in roles(model, *inputs, **options)}


class Block(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim), nn.LayerNorm(dim)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Language(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.tokens, self.places = nn.Embedding(9, 4), nn.Parameter(torch.randn(1, 6, 4))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 9, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places[:, : tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_a_tied_head_is_an_embedding_and_no_other_matrix_becomes_the_head():
    tied, apart = told(Language(True)), told(Language(False))
    assert tied["tokens.weight"] == "embedding"
    assert "head.weight" not in tied
    assert tied["blocks.1.down.weight"] == "matrix"
    assert apart["head.weight"] == "head"
    assert tied["places"] == "embedding"
    assert {p.shape for p in hidden_matrices(Language(True))} == {(8, 4), (4, 8)}
    assert len(hidden_matrices(nk.Decoder(vocab=16, dim=8, depth=2, heads=2, tied=True))) % 2 == 0


@pytest.mark.parametrize("depth", [1, 2])
def test_a_stack_without_a_head_has_none_however_few_its_layers(depth):
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), depth)
    assert not roles(nk.Encoder(vocab=9, dim=8, depth=depth, heads=2)).of("head")
    assert not roles(stack).of("head")


def test_the_layers_of_a_list_may_have_names():
    head = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 4))
    model = nn.Sequential(OrderedDict(net=nn.Sequential(OrderedDict(body=nn.Linear(8, 8), head=head))))
    assert told(model)["net.head.1.weight"] == "head"


def test_inputs_show_the_head_and_what_has_no_length():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
    before = [b.clone() for b in model.buffers()]
    found = {row.name: row for row in roles(model, torch.randn(6, 3, 4, 4))}
    assert [b.tolist() for b in before] == [b.tolist() for b in model.buffers()]
    assert found["0.weight"].scale_invariant is True
    assert found["0.weight"].role == "conv"
    assert found["4.weight"].scale_invariant is False
    assert found["4.weight"].role == "head"
    assert found["1.weight"].role == "gain"
    features = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4))  # its output is no matrix' own
    assert "head" in told(features).values()
    assert roles(features, torch.randn(3, 4))[2].scale_invariant is False  # its bias has a length
    bare = nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm(4))
    assert roles(bare, torch.randn(3, 4))[0].scale_invariant is True
    assert roles(nn.Sequential(*bare, nn.Linear(4, 2)))[0].scale_invariant is True
    assert roles(nn.Sequential(*features, nn.Linear(4, 2)))[2].scale_invariant is None


def test_inputs_show_it_under_inference_mode_and_nothing_of_frozen_weights_or_of_outputs_without_gradients():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm(4, elementwise_affine=False))
    classes = nn.Sequential(nn.Linear(4, 4), nn.Threshold(0.0, 0.0), nn.Linear(4, 2), Classes())
    with torch.inference_mode():
        x = torch.randn(3, 4)
        assert roles(model, x)[0].scale_invariant is True
        nk.param_groups(model, "muon", inputs=x, weight_decay={"input gain": 0.1})
    assert [row.scale_invariant for row in roles(classes, x)] == [None, False, False, False]
    assert roles(model.requires_grad_(False), x) == []


class Classes(nn.Module):
    def forward(self, x):
        return x.argmax(-1)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up, self.down = nn.Parameter(torch.randn(3, 4, 8)), nn.Parameter(torch.randn(3, 8, 4))


class ThinPair(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 5, bias=False).requires_grad_(False)
        self.one, self.other = nn.Linear(6, 2, bias=False), nn.Linear(2, 5, bias=False)


class BareThinPair(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.base = layer.requires_grad_(False)
        large, small = layer.weight.shape
        self.one, self.other = nn.Parameter(torch.randn(2, small)), nn.Parameter(torch.zeros(large, 2))


class Prompts(nn.Module):
    """Two parameters of one shape, and one that would make a thin pair with the weight of another layer."""

    def __init__(self):
        super().__init__()
        self.layer, self.rows = nn.Linear(6, 6).requires_grad_(False), nn.Linear(4, 6)
        self.places, self.one, self.other = (nn.Parameter(torch.randn(size, 6)) for size in (4, 2, 2))


class Foreign(nn.Module):
    """A norm of no library that is known."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.scale)


class LayerScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((4,), 0.1))

    def forward(self, x):
        return x * self.gamma


class CosineLayer(nn.Module):
    """Whose output does not grow with its input either, but which mixes features."""

    def __init__(self, **own):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))
        for name, sizes in own.items():
            self.register_parameter(name, nn.Parameter(torch.ones(sizes)))

    def forward(self, x):
        return nn.functional.normalize(x, dim=-1) @ self.weight


def test_stacks_thin_pairs_and_what_others_have_built():
    model = nn.ModuleDict(
        {
            "experts": Experts(),
            "pairs": nn.ModuleList(ThinPair() for _ in range(2)),
            "norm": Foreign(),
            "scale": LayerScale(),
            "attention": nn.MultiheadAttention(4, 2),
            "sphere": nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
            "dyt": nk.DyT(4),
        }
    )
    found = {row.name: row for row in roles(model)}
    assert {found["experts.gate_up"].role, found["experts.down"].role} == {"experts"}
    assert found["pairs.1.one.weight"].role == found["pairs.1.other.weight"].role == "lora"
    assert "pairs.0.base.weight" not in found
    assert (found["norm.scale"].role, found["scale.gamma"].role) == ("gain", "vector")
    assert found["attention.in_proj_weight"].role == "matrix"
    assert found["attention.in_proj_bias"].role == "bias"
    assert found["sphere.parametrizations.weight.original1"].scale_invariant is True
    assert found["dyt.weight"].role == "gain"
    assert is_norm(Foreign())
    assert not is_norm(LayerScale())
    assert not is_norm(nn.PReLU(4))
    assert not is_norm(CosineLayer())
    assert not is_norm(CosineLayer(scale=4, bias=4))


def test_thin_pairs_without_layers_of_their_own_are_lora_and_prompts_are_embeddings():
    model = nn.Sequential(*map(BareThinPair, (nn.Linear(6, 5), nn.Linear(6, 6), nn.Embedding(9, 6))), Prompts())
    found = told(model)
    assert [found[f"{i}.{name}"] for i in range(3) for name in ("one", "other")] == ["lora"] * 6
    assert [found[f"3.{name}"] for name in ("places", "one", "other")] == ["embedding"] * 3
    assert found["3.rows.weight"] == "head"
    matrices = [p for group in nk.param_groups(model, "muon") if group["use_muon"] for p in group["params"]]
    assert {*map(id, matrices)} == {id(p) for i in range(3) for p in (model[i].one, model[i].other)}


@pytest.mark.parametrize("weight_norm", [nn.utils.parametrizations.weight_norm, nn.utils.weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_the_lengths_of_torchs_weight_norms_are_no_matrices(weight_norm):
    """Of a linear they are a column, of a kernel they have as many axes as it."""
    kernel = nn.Conv2d(3, 4, 2)
    model = nn.Sequential(weight_norm(kernel), weight_norm(nn.Linear(4, 4)), weight_norm(nn.Linear(4, 9)))
    groups = nk.param_groups(model, "muon", weight_decay=0.1)
    roles = {row.name: row.role for row in groups.roles}
    assert [roles[name] for name in roles if name.endswith(("original0", "_g"))] == ["vector"] * 3
    assert [roles[name] for name in roles if name.endswith(("original1", "_v"))] == ["conv", "matrix", "head"]
    resting = {id(p) for group in groups if not group["weight_decay"] for p in group["params"]}
    assert sum(id(p) in resting for name, p in model.named_parameters() if name.endswith(("original0", "_g"))) == 3
    matrices = [p.shape for group in groups if group["use_muon"] for p in group["params"]]
    assert sorted(map(tuple, matrices)) == [(4, 3, 2, 2), (4, 4)]


@pytest.mark.parametrize("name", ["muon", "kl-soap", "sinkgd", "swan", "rmnp", "conda"])
def test_optimizers_of_matrices_get_no_table_no_head_and_no_kernel_that_they_would_take_for_a_stack(name):
    model = nn.Sequential(
        nn.Embedding(9, 4), nn.Conv1d(4, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3, groups=4), nn.Linear(4, 4)
    )
    model.append(nn.Linear(4, 9))
    groups = nk.param_groups(model, name)
    others = {"use_muon": False, "use_adam": True, "update_proj_gap": None}
    held = [
        p for group in groups if not any(group.get(k, ...) is v for k, v in others.items()) for p in group["params"]
    ]
    wanted = [model[2].weight, model[4].weight]
    assert {id(p) for p in held if p.dim() > 1} == {id(p) for p in wanted}


def test_a_user_overrules_by_name_class_and_parameter():
    model = Language(False)
    given = {"blocks.*.up.weight": "head", nn.LayerNorm: "vector", model.places: "vector"}
    found = told(model, override=given)
    assert found["blocks.0.up.weight"] == "head"
    assert found["places"] == "vector"
    assert found["blocks.1.norm.weight"] == "vector"
    with pytest.raises(ValueError, match="nowhere"):
        roles(model, override={"nowhere": "gain"})
    with pytest.raises(ValueError, match=r"must be one of matrix, .* not 'matrx'"):
        roles(model, override={"head.weight": "matrx"})


@pytest.mark.parametrize(
    "name", ["adamw", "muon", "normuon", "conda", "sinkgd", "swan", "adamp", "sgdp", "blockwise-lr", "agc", "grams"]
)
def test_every_optimizer_takes_its_groups_and_steps(name):
    torch.manual_seed(0)
    model = Language(True)
    groups = nk.param_groups(model, name, weight_decay=0.1)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    build = torch.optim.AdamW if name == "adamw" else lambda given: nk.create(name, given, lr=0.01)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = build(groups)
    model(torch.arange(6)[None]).square().sum().backward()
    optimizer.step()
    assert all(not torch.equal(p, q) for p, q in zip(before, model.parameters(), strict=True))
    gains = {id(row.parameter) for row in groups.roles if row.role in ("gain", "bias")}
    for group in optimizer.param_groups:
        assert (group["weight_decay"] == 0) == bool({id(p) for p in group["params"]} & gains)


def test_scion_shrinks_no_gains_and_nothing_else_that_must_not_decay():
    model = nk.Decoder(vocab=9, dim=8, depth=1, heads=2, bias=True, tied=False)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = nk.Scion(nk.param_groups(model, "scion", weight_decay={"embedding": 0.0}), lr=0.01)
    for _ in range(100):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
    for name, p in model.named_parameters():
        shrinks = p.dim() > 1 and not name.startswith("embedding")
        torch.testing.assert_close(p.detach(), before[name] * (0.99**100 if shrinks else 1), msg=name)


@pytest.mark.parametrize("name, own", [("scion", "unconstrained"), ("kl-soap", "shampoo_beta"), ("hyperball", "base")])
def test_a_decay_that_an_optimizer_does_not_have_is_refused(name, own):
    groups = nk.param_groups(Language(False), name, weight_decay=0.1)
    with pytest.raises(ValueError, match=rf"weight_decay=0\.1, which is not among its settings: .*{own}"):
        nk.create(name, groups, lr=0.01)
    nk.create(name, nk.param_groups(Language(False), name, weight_decay=0.0), lr=0.01)


@pytest.mark.parametrize("name", ["kl-soap", "hyperball"])
def test_groups_of_adam_decay_though_matrices_do_not(name):
    given = {"embedding": {"weight_decay": 0.5, "lr": 0.1}}
    model = Language(False)
    before = model.tokens.weight.detach().clone()
    optimizer = nk.create(name, nk.param_groups(model, name, settings=given), lr=0.01)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    torch.testing.assert_close(model.tokens.weight, before * 0.95)


def test_the_table_and_the_settings():
    groups = nk.param_groups(Language(False), "muon", settings={"embedding": {"lr": 1e-4}})
    assert [(g["use_muon"], g.get("lr")) for g in groups] == [(True, None), (False, 1e-4), (False, None), (False, None)]
    text = str(groups)
    assert "blocks.0.up.weight" in text
    assert "scale-invariant" in text
    assert "matrix: 4 tensors" in text
    assert nk.param_groups(Language(False), nk.Muon)[0]["use_muon"]
    with pytest.raises(ValueError, match="optimizer"):
        nk.param_groups(Language(False), "mouon")


def test_a_compiled_model_has_the_groups_of_the_plain_one_and_nothing_is_compiled_for_them():
    def refuse(*_):
        raise AssertionError("a part is compiled")

    model, tokens = nk.Decoder(vocab=9, dim=8, depth=1, heads=2), torch.arange(4)[None]
    compiled = torch.compile(model, backend=refuse)
    for options in ({}, {"inputs": [tokens], "weight_decay": {"input gain": 0.1}}):
        groups, plain = (nk.param_groups(one, "muon", **options) for one in (compiled, model))
        assert str(groups).replace("_orig_mod.", "").split() == str(plain).split()
    norm = torch.compile(Foreign(), backend=refuse)
    assert told(norm) == {"_orig_mod.scale": "gain"}


def test_a_tensor_is_the_only_input_and_no_list_of_its_rows():
    model, x = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2)), torch.randn(3, 4)
    assert str(nk.param_groups(model, "muon", inputs=x)) == str(nk.param_groups(model, "muon", inputs=[x]))


def test_projection_is_for_what_may_have_no_length_alone():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
    found = nk.param_groups(model, "adamp", inputs=(torch.randn(6, 3, 4, 4),))
    assert [g["roles"] for g in found if "delta" not in g] == [["conv"]]


def test_widths_are_scaled_for_matrices_alone():
    rule = nk.create("wd-scaling", 64, base_width=16, lr=0.02, weight_decay=0.1)
    matrix, rest = rule.param_groups(Language(True))
    assert (matrix["lr"], matrix["weight_decay"]) == (0.005, 0.2)
    assert (rest["lr"], rest["weight_decay"]) == (0.02, 0.0)
    assert len(matrix["params"]) == 4
    assert rule(torch.eye(4), name="gate")[0] == 0.005
    rule = nk.create("wd-scaling", 64, base_width=16, lr=0.02, weight_decay=0.1, vector_like=("gate", Block))
    assert rule(torch.eye(4), name="gate") == (0.02, 0.0, 0.0)


@pytest.mark.parametrize("vectors", ["1", ("1",), "1.weight", "1.*", nn.Bilinear])
def test_what_is_like_a_vector_is_so_by_its_modules_name_or_a_pattern_in_groups_and_alone(vectors):
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(4)))
    if vectors is nn.Bilinear:
        model[1] = nn.Bilinear(4, 4, 4, bias=False)
    rule = nk.create("wd-scaling", 64, base_width=16, lr=0.02, weight_decay=0.1, vector_like=vectors)
    matrices = [id(p) for p in rule.param_groups(model)[0]["params"]]
    assert [name for name, p in model.named_parameters() if id(p) in matrices] == ["0.weight", "2.weight"]
    if isinstance(vectors, str | tuple):
        assert [rule(torch.eye(4), name)[0] for name in ("0.weight", "1.weight")] == [0.005, 0.02]


def test_to_ask_what_parameters_are_moves_no_singular_vectors():
    model = nn.Sequential(spectral_norm(nn.Linear(8, 6)), nn.Linear(6, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    invariant = {row.name: row.scale_invariant for row in roles(model)}
    assert invariant["0.parametrizations.weight.original"] is True
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


@pytest.mark.parametrize("optimizer, inputs", [("muon", ()), ("adamw", torch.ones(4, 8))])
def test_to_ask_moves_no_buffer_that_a_model_assigns_anew(optimizer, inputs):
    model = Seen()
    nk.param_groups(model, optimizer, inputs=inputs)
    assert model.mean.tolist() == [0.0] * 8


class Seen(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean = x.detach().mean(0)
        return self.second(self.first(x))


def test_a_buffer_that_modules_share_is_one_while_it_is_apart():
    one, other = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    other.running_mean = one.running_mean
    with buffers_apart(nn.Sequential(one, other)):
        assert one.running_mean is other.running_mean


def test_to_ask_what_parameters_are_writes_into_no_weight():
    model = nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4))
    loss = model(torch.ones(2, 4)).sum()
    nk.param_groups(model)
    loss.backward()
    small = nn.Linear(4, 4)
    parametrize.register_parametrization(small, "weight", Small())
    assert roles(nn.Sequential(small, nn.Linear(4, 4)))[1].scale_invariant is None


class Small(nn.Module):
    def forward(self, weight):
        if weight.abs().max() > 0.5:
            raise ValueError("the weight is too large")
        return weight / weight.norm()

    def right_inverse(self, weight):
        return torch.full_like(weight, 0.4)


def test_spectral_norms_that_have_not_converged_are_scale_invariant():
    torch.manual_seed(0)
    layer = spectral_norm(nn.Linear(64, 64), n_power_iterations=1)
    nn.init.normal_(layer.parametrizations.weight[0]._u)  # as far from the singular vector as they can be
    assert roles(layer)[1].scale_invariant is True


def test_twice_the_layers_take_twice_the_work():
    few, many = (nn.Sequential(*(nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 2)) for _ in range(n))) for n in (40, 80))
    assert calls(nk.param_groups, many) < 2.2 * calls(nk.param_groups, few)


@pytest.mark.parametrize("wrong", [nn.Linear(2, 2).parameters(), [nn.Linear(2, 2)]])
def test_parameters_in_the_place_of_a_model_are_refused(wrong):
    with pytest.raises(TypeError, match=r"model must be a module, not (generator|list)"):
        nk.param_groups(wrong)
