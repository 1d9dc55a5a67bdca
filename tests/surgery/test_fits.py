"""What can stand in a model is told by the cards, and what they tell is measured."""

import pytest
import torch

from normkit import catalog
from normkit.lab.plan.builtin import MODELS
from normkit.lab.plan.variants import lets_leak
from normkit.surgery.replacement import fits

DECODER = MODELS["decoder"].place
STREAM = [card.name for card in fits.fitting(fits.norms(), [DECODER], allow_leak=True)]
CLEAN = [card.name for card in fits.fitting(fits.norms(), [DECODER])]


def changed(module, at):
    """Which tokens of (1, T, C) change when one does."""
    torch.manual_seed(0)
    x = torch.randn(1, 6, 64)
    other = x.clone()
    other[:, at] += torch.randn(64)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    found = []
    for given in (x, other):
        module.load_state_dict(start)
        torch.manual_seed(1)
        found.append(module(given))
    assert found[0].shape == x.shape
    return {int(t) for t in ((found[0] - found[1]).abs().amax((0, 2)) > 1e-6).nonzero()}


@pytest.mark.parametrize("name", CLEAN)
def test_what_does_not_leak_by_its_card_changes_no_other_token(name):
    assert changed(fits.maker(name)(64), at=4) <= {4}


@pytest.mark.parametrize("name", ["batchnorm", "powernorm", "unifiednorm"])
def test_what_leaks_by_its_card_changes_earlier_tokens(name):
    assert name in STREAM
    module = fits.maker(name)(64)
    for _ in range(3):  # some take running averages at first
        module(torch.randn(3, 6, 64))
    assert changed(module, at=4) & {0, 1, 2, 3}


@pytest.mark.parametrize("name", sorted(set(STREAM) - set(CLEAN)))
def test_what_leaks_is_refused_by_name_and_may_be_allowed(name):
    chosen = catalog.find(name)
    with pytest.raises(ValueError, match=rf"norm '{name}' leaks: its statistic over .* --allow-leak lets it"):
        fits.require(chosen, DECODER, allow_leak=False, remedy=lets_leak())
    way = fits.require(chosen, DECODER)
    assert fits.build(chosen, way, 64)(torch.randn(3, 6, 64)).shape == (3, 6, 64)


def test_batch_group_power_and_unified_norms_stand_in_a_decoder():
    assert {"batchnorm", "groupnorm", "powernorm", "unifiednorm", "layernorm"} <= set(STREAM)
    assert "groupnorm" in CLEAN
    assert not {"batchnorm", "powernorm", "unifiednorm"} & set(CLEAN)


def test_a_group_norm_in_a_stream_is_that_of_every_token():
    x = torch.randn(2, 5, 8)
    found = fits.maker("groupnorm:num_groups=2")(8)(x)
    for b in range(2):
        for t in range(5):
            torch.testing.assert_close(found[b, t], torch.nn.functional.group_norm(x[b, t][None], 2)[0])


def test_a_batch_norm_in_a_stream_is_over_all_tokens():
    x = torch.randn(3, 5, 8)
    wanted = torch.nn.functional.batch_norm(x.flatten(0, 1), None, None, training=True).view_as(x)
    torch.testing.assert_close(fits.maker("batchnorm")(8)(x), wanted)


@pytest.mark.parametrize("name", ["batchnorm", "groupnorm:num_groups=2", "powernorm"])
def test_rows_and_single_vectors_are_taken_as_tokens_of_a_stream(name):
    norm, x = fits.maker(name)(8).eval(), torch.randn(3, 5, 8)
    for part, y in zip(x, norm(x), strict=True):
        torch.testing.assert_close(norm(part), y)
    if name != "powernorm":
        torch.testing.assert_close(norm(x[0, 0]), norm(x)[0, 0])
        return
    with pytest.raises(ValueError, match=r"x must have shape .*, but its shape is \(2, 5, 3, 8\)"):
        norm(torch.randn(2, 5, 3, 8))


@pytest.mark.parametrize("name", ["frn", "instancenorm", "spade", "crmsnorm"])
def test_what_has_no_place_in_a_stream_is_refused_with_those_that_have(name):
    with pytest.raises(ValueError, match=f"norm '{name}' does not fit a stream of vectors.*those that do: .*layernorm"):
        fits.maker(name)


def test_what_is_no_norm_is_refused_as_such():
    with pytest.raises(ValueError, match=r"'softmax' does not fit .*: it is no norm, but a core"):
        fits.maker("softmax")


def test_norms_of_images_stand_where_images_are():
    assert "instancenorm" in [card.name for card in fits.fitting(fits.norms(), [MODELS["resnet"].place])]
    assert "batchnorm" in [card.name for card in fits.fitting(fits.norms(), [MODELS["vit"].place])]
    both = fits.fitting(fits.norms(), [MODELS["resnet"].place, MODELS["vit"].place])
    assert {"layernorm", "batchnorm"} <= {card.name for card in both}
