"""What a module is tried on, that it may be recognized."""

import pytest
import torch

from normkit.surgery.recognition.inputs import FEW, NUMBERS, Shape, draw, shapes, smaller
from normkit.surgery.recognition.probe import _far
from normkit.surgery.recognition.search import _whole


@pytest.mark.parametrize("name", NUMBERS)
def test_what_norms_are_recognized_by_is_drawn_alike_each_time(name):
    drawn = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        chance = torch.Generator().manual_seed(2)
        x = torch.randn(4, 60, 5, generator=chance)
        drawn.append(NUMBERS[name](x, Shape((4, 60, 5), True, (5,)), chance))
    assert torch.equal(drawn[0].nan_to_num(7), drawn[1].nan_to_num(7))


@pytest.mark.parametrize("features", [6, 7, 8, 9, 10, 16])
def test_no_two_axes_of_what_is_tried_are_alike(features):
    """What mixes up two of them would be taken for what it is not."""
    assert all(len({*shape.sizes}) == len(shape.sizes) for shape in shapes((features,)))


def test_what_is_drawn_has_all_digits_of_float64():
    drawn = draw(Shape((4, 60, 5), True, (5,)), "normal", seed=3)
    assert (drawn != drawn.float().double()).all()


@pytest.mark.parametrize(
    "there",
    [
        [Shape((7, 5), True, (5,)), Shape((4, 7, 5), True, (5,))],
        [Shape((2, 5, 4), False, (5,)), Shape((2, 5, 4, 6), False, (5,))],
    ],
    ids=["tokens", "images"],
)
def test_few_samples_of_the_same_ranks_are_tried_each_number_of_them(there):
    sizes = [shape.sizes for shape in smaller(there)]
    ranks = {len(shape.sizes) for shape in there}
    assert {len(one) for one in sizes} == ranks
    assert {one[0] for one in sizes} >= set(range(2, FEW))
    assert all(min(one) > 0 and one[there[0].axes[0]] == 5 for one in sizes)


def test_some_numbers_of_a_vector_are_zero_and_some_vectors_are():
    drawn = draw(Shape((40, 60), True, (60,)), "with zeros", seed=3)
    shares = (drawn == 0).double().mean(1)
    assert 0 < (shares == 1).sum() < 20
    assert ((shares > 0.1) & (shares < 0.9)).sum() > 20


def test_outliers_are_few_and_far_larger_than_the_rest():
    sizes = draw(Shape((40, 60), True, (60,)), "with outliers", seed=3).abs()
    assert 0.02 < (sizes > 100).double().mean() < 0.1
    assert sizes.max() > 1e4
    assert 0.3 < sizes.median() < 1.2


@pytest.mark.parametrize("off", [0.5, -0.5])
def test_a_result_is_as_far_off_above_as_below(off):
    want = torch.tensor([[1.0, -2.0], [4.0, 2.0]])
    assert _far(want + off, want, (-1,)) == 0.25
    assert _far(want[:1], want, (-1,)) == float("inf")


def test_tokens_are_what_a_norm_is_for_that_takes_images_too_and_matrices_alone_are_not():
    matrix, tokens = Shape((24, 8), True, (8,)), Shape((6, 4, 8), True, (8,))
    image = Shape((6, 8, 4, 7), False, (8,))
    assert _whole([matrix, tokens], [matrix, tokens, image])
    assert _whole([image], [matrix, tokens, image])
    assert not _whole([matrix], [matrix, tokens])
    assert not _whole([matrix], [matrix, image])
    assert _whole([matrix], [matrix])
    assert not _whole([], [matrix])
