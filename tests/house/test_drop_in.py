"""Drop-in: torch's own module database, replayed on our classes, gives torch's numbers, gradients and state."""

import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch.testing._internal.common_modules import module_db

import normkit as nk
from normkit.kinds import module as modules
from normkit.optional import library

OURS = {
    **{f"{name}Norm": f"{name}Norm" for name in ("Layer", "RMS", "Group")},
    **{f"{name}Norm{d}d": f"{name}Norm" for name in ("Batch", "Instance") for d in (1, 2, 3)},
}


def database():
    """Every set of arguments that torch tests its norms with, each with the input that it is called with."""
    for info in module_db:
        if info.module_cls.__name__ in OURS:
            for training in (True, False):
                for dtype in (torch.float32, torch.float64):
                    given = info.module_inputs_func(
                        info, device="cpu", dtype=dtype, requires_grad=False, training=training
                    )
                    for case in given:
                        yield info.module_cls, case, training, dtype


with torch.random.fork_rng(devices=[]):
    torch.manual_seed(0)  # torch draws the inputs as it lists them
    CASES = list(database())


def described(case):
    cls, given, training, dtype = case
    return f"{cls.__name__}-{given.desc}-{'train' if training else 'eval'}-{str(dtype).removeprefix('torch.')}"


def run(module, x):
    x = x.clone().requires_grad_()
    module.zero_grad()
    y = module(x)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape))
    return {"y": y.detach(), "x": x.grad, **{name: p.grad for name, p in module.named_parameters()}}


def stir(module):
    """Move parameters off their initial values, so that none is multiplied by one or added as zero."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(0.5, 1.5, parameter.numel()).reshape(parameter.shape))


def test_the_database_holds_what_it_held():
    assert len(CASES) == 252


@pytest.mark.parametrize("case", CASES, ids=described)
def test_the_numbers_gradients_and_state_of_torch(case):
    cls, given, training, dtype = case
    args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
    theirs = cls(*args, **kwargs, dtype=dtype).train(training)
    ours = getattr(nk, OURS[cls.__name__])(*args, **kwargs, dtype=dtype).train(training)
    (x,) = given.forward_input.args
    assert list(ours.state_dict()) == list(theirs.state_dict())
    stir(theirs)
    ours.load_state_dict(theirs.state_dict())
    # a parameter's gradient is a sum over all rows, here and there in another order, and its parts may cancel
    eps = torch.finfo(dtype).eps
    near = {"rtol": max(1.3e-6, 2 * eps * x.numel() ** 0.5), "atol": max(1e-5, eps * x.numel())}
    for _ in range(2):
        mine, torchs = run(ours, x), run(theirs, x)
        torch.testing.assert_close({key: mine.pop(key) for key in "yx"}, {key: torchs.pop(key) for key in "yx"})
        torch.testing.assert_close(mine, torchs, **near)
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    copy.deepcopy(theirs).load_state_dict(ours.state_dict())


def timm_layers():
    return library("timm").layers


def llama():
    library("transformers")
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return LlamaRMSNorm


def gemma():
    library("transformers")
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

    return GemmaRMSNorm


# our name, how to find their class, the arguments, the shape of an input
NEIGHBOURS = [
    ("LayerNorm", lambda: timm_layers().LayerNorm, (8, 1e-3, False), {}, (4, 8)),
    ("LayerNorm", lambda: timm_layers().LayerNorm, (), {"num_channels": 8, "eps": 1e-3}, (4, 8)),
    ("RMSNorm", lambda: timm_layers().RmsNorm, (8, 1e-3), {}, (4, 8)),
    ("RMSNorm", lambda: timm_layers().RmsNorm, (), {"channels": 8, "affine": False}, (4, 8)),
    ("LayerNorm2d", lambda: timm_layers().LayerNorm2d, (8, 1e-3), {}, (2, 8, 3, 5)),
    ("LayerNorm2d", lambda: timm_layers().LayerNorm2d, (8,), {"affine": False}, (2, 8, 3, 5)),
    ("GroupNorm", lambda: timm_layers().GroupNorm, (12, 4, 1e-3), {}, (2, 12, 3, 5)),
    ("GroupNorm", lambda: timm_layers().GroupNorm, (64,), {}, (2, 64, 3, 5)),
    ("GroupNorm", lambda: torch.nn.GroupNorm, (4,), {"num_channels": 12}, (2, 12, 3, 5)),
    ("GroupNorm", lambda: torch.nn.GroupNorm, (), {"num_groups": 4, "num_channels": 12}, (2, 12, 3, 5)),
    ("GroupNorm", lambda: torch.nn.GroupNorm, (1, 6, 1e-3, True, "cpu", torch.float32), {}, (2, 6)),
    ("LayerNorm", lambda: torch.nn.LayerNorm, (8, 1e-3, True, True, "cpu", torch.float32), {}, (4, 8)),
    ("BatchNorm2d", lambda: torch.nn.BatchNorm2d, (8,), {"momentum": None}, (2, 8, 3, 5)),
    ("InstanceNorm2d", lambda: torch.nn.InstanceNorm2d, (8, 1e-3, 0.3, True, True), {}, (2, 8, 3, 5)),
    (
        "InstanceNorm2d",
        lambda: torch.nn.InstanceNorm2d,
        (8,),
        {"momentum": None, "track_running_stats": True},
        (8, 8, 5),
    ),
    ("InstanceNorm1d", lambda: torch.nn.InstanceNorm1d, (8,), {}, (8, 8, 5)),
    ("RMSNorm", llama, (8, 1e-3), {}, (4, 8)),
    ("LlamaRMSNorm", llama, (), {"hidden_size": 8, "eps": 1e-3}, (4, 8)),
    ("GemmaRMSNorm", gemma, (8, 1e-3), {}, (4, 8)),
    ("GemmaRMSNorm", gemma, (8,), {}, (4, 8)),
]


@pytest.mark.parametrize("ours, find, args, kwargs, shape", NEIGHBOURS)
def test_a_neighbours_class_with_its_arguments_gives_its_numbers_and_state(ours, find, args, kwargs, shape):
    theirs, mine = find()(*args, **kwargs), getattr(nk, ours)(*args, **kwargs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), msg="the initial values")
    stir(theirs)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(run(mine, x), run(theirs, x))
    theirs.load_state_dict(mine.state_dict())


@pytest.mark.parametrize("bias", [True, False])
def test_layernorm2d_takes_the_arguments_of_torchs_layernorm_as_convnexts_does(bias):
    made = nk.LayerNorm2d(8, 1e-3, elementwise_affine=True, bias=bias)
    assert (made.normalized_shape, made.eps, made.bias is not None) == ((8,), 1e-3, bias)


ATTRIBUTES = [
    (nk.LayerNorm, torch.nn.LayerNorm, ([2, 5], 1e-3, False), ("normalized_shape", "eps", "elementwise_affine")),
    (nk.RMSNorm, torch.nn.RMSNorm, ([8], 1e-3), ("normalized_shape", "eps", "elementwise_affine")),
    (nk.GroupNorm, torch.nn.GroupNorm, (3, 6), ("num_groups", "num_channels", "eps", "affine")),
    (nk.BatchNorm, torch.nn.BatchNorm2d, (6,), ("num_features", "eps", "momentum", "affine", "track_running_stats")),
    (
        nk.InstanceNorm,
        torch.nn.InstanceNorm2d,
        (6,),
        ("num_features", "eps", "momentum", "affine", "track_running_stats"),
    ),
]


@pytest.mark.parametrize("ours, theirs, args, names", ATTRIBUTES)
def test_attributes_that_others_read_are_there(ours, theirs, args, names):
    mine, other = ours(*args), theirs(*args)
    assert {name: getattr(mine, name) for name in names} == {name: getattr(other, name) for name in names}


@pytest.mark.parametrize("make", [nk.LayerNorm, nk.RMSNorm, nk.BatchNorm2d, nk.LayerNorm2d, nk.InstanceNorm2d])
def test_eps_may_be_set_and_is_used(make):
    x, changed = torch.randn(2, 4, 4, 4), make(4)
    changed.eps = 0.5
    torch.testing.assert_close(changed(x), make(4, eps=0.5)(x))
    assert "eps=0.5" in repr(changed)


def test_variance_epsilon_is_eps_as_transformers_calls_it():
    norm = nk.RMSNorm(4, 1e-3)
    assert norm.variance_epsilon == 1e-3
    norm.variance_epsilon = 0.25
    assert norm.eps == 0.25
    with pytest.raises(ValueError, match="eps"):
        norm.eps = -1.0


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: nk.RMSNorm(768, epss=1), r"RMSNorm takes no argument 'epss'; did you mean 'eps'"),
        (lambda: nk.create("rmsnorm", 768, epss=1), r"takes no argument 'epss'; did you mean 'eps'"),
        (lambda: nk.LayerNorm(8, elementwise_afine=True), r"'elementwise_afine'; did you mean 'elementwise_affine'"),
        (lambda: nk.BatchNorm2d(8, momentun=0.1), r"'momentun'; did you mean 'momentum'"),
        (
            lambda: nk.AdamP([torch.nn.Parameter(torch.zeros(2, 2))], lrr=1.0),
            r"AdamP takes no argument 'lrr'; did you mean 'lr'",
        ),
        (lambda: nk.LayerNorm(8, 1e-3, eps=1e-5), r"LayerNorm: "),
        (lambda: nk.LayerNorm(dim=8, normalized_shape=8), r"LayerNorm: "),
        (lambda: nk.LayerNorm(), r"missing a required argument: 'dim'"),
        (lambda: nk.GroupNorm("8", 4), r"GroupNorm: num_\w+ must be an integer"),
    ],
)
def test_arguments_that_fit_nothing_are_named(build, message):
    with pytest.raises(TypeError, match=message):
        build()


@pytest.mark.parametrize("text", ["layernorm:elementwise_affine=no", "layernorm:affine=no"])
def test_what_is_no_flag_is_named_as_it_was_written(text):
    with pytest.raises(ValueError, match=f"LayerNorm: {text[10:-3]} must be True or False, not 'no'$"):
        nk.create(text, 8)


def windows(window):
    decoder = nk.Decoder(vocab=5, dim=8, depth=2, heads=2, window=window)
    return [layer.attention.window for layer in decoder.layers]


@pytest.mark.parametrize(
    "build",
    [
        lambda n, e: nk.LayerNorm(n(8), eps=e(0.25)),
        lambda n, e: nk.LayerNorm((n(2), n(4)), e(0.25)),
        lambda n, e: nk.LayerNorm([n(2), n(4)]),
        lambda n, e: nk.GroupNorm(n(2), n(8)),
        lambda n, e: nk.GroupNorm(n(8), num_groups=n(2)),
        lambda n, e: nk.BatchNorm2d(n(8), momentum=e(0.25)),
        lambda n, e: nk.create("ngram-candidates", k=n(5), threshold=e(0.25)),
        lambda n, e: nk.create("polar-factor", steps=n(5), lower=e(0.125)),
        lambda n, e: nk.density.flow("affine-coupling", n(3), depth=n(1), hidden=n(4)),
        lambda n, e: windows(n(3)),
        lambda n, e: windows([n(3), None]),
    ],
)
def test_a_number_of_numpys_is_kept_as_pythons_own(build):
    for integer, real in ((np.int64, np.float32), (np.uint8, np.float64), (np.int32, np.float16)):
        assert repr(build(integer, real)) == repr(build(int, float))


def test_rates_of_numpys_are_saved_as_pythons_own(tmp_path):
    one, other = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = nk.create("lion", [{"params": [one], "lr": np.float32(0.5)}], betas=(np.float64(0.25), np.float32(0.5)))
    optimizer.add_param_group({"params": [other], "weight_decay": np.float64(0.125)})
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    groups = torch.load(tmp_path / "state.pt", weights_only=True)["param_groups"]
    assert [(g["lr"], g["betas"], g["weight_decay"]) for g in groups] == [
        (0.5, (0.25, 0.5), 0.0),
        (1e-4, (0.25, 0.5), 0.125),
    ]


@pytest.mark.parametrize("wrong", [True, np.True_, np.float64(8), np.array([8]), np.complex64(8), "8"])
def test_no_other_value_of_numpys_is_taken_for_a_size(wrong):
    with pytest.raises(TypeError, match=r"^LayerNorm: dim must be an integer, not "):
        nk.LayerNorm(wrong)


def test_groups_that_fit_in_neither_order_are_refused_in_torchs():
    with pytest.raises(ValueError, match="num_groups=3 does not divide num_features=7"):
        nk.GroupNorm(3, 7)


class Model(torch.nn.Module):
    """As users write them, with the norms of one library."""

    def __init__(self, norms):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3)
        self.batch = norms.BatchNorm2d(8, 1e-3, 0.3)
        self.group = norms.GroupNorm(2, 8)
        self.instance = norms.InstanceNorm2d(8, affine=True)
        self.head = torch.nn.Sequential(
            norms.LayerNorm(8, elementwise_affine=True), torch.nn.Linear(8, 4), norms.RMSNorm([4], 1e-6)
        )

    def forward(self, x):
        x = self.instance(self.group(self.batch(self.stem(x)))).mean((2, 3))
        return self.head(x)


@pytest.fixture
def models():
    torch.manual_seed(0)
    theirs, ours = Model(torch.nn), Model(nk)
    stir(theirs)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def test_norms_pasted_into_a_model_train_to_the_same_checkpoint(models):
    x = torch.randn(6, 3, 9, 9)
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    theirs, ours = models
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-4, atol=1e-5)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-5)


def test_a_model_is_traced_with_its_norms_as_leaves(models):
    theirs, ours = models
    graph = torch.fx.symbolic_trace(ours)
    targets = [
        [n.target for n in g.graph.nodes if n.op == "call_module"] for g in (graph, torch.fx.symbolic_trace(theirs))
    ]
    assert targets[0] == targets[1]
    x = torch.randn(6, 3, 9, 9)
    torch.testing.assert_close(pickle.loads(pickle.dumps(graph.eval()))(x), ours.eval()(x))


def test_jit_script_is_refused_in_a_sentence_and_jit_trace_works(models):
    model, x = models[1].eval(), torch.randn(2, 3, 9, 9)
    with pytest.raises(
        NotImplementedError, match=r"^\w+Norm\w*: torch.jit.script cannot compile it; .*torch.jit.trace"
    ):
        torch.jit.script(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model, x)
    torch.testing.assert_close(traced(x), model(x))


def test_a_llama_with_our_norms_loads_its_checkpoint_and_gives_its_scores():
    transformers = library("transformers")
    config = transformers.LlamaConfig(
        vocab_size=11, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2
    )
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(config).eval()
    stir(torch.nn.ModuleList(m for m in theirs.modules() if isinstance(m, llama())))
    ours = copy.deepcopy(theirs)
    for name, module in theirs.named_modules():
        if isinstance(module, llama()):
            ours.set_submodule(name, nk.RMSNorm(module.weight.shape[0], module.variance_epsilon))
    ours.load_state_dict(theirs.state_dict())
    tokens = torch.arange(10)[None]
    torch.testing.assert_close(ours(tokens).logits, theirs(tokens).logits)
    theirs.load_state_dict(ours.state_dict())


def test_a_class_that_an_alias_made_is_a_class_like_any_other():
    made = nk.InstanceNorm2d(3)
    assert isinstance(made, nk.InstanceNorm)
    assert type(pickle.loads(pickle.dumps(made))) is nk.InstanceNorm2d
    assert repr(made).startswith("InstanceNorm2d(3, ")
    assert inspect.signature(nk.InstanceNorm2d).parameters["space"].default == 2
    with pytest.raises(ValueError, match="4 axes"):
        made(torch.randn(2, 3, 5))
    assert nk.BatchNorm2d is nk.BatchNorm

    class Own(nk.GemmaRMSNorm):
        def __init__(self, dim):
            super().__init__(dim, eps=0.5)

    assert (Own(4).eps, Own(4).rule.offset, Own(4).arguments["offset"]) == (0.5, 1.0, 1.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda self, a, b=2: None, "(a, b=2, *, device=None, dtype=None)"),
        (lambda self, a, *, dtype=None, b=2: None, "(a, *, b=2, device=None, dtype=None)"),
        (lambda self, a, device=None, **more: None, "(a, *, device=None, dtype=None, **more)"),
    ],
)
def test_a_constructor_says_that_it_takes_a_device_and_a_type(given, said):
    assert str(modules._with_device_and_dtype(inspect.signature(given))) == said


def test_the_arguments_that_are_kept_are_plain_values_those_of_any_name_too():
    bound = inspect.signature(lambda a, b, **more: None).bind(1, torch.zeros(2), c=3, d=torch.nn.Identity())
    assert modules._plain_values(bound) == {"a": 1, "c": 3}
