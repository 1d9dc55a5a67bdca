"""Routers and connections of residual streams are found by what they compute, and what is almost one is not."""

import copy
import importlib
import threading

import near_misses_adaptive
import near_misses_altup
import near_misses_gates
import near_misses_maps
import near_misses_modulated
import near_misses_routers
import pytest
import torch
from torch import nn

import normkit as nk
from normkit.optional import let_torchvision_load
from normkit.surgery.recognition import altup, wholes
from normkit.surgery.recognition.wholes import examine_whole

LISTS = (near_misses_routers, near_misses_gates, near_misses_adaptive, near_misses_modulated, near_misses_altup)
LISTS += (near_misses_maps,)
NEAR = {name: cls for one in LISTS for name, cls in one.NEAR.items()}
TRUE = near_misses_routers.TRUE


def made(cls):
    torch.manual_seed(0)
    return cls()


@pytest.mark.parametrize("name", NEAR)
def test_what_is_almost_one_is_none(name):
    assert len(NEAR) == sum(len(one.NEAR) for one in LISTS)
    found = examine_whole(made(NEAR[name]))
    assert found is None, found


@pytest.mark.parametrize("name", TRUE)
def test_each_is_found_with_its_arguments_and_numbers(name):
    cls, method, wanted = TRUE[name]
    module = made(cls)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    match = nk.recognize(module)
    assert match.name == method
    assert {key: match.kwargs[key] for key in wanted} == wanted
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert max(match.error.values()) < 2e-4
    x = torch.randn(2, 5, *((near_misses_routers.STREAMS,) if "mhc" in method else ()), near_misses_routers.DIM)
    if hasattr(module, "table"):
        numbers = torch.randint(50, (2, 5))
        module.table.copy_(torch.rand(50, near_misses_routers.EXPERTS).topk(2, -1).indices)
        theirs = module(x, numbers)
        ours = match.module.weigh(x, module.table[numbers]), module.table[numbers]
    else:
        theirs, ours = module(x), match.module(x)
    if method == "router":
        rows = torch.zeros(10, near_misses_routers.EXPERTS)
        want = rows.scatter(-1, ours[1].flatten(0, 1), ours[0].flatten(0, 1))
        if wanted.get("shared"):  # theirs return the weights of the shared by themselves
            _, weights, at, last = theirs
            theirs = torch.cat([weights, last], -1), torch.cat([at, torch.tensor([4, 5]).expand(10, 2)], -1)
        weights = theirs[-2].reshape(10, -1)
        at = theirs[-1].reshape(10, -1)
        got = weights if weights.shape == want.shape else rows.scatter(-1, at, weights)
        torch.testing.assert_close(got, want)
    elif method == "mhc":
        read, mix, write = ours
        mixed = (theirs[1], mix) if wanted["iterations"] else ((read.unsqueeze(-1) * x).sum(-2), theirs[1])
        torch.testing.assert_close((theirs[0], mixed[0]), (write, mixed[1]))
    else:
        torch.testing.assert_close(theirs, ours)


def test_a_linear_map_or_one_of_ours_is_none():
    assert examine_whole(nn.Linear(8, 6)) is None
    assert examine_whole(nk.create("router", 8, 6, top_k=2)) is None
    with torch.device("meta"):
        assert examine_whole(near_misses_routers.Router()) is None


@pytest.mark.parametrize("most, looked_at", [(30, True), (29, False)])
def test_updates_of_a_large_model_or_without_numbers_are_not_copied(most, looked_at, monkeypatch):
    monkeypatch.setattr(altup, "MOST", most)
    assert altup.may_be(made(near_misses_altup.Updates)) is looked_at
    with torch.device("meta"):
        assert not altup.may_be(near_misses_altup.Updates())


def test_three_matrices_of_which_none_predicts_are_no_updates():
    part = made(near_misses_altup.Updates)
    part.prediction_coefs = nn.Linear(near_misses_altup.STREAMS, near_misses_altup.STREAMS**2 + 1, bias=False)
    assert not altup.may_be(part)


CLASSES = {
    "mixtral.MixtralTopKRouter": ("router", {"score": "softmax", "renormalize": True}),
    "qwen2_moe.Qwen2MoeTopKRouter": ("router", {"score": "softmax", "renormalize": False}),
    "deepseek_v4.DeepseekV4TopKRouter": ("router", {"score": "sqrt-softplus", "selection_bias": True, "scale": 1.5}),
    "gpt_oss.GptOssTopKRouter": ("router", {"bias": True, "renormalize": True}),
    "deepseek_v4.DeepseekV4HyperConnection": ("mhc", {"streams": 4, "iterations": 20, "eps": 1e-6}),
    "deepseek_v4.DeepseekV4HyperHead": ("mhc-head", {"streams": 4, "eps": 1e-6}),
}


@pytest.fixture(scope="module")
def transformers():
    let_torchvision_load()
    return pytest.importorskip("transformers")


@pytest.mark.parametrize("name", CLASSES)
def test_transformers_own_are_found(transformers, name):
    model, cls = name.split(".")
    modeling = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    names = [key for key in vars(modeling) if key.endswith("Config") and key != "PreTrainedConfig"]
    config = getattr(modeling, names[0])(hidden_size=16)
    method, wanted = CLASSES[name]
    match = nk.recognize(getattr(modeling, cls)(config))
    assert match.name == method
    assert {key: match.kwargs[key] for key in wanted} == wanted


def test_a_model_s_table_has_its_routers_and_streams(transformers):
    sizes = {"vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
    sizes |= {"moe_intermediate_size": 12, "n_routed_experts": 6, "num_experts_per_tok": 2, "q_lora_rank": 7}
    sizes |= {"partial_rotary_factor": 0.5, "o_groups": 2, "o_lora_rank": 5, "hc_mult": 3, "num_key_value_heads": 1}
    config = transformers.DeepseekV4Config(
        **sizes, layer_types=["sliding_attention"] * 2, mlp_layer_types=["hash_moe", "moe"]
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    found = {site: match.name for site, match in nk.recognize(model).found.items()}
    want = {f"model.layers.{i}.{part}": "mhc" for i in range(2) for part in ("attn_hc", "ffn_hc")}
    want |= {"model.hc_head": "mhc-head", "model.layers.0.mlp.gate": "router"}
    want |= {"model.layers.1.mlp.gate": "router"}
    assert {site: name for site, name in found.items() if name in ("router", "mhc", "mhc-head")} == want


def test_what_acts_on_norms_leaves_routers_alone(transformers):
    sizes = {"vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.MixtralConfig(**sizes, num_key_value_heads=2, intermediate_size=12, num_local_experts=4)
    model = transformers.AutoModelForCausalLM.from_config(config)
    routers = [name for name, match in nk.recognize(model).found.items() if match.name == "router"]
    report = nk.swap(model, "layernorm")
    assert routers == [f"model.layers.{i}.mlp.gate" for i in range(2)]
    assert not set(routers) & {change.site for change in report.done}
    assert len(report.done) == 5
    assert {type(model.get_submodule(name)).__name__ for name in routers} == {"MixtralTopKRouter"}


class OwnLinear(nn.Linear):
    """With a forward of its own."""

    def forward(self, x):
        return x @ self.weight.mT + self.bias


def test_linears_are_not_copied_and_a_kind_is_looked_at_once(monkeypatch):
    looks = []
    monkeypatch.setattr(wholes, "redraw", lambda module: looks.append(type(module)) or copy.deepcopy(module).double())
    layers = [nn.Linear(8, 8), nn.Embedding(9, 8), *(OwnLinear(8, 8) for _ in range(4)), OwnLinear(8, wholes.ROWS + 1)]
    assert not nk.recognize(nn.Sequential(*layers)).found
    assert looks == [OwnLinear]


def test_a_sharded_router_is_left_alone():
    class Sharded(torch.Tensor):
        """As a DTensor is, a subclass of what a copy in float64 would be."""

    router = made(next(cls for cls, method, _ in TRUE.values() if method == "router"))
    for part in router.modules():
        for name, weight in part._parameters.items():
            if weight is not None and weight.dim() == 2:
                part._parameters[name] = nn.Parameter(weight.detach().as_subclass(Sharded))
    assert examine_whole(router) is None
    assert not nk.recognize(nn.Sequential(router)).found


def test_a_router_that_cannot_be_copied_is_left_alone():
    router = made(next(cls for cls, method, _ in TRUE.values() if method == "router"))
    router.lock = threading.Lock()
    assert not nk.recognize(nn.Sequential(router)).found


def test_a_router_that_raises_when_its_settings_are_read_is_left_alone():
    cls = next(cls for cls, method, _ in TRUE.values() if method == "router")

    class Broken(cls):
        @property
        def config(self):
            raise RuntimeError("read before it was set")

    model = nn.Sequential(made(Broken), nn.LayerNorm(8))
    assert [*nk.recognize(model).found] == ["1"]
