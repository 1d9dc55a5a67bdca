"""Signals of MNIST-1D in a comparison: the data, the model that takes them, and the corruptions that fit them."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from normkit import cli
from normkit.lab.plan import corruptions, data, models, shift, tasks
from normkit.lab.plan.corruptions import DRIFT, IMAGES, SIGNALS, STRETCH
from normkit.lab.plan.settings import Settings

pytest.importorskip("mnist1d")

G = torch.Generator


def waves(count=64, size=40):
    return torch.randn(count, 1, size, generator=G().manual_seed(0)).cumsum(2)


def test_mnist1d_is_the_published_set_and_touches_no_random_state():
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    found = data.signals_of("mnist1d")
    again = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    assert states[:2] == again[:2]
    assert torch.equal(states[2], again[2])
    assert found.images.shape == (5000, 1, 40)
    assert found.labels.bincount().tolist() == [500] * 10
    torch.testing.assert_close(torch.stack(torch.std_mean(found.images, correction=0)), torch.tensor([1.0, 0.0]))
    assert torch.equal(found.images, data.signals_of("mnist1d").images)


def test_a_resnet_of_signals_convolves_along_them():
    torch.manual_seed(0)
    model, x = models.ResNet((2, 40), 10, norm="batchnorm", dim=4).eval(), torch.randn(3, 2, 40)
    first, (block, second, _) = model.stem[0], model.layers
    torch.testing.assert_close(
        first(x.unsqueeze(2)).squeeze(2), nn.functional.conv1d(x, first.weight.squeeze(2), padding=1)
    )
    h = torch.randn(3, 4, 40)
    torch.testing.assert_close(
        second.shortcut(h.unsqueeze(2)).squeeze(2), nn.functional.conv1d(h, second.shortcut.weight.squeeze(2), stride=2)
    )
    assert block.conv1(h.unsqueeze(2)).shape == (3, 4, 1, 40)
    assert model.layers[:2](h.unsqueeze(2)).shape == (3, 8, 1, 20)
    assert model(x).shape == (3, 10)
    square = models.ResNet((2, 8, 8), 10, norm="batchnorm", dim=4)
    assert {part.kernel_size for part in square.modules() if isinstance(part, nn.Conv2d)} == {(3, 3), (1, 1)}


def test_a_signal_drifts_by_one_slow_wave():
    x = waves()
    for severity, size in enumerate(DRIFT, 1):
        added = corruptions.drift(x, severity, G().manual_seed(1)) - x
        spectrum = torch.fft.rfft(added.double())
        want = torch.full((64, 1), 20 * size * float(x.std()), dtype=torch.float64)  # an amplitude of 40 / 2
        torch.testing.assert_close(spectrum[..., 1].abs(), want, rtol=1e-4, atol=0)
        assert spectrum[..., [0, *range(2, 21)]].abs().max() < 1e-3
    assert len({round(float(phase), 3) for phase in spectrum[:, 0, 1].angle()}) > 50


def test_a_signal_is_stretched_about_its_middle_one_way_or_the_other():
    x = (torch.arange(41.0) - 20).view(1, 1, 41).expand(64, 1, 41)
    for severity, factor in enumerate(STRETCH, 1):
        found = corruptions.stretch(x, severity, G().manual_seed(1))
        fast, slow = (found[:, 0, 40] == 20), (found[:, 0, 40] < 20)
        assert min(int(fast.sum()), int(slow.sum())) > 16
        torch.testing.assert_close(found[fast], (x[fast] * factor).clamp(-20, 20), rtol=0, atol=1e-5)
        torch.testing.assert_close(found[slow], x[slow] / factor, rtol=0, atol=1e-5)
        steep = x.pow(3)
        ends = corruptions.stretch(steep, severity, G().manual_seed(1))[fast][..., [0, -1]]
        torch.testing.assert_close(ends, steep[fast][..., [0, -1]])


def test_signals_drift_and_are_stretched_where_images_are_tinted():
    assert set(SIGNALS) == {*IMAGES, "drift", "stretch"} - {"tint"}
    given = Settings(model="resnet:dim=4", data="mnist1d", shift=("all",))
    task = tasks.load(given)
    found = shift.samples(task, given)
    assert [name for name, _ in shift.corruptions_of(given.shift, found.corruptions)] == list(SIGNALS)
    with pytest.raises(ValueError, match=r"must be one of .*'drift', 'stretch', 'all', not 'tint'"):
        shift.require_fit(found, Settings(shift=("tint",)))
    with pytest.raises(ValueError, match=r"must be one of .* not 'drift'"):
        shift.require_fit(found._replace(corruptions=IMAGES), Settings(shift=("drift",)))


def test_the_command_adapts_on_mnist1d(tmp_path, capsys):
    words = "compare --model resnet:dim=4 --data mnist1d --norm batchnorm --steps 2 --seeds 1 --lr 0.01 --threads 1"
    words += " --engine here --batch 16 --shift noise drift --adapt tent --stream mixed:batch=64"
    assert cli.main([*words.split(), "--out", str(tmp_path / "out")]) == 0
    assert "Adapting to shifted data: noise 3, drift 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model vit --data mnist1d", "model 'vit' learns from images, which data 'mnist1d' is not"),
        ("--model decoder --data mnist1d", "model 'decoder' learns from text, which data 'mnist1d' is not"),
        (
            "--model resnet --data mnist1d --val digits",
            "held-out data 'digits' are of shape (1, 8, 8), and the data of",
        ),
    ],
)
def test_what_does_not_go_with_signals_is_refused(words, message, tmp_path, capsys):
    assert cli.main(["compare", *words.split(), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
