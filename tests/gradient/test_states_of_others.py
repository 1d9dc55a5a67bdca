"""States of other libraries' optimizers of the same name: they load and give the same steps, or are refused."""

import copy

import pytest
import torch

import normkit as nk
from normkit.optional import let_torchvision_load

let_torchvision_load()


def parameters(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(4, 3, generator=generator, dtype=dtype)) for _ in range(2)]


def take_steps(optimizers, lists, first, count):
    for step in range(first, first + count):
        for params in lists:
            for i, p in enumerate(params):
                seed = torch.Generator().manual_seed(10 * step + i)
                p.grad = torch.randn(p.shape, generator=seed, dtype=p.dtype)
        for optimizer in optimizers:
            optimizer.step()


def after_loading(theirs, ours):
    """What both optimizers come to, ours with the state that theirs had after three steps."""
    before = parameters()
    other = theirs(before)
    take_steps([other], [before], 0, 3)
    params = [torch.nn.Parameter(p.detach().clone()) for p in before]
    mine = ours(params)
    mine.load_state_dict(copy.deepcopy(other.state_dict()))
    take_steps([other, mine], [before, params], 3, 3)
    return params, before


@pytest.mark.parametrize("rule", [None, "original", "match_rms_adamw"])
def test_torchs_muon_goes_on_at_its_rates(rule):
    built = {"lr": 0.5, "weight_decay": 0.3, "gram": True, "adjust_lr": rule or "original"}
    got, want = after_loading(
        lambda ps: torch.optim.Muon(ps, lr=0.02, adjust_lr_fn=rule), lambda ps: nk.Muon.like("torch", ps, **built)
    )
    for p, q in zip(got, want, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-12)


def test_torchs_muon_into_another_dialect_is_refused_by_the_words():
    with pytest.raises(ValueError, match="Muon: the state that is loaded is of another dialect") as error:
        after_loading(
            lambda ps: torch.optim.Muon(ps, nesterov=False, adjust_lr_fn="match_rms_adamw"), lambda ps: nk.Muon(ps)
        )
    saved, present = str(error.value).split(", and this optimizer ")
    for word in ("nesterov=False", "adjust_lr='match_rms_adamw'", "ns_eps=0.0", "skip_missing=True"):
        assert word in saved
    for word in ("nesterov=True", "adjust_lr='original'", "ns_eps=1e-07", "skip_missing=False"):
        assert word in present


def test_torchs_adafactor_goes_on():
    got, want = after_loading(
        lambda ps: torch.optim.Adafactor(ps, lr=0.1, d=2.0, eps=(1e-3, 1e-2)), lambda ps: nk.Adafactor(ps, lr=1.0)
    )
    for p, q in zip(got, want, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["AdamP", "SGDP", "Lion"])
def test_timms_go_on(name):
    theirs = getattr(pytest.importorskip("timm.optim"), name)
    got, want = after_loading(lambda ps: theirs(ps, lr=0.01), lambda ps: getattr(nk, name)(ps, lr=0.01))
    for p, q in zip(got, want, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-12)


@pytest.mark.parametrize("library, name", [("timm.optim", "Muon"), ("timm.optim", "Lamb"), ("timm.optim", "Adafactor")])
def test_what_cannot_go_on_is_refused(library, name):
    theirs, ours = getattr(pytest.importorskip(library), name), getattr(nk, {"Lamb": "LAMB"}.get(name, name))
    with pytest.raises(ValueError, match=rf"^{ours.__name__}: the state that is loaded is of another optimizer"):
        after_loading(lambda ps: theirs(ps), ours)


def test_moments_without_their_count_are_refused():
    """As pytorch_optimizer keeps them, which counts in the group."""
    params = parameters()
    optimizer = nk.AdamP(params)
    take_steps([optimizer], [params], 0, 1)
    state = optimizer.state_dict()
    for own in state["state"].values():
        del own["step"]
    with pytest.raises(ValueError, match="AdamP: the state that is loaded has exp_avg, but no step"):
        nk.AdamP(parameters()).load_state_dict(state)


def test_a_state_of_muon_before_it_took_dialects_goes_on():
    before, params = parameters(), parameters()
    old, new = nk.Muon(before), nk.Muon(params)
    take_steps([old], [before], 0, 2)
    state = copy.deepcopy(old.state_dict())
    for group in state["param_groups"]:
        for name in ("adjust_lr", "flatten_shape", "ns_safety", "ns_eps", "gram", "blocks", "block_repeats"):
            del group[name]
        for name in ("cautious_decay", "skip_missing"):
            del group[name]
    for p, q in zip(params, before, strict=True):
        p.data.copy_(q)
    new.load_state_dict(state)
    take_steps([old, new], [before, params], 2, 2)
    assert all(map(torch.equal, params, before))


@pytest.mark.parametrize("name", ["muon", "normuon"])
def test_a_frozen_matrix_does_not_decay(name):
    frozen, moved = parameters()
    frozen.requires_grad_(False)
    before = frozen.clone()
    optimizer = nk.create(name, [frozen, moved], weight_decay=0.5)
    take_steps([optimizer], [[moved]], 0, 2)
    assert torch.equal(frozen, before)
    assert frozen not in optimizer.state


def test_the_alpha_of_relevance_decay_is_not_its_bases():
    params, plain = parameters(), parameters()
    around = nk.RelevanceDecay(params, base="rmsprop", lr=0.01, gamma=0.0)
    alone = torch.optim.RMSprop(plain, lr=0.01)
    take_steps([around, alone], [params, plain], 0, 2)
    for p, q in zip(params, plain, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=0)
    grouped = nk.RelevanceDecay([{"params": parameters(), "alpha": 0.25}], lr=0.01)
    assert grouped.param_groups[0]["relevance_alpha"] == 0.25
    state = nk.RelevanceDecay(parameters(), base="rmsprop", lr=0.01, alpha=0.5).state_dict()
    older = copy.deepcopy(state)
    older["param_groups"][0]["alpha"] = older["param_groups"][0].pop("relevance_alpha")
    for saved in (state, older):
        loaded = nk.RelevanceDecay(parameters(), base="rmsprop", lr=0.01)
        loaded.load_state_dict(saved)
        assert [loaded.param_groups[0][key] for key in ("relevance_alpha", "alpha")] == [0.5, 0.99]


def test_a_base_reads_an_older_state_its_own_way():
    before, params = parameters(), parameters()
    old, new = (nk.AGC(ps, base="adamw", lr=0.1, clipping=0.5) for ps in (before, params))
    take_steps([old], [before], 0, 2)
    state = copy.deepcopy(old.state_dict())
    for name in ("amsgrad", "capturable", "fused", "foreach", "maximize", "decoupled_weight_decay"):
        state["param_groups"][0].pop(name)
    for own in state["state"].values():
        own["step"] = int(own["step"])
    for p, q in zip(params, before, strict=True):
        p.data.copy_(q)
    new.load_state_dict(state)
    take_steps([old, new], [before, params], 2, 2)
    assert all(map(torch.equal, params, before))


LATER = {
    "sinkgd": {"num_iters": 2},
    "stable-spam": {"total_T": 9, "gamma1": 0.5, "gamma2": 0.7, "gamma3": 0.8, "eta_min": 0.3, "update_proj_gap": 4},
}


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("around", [{}, {"clipping": 1e9}], ids=["alone", "in agc"])
def test_a_resumed_run_has_the_settings_of_its_file_which_older_ones_leave_to_the_optimizer(name, around):
    build = nk.card(name).entry if not around else lambda ps, **own: nk.AGC(ps, base=name, **around, **own)
    before, *after = (parameters() for _ in range(3))
    old = build(before, lr=0.1, **LATER[name])
    take_steps([old], [before], 0, 3)
    file, older = (copy.deepcopy(old.state_dict()) for _ in range(2))
    older["param_groups"] = [{k: v for k, v in g.items() if k not in LATER[name]} for g in older["param_groups"]]
    resumed = build(after[0], lr=0.1), build(after[1], lr=0.1, **LATER[name])
    for optimizer, params, state in zip(resumed, after, (file, older), strict=True):
        for p, q in zip(params, before, strict=True):
            p.data.copy_(q)
        optimizer.load_state_dict(state)
    take_steps([old, *resumed], [before, *after], 3, 3)
    for params in after:
        assert all(map(torch.equal, params, before))


def test_a_hook_that_changes_a_state_decides_what_is_kept_in_float32_too():
    first, second = (torch.nn.Parameter(torch.eye(3, dtype=torch.bfloat16) + i) for i in range(2))
    one, other = nk.SOAP([first, second]), nk.SOAP([second, first])
    for p in (first, second):
        p.grad = p.detach().sin()
    one.step()
    other.register_load_state_dict_pre_hook(
        lambda _, state: {**state, "state": {1 - place: own for place, own in state["state"].items()}}
    )
    other.load_state_dict(one.state_dict())
    for p in (first, second):
        assert torch.equal(other.state[p]["Q0"], one.state[p]["Q0"])
