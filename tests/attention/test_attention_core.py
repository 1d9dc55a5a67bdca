"""A core declares what it can do, and does that and no more; one of a user's own goes into a decoder as it is."""

import pytest
import torch

import normkit as nk
from normkit import catalog
from normkit.kinds import CORE

CORES = {card.name: card.entry for card in catalog.members(CORE)}
LENGTH = 16  # of softmax-free's grid
DOUBLE = torch.float64


def build(name, **options):
    torch.manual_seed(0)
    return nk.card(name).small(8, dtype=DOUBLE, **options)


def build_in_all_forms(name):
    forms = CORES[name].forms
    return [build(name, causal=causal) for causal in forms]


def draw(name, queries=LENGTH, keys=LENGTH):
    """What a call must have, by name, each as the declaration says: heads of q and k, tokens of q and of k and v."""
    core, heads = CORES[name], nk.card(name).example["heads"]
    generator = torch.Generator().manual_seed(1)
    shapes = {
        "q": (2, heads * core.splits, queries, 8),
        "k": (2, heads * core.splits, keys, 8),
        "v": (2, heads, keys, 8 * core.splits),
        **dict.fromkeys(core.further, (2, heads, queries, 8)),
    }
    given = {key: torch.randn(shape, generator=generator, dtype=DOUBLE) for key, shape in shapes.items()}
    layouts = nk.card(name).inputs
    return given | {"pos": torch.randn(2, queries, 2, dtype=DOUBLE)} if "pos" in layouts else given


@pytest.mark.parametrize("name", CORES)
def test_the_card_lays_out_what_the_core_declares(name):
    core, card = CORES[name], nk.card(name)
    mask = card.inputs.get("mask")
    hides = None if mask is None else "keys" if mask.axes[2] == "1" else "pairs"
    assert hides == core.masks
    assert ("S" in card.inputs["k"].axes) == core.crossed
    assert card.shape.axes[1] == ("heads" if core.splits == 1 else f"{core.splits}heads")
    assert set(core.further) <= {key for key, layout in card.inputs.items() if not layout.optional}


@pytest.mark.parametrize("name", CORES)
def test_a_call_has_what_is_declared_and_joins_the_heads_that_are_split(name):
    heads = nk.card(name).example["heads"]
    for core in build_in_all_forms(name):
        given = draw(name)
        y = core(**given)
        assert y.shape[:3] == (2, heads, LENGTH)
        for key in CORES[name].further:
            with pytest.raises(TypeError, match=key):
                core(**{other: x for other, x in given.items() if other != key})


@pytest.mark.parametrize("name", CORES)
def test_a_core_hides_what_it_says_it_hides(name):
    """A pair of a query and a key, a key from all, or nothing; what is hidden may change, and nothing is seen of it."""
    hides, heads = CORES[name].masks, nk.card(name).example["heads"]
    pair = torch.ones(2, heads, LENGTH, LENGTH, dtype=torch.bool)
    pair[:, :, 5, 4] = False
    key = torch.ones(2, 1, 1, LENGTH, dtype=torch.bool)
    key[..., 4] = False
    given = draw(name)
    other = {
        n: x if n in ("q", "pos") else torch.cat([x[:, :, :4], x[:, :, 4:5] + 1, x[:, :, 5:]], 2)
        for n, x in given.items()
    }
    for core in build_in_all_forms(name):
        for mask, able in ((pair, hides == "pairs"), (key, hides is not None)):
            if not able:
                with pytest.raises(ValueError, match="mask"):
                    core(**given, mask=mask)
        if hides is not None:
            kept = [t for t in range(LENGTH) if t != 4]  # the token itself may be a query too
            torch.testing.assert_close(core(**other, mask=key)[:, :, kept], core(**given, mask=key)[:, :, kept])
        if hides == "pairs":
            y, changed = core(**given, mask=pair), core(**other, mask=pair)
            torch.testing.assert_close(changed[:, :, 5], y[:, :, 5])
            assert not torch.allclose(changed[:, :, 6], y[:, :, 6])


@pytest.mark.parametrize("name", [name for name, core in CORES.items() if False in core.forms])
def test_a_core_reads_another_sequence_where_it_says_so(name):
    core, given = build(name, causal=False), draw(name, keys=LENGTH - 5)
    if CORES[name].crossed:
        assert core(**given).shape[2] == LENGTH
    else:
        with pytest.raises(ValueError, match=r"\bk\b"):
            core(**given)


@pytest.mark.parametrize("name", CORES)
def test_keys_are_looked_at_unless_they_are_the_queries(name):
    core, given = build(name), draw(name)
    same = torch.equal(core(**given), core(**{**given, "k": given["k"] + 1 + given["k"] ** 2}))
    assert same == CORES[name].keys_are_queries


@pytest.mark.parametrize("name", [n for n, core in CORES.items() if core.masks == "pairs" and len(core.forms) == 2])
def test_the_rule_of_order_can_be_left_to_a_mask(name):
    core, given = build(name, causal=True), draw(name)
    earlier = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    free = core.without_order()
    torch.testing.assert_close(free(**given, mask=earlier), core(**given))
    assert (core.causal, free.causal) == (True, False)
    assert next(free.parameters(), None) is next(core.parameters(), None)


@pytest.mark.parametrize("name", CORES)
def test_a_core_gets_its_place_by_arguments_that_it_has(name):
    takes = nk.card(name).signature.parameters
    assert set(CORES[name].place.values()) <= {"layer", "depth"}
    assert {"layer", "layers", "depth"} & set(takes) == set(CORES[name].place)


def test_layers_tell_their_cores_where_they_stand():
    for name, want in (("lightning", [(0, 3), (1, 3), (2, 3)]), ("rnope", [False, False, True])):
        options = {"period": 3} if name == "rnope" else {}
        model = nk.Decoder(vocab=5, dim=8, depth=3, heads=2, core=name, core_options=options)
        made = [layer.attention.core for layer in model.layers]
        assert [core.full if name == "rnope" else (core.layer, core.layers) for core in made] == want
    twice = nk.Decoder(vocab=5, dim=8, depth=2, heads=2, core="rnope:layer=0,period=1")
    assert all(layer.attention.core.full for layer in twice.layers)


@pytest.fixture
def toy():
    """A core of a user's: each query averages the values of what it sees."""

    @nk.method("toy-mean", shape="N heads T C", over="S", inputs={"k": "N heads S C", "v": "N heads S C"})
    class ToyMean(nk.AttentionCore):
        """Average the values."""

        def __init__(self, head_dim: int, *, heads: int, causal: bool = False, share: float = 1.0):
            super().__init__(head_dim, heads, causal)
            self.share = share

        def forward(self, q, k, v, mask=None):
            """Average."""
            seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
            seen = seen.tril() if self.causal else seen
            weights = (seen if mask is None else seen & mask).to(v.dtype)
            return self.share * weights / weights.sum(-1, keepdim=True).clamp(min=1) @ v

    yield ToyMean
    catalog._cards.pop("toy-mean")


def test_a_core_of_ones_own_goes_into_a_decoder_with_windows_caches_and_another_sequence(toy):
    tokens = torch.randint(7, (2, 6), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = nk.Decoder(vocab=7, dim=8, depth=2, heads=2, core="toy-mean:share=0.5", window=(3, None)).double()
    core = model.layers[0].attention.core
    assert (type(core), core.share) == (toy, 0.5)
    want = model(tokens)
    cache = model.empty_cache()
    got = [model(part, cache=cache) for part in tokens.split([4, 1, 1], dim=1)]
    torch.testing.assert_close(torch.cat(got, 1), want)
    other = tokens.clone()
    other[:, 4:] = (other[:, 4:] + 1) % 7
    torch.testing.assert_close(model(other)[:, :4], want[:, :4])
    both = nk.EncoderDecoder(vocab=7, dim=8, encoder_depth=1, decoder_depth=1, heads=2, cross="toy-mean")
    assert both(tokens, tokens[:, :3]).shape == (2, 3, 7)
    with pytest.raises(ValueError, match=r"those that do: .*toy-mean"):
        nk.Decoder(vocab=7, dim=8, depth=1, heads=2, core="lightning", window=3)


@pytest.mark.parametrize("name", ["low-rank-attention", "adversarial-attention"])
def test_texts_of_which_some_or_all_tokens_are_hidden_have_their_numbers_under_float16_autocast(name):
    torch.manual_seed(0)
    module, x, mask = nk.card(name).small(8), torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)
    mask[0], mask[1, 3:] = False, False
    want = module(x, mask)
    with torch.autocast("cpu", torch.float16):
        got = module(x, mask)
    torch.testing.assert_close(got, want, rtol=0.01, atol=0.002)
