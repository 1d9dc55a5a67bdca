"""Muon with a project's arguments is that project's Muon, over fifty steps."""

import functools
import importlib
import inspect
import pathlib
import re

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.gradient import _dialects
from normkit.lab.plan.optimizers import make_optimizer, usual_rate
from normkit.optional import let_torchvision_load

SHAPES = [(6, 9), (9, 4), (5, 5)]
RATE = 0.02
FLOAT32 = {"dtype": torch.float32}


def drawn(*shape, seed, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def after_fifty_steps(build, shapes=SHAPES, gap=None):
    """The parameters after gradients of one seed; ``gap``: the step in which the first has none."""
    params = [nn.Parameter(drawn(*shape, seed=i)) for i, shape in enumerate(shapes)]
    optimizer = build(params)
    for step in range(50):
        for i, p in enumerate(params):
            p.grad = None if step == gap and not i else drawn(*p.shape, seed=100 * step + i)
        optimizer.step()
    return [p.detach() for p in params]


def agree(got, want, tolerance=1e-5):
    for a, b in zip(got, want, strict=True):
        assert float((a - b).norm() / b.norm()) < tolerance


def in_float32(monkeypatch):
    """Let code that goes to bfloat16 stay in float32."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x.clone())


def in_type(orthogonalize):
    """Let a function that goes to bfloat16 by default stay in float32."""
    return functools.wraps(orthogonalize)(lambda *args, **options: orthogonalize(*args, **options | FLOAT32))


@pytest.mark.parametrize("rule", ["original", "match_rms_adamw"])
def test_torchs(rule, monkeypatch):
    in_float32(monkeypatch)
    options = {"lr": RATE, "weight_decay": 0.1}
    want = after_fifty_steps(lambda ps: torch.optim.Muon(ps, adjust_lr_fn=rule, **options), gap=7)
    mine = lambda ps: nk.Muon.like("torch", ps, adjust_lr=rule, ns_dtype=None, **options)  # noqa: E731
    agree(after_fifty_steps(mine, gap=7), want)


def test_torchs_in_its_own_type():
    want = after_fifty_steps(lambda ps: torch.optim.Muon(ps, lr=RATE))
    agree(after_fifty_steps(lambda ps: nk.Muon.like("torch", ps, lr=RATE, gram=False)), want, 2**-8)
    agree(after_fifty_steps(lambda ps: nk.Muon.like("torch", ps, lr=RATE)), want, 2**-7)


def test_keller_jordans(monkeypatch):
    theirs = pytest.importorskip("muon").SingleDeviceMuon
    in_float32(monkeypatch)
    want = after_fifty_steps(lambda ps: theirs(ps, lr=RATE, weight_decay=0.1))
    build = lambda ps: nk.Muon.like("keller-jordan", ps, lr=RATE, weight_decay=0.1, ns_dtype=None)  # noqa: E731
    agree(after_fifty_steps(build), want)


@pytest.mark.parametrize("adjusted", [False, True])
def test_pytorch_optimizers(adjusted, monkeypatch):
    theirs = pytest.importorskip("pytorch_optimizer").Muon
    base = importlib.import_module("pytorch_optimizer.optimizer.muon.base")
    monkeypatch.setattr(base, "zero_power_via_newton_schulz_5", in_type(base.zero_power_via_newton_schulz_5))
    options = {"lr": RATE, "weight_decay": 0.1}
    shapes = [*SHAPES, (8, 3, 2, 2), (8, 3, 5)]
    given = lambda ps: [{"params": ps, "use_muon": True}]  # noqa: E731
    want = after_fifty_steps(lambda ps: theirs(given(ps), use_adjusted_lr=adjusted, **options), shapes)
    rule = "match_rms_adamw" if adjusted else "original"
    build = lambda ps: nk.Muon.like("pytorch-optimizer", ps, adjust_lr=rule, ns_dtype=None, **options)  # noqa: E731
    agree(after_fifty_steps(build, shapes), want)


def test_timms(monkeypatch):
    let_torchvision_load()
    module = pytest.importorskip("timm.optim.muon")
    monkeypatch.setattr(module, "zeropower_via_newtonschulz", in_type(module.zeropower_via_newtonschulz))
    shapes, options = [*SHAPES, (8, 3, 2, 2), (8, 3, 5)], {"lr": RATE, "weight_decay": 0.1}
    want = after_fifty_steps(lambda ps: module.Muon(ps, **options), shapes, gap=7)
    agree(after_fifty_steps(lambda ps: nk.Muon.like("timm", ps, ns_dtype=None, **options), shapes, gap=7), want)


def spread(rule, project="modded-nanogpt", shapes=((16, 16), (16, 64), (64, 16), (32, 64))):
    """The root mean square of a first step, over the learning rate, for each shape."""
    params = [nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in shapes]
    for i, p in enumerate(params):
        p.grad = drawn(*p.shape, seed=i, dtype=torch.float64)
    changes = {} if rule == "its own" else {"adjust_lr": rule}
    nk.Muon.like(project, params, lr=1.0, ns_dtype=None, **changes).step()
    return [float(p.detach().square().mean().sqrt()) for p in params]


def test_the_matched_root_mean_square_is_one_over_shapes():
    assert spread("match_rms", "keller-jordan") == pytest.approx([0.2] * 4, rel=1e-9)
    assert spread("match_rms_adamw") == pytest.approx([0.2] * 4, rel=0.05)
    plain = spread("original")
    assert max(plain) > 1.5 * min(plain)


def test_the_step_sizes_of_the_page_are_measured():
    page = (pathlib.Path(__file__).parents[2] / "docs/optimizers.md").read_text()
    head, _, *rows = page.partition("<!-- step sizes -->")[2].strip().split("\n\n")[0].splitlines()
    shapes = [tuple(map(int, word.split("x"))) for word in re.findall(r"\d+x\d+", head)]
    assert len(rows) == 6
    for row in rows:
        project, *numbers = [cell.strip() for cell in row.strip("|").split("|")]
        got = spread("its own", project, shapes)
        assert [float(number) for number in numbers] == pytest.approx([*got, max(got) / min(got)], rel=0.03)


def test_blocks_are_matrices_of_their_own():
    query, key = drawn(6, 4, seed=1, dtype=torch.float64), drawn(3, 4, seed=2, dtype=torch.float64)
    fused, *apart = (nn.Parameter(x.clone()) for x in (torch.cat([query, key]), query, key))
    one = nk.Muon([fused], blocks=(6, 3), adjust_lr="match_rms_adamw", ns_dtype=None)
    other = nk.Muon(apart, adjust_lr="match_rms_adamw", ns_dtype=None)
    for step in range(3):
        fused.grad = drawn(9, 4, seed=step, dtype=torch.float64)
        apart[0].grad, apart[1].grad = (x.clone() for x in fused.grad.split([6, 3]))
        one.step(), other.step()
    torch.testing.assert_close(fused.detach(), torch.cat(apart).detach(), rtol=1e-12, atol=1e-12)


def test_changes_go_before_a_projects_arguments():
    p = nn.Parameter(torch.ones(3, 2))
    group = nk.Muon.like("moonlight", [p], momentum=0.9, adjust_lr=None).param_groups[0]
    assert group["adjust_lr"] is None
    assert group["ns_eps"] == pytest.approx(1e-8)
    for project in _dialects.DIALECTS:
        assert f'"{project}"' in inspect.getdoc(nk.Muon.like)
        nk.Muon.like(project, [p])


@pytest.mark.parametrize("project", [*_dialects.DIALECTS][1:])
def test_a_projects_muon_has_a_name_in_the_catalogue_and_in_comparisons(project):
    p = nn.Parameter(torch.ones(3, 2))
    group, want = nk.create(f"muon-{project}", [p]).param_groups[0], nk.Muon.like(project, [p]).param_groups[0]
    assert {**group, "params": 0} == {**want, "params": 0}
    assert usual_rate(f"muon-{project}") == want["lr"]
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    own = make_optimizer(f"muon-{project}", model, 0.5, 0.25).param_groups[0]
    taken = {"lr": 0.5, "weight_decay": 0.25, "params": 0}
    assert {**own, **taken} == {**want, **taken}
    assert (own["lr"], own["weight_decay"]) == (0.5, 0.25)


@pytest.mark.parametrize(
    "options, word",
    [
        ({"adjust_lr": "spectral"}, "adjust_lr"),
        ({"blocks": (2, 2)}, "blocks"),
        ({"blocks": ()}, "blocks"),
        ({"blocks": (3, 0)}, "blocks"),
        ({"block_repeats": "apart"}, "block_repeats"),
        ({"ns_coefficients": ()}, "ns_coefficients"),
        ({"ns_coefficients": [(1.0, 2.0)]}, "ns_coefficients"),
        ({"ns_safety": 0.0}, "ns_safety"),
        ({"ns_eps": -1.0}, "ns_eps"),
    ],
)
def test_settings_that_fit_no_dialect_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        nk.Muon([nn.Parameter(torch.ones(6, 4))], **options)


def test_a_project_that_is_not_known_is_named():
    with pytest.raises(ValueError, match="moonlite"):
        nk.Muon.like("moonlite", [nn.Parameter(torch.ones(2, 2))])


def test_a_kernel_has_no_blocks():
    with pytest.raises(ValueError, match=r"blocks.*\(6, 4, 2, 2\)"):
        nk.Muon([nn.Parameter(torch.ones(6, 4, 2, 2))], blocks=(3, 3))


def test_a_state_from_before_blocks_of_columns_still_steps():
    p, q = (nn.Parameter(torch.ones(8, 4, dtype=torch.float64)) for _ in range(2))
    mine, fresh = (nk.Muon([x], blocks=(4, 4), ns_dtype=None) for x in (p, q))
    saved = mine.state_dict()
    del saved["param_groups"][0]["block_axis"]
    mine.load_state_dict(saved)
    for x, optimizer in ((p, mine), (q, fresh)):
        x.grad = torch.arange(32, dtype=torch.float64).reshape(8, 4).sin()
        optimizer.step()
    assert torch.equal(p, q)
