"""What methods of inference, low precision and federated learning do with NaN, ties, one row, and nothing at all."""

import pytest
import torch

import normkit as nk
from normkit.contract.subject import outputs

NAMES = sorted(name for room in ("inference", "quant", "federated") for name in nk.methods(room=room))
NAN_IS_TAKEN = {"residual-ebm-resample": "a NaN energy counts as 0"}
AT_LEAST = {"gaussian-normality": "two samples make a spread", "score-normalization": "the rank is drawn as 2 or 3"}
A_MEAN = {"fedlog-branches"}  # beside losses, of no samples
ONE_IS_REFUSED = {
    "ausuc": "seen must be true of one class",
    "residual-ebm-bounds": "at least 2 samples",
    "kivi": "does not divide D=1",  # a group of the example has two features
    "turboquant": "dim must be at least 2",  # a number alone has no direction
}
WITHOUT_ANY = {"disparity-decomposition": "counts of nobody", "fairness-frontier": "counts of nobody"}


def called(name, edit=lambda x: x, **sizes):
    card = nk.card(name)
    subject = card.kind.subject(card, **sizes)
    given = list(subject.inputs)
    if given and given[0].is_floating_point():
        given[0] = edit(given[0].clone())
    return [x for x in outputs(subject.call(*given)) if x.is_floating_point()]


def tried(*given, **sizes):
    """What a call returns, and the error that it raised."""
    try:
        return called(*given, **sizes), ""
    except ValueError as error:
        return [], str(error)


def holds_nan(found):
    return any(bool(x.isnan().any()) for x in found)


def with_nan(x):
    x.view(-1)[0] = torch.nan
    return x


@pytest.mark.parametrize("name", NAMES)
def test_a_nan_is_refused_by_name_or_seen_in_what_comes_out(name):
    card = nk.card(name)
    first = card.kind.subject(card).inputs[:1]
    if name in NAN_IS_TAKEN or not first or not first[0].is_floating_point():
        assert not holds_nan(called(name, with_nan))
        return
    found, error = tried(name, with_nan)
    assert "NaN" in error or holds_nan(found)


@pytest.mark.parametrize("name", NAMES)
def test_one_row_and_ties_give_numbers(name):
    if name in AT_LEAST:
        with pytest.raises(ValueError, match=r"at least 2|at most 1"):
            called(name, batch=1)
    else:
        assert not holds_nan(called(name, batch=1))
    if name in WITHOUT_ANY:
        with pytest.raises(ValueError, match="nor 0 everywhere"):
            called(name, torch.zeros_like)
    else:
        assert not holds_nan(called(name, torch.zeros_like))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_at_all_is_taken_or_named(name):
    found, error = tried(name, batch=0)
    named = any(word in error for word in ("empty", "a row", "one row", "at least 2", "at most 0"))
    assert named or not error
    assert not holds_nan(found) or name in A_MEAN or nk.card(name).kind.name == "loss"


@pytest.mark.parametrize("name", NAMES)
def test_one_class_or_feature_gives_numbers_or_is_named(name):
    found, error = tried(name, features=1)
    assert ONE_IS_REFUSED.get(name, "") in error
    assert bool(error) == (name in ONE_IS_REFUSED)
    assert not holds_nan(found)


def test_fewer_rows_than_classes_leave_the_others_out():
    nearest = nk.NearestMean(4, 5).fit(torch.eye(4)[:2], torch.tensor([3, 1]))
    assert nearest.predict(torch.eye(4)[:2]).tolist() == [3, 1]
    assert (nearest(torch.ones(3, 4)).isinf().sum(1) == 3).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_conformal_rank_that_is_whole_but_for_rounding_is_that_rank(dtype):
    levels = torch.tensor([k / 100 for k in range(1, 100)], dtype=dtype)
    errors = torch.arange(1.0, 100.0, dtype=dtype)
    quantiles = torch.zeros(99, 99, dtype=dtype)

    def shifts(levels):
        return nk.conformal_quantiles(errors, quantiles, levels, quantiles[:1])[0].tolist()

    assert shifts(levels) == list(range(1, 100))
    assert shifts(levels - 1e-4) == list(range(1, 100))
    assert shifts(levels + 1e-4) == [*range(2, 100), 99]


@pytest.mark.parametrize("reduction", [None, "npca"])
def test_a_gaussian_of_two_samples_or_of_one_kind_of_sample_is_refused(reduction):
    torch.manual_seed(0)
    one, two = torch.randn(2, 1, 3)
    for features in (torch.cat([one, two]), torch.cat([one, one, two, two]), one.expand(5, -1)):
        with pytest.raises(ValueError, match="GaussianNormality: features must have samples whose covariance has an"):
            nk.GaussianNormality(3, reduction=reduction).fit(features)
    with pytest.raises(ValueError, match=r"^GaussianNormality: features must have shape \(any, 3\)"):
        nk.GaussianNormality(3, reduction=reduction).fit(torch.zeros(5, 2))
    fitted = nk.GaussianNormality(3).fit(torch.cat([one, one, two]))
    assert float(fitted(one)[0]) == pytest.approx(float(fitted(torch.cat([one, two]))[0]))
    assert nk.GaussianNormality(1).fit(torch.tensor([[0.0], [2.0]]))(torch.tensor([[3.0]])).tolist() == [2.0]


def test_t3a_without_supports_is_refused_as_all_its_logits_would_be_0():
    with pytest.raises(ValueError, match="T3A: supports must be at least 1, or -1, not 0"):
        nk.T3A(4, 3, supports=0)
