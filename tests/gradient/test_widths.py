"""Rates and initial scales over widths, and gains by where their norms stand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.gradient._widths import root_mean_square
from normkit.optional import let_torchvision_load

let_torchvision_load()


class Net(nn.Module):
    """A matrix of each kind; with ``times`` the head divides what it reads, as muP's own code writes it."""

    def __init__(self, width, times=1):
        super().__init__()
        self.times = times
        self.first, self.inner = nn.Linear(7, width, bias=False), nn.Linear(width, width, bias=False)
        self.head = nn.Linear(width, 5, bias=False)

    def forward(self, x):
        return self.head(self.inner(self.first(x).relu()).relu() / self.times)


def trained(model, optimizer, steps=20):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(20, 7, generator=generator, dtype=torch.float64)
    y = torch.randint(5, (20,), generator=generator)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model(x).detach()


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_mup_is_the_network_whose_head_divides_over_twenty_steps(name):
    """Rates and decays of the latter are those of muP's own code, where the head's weight has another size."""
    torch.manual_seed(0)
    base, ours, theirs = Net(16).double(), Net(64).double(), Net(64, times=4).double()
    groups = nk.param_groups(ours, name, parametrization="mup", base=base, lr=0.01, weight_decay=0.1)
    theirs.load_state_dict(ours.state_dict())
    theirs.head.weight.data *= 4
    if name == "adamw":
        given = [([theirs.inner.weight], 0.01 / 4, 0.4), ([theirs.first.weight, theirs.head.weight], 0.01, 0.1)]
        build = lambda groups: torch.optim.AdamW(groups, eps=1e-30)  # noqa: E731
    else:
        given = [([theirs.inner.weight], 0.01, 0.1), ([theirs.first.weight, theirs.head.weight], 0.04, 0.025)]
        build = torch.optim.SGD
    other = build([{"params": params, "lr": lr, "weight_decay": decay} for params, lr, decay in given])
    torch.testing.assert_close(trained(ours, build(groups)), trained(theirs, other), rtol=1e-9, atol=1e-11)


def test_initial_scales_are_those_of_the_base_over_the_widths():
    torch.manual_seed(0)
    base, model = Net(16), Net(64)
    groups = nk.param_groups(model, "adamw", parametrization="mup", base=base, lr=0.01)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    groups.initialize()
    times = {"first.weight": 1.0, "inner.weight": 0.5, "head.weight": 0.25}
    for name, p in model.named_parameters():
        want = root_mean_square(base.get_parameter(name)) * times[name]
        assert root_mean_square(p) == pytest.approx(want, rel=1e-5)
        torch.testing.assert_close(p.detach(), before[name] * (want / root_mean_square(before[name])))
        assert groups.widths[name].scale == pytest.approx(want)
    once = model.head.weight.detach().clone()
    groups.initialize()
    torch.testing.assert_close(model.head.weight.detach(), once)
    nn.init.zeros_(model.head.weight)
    groups.initialize()
    assert not model.head.weight.any()


def rates(groups, model):
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)]: group["lr"] for group in groups for p in group["params"]}


def test_rates_of_muon_follow_its_factor_for_the_shape():
    base, model = Net(16), Net(64)
    plain = rates(nk.param_groups(model, "muon", parametrization="mup", base=base, lr=0.02), model)
    assert plain == {"first.weight": 0.02, "inner.weight": 0.02, "head.weight": 3e-4 / 4}
    rule = {"matrix": {"adjust_lr": "match_rms_adamw"}}
    groups = nk.param_groups(model, "muon", parametrization="mup", base=base, lr=0.02, settings=rule)
    assert rates(groups, model)["inner.weight"] == pytest.approx(0.02 / 2)  # its factor doubles, and should not
    assert rates(groups, model)["first.weight"] == pytest.approx(0.02)  # 7 to 64: sqrt(64) / sqrt(16) both ways
    spectral = nk.param_groups(model, "muon", parametrization="spectral", base=16, settings={"head": {"lr": 1e-3}})
    assert [group.get("adjust_lr") for group in spectral] == ["rms_to_rms", None]
    assert rates(spectral, model)["head.weight"] == pytest.approx(1e-3 / 4)
    optimizer = nk.Muon(spectral, lr=0.02)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    before = model.inner.weight.detach().clone()
    optimizer.step()
    step = torch.linalg.matrix_norm(model.inner.weight.detach() - before, 2)
    assert 0.02 * 0.6 < float(step) < 0.02 * 1.3


def test_spectral_scales_and_rates_are_of_each_shape_alone():
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 8), nn.Linear(8, 50))
    groups = nk.param_groups(model, "adamw", parametrization="spectral", base=16, lr=0.01)
    found = rates(groups, model)
    assert [found[f"{i}.weight"] for i in range(5)] == pytest.approx([0.01, 0.02, 0.01, 0.005, 0.02])
    groups.initialize()
    scales = [root_mean_square(model[i].weight) for i in (0, 1, 3, 4)]
    assert scales == pytest.approx([1.0, 8**-0.5, 32**-0.5 / 2, 8**-0.5], rel=1e-5)
    sgd = rates(nk.param_groups(model, "sgd", parametrization="spectral", base=16, lr=0.01), model)
    assert [sgd[f"{i}.weight"] for i in (0, 1, 2)] == pytest.approx([0.01 * 8 / 16, 0.04, 0.01 * 32 / 16])


def test_weights_stored_by_columns_are_turned():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=1, n_head=4, n_positions=32)
    config.bos_token_id = config.eos_token_id = 1
    model = transformers.GPT2Model(config)
    groups = nk.param_groups(model, "adamw", parametrization="spectral", base=32)
    widths = groups.widths["h.0.mlp.c_fc.weight"]
    assert (widths.made, widths.read) == (128, 32)

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Parameter(torch.randn(8, 24)), nn.Parameter(torch.randn(24, 8))

        def forward(self, x):
            return (x @ self.up).relu() @ self.down

    widths = nk.param_groups(Own(), "adamw", inputs=[torch.ones(2, 8)], parametrization="spectral", base=8).widths
    assert [(widths[n].made, widths[n].read) for n in ("up", "down")] == [(24, 8), (8, 24)]


def test_the_table_says_rates_and_scales():
    text = str(nk.param_groups(Net(64), "adamw", parametrization="mup", base=Net(16), lr=0.01))
    (line,) = [line for line in text.splitlines() if line.startswith("head.weight") and "x 0.25" in line]
    assert line.split()[1:3] == ["5", "64"]
    assert "matrix, head: 2 tensors, 4,416 numbers; lr=0.0025" in text


def decoder(tied, width=16):
    return nk.Decoder(vocab=50, dim=width, depth=1, heads=2, tied=tied)


def wrong(case):
    mup = {"parametrization": "mup"}
    model, base = Net(64), Net(16)
    return {
        "parametrization must be": lambda: nk.param_groups(model, "adamw", parametrization="mu", base=base),
        'base of parametrization="mup" is the model': lambda: nk.param_groups(model, "adamw", base=16, **mup),
        'base of parametrization="spectral" is a width': lambda: nk.param_groups(
            model, "adamw", parametrization="spectral", base=base
        ),
        "base must be": lambda: nk.param_groups(model, "adamw", parametrization="spectral", base=0),
        r"base is another model .* first.weight of shape \(64, 7\) is not in it": lambda: nk.param_groups(
            model, "adamw", base=nn.Sequential(nn.Linear(7, 16)), **mup
        ),
        "embedding.weight is both embedding and head": lambda: nk.param_groups(
            decoder(True, 32), "adamw", base=decoder(True), **mup
        ),
        "which spectral scales apart": lambda: nk.param_groups(
            decoder(True, 32), "adamw", parametrization="spectral", base=16
        ),
        "not for 'soap'": lambda: nk.param_groups(model, "soap", base=base, **mup),
        "not for None": lambda: nk.param_groups(model, base=base, **mup),
        "lr must lie in": lambda: nk.param_groups(model, "adamw", base=base, lr=-1.0, **mup),
        "base goes with a parametrization": lambda: nk.param_groups(model, "adamw", base=base),
        "lr goes with a parametrization": lambda: nk.param_groups(model, "adamw", lr=0.1),
        "only groups with a parametrization": lambda: nk.param_groups(model, "adamw").initialize(),
        "meta": lambda: nk.param_groups(model, "adamw", base=base.to("meta"), **mup).initialize(),
        r"weight_decay must be one of 'matrix', .* not 'gains'": lambda: nk.param_groups(
            model, "adamw", weight_decay={"gains": 0.1}
        ),
        "weight_decay": lambda: nk.param_groups(model, "adamw", weight_decay={"gain": -0.1}),
    }[case]


CASES = (
    "parametrization must be",
    'base of parametrization="mup" is the model',
    'base of parametrization="spectral" is a width',
    "base must be",
    r"base is another model .* first.weight of shape \(64, 7\) is not in it",
    "embedding.weight is both embedding and head",
    "which spectral scales apart",
    "not for 'soap'",
    "not for None",
    "lr must lie in",
    "base goes with a parametrization",
    "lr goes with a parametrization",
    "only groups with a parametrization",
    "meta",
    r"weight_decay must be one of 'matrix', .* not 'gains'",
    "weight_decay",
)


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_is_named(case):
    with pytest.raises((TypeError, ValueError), match=case):
        wrong(case)()


def test_a_tied_table_passes_where_its_owner_divides_the_scores():
    model, known = decoder(True, 32), {"embedding.weight": "embedding"}
    groups = nk.param_groups(model, "adamw", parametrization="mup", base=decoder(True), override=known)
    assert groups.widths["embedding.weight"].rate == 1


class Sandwich(nn.Module):
    """A norm before maps, one behind them, one on queries, and one before a head."""

    def __init__(self):
        super().__init__()
        self.before, self.behind, self.heads = nn.LayerNorm(8), nk.RMSNorm(8), nn.LayerNorm(4)
        self.query, self.key, self.out, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x):
        y = self.before(x)
        q, k = (self.heads(f(y).unflatten(-1, (2, 4))) for f in (self.query, self.key))
        x = x + self.behind((q * k).flatten(-2))
        return self.last(self.out(x).to(x.dtype))


def decays(groups, model):
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)]: group.get("weight_decay") for group in groups for p in group["params"]}


def test_gains_decay_by_what_reads_them():
    model = Sandwich()
    groups = nk.param_groups(model, "adamw", weight_decay={"matrix": 0.1, "input gain": 0.2, "output gain": 0.0})
    found = decays(groups, model)
    gains = {name: found[f"{name}.weight"] for name in ("before", "behind", "heads", "out")}
    assert gains == {"before": 0.2, "behind": 0.0, "heads": 0.0, "out": 0.2}
    assert found["query.weight"] == 0.1
    assert found["last.weight"] is None  # as usual
    assert found["before.bias"] == 0.0
    assert "input gain: 2 tensors, 16 numbers; weight_decay=0.2" in str(groups)
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert model.before.weight.tolist() == pytest.approx([0.98] * 8)
    assert model.behind.weight.tolist() == [1.0] * 8


@pytest.mark.filterwarnings("ignore")
def test_gains_of_llama_and_of_a_post_norm_layer():
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small, intermediate_size=48))
    found = decays(nk.param_groups(model, "adamw", weight_decay={"input gain": 0.2, "embedding": 0.0}), model)
    assert {found[name] for name in found if "norm" in name} == {0.2}
    assert found["model.embed_tokens.weight"] == 0.0
    post = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1)
    found = decays(nk.param_groups(post, "adamw", weight_decay={"input gain": 0.2}), post)
    assert [found[f"layers.0.norm{i}.weight"] for i in (1, 2)] == [0.0, 0.0]
    pre = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True), 1)
    found = decays(nk.param_groups(pre, "adamw", weight_decay={"input gain": 0.2}), pre)
    assert [found[f"layers.0.norm{i}.weight"] for i in (1, 2)] == [0.2, 0.2]


class NeedsTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.map = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x, y):
        return self.map(self.norm(x)) + y


def test_gains_need_a_run_that_works():
    with pytest.raises(ValueError, match="hand in inputs"):
        nk.param_groups(NeedsTwo(), "adamw", weight_decay={"input gain": 0.1})
    inputs = [torch.randn(2, 8), torch.randn(2, 8)]
    model = NeedsTwo()
    assert decays(nk.param_groups(model, "adamw", inputs=inputs, weight_decay={"input gain": 0.1}), model)[
        "norm.weight"
    ] == pytest.approx(0.1)
