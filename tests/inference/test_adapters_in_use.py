"""Adapters around models as they are used: compiled, shown one sample at a time, and with norms of other packages."""

import copy
import math
import re

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import normkit as nk
from normkit import check
from normkit.inference._norms import follow
from normkit.kinds.adapter import small_network

OF_BATCHES = ("tent", "eata", "sar", "deyo", "delta")
OF_SAMPLES = ("note", "rotta", "cotta")
BEGUN = ("note", "rotta", "memo:prior_strength=3")  # from running moments of the model


def made(name, model):
    return nk.create(name, model, **nk.card(name).example)


def stream(name, size, count=3):
    g = torch.Generator().manual_seed(0)
    return [torch.randn(size, 8, 6, 6, generator=g) for _ in range(count)]


def answers(adapter, inputs):
    torch.manual_seed(0)
    return [adapter(x) for x in inputs]


@pytest.mark.parametrize("name", [*OF_BATCHES, *OF_SAMPLES])
def test_a_compiled_model_learns_the_same(name):
    torch._dynamo.reset()
    inputs = stream(name, 4)
    plain = made(name, small_network().eval())
    compiled = made(name, torch.compile(small_network().eval(), backend="aot_eager"))
    for want, got in zip(answers(plain, inputs), answers(compiled, inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    for a, b in zip(plain.parameters_trained(), compiled.parameters_trained(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*OF_BATCHES, *OF_SAMPLES])
def test_single_images_give_one_answer_each_and_the_methods_for_them_stay_by_the_source(name):
    source = small_network().eval()
    adapter = made(name, copy.deepcopy(source))
    for x in stream(name, 1):
        got = adapter(x)
        assert got.shape == (1, 4)
        assert got.isfinite().all()
        if name in ("note", "rotta"):
            torch.testing.assert_close(got, source(x), rtol=0.5, atol=0.5)


@pytest.mark.parametrize("name", ["tent", "eata", "sar", "delta"])
def test_a_single_vector_has_no_batch_statistics_and_the_error_names_methods_that_take_it(name):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    adapter = made(name, model)
    wanted = f"{check.whose(adapter)}: a batch of one sample has no statistics for a batch norm.*note, rotta"
    with pytest.raises(ValueError, match=wanted):
        adapter(torch.randn(1, 3))


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nk.BatchNorm])
def test_note_and_delta_take_batch_norms_of_vectors(norm):
    model = nn.Sequential(nn.Linear(3, 4), norm(4), nn.Linear(4, 2)).eval()
    model[1].running_mean.fill_(0.5)
    x = torch.randn(8, 3)
    torch.testing.assert_close(made("note", copy.deepcopy(model))(x[:1]), model(x[:1]))
    image = nk.create("delta-tbr", 4)
    want = model[2](image(model[0](x)[..., None, None])[..., 0, 0])
    torch.testing.assert_close(nk.create("delta", model)(x), want)


@pytest.mark.parametrize(
    "name", ["tent", "eata", "sar:entropy_margin=9", "deyo", "delta", "note", "rotta", "cotta", "memo:batched=True"]
)
def test_an_empty_batch_has_no_answers_and_teaches_nothing(name):
    adapter = nk.create(name, small_network().eval())
    x = stream("", 4, 1)[0]
    adapter(x)
    before = {name: value.clone() for name, value in adapter.named_parameters()}
    assert adapter(x[:0]).shape == adapter(x=x[:0]).shape == (0, 4)
    for name, value in adapter.named_parameters():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize(
    ("name", "of"),
    [
        *((name, "a batch norm") for name in ("tent", "eata", "delta", "note", "rotta")),
        *((name, "a norm") for name in ("sar", "deyo")),
    ],
)
def test_a_model_without_a_norm_to_move_is_named_and_stays_as_it_is(name, of):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2)).eval()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=f"model has no parameter that this method trains: weight or bias of {of}$"):
        made(name, model)
    assert all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for any_parameter in ("cotta", "memo"):  # these need none
        assert len(made(any_parameter, copy.deepcopy(model)).parameters_trained()) == 2


def test_delta_takes_nothing_of_a_trained_models_statistics():
    model = small_network()
    for _ in range(3):  # a trained batch norm has counted its batches
        model(torch.randn(8, 8, 6, 6, generator=torch.Generator().manual_seed(1)) * 3 + 2)
    assert int(model.norm.num_batches_tracked) == 3
    x = stream("delta", 8, 1)[0]
    want = copy.deepcopy(model).train()(x)  # the first batch is normalized by itself
    adapter = nk.DELTA(model.eval())
    torch.testing.assert_close(adapter(x), want)
    adapter.reset()
    torch.testing.assert_close(adapter(x), want)


def test_renormalization_goes_on_from_loaded_statistics_whose_batches_were_not_counted():
    layer, x = nk.create("delta-tbr", 3), torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    mean, std = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 0.5, 4.0])
    own = {"weight": torch.ones(3), "bias": torch.zeros(3)}
    layer.load_state_dict({**own, "running_mean": mean, "running_std": std})
    torch.testing.assert_close(layer(x), (x - mean.view(3, 1, 1)) / std.view(3, 1, 1))
    torch.testing.assert_close(layer.running_mean, 0.95 * mean + 0.05 * x.mean((0, 2, 3)))
    begun, fresh = nk.create("delta-tbr", 3), nk.create("delta-tbr", 3)
    begun.load_state_dict(fresh.state_dict())  # which are its own, and count no batch
    fresh.load_state_dict(own, strict=False)
    torch.testing.assert_close(begun(x), torch.nn.functional.batch_norm(x, None, None, training=True))
    torch.testing.assert_close(fresh(x), begun(x))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_memo_forgets_the_momentum_of_the_sample_before(optimizer):
    views, options = torch.stack(stream("memo", 4)), {"optimizer": optimizer, "lr": 0.1, "momentum": 0.9, "steps": 3}
    after, anew = nk.MEMO(small_network().eval(), **options), nk.MEMO(small_network().eval(), **options)
    first = after(views[0, 0], views)
    second = after(views[0, 1], -views)
    torch.testing.assert_close(second, anew(views[0, 1], -views))
    assert (first - second).abs().max() > 0.01


@pytest.mark.parametrize("name, sample, steps", [("memo", 0, 3), ("cotta", slice(None), None)])
def test_views_may_be_a_sequence_of_tensors(name, sample, steps):
    options = {"lr": 0.1, **({"steps": 3} if steps else {"anchor_threshold": 1.0})}
    one, other = (nk.create(name, small_network().eval(), **options) for _ in range(2))
    views = torch.stack(stream("tent", 4, 3))
    x = views[0, sample]
    torch.manual_seed(0)  # of what CoTTA puts back
    first = [one(x, views) for _ in range(2)]
    torch.manual_seed(0)
    torch.testing.assert_close([other(x, list(views)) for _ in range(2)], first, rtol=0, atol=0)
    assert not torch.equal(*first) or steps  # MEMO starts anew with each sample
    wrong = r"views\[1\] must have shape .*, but its shape is \(1,\)"
    with pytest.raises(ValueError, match=wrong):
        one(x, [views[0], torch.ones(1), views[2]])
    with pytest.raises(ValueError, match=f"views must be {steps or 'one or more'} tensors, not 0"):
        one(x, [])


def test_tent_by_sgd_shortens_its_parameters_by_the_decay():
    plain, other = (nk.Tent(small_network().eval(), optimizer="sgd", lr=0.1, weight_decay=w) for w in (0.0, 0.5))
    start = [p.detach().clone() for p in plain.parameters_trained()]
    for adapter in (plain, other):
        adapter(stream("tent", 4, 1)[0])
    for a, b, before in zip(plain.parameters_trained(), other.parameters_trained(), start, strict=True):
        torch.testing.assert_close(a - b, 0.1 * 0.5 * before)


@pytest.mark.parametrize(
    "options, bounds",
    [
        ({"temperature": 0.0}, "temperature must lie in (0.0, inf], not 0.0"),  # it divides all answers
        ({"stat_momentum": 1.5}, "stat_momentum must lie in [0.0, 1.0], not 1.5"),
        ({"stat_momentum": -0.5}, "stat_momentum must lie in [0.0, 1.0], not -0.5"),
        ({"k": -1.0}, "k must lie in [0.0, inf], not -1.0"),
    ],
)
def test_a_number_that_note_cannot_work_with_is_refused(options, bounds):
    with pytest.raises(ValueError, match=re.escape(f"NOTE: {bounds}")):
        nk.NOTE(small_network(), **options)


@pytest.mark.parametrize(
    "occlusion, words",
    [
        ((1, 2), "row, column and size, not (1, 2)"),
        ((0, 0, 0), "at least 1, not 0"),
        ((-1, 0, 1), "at least 0, not -1"),
    ],
)
def test_a_bad_square_is_refused(occlusion, words):
    with pytest.raises(ValueError, match=re.escape("DeYO: occlusion must be ") + ".*" + re.escape(words)):
        nk.DeYO(small_network(), transform="occlusion", occlusion=occlusion)


@pytest.mark.parametrize("square", [None, (0, 3, 4)])
def test_a_square_in_the_middle_is_hidden_unless_another_is_named(square):
    x = torch.arange(2 * 3 * 5 * 7.0).view(2, 3, 5, 7)
    seen = nk.DeYO(small_network(), transform="occlusion", occlusion=square)._destroy(x, torch.arange(2), None)
    row, column, size = (1, 2, 2) if square is None else square
    hidden = torch.zeros(5, 7, dtype=torch.bool)
    hidden[row : row + size, column : column + size] = True
    torch.testing.assert_close(seen, torch.where(hidden, x.mean((2, 3), keepdim=True), x))


@pytest.mark.parametrize("shape", [(2, 8), (8, 6, 6)], ids=str)
def test_what_is_no_batch_of_images_has_no_tiles_to_reorder(shape):
    with pytest.raises(ValueError, match=re.escape(f"DeYO: x must be images (N, C, H, W), but its shape is {shape}")):
        nk.DeYO(small_network())(torch.zeros(shape))


def test_rotta_goes_on_with_a_sample_of_a_class_that_comes_no_more():
    adapter = made("rotta", small_network().eval())
    first, second, _ = stream("rotta", 2)
    adapter(first)
    rare = next(own for own in adapter.held if not own)
    rare.append([first[0], 0.0, age := 10_000])  # it weighs nothing
    before = adapter.teacher.norm.weight.clone()
    assert adapter(second).isfinite().all()
    assert not torch.equal(adapter.teacher.norm.weight, before)
    assert rare[0][2] == age + len(second)


def test_note_learns_each_time_so_many_samples_as_its_memory_holds_have_come():
    adapter = nk.NOTE(small_network().eval(), capacity=4)
    learned = []
    for x in stream("note", 1, 9):
        before = [p.detach().clone() for p in adapter.parameters_trained()]
        adapter(x)
        learned.append(not all(map(torch.equal, before, adapter.parameters_trained())))
    assert learned == [False, False, False, True, False, False, False, True, False]


@pytest.mark.parametrize(
    "name, scale, shares",
    [("deyo", 4, {"entropy_margin": 0.5, "weight_margin": 0.4}), ("eata", 5, {"entropy_margin": 0.4})],
)
def test_a_margin_that_is_left_open_is_a_share_of_the_largest_entropy(name, scale, shares):
    model = small_network().eval()
    model.head.weight.data *= scale  # some answers are sure, and others not
    options = {"plpd_threshold": None} if name == "deyo" else {}
    known = {margin: share * math.log(4) for margin, share in shares.items()}
    open_, given = (nk.create(name, copy.deepcopy(model), lr=0.1, **options, **more) for more in ({}, known))
    for want, got in zip(answers(given, stream(name, 8)), answers(open_, stream(name, 8)), strict=True):
        assert torch.equal(got, want)
    assert not torch.equal(answers(open_, stream(name, 8, 1))[0], model(stream(name, 8, 1)[0]))


def with_norm(name, **options):
    """A network whose norm has seen a few batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nk.create(name, 8, **options), nn.Flatten(), nn.Linear(128, 4))
    for x in stream(name, 5):
        model(x)
    return model.eval()


@pytest.mark.parametrize("name", ["note", "rotta", "memo:prior_strength=1e9"])
def test_the_catalogues_batch_norm_is_exchanged_with_its_moments(name):
    """By options that correct nothing, and share nothing with the sample."""
    options = {"k": 1e9} if name == "note" else {"lr": 0.0} if name != "rotta" else {"nu": 0.0}
    model, x = with_norm("batchnorm", eps=1e-3), stream(name, 5)[0]
    adapted = nk.adapt(model, method=name, inplace=False, **options)
    torch.testing.assert_close(adapted(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["delta", "note", "rotta"])
def test_torchs_synchronized_batch_norm_is_adapted_as_its_plain_one(name):
    x, (plain, other) = stream(name, 5)[0], (with_norm("batchnorm") for _ in range(2))
    plain[1], other[1] = nn.BatchNorm2d(8).eval(), nn.SyncBatchNorm(8).eval()
    assert torch.equal(nk.adapt(other, method=name)(x), nk.adapt(plain, method=name)(x))


@pytest.mark.parametrize("norm", ["pcnorm", "ibn", "iternorm", "l1-batchnorm", "mean-only-batchnorm"])
def test_what_does_more_than_a_batch_norm_is_refused_before_anything_changes(norm):
    model = with_norm(norm)
    before, needed = copy.deepcopy(model.state_dict()), [p.requires_grad for p in model.parameters()]
    for name in [*OF_BATCHES, *OF_SAMPLES, "memo:prior_strength=3"]:
        with pytest.raises(ValueError, match=rf": 1 \({type(model[1]).__name__}\) does more than a batch norm"):
            nk.adapt(model, method=name)
    assert [p.requires_grad for p in model.parameters()] == needed
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("method", "norm", "words"),
    [
        *((name, {"affine": False}, "1 has no weight") for name in ("delta", *BEGUN)),
        *((name, {"track_running_stats": False}, "no running statistics") for name in BEGUN),
        ("t3a:supports=0", {}, "supports"),
        ("lame:neighbours=0", {}, "neighbours"),
    ],
)
def test_a_refusal_leaves_the_model_as_it_was(method, norm, words):
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, **norm), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 3)]
    model = nn.Sequential(*layers)
    with pytest.raises(ValueError, match=words):
        nk.adapt(model, method=method)
    assert [*model] == layers
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("name", ["note", "rotta", "delta", "memo:prior_strength=4"])
def test_a_batch_norm_in_two_places_is_exchanged_in_both(name):
    shared = nn.BatchNorm2d(6)
    model = nn.Sequential(nn.Conv2d(3, 6, 1), shared, nn.Conv2d(6, 6, 1), shared, nn.Flatten(), nn.Linear(96, 2))
    nk.adapt(model, method=name)
    assert model[1] is model[3]
    assert model[1] is not shared


def hooked(norm):
    norm.register_forward_hook(lambda part, inputs, y: 2 * y)


def with_a_forward(norm):
    norm.forward = lambda x: 2 * type(norm).forward(norm, x)


def parametrized(norm):
    parametrize.register_parametrization(norm, "weight", nn.Softplus())


def of_tokens(norm):
    norm.channels_last = True


@pytest.mark.parametrize("name", ["delta", *BEGUN])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (hooked, "has hooks"),
        (with_a_forward, "has a forward of its own"),
        (parametrized, "is parametrized: nk.weight.bake the model first"),
        (of_tokens, "has its channels on the last axis, where axis 1 is wanted"),
    ],
)
def test_what_another_norm_would_not_do_is_refused_before_anything_changes(name, more, words):
    model = with_norm("batchnorm")
    more(model[1])
    layers = [*model]
    with pytest.raises(ValueError, match=rf": 1 \({type(model[1]).__name__}\) {words}"):
        nk.adapt(model, method=name)
    assert [*model] == layers
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("name", ["tent", "delta:lr=1", *BEGUN])
def test_batch_norms_that_share_a_weight_go_on_sharing_it(name):
    """Also where one of them is named, and not the first."""
    one, other, x = nn.BatchNorm2d(6), nn.BatchNorm2d(6), torch.rand(4, 3, 4, 4)
    other.weight = one.weight
    model = nn.Sequential(nn.Conv2d(3, 6, 1), one, nn.Conv2d(6, 6, 1), other, nn.Flatten(), nn.Linear(96, 2))
    named = {} if name.startswith("memo") else {"norms": "3"}
    adapter = nk.adapt(model, method=name, **named, **({"memory": 4, "frequency": 4} if name == "rotta" else {}))
    adapter(x)
    assert model[1].weight is model[3].weight
    assert "1.weight" in adapter.trained
    assert "3.weight" not in adapter.trained
    assert model[3].weight.requires_grad


@pytest.mark.parametrize(("name", "teacher"), [("cotta", "average"), ("rotta", "teacher")])
def test_small_moves_of_a_teacher_in_half_precision_add_up_over_a_saved_stream(name, teacher):
    def begun():
        return made(name, small_network().bfloat16().eval())

    adapter, later = begun(), begun()
    adapter(stream(name, 4)[0].bfloat16())
    fast, steps = adapter.model.norm.weight, 200
    with torch.no_grad():
        fast.fill_(2.0)
    first = getattr(adapter, teacher).norm.weight.float()
    for _ in range(steps):
        adapter.wide = follow(getattr(adapter, teacher), adapter.model, 0.001, adapter.wide)
    later.load_state_dict(adapter.state_dict())
    for _ in range(steps):
        later.wide = follow(getattr(later, teacher), later.model, 0.001, later.wide)
    want = 2 - (2 - first) * 0.999 ** (2 * steps)
    torch.testing.assert_close(getattr(later, teacher).norm.weight.float(), want, rtol=0.01, atol=0)


@pytest.mark.parametrize("way", ["saved", "moved"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("options", [{"lr": 2e-4}, {"optimizer": "sgd", "lr": 2e-3}], ids=str)
def test_small_moves_of_half_precision_add_up_though_a_stream_is_saved_or_moved(options, dtype, way):
    def begun():
        return nk.Tent(small_network().to(dtype).eval(), **options)

    plain = begun()
    adapter = begun()
    for x in stream("tent", 4, 20):
        plain(x.to(dtype))
        adapter(x.to(dtype))
        if way == "saved":
            state, adapter = adapter.state_dict(), begun()
            adapter.load_state_dict(state)
        else:
            adapter.to("cpu")
    want, got = ([p.detach() for p in one.parameters_trained()] for one in (plain, adapter))
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert not torch.equal(want[0], torch.ones_like(want[0]))


def test_a_stream_that_changes_its_type_learns_in_that_type():
    adapter = nk.Tent(small_network().eval(), lr=2e-4)
    inputs = stream("tent", 4, 4)
    for x, dtype in zip(inputs, (torch.float32, torch.float16, torch.bfloat16, torch.float32), strict=True):
        adapter.to(dtype)(x.to(dtype))
        stepped = [p for group in adapter.optimizer.param_groups for p in group["params"]]
        assert {p.dtype for p in stepped} == {torch.float32}
        rounded = [p.to(dtype) for p in stepped]
        torch.testing.assert_close(rounded, [p.detach() for p in adapter.parameters_trained()], rtol=0, atol=0)
    half = nk.Tent(small_network().bfloat16().eval(), lr=2e-4)
    half.load_state_dict(adapter.state_dict())
    half(inputs[0].bfloat16())
    assert {p.dtype for p in half.copies.values()} == {torch.float32}


class Masked(nn.Module):
    """A network without the classes that are absent: their logits are masked, or all are left out."""

    def __init__(self, out):
        super().__init__()
        self.network, self.out = small_network().eval(), out
        with torch.no_grad():
            self.network.norm.running_mean.fill_(0.1)

    def forward(self, x):
        logits = self.network(x)
        return logits[:, :3] if self.out else torch.cat([logits[:, :3], torch.full_like(logits[:, 3:], -torch.inf)], 1)


MARGINS = {"entropy_margin": 9.0, "lr": 0.01}
LEARNING = {
    "tent": {"lr": 0.01},
    "eata": {**MARGINS, "similarity": 1.1},
    "sar": MARGINS,
    "deyo": {**MARGINS, "weight_margin": 0.4, "plpd_threshold": None},
    "delta": {"lr": 0.01, "dot": None},
    "cotta": {"lr": 0.01, "anchor_threshold": -1.0},
    "rotta": {"lr": 0.01, "memory": 1000, "frequency": 4, "nu": 0.5, "augment": lambda x: x},
    "memo": {"batched": True, "lr": 0.01},
}


@pytest.mark.filterwarnings("error:.*nothing is learned", "ignore:.*the adaptation collapses")
@pytest.mark.parametrize("guard", ["off", "stop"])
@pytest.mark.parametrize("name", LEARNING)
def test_a_class_that_is_masked_counts_as_if_the_model_had_none(name, guard):
    masked, without = (nk.create(name, Masked(out), guard=guard, **LEARNING[name]) for out in (False, True))
    inputs = stream(name, 4)
    for got, want in zip(answers(masked, inputs), answers(without, inputs), strict=True):
        torch.testing.assert_close(got[:, :3], want)
        assert (got[:, 3] == -torch.inf).all()
    assert not torch.equal(masked.model.network.norm.weight, torch.ones(6))


@pytest.mark.parametrize("name", [*LEARNING, "note"])
def test_a_batch_of_which_nothing_is_learned_is_warned_of(name):
    adapter = nk.create(name, small_network().eval(), **LEARNING.get(name, {"capacity": 4}))
    with pytest.warns(
        UserWarning, match=f"{check.whose(adapter)}: the .* of this batch (is|are) not finite, so nothing"
    ):
        adapter(torch.full((4, 8, 6, 6), torch.nan))


def test_what_a_stream_remembers_goes_where_its_model_goes():
    adapter = made("note", small_network().eval())
    adapter(stream("note", 2)[0])
    adapter.double()
    assert {sample.dtype for held in adapter.held for sample in held} == {torch.float64}


def test_the_importance_of_parameters_is_measured_under_inference_mode_as_without():
    plain, other = (made("eata", small_network().eval()) for _ in range(2))
    plain.fisher(*stream("eata", 4))
    with torch.inference_mode():
        other.fisher(*stream("eata", 4))
        other(stream("eata", 4)[0])
    plain(stream("eata", 4)[0])
    torch.testing.assert_close(other.importance, plain.importance, rtol=0, atol=0)
    torch.testing.assert_close(list(other.parameters()), list(plain.parameters()), rtol=0, atol=0)
    assert max(value.max() for value in other.importance) > 0


def test_the_importance_of_small_gradients_is_kept_in_half_precision():
    network = small_network().eval()
    with torch.no_grad():
        network.head.weight.mul_(0.002)
    adapters = [made("eata", copy.deepcopy(network).to(dtype)) for dtype in (torch.float32, torch.float16)]
    for adapter, dtype in zip(adapters, (torch.float32, torch.float16), strict=True):
        adapter.fisher(stream("eata", 4)[0].to(dtype))
    for want, got in zip(*(adapter.importance for adapter in adapters), strict=True):
        torch.testing.assert_close(got, want, rtol=0.2, atol=0)
