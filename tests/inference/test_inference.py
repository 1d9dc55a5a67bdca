"""What the contract does not ask of the inference room: scikit-learn, generation, steering, bad input, at real use."""

import copy
import io
import math

import numpy as np
import pytest
import torch

import normkit as nk
from normkit.optional import let_torchvision_load
from sizes import Largest


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_gaussian_normality_stands_in_a_pipeline_with_arrays():
    pytest.importorskip("sklearn")
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.random.default_rng(0).normal(size=(50, 4))
    line = make_pipeline(StandardScaler(), clone(nk.GaussianNormality(reduction="pca", variance_threshold=0.5)))
    scores = line.fit(x).score_samples(np.concatenate([x, 10 * x[:3]]))
    assert isinstance(scores, np.ndarray)
    assert scores[-3:].max() < scores[:-3].mean()


def test_other_arguments_leave_type_place_and_mode():
    for place in ({"dtype": torch.float64}, {"device": "meta"}):
        module = nk.NearestMean(3, 2).to(**place).eval()
        mean = module.mean
        assert module.set_params(num_features=5).mean.shape == (2, 5)
        assert (module.mean.dtype, module.mean.device, module.training) == (mean.dtype, mean.device, False)


@pytest.mark.parametrize("reduction", [None, "pca", "npca"])
def test_what_was_fitted_loads_into_one_that_knows_no_sizes(reduction):
    fitted = nk.GaussianNormality(reduction=reduction, variance_threshold=0.5).double().fit(numbers(30, 5))
    file = io.BytesIO()
    torch.save(fitted.state_dict(), file)
    file.seek(0)
    other = nk.GaussianNormality(reduction=reduction).double()
    with pytest.raises(ValueError, match="fit"):
        other(numbers(3, 5))
    other.load_state_dict(torch.load(file))
    torch.testing.assert_close(other(numbers(3, 5)), fitted(numbers(3, 5)), rtol=0, atol=0)


def test_a_share_of_variance_beyond_one_is_refused():
    with pytest.raises(ValueError, match=r"^GaussianNormality: variance_threshold must .* not 1\.5"):
        nk.GaussianNormality(3, variance_threshold=1.5)


def test_gaussian_normality_has_no_gradient_at_the_mean():
    fitted = nk.GaussianNormality(3).double().fit(numbers(9, 3))
    x = fitted.mean.clone().unsqueeze(0).requires_grad_()
    fitted(x).sum().backward()
    assert x.grad.abs().max() == 0


def test_gaussian_normality_is_shrunk_as_by_scikit_learn():
    covariance = pytest.importorskip("sklearn.covariance")
    x = numbers(12, 7)
    want = covariance.LedoitWolf().fit(x.numpy()).precision_
    torch.testing.assert_close(nk.GaussianNormality(7).double().fit(x).precision, torch.from_numpy(want))


def test_where_the_first_component_has_all_the_share_it_is_said_that_only_the_last_is_kept():
    x = numbers(12, 4) * torch.tensor([100.0, 1.0, 1.0, 1.0])
    words = "GaussianNormality: the first component alone .* only the last is kept"
    with pytest.warns(UserWarning, match=words) as seen:
        assert nk.GaussianNormality(4, reduction="npca").double().fit(x).components.shape == (1, 4)
    assert [warning.filename for warning in seen] == [__file__]


@pytest.mark.parametrize("reduction, kept", [("pca", 4), ("npca", 2)])
def test_a_share_of_variance_that_only_all_components_have(reduction, kept):
    model = nk.GaussianNormality(4, reduction=reduction, variance_threshold=1.0).double().fit(numbers(12, 4))
    _, _, components = torch.linalg.svd(numbers(12, 4) - numbers(12, 4).mean(0))
    torch.testing.assert_close(model.components.abs(), components[-kept:].abs())


def test_the_threshold_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    for features in (1, 7, 2048):
        want = math.sqrt(stats.chi2.ppf(0.99, features))
        assert nk.gaussian_normality_threshold(num_features=features, probability=0.99).item() == pytest.approx(want)


def test_nearest_mean_finds_its_sizes_and_loads_into_one_that_knows_none():
    x, y = numbers(20, 4), torch.arange(20) % 3
    found = nk.NearestMean().double().fit(x, y)
    torch.testing.assert_close(found(x), nk.NearestMean(4, 3).double().fit(x, y)(x))
    other = nk.NearestMean().double()
    with pytest.raises(ValueError, match="call fit"):
        other.update(x, y)
    other.load_state_dict(found.state_dict())
    assert torch.equal(other.predict(x), found.predict(x))
    with pytest.raises(ValueError, match="features must have shape"):
        other(x[:, :3])
    assert found.fit(x[:, :2], y % 2)(x[:, :2]).shape == (20, 2)


def test_nearest_mean_does_not_depend_on_the_order_of_batches():
    x, y = numbers(20, 4), torch.arange(20) % 3
    whole = nk.NearestMean(4, 3).double().fit(x, y)
    parts = nk.NearestMean(4, 3).double()
    for some in torch.randperm(20).split(6):
        parts.update(x[some], y[some])
    torch.testing.assert_close(parts.mean, whole.mean)
    assert torch.equal(whole.predict(x), whole(x).argmax(1))
    before = parts.mean.clone()
    with pytest.raises(ValueError, match="target"):
        parts.fit(x, y + 1)
    assert torch.equal(parts.mean, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nearest_mean_goes_on_learning_in_half_precision(dtype):
    model = nk.NearestMean(1, 1, dtype=dtype, normalize=False)
    old = model.state_dict() | {"count": torch.zeros(1, dtype=dtype), "mean": torch.zeros(1, 1, dtype=dtype)}
    model.load_state_dict(old)
    for value in [0.0] * 300 + [1.0] * 2700:
        model.update(torch.tensor([[value]], dtype=dtype), torch.tensor([0]))
    assert model.count == 3000
    torch.testing.assert_close(model.mean.item(), 0.9, rtol=1e-4, atol=0)


def test_many_classes_far_from_the_origin_are_distinguished():
    """A distance by a product of matrices would lose it beside the squares of the lengths."""
    means = 1e4 + numbers(40, 3).float()
    model = nk.NearestMean(3, 40, normalize=False).fit(means, torch.arange(40))
    want = torch.linalg.vector_norm(means.unsqueeze(1) - means, dim=2)
    torch.testing.assert_close(-model(means), want, rtol=1e-5, atol=0)


def test_rejection_sampling_in_generate_keeps_to_the_constraint():
    let_torchvision_load()
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=11, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = 0
    model = transformers.GPT2LMHeadModel(config).eval()
    processor = nk.RejectionSampling(lambda ids, token: token % 2 == 1, generator=torch.Generator().manual_seed(0))
    out = model.generate(torch.tensor([[1, 3], [5, 7]]), do_sample=True, max_new_tokens=6, logits_processor=[processor])
    assert out.shape == (2, 8)
    assert (out % 2 == 1).all()
    assert processor.log_weight.shape == (2,)
    assert processor.calls < 2 * 6 * 11


@pytest.mark.parametrize("end", [1, [1, 5]])
def test_rejection_sampling_asks_nothing_behind_the_end_of_a_text(end):
    """``generate`` calls with all rows until the last has ended, and 1 in a prompt ends nothing."""
    asked, uniform = [], torch.zeros(2, 6)
    processor = nk.RejectionSampling(lambda ids, token: asked.append(ids) or token == ids[0], eos_token_id=end)
    prompts = torch.tensor([[1, 1], [3, 1]])
    first, weight = processor(prompts, uniform), processor.log_weight
    assert first.argmax(1).tolist() == [1, 3]
    asked.clear()
    second = processor(torch.cat([prompts, first.argmax(1, keepdim=True)], 1), uniform)
    assert torch.equal(second[0], uniform[0])
    assert second[1].argmax() == 3
    assert {ids[0].item() for ids in asked} == {3}
    assert processor.log_weight[0] == weight[0]
    assert processor.log_weight[1] != weight[1]
    processor.reset()
    assert processor(prompts, uniform)[0].argmax() == 1


def test_weights_of_rejection_sampling_estimate_the_mass_that_is_allowed():
    log_probs = torch.log_softmax(numbers(6), 0)
    allowed = torch.tensor([1, 0, 1, 0, 0, 1])
    sampler, generator = nk.create("awrs"), torch.Generator().manual_seed(0)
    drawn = [sampler.sample(log_probs, allowed.bool().tolist().__getitem__, generator) for _ in range(4000)]
    weights = torch.tensor([weight for _, weight, _ in drawn]).exp()
    error = 4 * weights.std() / math.sqrt(len(weights))
    assert abs(weights.mean() - log_probs.exp()[allowed.bool()].sum()) < error


def test_steering_moves_a_model_to_what_it_should_do():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
    )
    source, target = torch.randn(32, 3), torch.randn(24, 3) + 2
    maps = {name: nk.LinEAS(8, sparsity=0.01) for name in ("1", "3")}
    optimizer = torch.optim.Adam([p for own in maps.values() for p in own.parameters()], lr=0.02)
    before = nk.steering_loss(model, maps, source, target).item()
    for _ in range(60):
        optimizer.zero_grad()
        nk.steering_loss(model, maps, source, target).backward()
        optimizer.step()
        for own in maps.values():
            own.shrink(0.02)
    assert nk.steering_loss(model, maps, source, target).item() < 0.3 * before
    plain = model(source)
    with nk.steered(model, maps):
        assert not torch.equal(model(source), plain)
    assert torch.equal(model(source), plain)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tokens_of_half_precision_are_averaged_in_single(dtype):
    x, y = (100 + numbers(4, 1000, 2, seed=seed).to(dtype) for seed in (0, 1))
    identity = torch.nn.Identity()
    mask = torch.ones(4, 1000, dtype=torch.bool)
    want = nk.steering_loss(identity, {"": nk.LinEAS(2)}, x.float(), y.float())
    for masks in (None, (mask, mask)):
        loss = nk.steering_loss(identity, {"": nk.LinEAS(2, dtype=dtype)}, x, y, masks)
        torch.testing.assert_close(loss, want, rtol=0.05, atol=0)


def test_a_layer_that_returns_a_tuple_is_named():
    model, x = torch.nn.Sequential(torch.nn.GRU(2, 2)), torch.zeros(3, 2)
    with pytest.raises(TypeError, match="maps: layer '0' must return a tensor, not tuple"):
        nk.steering_loss(model, {"0": nk.LinEAS(2)}, x, x)


def test_a_shrunk_map_comes_to_the_identity_and_not_beyond():
    own = nk.LinEAS(2, group_sparsity=1.0)
    with torch.no_grad():
        own.weight.copy_(torch.tensor([1.3, 1.0])), own.bias.copy_(torch.tensor([0.0, 0.4]))
    own.shrink(0.25)
    torch.testing.assert_close(own.weight, torch.tensor([1.15, 1.0]))
    torch.testing.assert_close(own.bias, torch.tensor([0.0, 0.2]))
    for lr in (0.6, 0.1):
        own.shrink(lr)
        assert own.weight.tolist() == [1, 1]
        assert own.bias.tolist() == [0, 0]
    one = nk.LinEAS(2, sparsity=1.0)
    with torch.no_grad():
        one.weight.copy_(torch.tensor([1.3, 0.9])), one.bias.copy_(torch.tensor([-0.1, 0.4]))
    one.shrink(0.2)
    torch.testing.assert_close(one.weight, torch.tensor([1.1, 1.0]))
    torch.testing.assert_close(one.bias, torch.tensor([0.0, 0.2]))


def test_steering_acts_in_a_real_generate():
    let_torchvision_load()
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=11, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = 0
    model = transformers.GPT2LMHeadModel(config).eval()
    own = nk.LinEAS(16)
    with torch.no_grad():
        own.bias.copy_(100 * model.lm_head.weight[7])  # what is read off is the token 7
    prompt = torch.tensor([[1, 3], [5, 2]])
    plain = model.generate(prompt, do_sample=False, max_new_tokens=5, min_new_tokens=5)
    with nk.steered(model, {"transformer.ln_f": own}):
        assert (model.generate(prompt, do_sample=False, max_new_tokens=5)[:, 2:] == 7).all()
    assert torch.equal(model.generate(prompt, do_sample=False, max_new_tokens=5, min_new_tokens=5), plain)


def test_merging_leaves_other_tensors_to_the_base():
    base = {"w": numbers(3, 4), "count": torch.tensor(7)}
    tuned = [{"w": base["w"] + 0.1 * numbers(3, 4, seed=i), "count": torch.tensor(9)} for i in (1, 2)]
    merged = nk.create("pcb-merge", ratio=0.5).merge(base, tuned)
    assert merged["count"] == 7
    assert not torch.equal(merged["w"], base["w"])
    changes = torch.stack([state["w"].flatten() - base["w"].flatten() for state in tuned])
    want = base["w"].flatten() + nk.pcb_merge(changes, ratio=0.5).merged
    torch.testing.assert_close(merged["w"].flatten(), want, rtol=1e-12, atol=1e-12)
    alone = nk.create("pcb-merge").merge(base, tuned, skip=["count"])
    assert alone.keys() == base.keys()
    with pytest.raises(ValueError, match="tuned"):
        nk.create("pcb-merge").merge(base, [{"w": base["w"]}])


def test_scores_put_into_vectors_are_the_normalized_scores():
    query, gallery, background = numbers(4, 3), numbers(5, 3, seed=1), numbers(12, 3, seed=2)
    method = nk.create("score-normalization", rank=3, factor=1.5)
    levels = method.level(query @ background.T)
    longer, other = method.augment(query, gallery, levels)
    torch.testing.assert_close(longer @ other.T, method(query @ gallery.T, query @ background.T))


def test_a_hub_of_more_queries_than_half_precision_counts_has_its_number():
    scores = torch.tensor([[1.0, 0.0]]).half().expand(70_001, 2)
    assert nk.hubness(scores, top=1).largest.item() == 70_001


def test_hubs_lose_what_they_have_too_much_of():
    """Items of unequal length: the long ones are found by everyone, and the right ones seldom."""
    gallery = numbers(300, 50) / math.sqrt(50) * (0.3 * numbers(300, 1, seed=7)).exp()
    queries, bank = (gallery + 0.15 * numbers(300, 50, seed=s) for s in (1, 2))
    raw, others = queries @ gallery.T, bank @ gallery.T
    right = (raw.argmax(1) == torch.arange(300)).double().mean()
    for normalized in (
        nk.inverted_softmax(raw, others, beta=5.0),
        nk.csls(raw, others),
        nk.mutual_proximity(raw, others),
    ):
        assert nk.hubness(normalized).full_skewness < 0.5 * nk.hubness(raw).full_skewness
        assert (normalized.argmax(1) == torch.arange(300)).double().mean() > right + 0.2


RETRIEVAL = {
    "inverted-softmax": [{"beta": 5.0}, 1],
    "dynamic-inverted-softmax": [{"top": 3, "beta": 5.0}, 1],
    "score-normalization": [{"rank": 4, "reduction": "mean"}, 1],
    "csls": [{"k": 3}, 1],
    "mutual-proximity": [{}, 1],
    "dual-inverted-softmax": [{"beta_query": 4.0}, 2],
    "dual-dynamic-inverted-softmax": [{"top": 2}, 2],
}


@pytest.mark.parametrize("rows", [8, 30])
@pytest.mark.parametrize("method", RETRIEVAL)
def test_retrieval_in_blocks_is_that_of_the_whole_matrix(method, rows, monkeypatch):
    monkeypatch.setattr("normkit.inference.retrieval.NUMBERS", rows * 700)
    monkeypatch.setattr("normkit.inference.retrieval.ROWS", rows, raising=False)
    options, several = RETRIEVAL[method]
    queries, gallery = numbers(30, 16), numbers(5000, 16, seed=1)
    banks = [numbers(25, 16, seed=s + 2) for s in range(several)]
    found = nk.retrieve(queries, gallery, *banks, method=method, count=7, **options)
    plain = method == "score-normalization"
    others = [queries @ bank.T if plain else bank @ gallery.T for bank in banks]
    want = nk.create(method, **options)(queries @ gallery.T, *others).topk(7, dim=1)
    torch.testing.assert_close(found.scores, want.values)
    assert torch.equal(found.index, want.indices)


@pytest.mark.parametrize("method", [name for name in RETRIEVAL if "dynamic" in name])
def test_of_items_that_are_equally_good_the_first_is_a_hub_in_any_block(method, monkeypatch):
    monkeypatch.setattr("normkit.inference.retrieval.NUMBERS", 200 * 16)
    base, queries, *banks = (numbers(n, 8, seed=n).round() for n in (30, 200, 60, 61)[: 2 + RETRIEVAL[method][1]])
    gallery = base.repeat(4, 1)
    found = nk.retrieve(queries, gallery, *banks, method=method, count=5, **sharpness(method, 0.5))
    whole, *others = (own @ gallery.T for own in (queries, *banks))
    want = nk.create(method, **sharpness(method, 0.5))(whole, *others)
    torch.testing.assert_close(found.scores, want.topk(5).values)
    torch.testing.assert_close(found.scores, want.gather(1, found.index))


@pytest.mark.filterwarnings("ignore:retrieve. beta.* makes")
@pytest.mark.parametrize("beta", [0.5, 20.0])
@pytest.mark.parametrize("method", [name for name in RETRIEVAL if "dynamic" in name])
def test_exponentials_that_round_to_0_or_infinity_keep_the_order_of_retrieval(method, beta):
    """With queries that no bank, one or both touch, and scores of either sign."""
    gallery = torch.nn.functional.normalize(numbers(40, 16), dim=1).float() * 4
    queries, *banks = (gallery + numbers(40, 16, seed=seed).float() * 0.3 for seed in range(3))
    banks = [queries[:20], queries[10:30]][: RETRIEVAL[method][1]]
    found = nk.retrieve(queries, gallery, *banks, method=method, count=40, **sharpness(method, beta))
    whole, *others = (own.double() @ gallery.double().T for own in (queries, *banks))
    want = nk.create(method, **sharpness(method, beta))(whole, *others)
    meant, limits = want.gather(1, found.index), torch.finfo(torch.float32)
    torch.testing.assert_close(meant, want.sort(1, descending=True).values, rtol=1e-3, atol=0)
    usual = (found.scores.abs() > limits.tiny) & (found.scores.abs() < limits.max)
    torch.testing.assert_close(found.scores[usual].double(), meant[usual], rtol=1e-3, atol=0)
    assert usual.all() == (beta < 1)


def sharpness(method, beta):
    return {"beta_query": beta, "beta_gallery": beta} if method.startswith("dual") else {"beta": beta}


@pytest.mark.parametrize("method", [None, *RETRIEVAL])
def test_autocast_changes_no_score_of_retrieval(method):
    options, several = RETRIEVAL.get(method, [{}, 0])
    banks = [numbers(9, 5, seed=seed + 2).float() for seed in range(several)]
    queries, gallery = numbers(6, 5).float(), numbers(12, 5, seed=1).float()
    want = nk.retrieve(queries, gallery, *banks, method=method, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = nk.retrieve(queries, gallery, *banks, method=method, **options).scores
    assert torch.equal(scores, want.scores)


@pytest.mark.parametrize("make", [lambda: nk.NearestMean(), lambda: nk.GaussianNormality(reduction="pca")])
def test_autocast_changes_no_number_that_is_fitted(make):
    x, target = numbers(50, 6).float(), torch.arange(50) % 3
    want = make().fit(x, target)(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(make().fit(x, target)(x), want)


def test_retrieval_takes_arrays_and_names_what_is_missing():
    table = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    assert (nk.retrieve(table, table * 9, count=1).index == (table @ table.T).argmax(1)[:, None]).all()
    with pytest.raises(ValueError, match="banks must be 1"):
        nk.retrieve(table, table, method="inverted-softmax")
    with pytest.raises(TypeError, match="betta"):
        nk.retrieve(table, table, table, method="inverted-softmax", betta=1)


@pytest.mark.parametrize("method", [None, *RETRIEVAL])
def test_retrieval_takes_tables_of_unlike_precision(method):
    options, several = RETRIEVAL.get(method, [{}, 0])
    tables = [numbers(20, 8, seed=s) for s in range(2 + several)]
    found = nk.retrieve(tables[0].float(), *tables[1:], method=method, count=5, **options)
    want = nk.retrieve(tables[0].float().double(), *tables[1:], method=method, count=5, **options)
    assert torch.equal(found.index, want.index)
    assert torch.equal(found.scores, want.scores)


def unit_vectors(n, seed, dtype=torch.float16):
    return torch.nn.functional.normalize(numbers(n, 16, seed=seed), dim=1).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", [None, *RETRIEVAL])
def test_retrieval_in_half_precision_is_that_of_the_whole_matrix(method, dtype):
    options, several = RETRIEVAL.get(method, [{}, 0])
    queries, gallery, *banks = (unit_vectors(n, n, dtype) for n in (30, 500, 200, 201)[: 2 + several])
    found = nk.retrieve(queries, gallery, *banks, method=method, count=7, **options)
    others = [(queries, bank) if method == "score-normalization" else (bank, gallery) for bank in banks]
    whole, *others = (own.float() @ items.float().T for own, items in [(queries, gallery), *others])
    normalized = whole if method is None else nk.create(method, **options)(whole, *others)
    best = normalized.topk(7).values
    torch.testing.assert_close(found.scores, best.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=0)
    torch.testing.assert_close(normalized.gather(1, found.index), best, rtol=1e-4, atol=0)


@pytest.mark.filterwarnings("ignore:retrieve. ")
@pytest.mark.parametrize("method", [None, *RETRIEVAL])
def test_products_beyond_half_precision_keep_the_order_of_retrieval(method):
    several = RETRIEVAL[method][1] if method else 0
    tables = [(60 * numbers(n, 64, seed=n)).half() for n in (20, 100, 30, 31)[: 2 + several]]
    options = sharpness(method, 1e-5) if method and "softmax" in method else {}
    found = nk.retrieve(*tables, method=method, count=20, **options)
    want = nk.retrieve(*(table.float() for table in tables), method=method, count=20, **options)
    assert torch.equal(found.index, want.index)
    assert torch.equal(found.scores, want.scores.half())


def test_scores_that_are_not_finite_are_warned_of():
    queries, gallery = (60 * numbers(n, 64, seed=n) for n in (20, 100))
    with pytest.warns(UserWarning, match=r"retrieve: [\d.]+% of the scores are beyond torch.float16; take") as seen:
        scores = nk.retrieve(queries.half(), gallery.half(), count=90).scores
    assert scores.isinf().any()
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match=r"retrieve: 100.0% of the scores are beyond torch.float32; take"):
        nk.retrieve(1e25 * queries.float(), 1e25 * gallery.float(), gallery.float(), method="csls")


@pytest.mark.parametrize("method", ["inverted-softmax", "dual-inverted-softmax"])
def test_a_bank_of_more_rows_than_half_precision_counts_leaves_the_order_of_its_items(method):
    tables = [unit_vectors(n, n) for n in (3, 50, 70_000, 70_001)[: 2 + RETRIEVAL[method][1]]]
    found = nk.retrieve(*tables, method=method, count=3, **sharpness(method, 0.01))
    whole = [rows.float() @ tables[1].float().T for rows in (tables[0], *tables[2:])]
    assert torch.equal(found.index, nk.create(method, **sharpness(method, 0.01))(*whole).topk(3).indices)


@pytest.mark.parametrize(
    "method, option",
    [
        ("inverted-softmax", {"beta": -1.0}),
        ("dynamic-inverted-softmax", {"top": 0}),
        ("csls", {"k": 0}),
        ("score-normalization", {"rank": 2.5}),
    ],
)
def test_an_option_that_the_method_refuses_is_refused_by_retrieval_in_its_words(method, option):
    table = numbers(4, 4)
    (name,) = option
    with pytest.raises((TypeError, ValueError), match=f"^{method}: {name} must "):
        nk.retrieve(table, table, table, method=method, **option)


@pytest.mark.parametrize("name, place", [("queries", 0), ("gallery", 1), ("banks", 2)])
def test_infinite_vectors_are_refused_by_name(name, place):
    tables = [numbers(20, 8, seed=s) for s in range(3)]
    tables[place][3, 4] = math.inf
    with pytest.raises(ValueError, match=f"retrieve: {name} must be finite, but has 1 infinite value"):
        nk.retrieve(*tables, method="csls")


def test_vectors_that_hold_no_numbers_have_none_that_are_infinite():
    queries, gallery = (torch.empty(n, 8, device="meta") for n in (3, 5))
    assert nk.retrieve(queries, gallery).index.shape == (3, 5)


@pytest.mark.parametrize("method", ["inverted-softmax", "dynamic-inverted-softmax"])
def test_scores_that_a_large_beta_makes_infinite_are_warned_of(method, recwarn):
    tables = [torch.nn.functional.normalize(numbers(n, 16, seed=n).float(), dim=1) for n in (20, 300, 21)]
    nk.retrieve(*tables, method=method, beta=20.0)
    assert not recwarn
    said = r"retrieve: beta=1000.0 makes [\d.]+% of the scores infinite in torch.float32; take a smaller one"
    with pytest.warns(UserWarning, match=said) as seen:
        found = nk.retrieve(*tables, method=method, beta=1000.0)
    assert found.scores.isinf().any()
    assert seen[0].filename == __file__


@pytest.mark.parametrize("method", ["dynamic-inverted-softmax", "dual-dynamic-inverted-softmax"])
def test_no_beta_is_held_against_long_vectors(method):
    """Plain products stay where a query is near to no hub."""
    tables = [(60 * numbers(n, 64, seed=n)).half() for n in (20, 100, 30, 31)[: 2 + RETRIEVAL[method][1]]]
    with pytest.warns(UserWarning, match="are beyond torch.float16; take vectors of a wider type, or shorter ones$"):
        nk.retrieve(*tables, method=method, **sharpness(method, 1e-5))


def test_vectors_of_the_widest_type_can_only_be_shorter():
    with pytest.warns(UserWarning, match="are beyond torch.float64; take shorter vectors$"):
        nk.retrieve(*(1e160 * numbers(n, 8, seed=n) for n in (3, 5)))


def test_conformal_quantiles_cover_at_their_level():
    y, new = numbers(400), numbers(4000, seed=1)
    levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    wrong = torch.zeros(4000, 3, dtype=torch.float64)
    shifted = nk.conformal_quantiles(y, wrong[:400], levels, wrong)
    covered = (new.unsqueeze(1) <= shifted).double().mean(0)
    # the share is a Beta variable of the 400; three of its deviations
    assert ((covered - levels).abs() < 3 * (levels * (1 - levels) * (1 / 400 + 1 / 4000)).sqrt()).all()


NAN = torch.tensor([[0.0, math.nan]])
ONE = torch.zeros(1, 2)


@pytest.mark.parametrize(
    "name, options, given, word",
    [
        ("hubness", {}, [NAN], "similarity has NaN"),
        ("hubness", {}, [torch.zeros(0, 3)], "similarity must not be empty"),
        ("inverted-softmax", {}, [ONE, NAN], "bank has NaN"),
        ("inverted-softmax", {}, [ONE, torch.zeros(0, 2)], "bank must have at least one row"),
        ("dual-inverted-softmax", {}, [ONE, ONE, torch.zeros(1, 3)], "gallery_bank must have shape"),
        ("dynamic-inverted-softmax", {"top": 0}, [ONE, ONE], "top must be at least 1"),
        ("score-normalization", {"rank": 3}, [ONE, ONE], "rank must be at most 2"),
        ("answer-choice-normalization", {"mode": "pmi"}, [ONE], "against is wanted"),
        ("answer-choice-normalization", {"mode": "length"}, [ONE, ONE], "against must hold lengths above 0"),
        ("ausuc", {}, [ONE, torch.tensor([2]), torch.tensor([True, False])], "target must lie in 0 .. 1"),
        ("ausuc", {}, [ONE, torch.tensor([1]), torch.tensor([True, True])], "seen must be true of one"),
        ("pit-calibration-error", {}, [torch.tensor([1.1])], r"pit must lie in \[0, 1\]"),
        ("pit-calibration-error", {}, [torch.zeros(0)], "pit must not be empty"),
        ("quantile-recalibration", {}, [torch.zeros(0), torch.zeros(1)], "calibration must not be empty"),
        ("conformal-quantiles", {}, [torch.zeros(1), ONE, torch.tensor([0.5, 1.0]), ONE], "levels must lie between"),
        ("gaussian-normality-threshold", {"num_features": 3, "probability": 1.0}, [], "probability must lie between"),
        ("residual-ebm-bounds", {}, [torch.zeros(1)], "energy must end in at least 2"),
        ("local-dimension", {}, [torch.zeros(3, 2), torch.zeros(9, 2)], "data must have at least 4 rows"),
        ("pcb-merge", {"scale": [1.0]}, [torch.zeros(2, 3)], "scale must be a number or one for each of 2"),
    ],
)
def test_bad_input_is_named(name, options, given, word):
    with pytest.raises(ValueError, match=word):
        nk.create(name, **options)(*given)


def test_pits_that_rounding_put_outside_are_taken():
    assert nk.pit_calibration_error(torch.tensor([1 + 5e-5, -5e-5])).item() == pytest.approx(1 / 3)


def test_pit_entropy_of_a_single_value_is_0():
    assert nk.pit_entropy(torch.tensor([0.3])) == 0


def test_the_level_of_sar_averages_the_entropies_uphill():
    """At a learning rate of 0 the parameters stay, and each batch has the level of its own."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4)).double()
    model[2].weight.data.mul_(2)
    norm = model[1]
    theta = norm.weight.detach().clone().requires_grad_(), norm.bias.detach().clone().requires_grad_()
    head, body = copy.deepcopy(model[2]), copy.deepcopy(model[0])

    def entropy(x, weight, bias):
        p = torch.softmax(head(torch.layer_norm(body(x), (8,), weight, bias)), -1)
        return -(p * p.log()).sum(-1)

    adapter, level = nk.SAR(model, lr=0.0, rho=0.3, entropy_margin=1.2, recover=0.0), None
    for seed in range(3):
        x = 2 * numbers(16, 3, seed=seed)
        before = entropy(x, *theta)
        sure = before < 1.2
        g = torch.autograd.grad(before[sure].mean(), theta)
        length = sum(part.square().sum() for part in g).sqrt()
        uphill = entropy(x, *(p + 0.3 * part / length for p, part in zip(theta, g, strict=True)))
        mean = uphill[sure & (uphill < 1.2)].mean().item()
        level = mean if level is None else 0.9 * level + 0.1 * mean
        adapter(x)
        assert 0 < sure.sum() < 16
        assert adapter.level == pytest.approx(level, rel=1e-9)


@pytest.mark.parametrize(
    "label, draw, held",
    [
        (2, (0.0, 0.4, 0.0), [1, 2, 3, 4]),
        (2, (0.0, 0.6, 0.0), [0, 1, 3, 4]),
        (2, (0.0, 0.9, 0.9), [0, 1, 2, 4]),
        (1, (0.6, 0.0, 0.0), [0, 1, 3, 4]),
        (1, (0.7, 0.0, 0.0), [0, 1, 2, 3]),
    ],
)
def test_every_class_that_is_among_the_largest_may_give_up_a_place_of_a_memory(label, draw, held):
    draws = torch.zeros(5, 3)
    draws[-1] = torch.tensor(draw)
    rows = nk.prediction_balanced_reservoir(torch.tensor([0, 0, 1, 1, label]), draws, capacity=4, classes=3)
    assert rows[-1].tolist() == held


def test_bounds_from_many_samples_take_memory_by_their_number_alone():
    with Largest() as seen:
        lower, upper = nk.residual_ebm_bounds(numbers(3, 500))
    assert seen.numbers == 3 * 500
    assert (lower < upper + 0.1).all()


@pytest.mark.parametrize("lead", [0.0, 3.0, 30.0, 700.0])
def test_bounds_are_those_of_samples_left_out_one_by_one_also_where_one_outweighs_all(lead):
    energy = numbers(7)
    energy[2] -= lead
    energy = energy.requires_grad_()
    without = [torch.logsumexp(-torch.cat([energy[:i], energy[i + 1 :]]), 0) - math.log(6) for i in range(7)]
    want = 13 * (torch.logsumexp(-energy, 0) - math.log(7)) - 12 * torch.stack(without).mean()
    upper = nk.residual_ebm_bounds(energy).upper
    torch.testing.assert_close(upper, want)
    torch.testing.assert_close(*(torch.autograd.grad(bound, energy)[0] for bound in (upper, want)))


@pytest.mark.parametrize("map", ["linear", "smooth"])
def test_a_recalibrated_value_has_gradients_of_both_inputs(map):
    calibration, pit = numbers(9).sigmoid().requires_grad_(), numbers(4, seed=1).sigmoid().requires_grad_()
    assert torch.autograd.gradcheck(lambda c, z: nk.quantile_recalibration(c, z, map=map), (calibration, pit))


def test_a_million_equal_outcomes_are_one_knot_in_the_middle_of_theirs():
    calibration = torch.full((1_000_000,), 0.5)
    calibration[:250_000] = 0.25
    got = nk.quantile_recalibration(calibration, torch.tensor([0.25, 0.5]), map="linear")
    torch.testing.assert_close(got, torch.tensor([0.125, 0.625]), rtol=1e-5, atol=0.0)


def test_the_share_below_each_level_is_counted_without_a_number_for_each_pair():
    pit = torch.tensor([0.005, 0.015, 0.015, 0.5, 0.995, 1.0]).repeat(100)
    at = (torch.arange(100) + 0.5) / 100
    want = ((pit <= at.unsqueeze(1)).double().mean(1) - at).abs().mean().float()
    with Largest() as seen:
        got = nk.pit_calibration_error(pit, method="levels")
    torch.testing.assert_close(got, want)
    assert seen.numbers == len(pit)


def test_a_large_bank_is_compared_with_few_items_at_once(monkeypatch):
    monkeypatch.setattr("normkit.inference.retrieval.BANK", 1000, raising=False)
    with Largest() as seen:
        nk.retrieve(numbers(2, 4), numbers(600, 4, seed=1), numbers(200, 4, seed=2), method="csls")
    assert seen.numbers <= 600 * 4  # the gallery


def test_many_queries_leave_room_for_many_items_in_a_block(monkeypatch):
    monkeypatch.setattr("normkit.inference.retrieval.NUMBERS", 640)
    monkeypatch.setattr("normkit.inference.retrieval.ROWS", 10, raising=False)
    queries, gallery = numbers(600, 4), numbers(256, 4, seed=1)
    with Largest() as seen:
        nk.retrieve(queries, gallery, count=1)
    assert seen.together < 3 * len(queries) * len(gallery)  # block by block each query's best are sorted anew


def test_a_hundred_tasks_weigh_in_single_precision_as_in_double():
    vectors = numbers(100, 200) / 100
    want, got = nk.pcb_merge(vectors), nk.pcb_merge(vectors.float())
    torch.testing.assert_close(got.importance, want.importance.float(), rtol=1e-3, atol=1e-4)
    assert got.merged.isfinite().all()
