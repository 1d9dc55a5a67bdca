"""What people type finds its method, with the arguments that make it so."""

import copy
import pickle
import re

import pytest
import torch

import normkit as nk
from normkit.catalog import find
from normkit.optional import let_torchvision_load

TYPED = {
    "filter-response-norm": ("frn", {}),
    "decorrelated-bn": ("decorrelated-batchnorm", {}),
    "BN2d": ("batchnorm", {}),
    "pono": ("layernorm2d", {"affine": False, "eps": 1e-5}),
    "positional-norm": ("layernorm2d", {"affine": False, "eps": 1e-5}),
    "channel-layernorm": ("layernorm2d", {}),
    "in": ("instancenorm", {}),
    "ibn-net": ("ibn", {}),
    "ws": ("weight-standardization", {}),
    "filter response normalization": ("frn", {}),
    "sync batch norm": ("batchnorm", {"sync": True}),
    "Layer Normalisation": ("layernorm", {}),
    "weight standardisation": ("weight-standardization", {}),
    "root mean square layer normalization": ("rmsnorm", {}),
    "query-key normalization": ("qk-norm", {}),
    "spatially-adaptive normalization": ("spade", {}),
    "adaptive gradient clipping": ("agc", {}),
    "simple-rmsnorm": ("srmsnorm", {}),
    "dyntanh": ("dyt", {}),
    "brn": ("batch-renorm", {}),
    "divisive normalization": ("divisive-norm", {}),
    "syncbatchnorm": ("batchnorm", {"sync": True}),
    "sync-batch-norm": ("batchnorm", {"sync": True}),
    "batch-norm": ("batchnorm", {}),
    "batch_normalization": ("batchnorm", {}),
    "batchnorm1d": ("batchnorm", {}),
    "batchnorm2d": ("batchnorm", {}),
    "batchnorm3d": ("batchnorm", {}),
    "layer-norm": ("layernorm", {}),
    "layernorm1d": ("layernorm2d", {"space": 1}),
    "nemotron-layernorm-1p": ("layernorm", {"offset": 1.0}),
    "olmo-layernorm": ("layernorm", {"affine": False}),
    "instance-norm": ("instancenorm", {}),
    "group-normalization": ("groupnorm", {}),
    "gemma-rmsnorm": ("rmsnorm", {"offset": 1.0}),
    "llama-rmsnorm": ("rmsnorm", {}),
    "qwen3-rmsnorm": ("rmsnorm", {}),
    "t5-layernorm": ("rmsnorm", {}),
    "llama4-text-l2norm": ("rmsnorm", {"affine": False}),
    "mamba-rmsnorm-gated": ("gated-rmsnorm", {}),
    "qwen3-next-rmsnorm-gated": ("gated-rmsnorm", {"norm_before_gate": True}),
    "group-rmsnorm": ("grouped-rmsnorm", {}),
    "pixelnorm": ("rmsnorm2d", {"affine": False, "eps": 1e-8}),
    "pixel-norm": ("rmsnorm2d", {"affine": False, "eps": 1e-8}),
    "position-norm": ("layernorm2d", {"affine": False, "eps": 1e-5}),
    "weightnorm": ("weight-norm", {}),
    "adaln": ("adaptive-layernorm", {}),
    "adaln-zero": ("adaln-zero", {}),
    "ada-gn": ("adaptive-groupnorm", {}),
    "adagn": ("adaptive-groupnorm", {}),
    "adaptive-instance-normalization": ("adain", {}),
    "film": ("film", {}),
    "switchnorm": ("switchable-norm", {}),
    "switchable-normalization": ("switchable-norm", {}),
    "revin": ("revin", {}),
    "lrn": ("local-response-norm", {}),
    "local-response-normalization": ("local-response-norm", {}),
    "dbn": ("decorrelated-batchnorm", {}),
    "iterative-normalization": ("iternorm", {}),
    "batch-renormalization": ("batch-renorm", {}),
    "ghost-bn": ("ghost-batchnorm", {}),
    "frozen-bn": ("frozen-batchnorm", {}),
    "graphnorm": ("graph-norm", {}),
    "pairnorm": ("pair-norm", {}),
    "message-norm": ("msgnorm", {}),
    "dynamic-tanh": ("dyt", {}),
    "dynamic-erf": ("derf", {}),
    "global-response-norm": ("grn", {}),
    "evonorm": ("evonorm-s0", {}),
    "conditional-batch-norm": ("conditional-batchnorm", {}),
    "sandwich-batch-norm": ("conditional-batchnorm", {"shared": True}),
    "2d-tpe": ("tpe-2d", {}),
    "pre-ln": ("pre-norm", {}),
    "post-ln": ("post-norm", {}),
    "peri-ln": ("peri-norm", {}),
    "sandwich-norm": ("peri-norm", {}),
    "rezero": ("skipinit", {}),
    "fixup": ("fixup-residual", {}),
}


@pytest.mark.parametrize("typed", TYPED)
def test_a_name_of_the_field_finds_its_method(typed):
    found = find(typed)
    assert (found.card.name, dict(found.arguments)) == TYPED[typed]


def test_no_name_stands_for_two_methods():
    owner = {}
    for name in nk.methods():
        card = nk.card(name)
        for word in {w.replace("-", "").replace("_", "").lower() for w in (name, *card.aliases)}:
            owner.setdefault((word, card.kind.name), []).append(name)
    assert {word: names for word, names in owner.items() if len(names) > 1} == {}


@pytest.mark.parametrize("name", [n for n in nk.methods() if nk.card(n).aliases])
def test_every_alias_builds(name):
    card = nk.card(name)
    for arguments in card.aliases.values():
        card.small(**arguments)


def test_every_norm_of_torch_is_found():
    names = {n for n in dir(torch.nn) if "Norm" in n and not n.startswith("Lazy")}
    assert [n for n in sorted(names) if not _known(n)] == []


NO_NORMS = "Act|Mlp|Head"  # norms with something behind them, and layers with a norm in them
UNPUBLISHED = {"EvoNorm2dS0a", "EvoNorm2dS1a", "EvoNorm2dS2a", "SplitBatchNorm2d"}  # timm's own variants


def test_every_norm_of_timm_is_found():
    let_torchvision_load()
    layers = pytest.importorskip("timm.layers")
    names = {n for n in dir(layers) if "Norm" in n and isinstance(getattr(layers, n), type)} - UNPUBLISHED
    plain = {n.replace("Fp32", "").replace("Fast", "") for n in names if not re.search(NO_NORMS, n)}
    assert [n for n in sorted(plain) if not _known(n)] == []


def _known(name):
    try:
        find(name)
    except ValueError:
        return False
    return True


WIDTHS_OF_OTHER_THINGS = {
    **dict.fromkeys(["gbw-batchnorm", "gyrobn-grassmann", "liebn", "riemannian-batchnorm"], "a matrix has n rows"),
    **dict.fromkeys(["flow-hmc", "flow-imh", "neutra"], "a flow may stand for its width"),
    "graphsaint-norm": "nodes have no entries",
    "gyrobn": "a point of a ball, which the batch moves as a whole",
    "mam-energy-loss": "a sequence has a length",
    "nd-loss": "the features are a batch's, with their classes",
    "nsnquant": "keys and values of one head",
    "phrase-to-node": "words and nodes have a width each",
    "simplex-classifier": "the classes make the width",
    "cema-filter": "the classes make the width",
    "t3a": "features beside classes",
    "wd-scaling": "a model's width, not a tensor's",
}


def widths(card):
    """The names that a width may have: of heads, of channels, of vectors; of either where a statistic spans both."""
    axes = [str(axis) for axis in card.shape.axes]
    if any("heads" in axis for axis in axes):
        return {"head_dim"}
    if not axes[-1].startswith("C"):
        return {"num_features", "in_channels"}
    if card.kind.name == "norm" and card.over and "C" not in card.over:
        return {"num_features"}
    vectors = {"dim", "in_features", "in_channels"}
    return vectors | {"num_features"} if card.kind.name == "norm" and " " in card.over else vectors


def test_the_width_has_one_name_for_each_kind_of_layout():
    """Vectors have ``dim``, channels ``num_features``, heads ``head_dim``; a map's two are torch's."""
    cards = {name: nk.card(name) for name in nk.methods() if nk.card(name).width is not None}
    other = {name for name, card in cards.items() if card.width.name not in widths(card)}
    assert other == set(WIDTHS_OF_OTHER_THINGS)


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("layernorm", "num_features"),
        ("batchnorm", "dim"),
        ("dyt", "normalized_shape"),
        ("rmsnorm", "hidden_size"),
        ("unifiednorm", "channels"),
        ("fixup-block", "channels"),
        ("adaln-zero", "num_features"),
    ],
)
def test_a_width_is_taken_under_the_name_that_others_give_it(name, typed):
    """What was typed before a width was renamed, and what other libraries call it, builds the same module."""
    assert repr(nk.create(name, **{typed: 8})) == repr(nk.create(name, 8))
    assert repr(type(nk.create(name, 8))(**{typed: 8})) == repr(nk.create(name, 8))


def test_two_widths_are_refused_by_name():
    """Nothing is guessed where a call names the width twice."""
    with pytest.raises(TypeError, match="DyT takes no argument 'num_features'"):
        nk.create("dyt", dim=8, num_features=8)
    with pytest.raises(TypeError, match="DyT takes no argument 'channels'"):
        nk.create("dyt", channels=8, num_features=8)


def test_a_pickle_of_when_the_width_had_another_name_loads():
    """Its attribute and its arguments move to the name of now."""
    module = nk.create("adaln-zero", 8).eval()
    state = module.__dict__.copy()
    arguments = {"num_features" if key == "dim" else key: value for key, value in state["arguments"].items()}
    old = {**{key: value for key, value in state.items() if key != "dim"}, "num_features": 8, "arguments": arguments}
    loaded = type(module).__new__(type(module))
    loaded.__setstate__(old)
    x, condition = torch.randn(2, 3, 8), torch.randn(2, 8)
    for now, then in zip(loaded(x, condition), module(x, condition), strict=True):
        torch.testing.assert_close(now, then, rtol=0, atol=0)
    assert repr(loaded) == repr(module)


def test_a_module_that_no_catalogue_has_is_copied_and_pickled():
    """It has no card, and its state nothing to rename."""
    copied = copy.deepcopy(Plain())
    assert torch.equal(pickle.loads(pickle.dumps(copied))(torch.ones(2)), torch.full((2,), 2.0))


class Plain(nk.Method):
    """A user's own module, not entered."""

    def forward(self, x):
        return 2 * x
