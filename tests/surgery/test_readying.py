"""What rewritings need of a model: each yes is exact, each no has its reason, and the model stays as it was."""

import copy
import json
import re

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import cli
from normkit.optional import let_torchvision_load
from normkit.surgery.exact import readying

TOKENS = torch.randint(17, (2, 6), generator=torch.Generator().manual_seed(0))
SIZES = {"vocab": 17, "dim": 12, "depth": 2, "heads": 2, "hidden": 8}


@pytest.fixture(scope="module")
def transformers():
    let_torchvision_load()
    return pytest.importorskip("transformers")


def stirred(model):
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.3 * torch.randn(value.shape, generator=g))
    return model.eval()


def decoder(**more):
    torch.manual_seed(0)
    return stirred(nk.Decoder(**{**SIZES, "norm": "rmsnorm", "activation": "swiglu", "tied": False, **more}))


def reasons(found):
    return {need.site: need.why_not for need in found.missing}


def test_a_pre_norm_decoder_can_be_rotated_and_stays_as_it_was():
    model = decoder()
    before = copy.deepcopy(model.state_dict())
    found = nk.ready(model, "rotation", TOKENS)
    assert found
    assert all(need.difference <= 1e-9 for need in found)
    assert [need.site for need in found[:-1]] == [name for name, part in model.named_modules() if "norm" in name]
    assert found[-1].needs == "a stream rotated in 5 writers and 9 readers"
    assert str(found).endswith("rotation: ready")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_table_of_positions_that_is_a_buffer_is_rotated_too():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.randn(6, 8))

        def forward(self, x):
            return x + self.table

    model = nn.Sequential(nn.Embedding(17, 8), Positions(), nn.RMSNorm(8), nn.Linear(8, 17)).eval()
    assert nk.ready(model, "rotation", TOKENS)[-1].needs == "a stream rotated in 2 writers and 1 reader"


def test_a_rotation_that_is_left_out_somewhere_is_no_yes(monkeypatch):
    monkeypatch.setattr(readying, "_rotate_writer", lambda name, layer, turn: layer)
    found = nk.ready(decoder(), "rotation", TOKENS)
    assert not found
    assert found[-1].difference > 1e-3
    assert found[-1].why_not == "once done, results differ"


def test_gains_that_are_lost_on_the_way_to_a_rotation_are_no_yes(monkeypatch):
    fold = readying.fold

    def lose(*given, **options):
        report = fold(*given, **options)
        with torch.no_grad():
            next(report.model.parameters()).mul_(2)
        return report

    monkeypatch.setattr(readying, "fold", lose)
    assert any(
        need.needs == readying.GAINS and need.difference > 1e-3
        for need in nk.ready(decoder(), "rotation", TOKENS).missing
    )


def test_a_batch_norm_that_is_folded_away_reads_no_stream():
    behind = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)
    model = stirred(nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), *behind))
    found = nk.ready(model, "rotation", torch.randn(5, 6))
    assert found
    assert [(need.site, need.needs) for need in found][1:] == [
        ("1", readying.GAINS),
        ("3", readying.GONE),
        ("", "a stream rotated in 1 writer and 1 reader"),
    ]
    without = nk.ready(model[2:].eval(), "rotation", torch.randn(5, 8))
    assert [need.why_not for need in without] == [None, "no norm reads it"]


class Beside(nn.Module):
    """A stream that a linear map reads beside a norm."""

    def __init__(self):
        super().__init__()
        self.up, self.norm, self.head, self.raw = nn.Linear(4, 6), nn.RMSNorm(6), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x):
        h = self.up(x)
        return self.head(self.norm(h)) + self.raw(h)


def test_a_stream_that_is_read_beside_its_norm_is_an_unmet_need():
    need = nk.ready(Beside().eval(), "rotation", torch.randn(5, 4))[0]
    assert (need.site, need.needs, need.ready) == ("norm", "a stream that norms alone read", False)
    assert need.why_not.startswith("raw reads the residual stream without a layer norm")


class Shared(Beside):
    """A norm whose result goes into a sum beside a linear map."""

    def forward(self, x):
        y = self.norm(self.up(x))
        return self.head(y) + y[..., :4]


def test_a_gain_that_a_sum_reads_too_is_an_unmet_need():
    model = Shared().eval()
    nn.init.normal_(model.norm.weight)
    need = nk.ready(model, "rotation", torch.randn(5, 4))[0]
    assert (need.site, need.needs, need.ready, need.why_not) == ("norm", readying.GAINS, False, "it is read by add")


class Clip(nn.LayerNorm):
    """CLIP's norm, which computes in float32 whatever the model's type."""

    def forward(self, x):
        return super().forward(x.type(torch.float32)).type(x.dtype)


def test_a_norm_that_knows_no_float64_is_no_obstacle():
    found = nk.ready(stirred(nn.Sequential(nn.Embedding(17, 6), Clip(6), nn.Linear(6, 4))), "rotation", TOKENS)
    assert found
    assert [need.site for need in found] == ["1", "1", ""]
    assert all(need.difference <= 1e-9 for need in found)


class Denoiser(nn.Module):
    """A stream that begins with an embedding of the time that is float32 in every type."""

    def __init__(self):
        super().__init__()
        self.time, self.up, self.norm, self.head = nn.Linear(6, 6), nn.Linear(4, 6), nn.RMSNorm(6), nn.Linear(6, 4)

    def forward(self, x, t):
        angles = t[:, None].float() / torch.arange(1, 4, dtype=torch.float32)
        return self.head(self.norm(self.up(x) + self.time(torch.cat([angles.cos(), angles.sin()], -1))))


def test_a_model_that_makes_float32_itself_is_no_obstacle():
    torch.manual_seed(0)
    model, example = stirred(Denoiser()), (torch.randn(5, 4), torch.arange(5))
    needs = nk.ready(model, "rotation", example)
    assert needs
    assert needs[1].needs == "a stream rotated in 2 writers and 1 reader"
    assert all(need.difference <= 1e-9 for need in needs)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt2 untied"])
def test_models_of_transformers_are_rotated(transformers, name):
    marks = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    if name == "llama":
        sizes = {"hidden_size": 12, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = transformers.LlamaConfig(vocab_size=17, **sizes, **marks)
    else:
        sizes = {"n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 16, "tie_word_embeddings": name == "gpt2"}
        config = transformers.GPT2Config(vocab_size=17, **sizes, **marks)
    model = stirred(transformers.AutoModelForCausalLM.from_config(config))
    found = nk.ready(model, "rotation")
    assert found, str(found)
    assert found[-1].difference <= 1e-9
    assert any("RMS norm" in need.needs for need in found) is (name != "llama")
    assert any("weight of its own" in need.needs for need in found) is (name == "gpt2")


@pytest.mark.parametrize(
    "arguments, why",
    [
        ({"placement": "post-norm"}, "no norm reads it|norm"),
        ({"placement": "peri-norm"}, "_norm, a norm, writes to it"),
        ({"norm": "dyt"}, "once done, results differ"),
    ],
)
def test_what_stands_in_the_way_of_a_rotation(arguments, why):
    found = nk.ready(decoder(**arguments), "rotation", TOKENS)
    assert not found
    assert any(re.search(why, str(need.why_not)) for need in found.missing), str(found)


def test_four_bits_want_hadamard_matrices():
    found = nk.ready(decoder(), "int4", TOKENS)
    assert found, str(found)
    spread = [need.site for need in found if "Hadamard" in need.needs]
    assert spread == [f"layers.{i}.{part}" for i in range(2) for part in ("attention.output", "feedforward.down")]
    found = nk.ready(decoder(hidden=6), "int4", TOKENS)
    why = "no matrix of order 6 is built; the nearest that are: 4 and 8"
    assert reasons(found) == {f"layers.{i}.feedforward.down": why for i in range(2)}
    mixture = decoder(feedforward="moe", router="router:experts=4,top_k=2")
    assert reasons(nk.ready(mixture, "int4", TOKENS))["layers.0.feedforward.up.weight"] == "it is a tensor of its own"


def test_norms_that_can_go_and_one_that_cannot():
    torch.manual_seed(0)
    exact = {"eps": 0.0, "elementwise_affine": False}
    model = nn.Sequential(
        *(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.RMSNorm(8, **exact), nn.Linear(8, 8, bias=False)),
        *(nn.RMSNorm(8, **exact), nn.Linear(8, 4)),
    )
    model(torch.randn(32, 8) + 1)
    found = nk.ready(model.eval(), "no-norms", torch.randn(5, 8))
    assert [(need.site, need.ready) for need in found] == [("1", True), ("3", True), ("5", False)]
    assert found[2].why_not == "rmsnorm measures each vector anew, and no later norm cancels that"
    model[3] = nn.RMSNorm(8, eps=1e-2, elementwise_affine=False)  # its eps is seen behind the later norm
    model[4] = nn.Linear(8, 8)
    assert not nk.ready(model.eval(), "no-norms", torch.randn(5, 8))[1].ready
    nn.init.zeros_(model[6].weight)
    idle = nk.ready(model, "no-norms", torch.randn(5, 8))
    assert [need.ready for need in idle] == [True, False, False]
    assert idle[2].why_not == "no output depends on it, as in front of a layer of zeros"


@pytest.mark.parametrize("gate", [0.0, 0.5])
def test_a_closed_taper_can_go(gate):
    norm = nk.TaperNorm(8)
    norm.gate.fill_(gate)
    norm.scale.fill_(0.7)
    model = stirred(nn.Sequential(nn.Linear(8, 8), norm, nn.Linear(8, 4)))
    assert bool(nk.ready(model, "no-norms", torch.randn(5, 8))) is (gate == 0.0)


LATENT = {"rank": 5, "head_dim": 3, "shared_dim": 2, "value_dim": 4}


@pytest.mark.parametrize("more", [{}, {"query_rank": 6}])
def test_latent_attention_reads_its_cache(more):
    model = decoder(mixer="latent", mixer_options=LATENT | more)
    found = nk.ready(model, "mla-absorption", TOKENS)
    assert [(need.site, need.ready) for need in found] == [(f"layers.{i}.attention", True) for i in range(2)]
    assert all(need.difference <= 1e-9 for need in found)


class Normed(nn.Module):
    """Keys that are normalized behind the up-projection."""

    def __init__(self, up):
        super().__init__()
        self.inner, self.weight = up, up.weight

    def forward(self, x):
        return torch.nn.functional.normalize(self.inner(x), dim=-1)


def test_what_stands_in_the_way_of_absorption():
    model = decoder(mixer="latent", mixer_options=LATENT)
    model.layers[0].attention.up = Normed(model.layers[0].attention.up).eval()
    model.layers[1].attention.register_forward_hook(lambda module, given, y: y * module.up.weight.sum())
    found = nk.ready(model, "mla-absorption", TOKENS)
    assert found[0].why_not == "its up is a Normed, no linear layer"
    assert "raises AttributeError" in found[1].why_not
    assert reasons(nk.ready(decoder(), "mla-absorption", TOKENS))[""].startswith("it has no latent attention")


@pytest.mark.parametrize("family", ["DeepseekV3", "DeepseekV2", "KimiLinear"])
def test_latent_attention_of_transformers_reads_its_cache(transformers, family):
    sizes = {
        **{"vocab_size": 17, "hidden_size": 16, "intermediate_size": 12, "moe_intermediate_size": 8},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 6},
        **{"qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 3, "q_lora_rank": 7, "n_routed_experts": 4},
        **{"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "num_local_experts": 4},
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
    }
    sizes |= {"layer_types": ["full_attention"] * 2} if family == "KimiLinear" else {"first_k_dense_replace": 2}
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = stirred(transformers.AutoModelForCausalLM.from_config(config))
    found = nk.ready(model, "mla-absorption", {"input_ids": TOKENS})
    assert [(need.site, need.ready) for need in found] == [(f"model.layers.{i}.self_attn", True) for i in range(2)], (
        str(found)
    )


def test_bad_input_is_named():
    for arguments, message in [
        ((decoder(), "rotations", TOKENS), "ready: purpose must be one of 'rotation', 'int4'"),
        ((decoder().train(), "rotation", TOKENS), "ready: the model is in train mode; call model.eval"),
        ((decoder(), "rotation", torch.zeros(2, 3)), "ready: the model does not take the example"),
        ((nn.Linear(3, 3).eval(), "rotation"), "ready: example must be given: the configuration does not tell"),
    ]:
        with pytest.raises(ValueError, match=message):
            nk.ready(*arguments)
    with pytest.raises(TypeError, match=r"ready: model must be a torch\.nn\.Module, not int"):
        nk.ready(3, "rotation")


def build():
    return decoder()


def test_the_command_prints_a_table_and_its_status_says_what_came(capsys, monkeypatch, tmp_path):
    words = ["ready", f"{__name__}:build", "--input", "tokens:2x6", "--for"]
    assert cli.main([*words, "rotation"]) == 0
    assert "rotation: ready" in capsys.readouterr().out
    assert cli.main([*words, "no-norms", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["purpose"], told["ready"], len(told["needs"])) == ("no-norms", False, 5)
