"""QK-clip as a function of weights, in a model, and after the steps of Muon."""

import pytest
import torch

import normkit as nk
from normkit.attention.qk_clip import qk_clip
from normkit.transformer.attention import Attention


def scores(attention, x, angles=None):
    """Every score that enters the softmax, causal ones only, (B, heads, T, T)."""
    q, k = (attention._heads(name, x, angles) for name in ("query", "key"))
    found = q @ attention._shared(k).mT * attention.head_dim**-0.5
    return found.masked_fill(~torch.ones(found.shape[-2:], dtype=torch.bool).tril(), -torch.inf)


def model(**arguments):
    torch.manual_seed(0)
    return nk.Decoder(**{"vocab": 11, "dim": 16, "depth": 2, "heads": 4, "positions": None, **arguments}).double()


TOKENS = torch.randint(11, (3, 12), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("balance", [0.0, 0.3, 1.0])
def test_only_the_group_of_a_head_beyond_the_bound_shrinks(balance):
    attention = Attention(16, 4, kv_heads=2).double()
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    before = scores(attention, x).detach()
    largest = torch.tensor([30.0, 10.0, 5.0, -1.0])
    options = {"heads": 4, "kv_heads": 2, "bound": 20.0, "balance": balance}
    query, key = qk_clip(attention.query.weight, attention.key.weight, largest, **options)
    with torch.no_grad():
        attention.query.weight.copy_(query)
        attention.key.weight.copy_(key)
    factors = torch.tensor([2 / 3, 2 / 3, 1.0, 1.0], dtype=torch.float64).view(4, 1, 1)
    torch.testing.assert_close(scores(attention, x), before * factors)


@pytest.mark.parametrize("largest", [0.0, -3.0, 100.0])
def test_scores_within_the_bound_leave_weights_as_they_are(largest):
    query, key = torch.randn(4, 3), torch.randn(4, 3)
    ours = qk_clip(query, key, torch.tensor([largest, 200.0]), heads=2)
    assert torch.equal(ours[0][:2], query[:2])
    assert torch.equal(ours[1][:2], key[:2])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"query": torch.ones(5, 3)}, "query must have a multiple of 2 rows, but its shape is (5, 3)"),
        ({"largest": torch.ones(3)}, "largest must have shape (2)"),
        ({"largest": torch.tensor([1.0, torch.nan])}, "largest has NaN or infinity"),
        ({"largest": torch.tensor([1.0, torch.inf])}, "largest has NaN or infinity"),
        ({"kv_heads": 3}, "kv_heads=3 does not divide heads=2"),
        ({"bound": 0.0}, "bound must lie in (0.0"),
        ({"balance": 1.5}, "balance must lie in [0.0, 1.0]"),
        ({"rope_dim": 1}, "rope_dim and value_dim belong together"),
        ({"rope_dim": 1, "value_dim": 1, "kv_heads": 1}, "kv_heads must be heads=2 in latent attention"),
        ({"rope_dim": 2, "value_dim": 1}, "query must have more than 2 rows for each of 2 heads"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    call = {"query": torch.ones(4, 3), "key": torch.ones(4, 3), "largest": torch.ones(2), "heads": 2, **change}
    if "kv_heads" in change and "rope_dim" not in change:
        call["key"] = torch.ones(3, 3)
    with pytest.raises(ValueError, match="qk-clip: ") as error:
        qk_clip(call.pop("query"), call.pop("key"), call.pop("largest"), **call)
    assert message in str(error.value)


@pytest.mark.parametrize("arguments", [{}, {"kv_heads": 2}, {"bias": True}, {"positions": "rope"}, {"window": 4}])
def test_a_clip_brings_the_largest_score_of_a_model_to_the_bound(arguments):
    decoder = model(**arguments).train()
    clip = nk.ScoreClip(decoder, bound=0.01, queries=None)
    decoder(TOKENS)
    before = clip.largest()
    assert all((seen > 0.01).any() for seen in before.values())
    clip()
    assert clip.largest() == {}
    x = {}
    decoder.layers[0].attention.register_forward_pre_hook(lambda part, args: x.update(first=args[0]))
    decoder(TOKENS)
    first = clip.largest()["layers.0.attention"]
    assert first.max() <= 0.01 + 1e-9  # the first layer's input is as it was
    if not arguments:
        torch.testing.assert_close(first, scores(decoder.layers[0].attention, x["first"]).amax((0, 2, 3)).float())


def test_scores_that_a_mask_hides_are_not_seen():
    decoder, x = model(window=1).train(), {}
    attention = decoder.layers[0].attention
    with torch.no_grad():
        attention.key.weight.copy_(-attention.query.weight)  # no token likes itself
    attention.register_forward_pre_hook(lambda part, args: x.update(first=args[0]))
    clip = nk.ScoreClip(decoder, queries=None)
    decoder(TOKENS)
    own = scores(attention, x["first"]).diagonal(dim1=-2, dim2=-1).amax((0, 2))
    assert own.max() < 0
    torch.testing.assert_close(clip.largest()["layers.0.attention"], own.float())


def test_scores_have_the_scale_of_their_core():
    seen = []
    for options in ({}, {"scale": 2.0}):  # 1/2 without
        decoder = model(core_options=options).train()
        clip = nk.ScoreClip(decoder, queries=None)
        decoder(TOKENS)
        seen.append(clip.largest()["layers.0.attention"])
    torch.testing.assert_close(seen[1], 4 * seen[0])


def test_looks_take_other_queries_each_time_until_all_are_seen():
    decoder = model().train()
    some, all_ = nk.ScoreClip(decoder, queries=3), nk.ScoreClip(decoder, queries=None)
    for _ in range(4):
        decoder(TOKENS)
    for name, seen in all_.largest().items():
        torch.testing.assert_close(some.largest()[name], seen)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_batch_whose_step_is_skipped_is_not_seen(bad):
    decoder = model().train()
    clip = nk.ScoreClip(decoder, bound=0.01)
    decoder(TOKENS)
    seen = clip.largest()
    decoder.embedding.register_forward_hook(lambda part, args, x: x + bad)
    decoder(TOKENS)
    torch.testing.assert_close(clip.largest(), seen, rtol=0, atol=0)
    clip()
    assert clip.largest() == {}


def test_evaluation_is_not_looked_at_and_a_closed_clip_sees_nothing():
    decoder = model().eval()
    clip = nk.ScoreClip(decoder)
    decoder(TOKENS)
    assert clip.largest() == {}
    clip.close()
    decoder.train()(TOKENS)
    assert clip.largest() == {}


def test_processes_share_the_largest(monkeypatch):
    def of_another_process(mine, op, group):
        assert op is torch.distributed.ReduceOp.MAX
        mine.clamp_(min=7.0)

    monkeypatch.setattr(torch.distributed, "all_reduce", of_another_process)
    clip = nk.ScoreClip(model().train(), sync=True)
    assert {name: seen.tolist() for name, seen in clip.largest().items()} == {
        f"layers.{layer}.attention": [7.0] * 4 for layer in range(2)
    }


def test_processes_that_do_not_share_it_are_warned(monkeypatch):
    clip = nk.ScoreClip(model().train())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    with pytest.warns(UserWarning, match="each of 4 processes clips by the scores that it has seen.*sync=True"):
        clip()


def test_weights_that_were_cut_since_are_refused_before_any_is_clipped():
    decoder = model()
    clip = nk.ScoreClip(decoder, bound=0.1)
    decoder.train()(TOKENS)
    before = decoder.layers[0].attention.query.weight.detach().clone()
    with torch.no_grad():
        decoder.layers[1].attention.key = torch.nn.Identity()
    with pytest.raises(ValueError, match=r"layers\.1\.attention must project by linear maps that are not sharded"):
        clip()
    assert torch.equal(decoder.layers[0].attention.query.weight, before)


def test_muon_with_a_clip_holds_scores_that_it_lets_grow_without():
    largest = {}
    for bound in (1e9, 3.0):
        decoder = model().float().train()
        clip = nk.ScoreClip(decoder, bound=bound, queries=None)
        matrices = [p for p in decoder.layers.parameters() if p.dim() == 2]
        optimizer = nk.Muon(matrices, lr=0.3, nesterov=False, adjust_lr="match_rms_adamw", qk_clip=clip)
        for _ in range(15):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(decoder(TOKENS)[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten()).backward()
            seen = max(float(one.max()) for one in clip.largest().values())
            optimizer.step()
        largest[bound] = seen
    assert largest[1e9] > 20
    assert largest[3.0] < 10


def test_what_cannot_be_clipped_is_refused():
    for arguments, message in [
        ({"query_key_norm": "head"}, "layers.0.attention normalizes queries and keys"),
        ({"placement": "ngpt"}, "layers.0 gives queries and keys one length"),
        ({"core_options": {"softcap": 5.0}}, "layers.0.attention caps its scores at 5.0"),
        ({"core": "lightning"}, "model has no attention with the core 'softmax'"),
    ]:
        with pytest.raises(ValueError, match="ScoreClip: ") as error:
            nk.ScoreClip(model(**arguments))
        assert message in str(error.value)
    decoder = model()
    torch.nn.utils.parametrizations.weight_norm(decoder.layers[1].attention.query)
    with pytest.raises(ValueError, match=r"layers.1.attention has parametrized projections"):
        nk.ScoreClip(decoder)
    with pytest.raises(TypeError, match=r"ScoreClip: model must be a torch\.nn\.Module, not str"):
        nk.ScoreClip("model")
    with pytest.raises(TypeError, match="Muon: qk_clip must be called after a step"):
        nk.Muon([torch.nn.Parameter(torch.ones(2, 2))], qk_clip=100.0)
