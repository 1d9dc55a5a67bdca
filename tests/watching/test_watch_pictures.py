"""The loss around a model, its curvature, its spectra and what it can learn: right numbers, and pictures of them."""

import copy
import functools
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, hessian
from torch.nn import functional as F
from trainings import decoder, language, mlp, points, train

from normkit.watching import checkup, curvature, eigenspectra, landscape, learning
from normkit.weight.filter_normalization import random_direction

close = torch.testing.assert_close


def normed():
    """A trained model with batch norms."""
    model = mlp(norm="batchnorm", width=8)
    train(model, points, steps=30, watched=False)
    return model.eval()


def test_the_loss_along_a_direction_is_that_of_moved_weights():
    model, batches = mlp(width=8), [points(0), points(1)]
    found = landscape(model, batches, points=3, span=0.5, seed=3)
    direction = random_direction(model, generator=torch.Generator().manual_seed(3))
    moved = {name: p + 0.5 * direction[name] for name, p in model.named_parameters()}
    for place, parameters in ((1, dict(model.named_parameters())), (2, moved)):
        losses = [F.cross_entropy(functional_call(model, parameters, (x,)), y) for x, y in batches]
        close(found.loss[place], torch.stack(losses).mean().detach())
    assert found.at_weights() == found.loss[1]
    close(landscape(model, batches, points=3, span=0.5, seed=3).loss, found.loss, rtol=0, atol=0)
    assert not torch.equal(landscape(model, batches, points=3, span=0.5, seed=4).loss, found.loss)


def test_a_direction_leaves_out_what_it_is_asked_to():
    model = normed()
    moved = [
        {name for name, d in random_direction(model, ignore=ignore).items() if d.any()} for ignore in ("biasbn", "")
    ]
    assert moved[0] == {name for name, p in model.named_parameters() if p.dim() > 1}
    assert moved[1] == {name for name, _ in model.named_parameters()}


def test_batch_statistics_are_taken_anew_and_the_model_is_left_as_it_was():
    model = normed()
    before = copy.deepcopy(model.state_dict())
    anew, kept = (landscape(model, [points(0)], points=9, recalibrated=yes) for yes in (True, False))
    assert "running statistics taken anew" in anew.how
    assert anew.loss[[0, -1]].mean() < kept.loss[[0, -1]].mean(), "no cliffs that a training would not meet"
    close(model.state_dict(), before, rtol=0, atol=0)
    assert not model.training


def test_dropout_is_the_same_at_every_point_and_of_the_seed():
    torch.manual_seed(0)
    parts = nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 2)
    model, state = nn.Sequential(*parts).eval(), torch.get_rng_state()
    first, again, other = (landscape(model, [points(0)], points=5, span=1e-6, seed=seed).loss for seed in (3, 3, 4))
    close(first, again, rtol=0, atol=0)
    close(first, first[2].expand(5), rtol=1e-4, atol=0)
    assert abs(float(other[2] - first[2])) > 1e-3
    assert torch.equal(torch.get_rng_state(), state)


def test_a_seed_is_any_integer_and_a_model_has_parameters():
    model, batches = mlp(depth=1, width=4), [points(0)]
    for act, options in ((landscape, {"points": 3}), (curvature, {"top": 1, "draws": 1, "steps": 2})):
        one, other = (str(act(model, batches, seed=seed, **options)) for seed in (3, np.int64(3)))
        assert one == other
        with pytest.raises(TypeError, match=f"{act.__name__}: seed must be an integer, not 0.5"):
            act(model, batches, seed=0.5, **options)
    with pytest.raises(ValueError, match="landscape: model must have parameters, and Flatten has none"):
        landscape(nn.Flatten(), batches)


def test_a_plane_is_drawn_as_contours(tmp_path):
    model = mlp(width=8)
    found = landscape(model, [points(0)], axes=2, points=5)
    assert found.loss.shape == (5, 5)
    assert found.at_weights() == found.loss[2, 2] == pytest.approx(landscape(model, [points(0)]).at_weights())
    [made] = found.pictures()
    [trace] = made["figure"]["data"]
    assert trace["type"] == "contour"
    assert trace["z"][4][0] == pytest.approx(float(found.loss[0, 4]), rel=1e-3), "rows are the second direction"
    assert "Loss on a plane" in found.plot(tmp_path / "plane.html").read_text()
    assert found.plot(tmp_path / "plane.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"path must end in .html, .png"):
        found.plot(tmp_path / "plane.gif")


@pytest.mark.parametrize("norm", [lambda layer: layer, nn.utils.parametrizations.weight_norm])
def test_curvature_is_that_of_the_whole_hessian(norm, tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2)).double()
    chance = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 3, generator=chance).double(), torch.randint(2, (20,), generator=chance)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(flat):
        parts = flat.split([p.numel() for p in parameters.values()])
        at = {name: part.view_as(p) for (name, p), part in zip(parameters.items(), parts, strict=True)}
        return F.cross_entropy(functional_call(model, at, (x,)).float(), y)

    found = curvature(model, [(x, y)], draws=16, steps=8)
    monkeypatch.setattr(torch, "_weight_norm", lambda v, g, dim: v * g / v.norm(dim=1, keepdim=True))
    whole = hessian(loss)(torch.cat([p.flatten() for p in parameters.values()]))
    values = torch.linalg.eigvalsh(whole)
    close(found.top, values[-3:].flip(0), rtol=1e-3, atol=1e-5)
    assert found.least == pytest.approx(float(values[0]), abs=1e-4)
    assert abs(found.trace - float(whole.trace())) < 4 * found.error
    assert found.error < 0.3 * found.trace
    assert str(found).startswith(f"top eigenvalues {float(values[-1]):.3g}"[:-1])
    drawing = found.plot(tmp_path / "curvature.svg").read_text()
    assert ET.fromstring(drawing).tag.endswith("svg")
    density = np.array(found.pictures()[0]["figure"]["data"][0]["y"])
    assert density.min() == pytest.approx(1e-6 * density.max())  # on an axis of powers there is no 0
    for one in found.pictures():
        axes = [one["figure"]["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")]
        assert {one["title"], *axes} <= set(re.findall("<!-- (.*?) -->", drawing))
    axes = [one["figure"]["layout"]["yaxis"].get("type") for one in found.pictures()]
    assert axes == ["log", None]  # few eigenvalues lie apart, by decades


def test_curvature_of_attention_and_of_what_cannot_be_measured():
    model = decoder(depth=1, dim=8)
    found = curvature(model, [language(0)], top=1, draws=1, steps=4)
    assert found.top[0] > 0 >= found.least
    with pytest.raises(ValueError, match="top must be less than the 2 trained parameters"):
        curvature(nn.Linear(1, 1), [(torch.ones(1, 1),)])
    for act in (curvature, landscape):
        with pytest.raises(ValueError, match="batches must hold at least one batch"):
            act(model, [])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_curvature_of_a_model_in_half_precision_is_that_of_its_weights_in_float32(dtype):
    model, (x, y) = mlp(depth=1, width=4).to(dtype), points(0)
    x, options = x.to(dtype), {"top": 2, "draws": 2, "steps": 8}
    want = curvature(copy.deepcopy(model).float(), [(x.float(), y)], **options)
    found = curvature(model, [(x, y)], **options)
    close(found.top, want.top, rtol=0, atol=0)
    assert found.trace == want.trace


def test_a_heavy_tail_has_a_smaller_alpha(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 64), nn.Linear(64, 64), nn.Conv2d(16, 32, 3), nn.Linear(64, 2))
    with torch.no_grad():
        u, _, v = torch.linalg.svd(model[1].weight)
        model[1].weight.copy_(u * torch.arange(1, 65) ** -1.0 @ v)
    found = eigenspectra(model)
    by_name = {row.name: row for row in found.rows}
    assert list(by_name) == ["0.weight", "1.weight", "2.weight"]
    assert by_name["1.weight"].alpha < by_name["0.weight"].alpha
    assert "left out, less than 8 rows or columns, or neither two nor four axes: 3.weight" in str(found)
    assert len(found.pictures()) == 2
    assert found.plot(tmp_path / "spectra.png").stat().st_size > 1000


def test_norm_and_stable_rank_are_those_of_the_whole_weight():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Conv2d(16, 32, 3), nn.Linear(8, 300))
    for row, layer in zip(eigenspectra(model).rows, model, strict=True):
        matrix = layer.weight.detach().flatten(1)
        want = float(torch.linalg.matrix_norm(matrix, 2))
        assert row.spectral == pytest.approx(want, rel=1e-5)
        assert row.stable_rank == pytest.approx(float(matrix.square().sum()) / want**2, rel=1e-5)


def test_weights_that_are_not_measured_are_named():
    model = nn.Sequential(nn.Conv1d(16, 16, 3), nn.Conv2d(16, 16, 3), nn.Conv3d(16, 16, 3), nn.LayerNorm(4))
    found = eigenspectra(model)
    assert [row.name for row in found.rows] == ["1.weight"]
    assert found.left_out == ("0.weight", "2.weight")


def test_models_are_compared_by_what_they_can_learn(tmp_path):
    adam = functools.partial(torch.optim.Adam, lr=0.01)
    fresh, dead = mlp(width=16), mlp(width=16)
    for part in dead[:-1:2]:
        part.bias.data -= 9
    found = learning({"fresh": fresh, "dead": dead}, points(0)[0], steps=80, targets=1, frequency=9.0, optimizer=adam)
    assert found.found["fresh"].mean > found.found["dead"].mean
    head, *rows = str(found).split("\n")
    assert [line.split()[0] for line in (head, *rows)] == ["model", "fresh", "dead"]
    assert {len(line) for line in rows} == {len(head)}  # numbers end below one another
    [made] = found.pictures()
    assert made["figure"]["data"][0]["x"] == ["fresh", "dead"]
    assert "Plasticity" in found.plot(tmp_path / "plasticity.html").read_text()
    with pytest.raises(ValueError, match="models must name at least one model"):
        learning({}, points(0)[0])


def test_a_watch_is_drawn_for_a_paper(tmp_path):
    _, seen = train(mlp(), points, steps=8, every=2)
    assert seen.plot(tmp_path / "watch.png").read_bytes().startswith(b"\x89PNG")
    drawing = seen.plot(tmp_path / "watch.svg").read_text()
    assert "<svg" in drawing
    assert "<!-- log10 -->" in drawing


def test_weights_of_torchs_older_norms_are_copied():
    """They have a history after a training step, with which ``copy.deepcopy`` does not take them."""
    model, (x, y) = mlp(depth=1, width=4), points(0)
    nn.utils.spectral_norm(model[0])
    F.cross_entropy(model(x), y).backward()
    weight = model[0].weight
    loss = F.cross_entropy(copy.deepcopy(model, {id(weight): weight.detach()}).eval()(x), y).item()
    assert landscape(model, [(x, y)], points=3).at_weights() == pytest.approx(loss)
    assert curvature(model, [(x, y)], top=1, draws=1, steps=4).top[0] > 0
    assert checkup(model, [(x, y)], seconds=5).losses[0] == pytest.approx(loss, rel=0.1)
    assert str(learning({"own": model}, x, steps=1, targets=1)).splitlines()[1].startswith("own")
    assert model[0].weight is weight
    assert weight.requires_grad
