"""What the contract does not ask of losses: rewards that are all equal, single rows, what comes out of odd batches."""

import math

import pytest
import scipy.stats
import torch

import normkit as nk
from normkit.loss.h_calibration import _borders
from sizes import Largest


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("mode", ["bnpo", "grpo", "dr-grpo", "rloo"])
@pytest.mark.parametrize("reward", [1.0, 0.7, 0.1])
@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_rewards_that_are_all_equal_have_no_advantage(mode, reward, eps):
    rewards, group = torch.full((71,), reward), (torch.arange(71) < 7).long()  # sums of so many are rounded
    assert (nk.bnpo(rewards, group, mode=mode, eps=eps) == 0).all()


def test_an_epoch_beyond_the_last_whose_labels_would_weigh_less_than_nothing_is_refused():
    loss, given = nk.PSKD(num_samples=4, num_classes=3, epochs=2), (numbers(4, 3), torch.tensor([0, 1, 2, 0]))
    order = torch.arange(4)
    loss(*given, order, 1)
    for epoch in (2, torch.tensor(2)):
        with pytest.raises(ValueError, match=r"PSKD: epoch must .* 1"):
            loss(*given, order, epoch)


@pytest.mark.parametrize("mode", ["bnpo", "grpo", "dr-grpo", "rloo"])
def test_a_large_batch_of_rewards_takes_memory_by_its_length_alone(mode):
    rewards, group = numbers(600).sigmoid(), torch.arange(600) % 150 - 70
    with Largest() as seen:
        nk.bnpo(rewards, group, mode=mode)
    assert seen.numbers == 600


@pytest.mark.parametrize("mode", ["delta-l", "dr-grpo", "grpo", "dapo"])
def test_a_mask_equals_leaving_out(mode):
    loss, mask = numbers(3, 5), torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0]])
    method = nk.DeltaL(mode, max_length=5)
    short = method(loss[:, :3], mask[:, :3])
    torch.testing.assert_close(method(loss.masked_fill(mask == 0, math.nan), mask), short)


def test_dapo_divides_by_all_tokens_and_its_authors_epsilon():
    weights = nk.DeltaL("dapo").weights(torch.ones(1, 3, dtype=torch.float64))
    torch.testing.assert_close(weights, torch.tensor([1 / (3 + 1e-8)], dtype=torch.float64), rtol=1e-14, atol=0)


def test_conr_takes_labels_without_an_axis_and_rows_without_positives():
    x, y, p = numbers(6, 3), torch.tensor([0.0, 0.1, 5.0, 5.1, 9.0, 20.0]).double(), numbers(6)
    loss = nk.ConR()
    torch.testing.assert_close(loss(x, y, p), loss(x, y.unsqueeze(1), p.unsqueeze(1)))
    assert torch.isfinite(loss(x, y, p))
    with pytest.raises(ValueError, match="prediction"):
        loss(x, y, p[:5])


@pytest.mark.parametrize("key", ["features", "target", "prediction", "weights"])
def test_conr_says_which_of_its_inputs_is_wrong(key):
    given = {"features": numbers(4, 3), **dict.fromkeys(("target", "prediction", "weights"), numbers(4, 1).abs())}
    wrong = numbers(5) if key == "features" else numbers(3, 1)
    with pytest.raises(ValueError, match=rf"^ConR: {key} must have shape .* but .* shape is \({len(wrong)},"):
        nk.ConR()(**{**given, key: wrong})
    with pytest.raises(TypeError, match=f"^ConR: {key} must be a floating-point tensor, not torch.int64"):
        nk.ConR()(**{**given, key: given[key].long()})


def test_dense_conr_averages_each_sample_first():
    x, y, p = numbers(5, 2, 2), numbers(5, 3), numbers(5, 3, seed=1)
    loss = nk.ConR(window=0.3, variant="dense")
    mean = loss(x, y.mean(1, keepdim=True), p.mean(1, keepdim=True))
    torch.testing.assert_close(loss(x, y, p), mean)


def test_local_dimension_is_that_of_a_sheet():
    sheet = torch.cat([torch.rand(600, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(600, 8)], 1)
    found = nk.local_dimension(sheet, sheet, k=40)
    assert found.median() == pytest.approx(2.0, abs=0.3)


def test_equidistant_neighbours_have_an_infinite_dimension_and_no_gradient():
    x = torch.eye(5, dtype=torch.float64).requires_grad_()
    assert nk.local_dimension(x, x.detach(), k=3).isinf().all()
    nk.LDReg(k=3)(x).backward()
    assert (x.grad == 0).all()


@pytest.mark.parametrize("estimator", ["moments", "moments-eps", "mle"])
def test_samples_that_stand_three_times_leave_the_others_their_gradient(estimator):
    x = torch.cat([torch.zeros(3, 4, dtype=torch.float64), numbers(5, 4)]).requires_grad_()
    nk.LDReg(k=3, estimator=estimator)(x).backward()
    assert x.grad.isfinite().all()
    assert (x.grad[3:] != 0).any()


def test_mtard_forgets_a_loss_that_is_not_finite():
    loss, x = nk.MTARDBalance().double(), [numbers(4, 3, seed=s) for s in range(4)]
    loss(*x)
    before = {key: value.clone() for key, value in loss.state_dict().items() if key.startswith("weight")}
    loss(x[0] * math.inf, *x[1:])
    assert all(torch.equal(loss.state_dict()[key], value) for key, value in before.items())


def test_h_calibration_of_true_probabilities_is_below_that_of_sharper_ones():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2000, 3, generator=generator)
    target = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    loss = nk.HCalibration(3, window=200, loss_weight=1.0)
    assert loss(logits.softmax(1), target) < 0.5 * loss((3 * logits).softmax(1), target)


def test_h_calibration_refuses_logits():
    logits, target = numbers(6, 3), torch.arange(6) % 3
    with pytest.raises(ValueError, match="probs must be probabilities, from 0 to 1"):
        nk.HCalibration(3, window=2)(logits, target)
    assert nk.HCalibration(3, window=2)(logits.softmax(1).bfloat16(), target).isfinite()


def test_centers_are_the_means_of_the_classes_and_zero_where_there_is_none():
    features, labels = numbers(5, 2), torch.tensor([0, 2, 0, 0, 2])
    loss = nk.NDLoss(2, num_classes=4).to(features.dtype)
    loss.set_centers(features, labels)
    want = torch.zeros_like(loss.centers)
    want[0], want[2] = features[labels == 0].mean(0), features[labels == 2].mean(0)
    torch.testing.assert_close(loss.centers, want)


def test_centers_of_many_classes_take_memory_by_the_features_alone():
    loss = nk.NDLoss(8, num_classes=1000)
    with Largest() as seen:
        loss.set_centers(numbers(5000, 8).float(), torch.arange(5000) % 1000)
    assert seen.numbers == 5000 * 8


def test_repeating_oneself_pays_by_length_alone():
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6, 0, 0, 0], [1, 2, 3, 1, 2, 3, 1, 2, 3]])
    rewards = nk.regularized_relevance_reward(torch.ones(2), tokens, torch.tensor([6, 9]))
    plain = nk.regularized_relevance_reward(torch.ones(2), tokens, torch.tensor([6, 9]), repetition_penalty=False)
    assert plain[1] > plain[0]
    assert rewards[1] < rewards[0]
    alone = nk.regularized_relevance_reward(torch.ones(2), tokens, torch.tensor([6, 9]), length_incentive=False)
    torch.testing.assert_close(alone, torch.tensor([1.0, 3 / 7]))


def test_a_batch_larger_than_the_memory_of_storm_is_compared_with_itself():
    losses, logits, target = numbers(3, 32).abs(), numbers(3, 32, 3, seed=1), torch.arange(32) % 3
    logits = logits + 2 * torch.nn.functional.one_hot(target, 3)
    found = [nk.StormFeatures(3, window=w, batch_size=4)(losses, logits, target) for w in (1, 0)]
    torch.testing.assert_close(*found)


def test_storm_features_forget_after_an_epoch():
    given = numbers(3, 6).abs(), numbers(3, 6, 2, seed=1), torch.arange(6) % 2
    features = nk.StormFeatures(2, window=2, batch_size=6)
    first = features(*given)
    other = features(given[0] + 1, *given[1:])
    features.reset()
    torch.testing.assert_close(features(*given), first)
    assert not torch.equal(other[:, 1], first[:, 1])


def test_a_net_of_storm_needs_two_rows_and_labels():
    rescaler = nk.StormRescaler(4, num_classes=2)
    with pytest.raises(ValueError, match="at least 2 rows"):
        rescaler(torch.zeros(1, 4), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(ValueError, match="target is wanted"):
        rescaler(torch.zeros(3, 4))


def test_sigmoid_loss_keeps_its_initial_scale_to_the_last_digit():
    assert nk.SigmoidLoss().double().log_scale.item() == math.log(10)
    trained = nk.SigmoidLoss()
    trained.log_scale.data.fill_(1.5)
    assert trained.double().log_scale.item() == 1.5


def test_h_calibration_takes_a_window_of_none_and_no_odd_one():
    probs, target = numbers(12, 3).softmax(1), torch.arange(12) % 3
    assert nk.HCalibration(3, window=0)(probs, target).isfinite()
    for window in (-2, 3):
        with pytest.raises(ValueError, match=r"^HCalibration: window must be"):
            nk.HCalibration(3, window=window)


def test_bnpo_is_the_rewards_over_a_beta_density_of_the_means():
    rewards, group = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0]).double(), torch.tensor([0, 0, 0, 1, 2, 2, 3])
    p = torch.tensor([2 / 3, 0.0, 0.5, 0.0]).double()  # of a single sample it is 0
    mean, var = p.mean(), p.var()
    k = mean * (1 - mean) / var - 1
    alpha, beta = (max(float(1 + k * part / 3), 1.0) for part in (mean, 1 - mean))
    weight = (1 / torch.from_numpy(scipy.stats.beta(alpha, beta).pdf(p.numpy()))).clamp(max=1e6)
    torch.testing.assert_close(nk.bnpo(rewards, group), weight[group] * (rewards - p[group]))
    torch.testing.assert_close(
        nk.bnpo(rewards * 4 - 3, group, min_value=-3, max_value=1), weight[group] * (rewards - p[group])
    )


@pytest.mark.parametrize("mode, single", [("grpo", 1 / (1 + 1e-6)), ("dr-grpo", 1.0), ("rloo", 1.0)])
def test_a_single_sample_has_a_mean_of_0_and_a_deviation_of_1(mode, single):
    found = nk.bnpo(torch.tensor([1.0, 1.0, 0.0, 0.5]).double(), torch.tensor([0, 1, 1, 1]), mode=mode)
    assert found[0] == pytest.approx(single, rel=1e-9)
    assert found[1:].sum() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("limits", [(1.0, 1.0), (2.0, 1.0)])
def test_limits_of_rewards_with_nothing_between_are_refused(limits):
    with pytest.raises(ValueError, match=r"^bnpo: min_value must be below max_value=1\.0"):
        nk.bnpo(torch.ones(2), torch.zeros(2, dtype=torch.int64), min_value=limits[0], max_value=limits[1])


def test_the_local_dimension_of_wide_features_takes_no_more_memory_than_these():
    features = numbers(32, 512).requires_grad_()
    with Largest() as seen:
        nk.LDReg(k=16)(features).backward()
    assert seen.numbers == features.numel()


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_the_gradient_of_a_local_dimension_is_that_of_the_distances(offset):
    x = (numbers(40, 3) @ numbers(3, 24, seed=1) + offset).float()
    x[1] = x[0]
    gradients = []
    for of_differences in (False, True):
        data = x.clone().requires_grad_()
        if of_differences:
            apart = torch.cdist(data, x, compute_mode="donot_use_mm_for_euclid_dist")
            nearest = apart.topk(6, largest=False).values[:, 1:]
            dims = nearest[:, :-1].mean(1) / (nearest[:, -1] - nearest[:, :-1].mean(1) + 1e-4)
        else:
            dims = nk.local_dimension(data, x, k=5, estimator="moments-eps")
        dims.log().sum().backward()
        gradients.append(data.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weighting", ["clustered", "equal_width", "unweighted"])
def test_h_calibration_keeps_no_more_of_many_classes_than_of_few(weighting):
    logits, target = numbers(30, 20).requires_grad_(), torch.arange(30) % 20
    loss, kept = nk.HCalibration(20, weighting=weighting, window=4), []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x)
    with Largest() as seen, hooks:
        loss(logits.softmax(1), target).backward()
    assert seen.numbers <= 2 * logits.numel()
    assert sum(kept) < 10 * logits.numel()


@pytest.mark.parametrize("weighting", ["clustered", "equal_width"])
def test_h_calibration_counts_an_event_on_an_edge_as_its_definition_does(weighting):
    probs = (4 * numbers(12, 3).sigmoid()).round() / 4  # edges of bins, and half way between centroids
    target, centroids = torch.arange(12) % 3, torch.tensor([0.125, 0.375, 0.375, 0.875]).double()
    loss = nk.HCalibration(
        3, weighting=weighting, window=2, num_bins=4, leave_one_out=False, loss_weight=1.0, epsilon=0.0
    )
    order = probs.flatten().argsort(stable=True)
    p = probs.flatten()[order]
    apart = (probs - torch.nn.functional.one_hot(target)).flatten()[order]
    errors = torch.nn.functional.avg_pool1d(apart[None], 3, stride=1, padding=1)[0].abs()
    if weighting == "clustered":
        nearest = (p.unsqueeze(1) - centroids).abs().argmin(1)
        inside = [nearest == k for k in range(4)]
    else:
        inside = [(p >= k / 4) & (p <= (k + 1) / 4) for k in range(4)]
    want = torch.stack([errors[own].sum() / (own.sum() + 1e-5) for own in inside]).mean()
    torch.testing.assert_close(loss(probs, target, centroids), want)


@pytest.mark.parametrize("centers", [[0.1, 0.1, 0.3, 0.5, 0.5, 0.5], [0.2, 0.2], [0.4], [0.0, 0.25, 1.0]])
def test_the_nearest_center_is_the_first_of_equal_ones(centers):
    centers, p = torch.tensor(centers), torch.linspace(-0.25, 1.25, 121)
    nearest = torch.searchsorted(_borders(centers), p)
    assert torch.equal(nearest, (p.unsqueeze(1) - centers).abs().argmin(1))


def test_a_single_reward_is_weighted_too():
    rewards, reference = numbers(5), numbers(1)
    column = nk.RewardTransform(weights=[2.0])(rewards.unsqueeze(1), reference)
    assert torch.equal(nk.RewardTransform(weights=[2.0])(rewards, reference), column)
    with pytest.raises(ValueError, match="of 1 kind, but weights has 2"):
        nk.RewardTransform(weights=[2.0, 1.0])(rewards, reference)


def test_the_loss_of_gradnorms_weights_reaches_nothing_but_them():
    method, losses, lengths = nk.GradNorm(2), torch.tensor([1.0, 2.0]), torch.tensor([0.5, 3.0])
    method(losses)
    method.gradnorm_loss(torch.tensor([1.0, 1.0]), lengths)  # the first losses
    losses, lengths = losses.requires_grad_(), lengths.requires_grad_()
    method.gradnorm_loss(losses, lengths).backward()
    assert losses.grad is None
    assert lengths.grad is None
    assert method.weight.grad.abs().min() > 0


def test_a_step_of_gradnorms_weights_turns_no_sign_and_holds_the_long_gradient_down():
    method, losses = nk.GradNorm(2), torch.ones(2)
    first = method.update(losses, torch.tensor([100.0, 1.0]))
    torch.testing.assert_close(first, 2 * torch.tensor([0.001, 1.025]) / 1.026)
    for _ in range(20):
        weight = method.update(losses, torch.tensor([100.0, 1.0]))
        assert weight.min() > 0
        assert weight.sum().item() == pytest.approx(2)
