"""The benchmark's arithmetic and its table, on made-up times and on one tiny race. No number here is a speed."""

import argparse
import csv
import importlib.util
import io
import itertools
import json

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import bench, cli
from normkit.bench import attention, cases, cost, report, residual, timing
from normkit.bench.timing import Entrant
from normkit.layout import Layout
from normkit.ops import paths
from normkit.threads import threads


@pytest.fixture(autouse=True)
def _no_fresh_processes(monkeypatch):
    monkeypatch.setattr(cost, "first_seconds", lambda: 0.025)


class Clock:
    """A clock that calls move by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def call(self, seconds):
        def move():
            self.now += seconds

        return move


def test_a_race_gives_the_time_of_each_call():
    clock = Clock()
    found = timing.race({"a": Entrant(clock.call(2.0)), "b": Entrant(clock.call(3e-5))}, repeats=5, clock=clock)
    assert found["a"].median == pytest.approx(2.0)
    assert found["b"].low == pytest.approx(found["b"].high) == pytest.approx(3e-5)


def test_entrants_take_turns_and_none_always_follows_the_same_other():
    clock, order = Clock(), []

    def entrant(name):
        def call():
            order.append(name)
            clock.now += 0.01

        return Entrant(call)

    timing.race({name: entrant(name) for name in "abc"}, repeats=6, clock=clock)
    rounds = [order[-18:][at : at + 3] for at in range(0, 18, 3)]
    assert all(sorted(turns) == ["a", "b", "c"] for turns in rounds)
    before = {(one, other) for one, other in itertools.pairwise(order[-18:]) if one != other}
    assert before == set(itertools.permutations("abc", 2))


def test_the_median_does_not_see_one_slow_round():
    clock, lengths = Clock(), itertools.chain([1.0] * 4, [1.0, 50.0, 1.0, 1.0, 1.0])

    def call():
        clock.now += next(lengths)

    assert timing.race({"a": Entrant(call)}, repeats=5, clock=clock)["a"].median == 1.0


def test_a_long_race_ends_early():
    clock = Clock()
    assert timing.race({"a": Entrant(clock.call(1.0))}, repeats=50, clock=clock)["a"].rounds == timing.FEWEST
    assert timing.race({"a": Entrant(clock.call(1e-3))}, repeats=50, clock=clock)["a"].rounds == 50


def test_short_calls_are_repeated_until_the_clock_can_see_them():
    clock, count = Clock(), [0]

    def call():
        count[0] += 1
        clock.now += 1e-5

    timing.race({"a": Entrant(call)}, repeats=1, clock=clock)
    assert count[0] == timing.WARM_UP + 1 + 100


ROW = {
    "method": "some-norm",
    "folder": "activation/token",
    "size": "4x8",
    "dtype": "float32",
    "strides": "contiguous",
    "pass": "forward",
    "path": "C kernel, avx2",
    "seconds": {"normkit": 2e-6, "torch": 3e-6, "eager": 8e-6, "copy": 1e-6, "add_norm": 2e-6, "add, norm": 5e-6},
    "quartiles": {},
    "copied_bytes": 256,
    "least_bytes": 256,
    "peak_bytes": {"normkit": 128, "layer_norm": 256},
    "absent": {"compiled": "no compiler"},
}


def test_the_ratios_of_a_row():
    assert report.ratio(ROW, "torch") == 1.5
    assert report.ratio(ROW, "eager") == 4.0
    assert report.ratio(ROW, "layer_norm") is None
    assert report.over_copy(ROW) == 2.0
    assert report.of_limit(ROW) == 0.5
    assert report.fused_gain(ROW) == pytest.approx(2.5)
    assert report.memory(ROW) == 0.5


def test_the_table_shows_them_and_leaves_empty_columns_out():
    head, line = report.cells([ROW])
    shown = dict(zip(head, line, strict=True))
    assert shown["time"] == "2 µs"
    assert (shown["torch"], shown["eager"], shown["fused add"], shown["copy"]) == ("1.50", "4.00", "2.50", "2.00")
    assert (shown["limit"], shown["memory"], shown["path"]) == ("50%", "0.50", "C kernel, avx2")
    assert "compiled" not in shown


@pytest.mark.parametrize(
    "seconds, text",
    [(1.5e-8, "0.015 µs"), (9.994e-4, "999 µs"), (9.997e-4, "1000 µs"), (0.02, "20 ms"), (12.0, "12000 ms")],
)
def test_times_are_written_with_their_unit(seconds, text):
    assert report.duration(seconds) == text


def test_bytes_that_must_move():
    x, w = torch.zeros(4, 8), torch.zeros(8)
    assert cost.least_bytes([x], [x], [w], "forward") == 4 * (32 + 32 + 8)
    assert cost.least_bytes([x], [x], [w], "training") == 4 * (32 * 5 + 8 * 3)


def test_memory_is_the_most_held_at_once():
    def call():
        first = torch.ones(1000)
        second = first + 1
        del first
        return second * 2

    assert cost.peak_bytes(Entrant(call)) == pytest.approx(8000, rel=0.1)


def test_sizes_and_types_are_read_or_refused():
    assert cases.sizes("8x768,32x64x56x56") == [(8, 768), (32, 64, 56, 56)]
    for wrong in ("8x", "0x4", "8*4", ""):
        with pytest.raises(ValueError, match="no size"):
            cases.sizes(wrong)
    with pytest.raises(ValueError, match="none of float32"):
        cases.dtypes("float31")


@pytest.mark.parametrize(
    "layout, size, shape",
    [
        ("... C", (4, 8), (4, 8)),
        ("... C", (2, 3, 5, 8), (2, 3, 5, 8)),
        ("... C-1", (4, 8), (4, 8)),
        ("N C *", (4, 8), (4, 8)),
        ("N C *", (2, 4, 5, 6), (2, 4, 5, 6)),
        ("N C H W", (2, 4, 5, 6), (2, 4, 5, 6)),
        ("T N C", (16, 8), (2, 8, 8)),
        ("N 2C", (4, 8), (4, 8)),
        ("N", (4,), (4,)),
        ("... 3 H W", (2, 3, 5, 6), (2, 3, 5, 6)),
    ],
)
def test_a_layout_takes_the_size_asked_for(layout, size, shape):
    assert Layout(layout).shape(*Layout(layout).fit(size)) == shape


@pytest.mark.parametrize(
    "layout, size",
    [("N C +", (4, 8)), ("N C H W", (4, 8)), ("N 2C", (4, 7)), ("N C", (2, 3, 4)), ("... 3 H W", (2, 4, 5, 6))],
)
def test_a_size_that_a_layout_cannot_have_is_passed_over(layout, size):
    assert Layout(layout).fit(size) is None


def test_images_are_timed_in_both_memory_layouts():
    strides = {
        name: [case.strides for case in cases.cases([nk.card(name)], [(2, 4, 5, 6)], ["float32"], ["forward"])]
        for name in ("groupnorm", "layernorm")
    }
    assert strides == {"groupnorm": ["contiguous", "channels-last"], "layernorm": ["contiguous"]}
    for case in cases.cases([nk.card("groupnorm")], [(2, 4, 5, 6)], ["float32"], ["forward"]):
        [x] = cases.make(case).inputs
        assert x.is_contiguous(memory_format=torch.channels_last) is (case.strides == "channels-last")


@pytest.mark.parametrize("name", nk.methods(room="activation"))
def test_every_activation_can_be_raced_as_its_card_says(name):
    card = nk.card(name)
    found = cases.cases([card], None, ["float32"], ["forward"])
    assert found, f"no default size fits {card.shape}"
    size = tuple(min(axis, 16) for axis in found[0].size)
    case = cases.Case(card, size, "float32", "contiguous", "training")
    assert cases.make(case).inputs[0].numel() > 0


def test_the_path_of_a_race_is_reported():
    norm, x = nk.LayerNorm(8), torch.randn(4, 8)
    live = nk.kernels.status().live
    whole = f"C kernel, {nk.kernels.status().isa}"
    if live:
        assert cases.path_of(lambda: norm(x), 32) == whole
        assert cases.path_of(lambda: norm(x) * 2, 32) == f"{whole}, in part"
        assert cases.path_of(lambda: norm(x) * norm.weight[:1].exp(), 33) == whole
    assert cases.path_of(lambda: norm(x[:0]), 32).startswith("formula: ")
    with paths.formula_only():
        assert cases.path_of(lambda: norm(x), 32) == "formula: it is asked for"
    assert cases.path_of(lambda: x + 1, 32) == "formula: the method has no kernel"


def test_a_tiny_race_from_the_command_line(tmp_path, capsys):
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "csv")}
    words = ["bench", "layernorm", "groupnorm", "--sizes", "4x8", "--dtypes", "mixed", "--repeats", "2", "--no-compile"]
    assert cli.main([*words, "--json", str(files["json"]), "--csv", str(files["csv"])]) == 0
    out, progress = capsys.readouterr()
    assert "[1/4] layernorm 4x8 mixed contiguous forward" in progress
    assert "import normkit and its first norm: 25 ms after import torch." in out
    record = json.loads(files["json"].read_text())
    assert [(row["method"], row["pass"]) for row in record["rows"]] == [
        (name, which) for name in ("layernorm", "groupnorm") for which in ("forward", "training")
    ]
    assert record["failed"] == {}
    assert {"normkit", "torch", "layer_norm", "eager", "add_norm", "add, norm", "copy"} == set(
        record["rows"][0]["seconds"]
    )
    assert record["machine"]["torch"] == torch.__version__
    table = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    assert float(table[0]["seconds: normkit"]) == record["rows"][0]["seconds"]["normkit"]


def test_a_quick_race_has_one_size_and_one_layout_of_each(monkeypatch):
    asked = argparse.ArgumentParser()
    bench.add_arguments(asked)
    found = bench.line_up(asked.parse_args(["layernorm", "batchnorm", "--quick"]))
    assert [(case.card.name, case.size, case.dtype, case.strides, case.which) for case in found] == [
        (name, size, "float32", "contiguous", which)
        for name, size in (("layernorm", (4096, 768)), ("batchnorm", (32, 64, 56, 56)))
        for which in ("forward", "training")
    ]
    monkeypatch.setattr(bench, "measure", lambda lined_up, rounds, compile, *rest: {"asked": (rounds, compile)})
    assert bench.measure_all(asked.parse_args(["--quick"]), None, [])["asked"] == (5, False)
    assert bench.measure_all(asked.parse_args([]), None, [])["asked"] == (15, True)


def test_of_a_room_the_modules_race_and_its_functions_do_not():
    names = {card.name for card in bench.choose([], "loss", None)}
    assert {"nkd", "uskd"} <= names
    assert "bnpo" not in names


def test_what_gives_another_shape_does_not_race_a_layernorm():
    for name in ("af-kan", "alignment-uniformity"):
        case = cases.Case(nk.card(name), (6, 8), "float32", "contiguous", "training")
        assert cases.yardstick(cases.make(case)) is None


def test_a_method_that_cannot_run_is_reported_and_the_rest_goes_on():
    lined_up = cases.cases([nk.card("groupnorm"), nk.card("layernorm")], [(4, 7)], ["float32"], ["forward"])
    record = {**bench.measure(lined_up, 1, False), "machine": report.machine()}
    assert [row["method"] for row in record["rows"]] == ["layernorm"]
    assert "groupnorm 4x7 float32 contiguous forward failed: GroupNorm" in report.text(record)


def test_what_was_measured_before_an_interruption_is_kept(monkeypatch, capsys):
    lined_up = cases.cases([nk.card("layernorm")], [(4, 8)], ["float32", "float64", "mixed"], ["forward"])
    ran = iter([cases.run(lined_up[0], 1, False), KeyboardInterrupt()])

    def run(*arguments):
        found = next(ran)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(cases, "run", run)
    assert [row["dtype"] for row in bench.measure(lined_up, 1, False)["rows"]] == ["float32"]
    assert "stopped" in capsys.readouterr().err


def test_a_race_that_is_over_is_in_the_file_before_the_next_begins(tmp_path, monkeypatch):
    file, run, before = tmp_path / "races.json", cases.run, []

    def looked_at(case, *arguments):
        before.append([row["pass"] for row in json.loads(file.read_text())["rows"]] if file.exists() else [])
        return run(case, *arguments)

    monkeypatch.setattr(cases, "run", looked_at)
    words = ["layernorm", "--sizes", "4x8", "--dtypes", "float32", "--no-compile", "--repeats", "1"]
    assert cli.main(["bench", *words, "--json", str(file)]) == 0
    assert before == [[], ["forward"]]
    assert {"machine", "rows", "failed", "first_seconds"} == set(json.loads(file.read_text()))


def test_an_entrant_that_fails_does_not_race(monkeypatch):
    def broken(bout):
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setitem(cases.BUILDERS, "compiled", broken)
    case = cases.cases([nk.card("layernorm")], [(4, 8)], ["float32"], ["forward"])[0]
    row = cases.run(case, 1, True)
    assert row["absent"] == {"compiled": "no compiler here"}
    assert "compiled" not in row["seconds"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--repeats", "0"], "--repeats must be at least 1, not 0"),
        (["--sizes", "8x"], "'8x' is no size"),
        (["--dtypes", "int8"], "'int8' is none of"),
        (["layernom"], "did you mean 'layernorm'"),
        (
            ["muon"],
            "muon is of the kind optimizer, and only modules race alone; normkit bench --room gradient is a study",
        ),
        (["rmsnorm", "--targets", "sm_80"], "--targets goes with --static"),
        (["rmsnorm", "--vocab", "100"], "--vocab is of decoders: --room gradient, residual or weight trains some"),
        (["rmsnorm", "--room", "loss"], "rmsnorm is not of the room loss"),
        (["rmsnorm", "--group", "spatial"], "rmsnorm is not of the group spatial"),
        (["dyt", "bnpo"], "bnpo is of the kind function, and only modules race alone\n"),
        (["--room", "probe"], "the room probe has no module"),
        (["--json", "nowhere/at/all.json"], "nowhere/at/all.json cannot be written: No such file or directory"),
        (["--csv", "."], ". cannot be written: Is a directory"),
        (["layernorm2d", "--sizes", "4x8"], "no method chosen"),
        (["--room", "residual", "--sizes", "4x8"], "batch x length x width"),
        (["--room", "residual", "--vocab", "1"], "--vocab must be at least 2"),
        (["--room", "attention", "--sizes", "4x16"], "a number of tokens from 16, such as 1024, not 4x16"),
        (["--room", "attention", "--sizes", "8"], "a number of tokens from 16"),
        (["--room", "attention", "rmsnorm"], "rmsnorm is no attention core; they are"),
        (["--room", "density", "rmsnorm"], "a flow that races must be one of"),
        (["--room", "manifold", "rmsnorm"], "a norm that races must be one of"),
        (["--room", "residual", "mid-norm"], "placement must be one of 'altup', 'attention-residuals'"),
        (["fold", "--room", "text"], "--room text is measured as a whole: leave out fold"),
        (["--room", "text", "--sizes", "8x8"], "--room text takes no --sizes"),
        (["--room", "quant", "--dtypes", "bogus", "--forward"], "--room quant takes no --dtypes and no --forward"),
        (["csls", "--room", "inference", "--quick"], "--room inference takes no --quick"),
        (["--room", "residual", "--no-compile"], "--room residual takes no --no-compile"),
        (["--room", "token", "--device", "interpreter"], "--device interpreter takes no --room"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys, monkeypatch):
    monkeypatch.setattr(bench, "make_node", lambda: pytest.fail("it was built before the words were read"))
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("they raced before the words were read"))
    assert cli.main(["bench", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


TRAINING = ["bench", "--room", "residual", "--sizes", "2x8x16", "--vocab", "11", "--repeats", "1"]


@pytest.fixture
def _without_x_transformers(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "x_transformers" else find(name))


@pytest.mark.usefixtures("_without_x_transformers")
def test_decoders_train_side_by_side(tmp_path, capsys):
    pytest.importorskip("transformers", reason="transformers is not installed")
    file = tmp_path / "bench.json"
    assert cli.main([*TRAINING, "--cpu-time", "--json", str(file), "--csv", str(tmp_path / "bench.csv")]) == 0
    out, progress = capsys.readouterr()
    assert "x-transformers did not race: it is not installed; pip install" in out
    assert "Times are those of the processor, on one thread." in out
    assert "training llama 2x8x16 float32" in progress
    rows = json.loads(file.read_text())["rows"]
    entrants = ["normkit pre-norm", "normkit peri-norm", "normkit mhc", "plain mhc", "transformers"]
    assert [(row["decoder"], row["entrant"]) for row in rows] == list(itertools.product(["gpt2", "llama"], entrants))
    for pre, peri, wide, plain, theirs in (rows[:5], rows[5:]):
        assert wide["parameters"] == plain["parameters"] > pre["parameters"]
        assert pre["kept"] < wide["kept"] < plain["kept"]
        assert pre["parameters"] == theirs["parameters"] < peri["parameters"]
        assert peri["relative"] == pytest.approx(peri["seconds"] / pre["seconds"])
        assert theirs["tokens_per_second"] == pytest.approx(16 / theirs["seconds"])
    table = list(csv.DictReader(io.StringIO((tmp_path / "bench.csv").read_text())))
    assert [line["entrant"] for line in table] == 2 * entrants


def test_x_transformers_has_the_parameters_of_its_kind():
    pytest.importorskip("x_transformers", reason="x-transformers is not installed")
    size = residual.Size(2, 8, 128, 11)
    sizes = {}
    for decoder in residual.PEERS:
        models, absent = residual.line_up(decoder, size, ["pre-norm"])
        assert "x-transformers" not in absent
        sizes[decoder] = [
            sum(p.numel() for p in models[n].parameters()) for n in ("normkit pre-norm", "x-transformers")
        ]
    matrices, shifts = 4 * 128, 2 * 128
    assert sizes["gpt2"][0] - sizes["gpt2"][1] == residual.DEPTH * (matrices + shifts) + 128
    assert sizes["llama"][1] - sizes["llama"][0] == residual.DEPTH * 2 * size.gated


def test_plain_mhc_is_mhc():
    size, tokens = residual.Size(2, 8, 64, 11), torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(0))
    models, _ = residual.line_up("llama", size, ["mhc"])
    ours, plain = models["normkit mhc"], models["plain mhc"]
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    plain.load_state_dict(ours.state_dict())
    losses = [residual.loss_of(model, tokens, "float32") for model in (ours, plain)]
    torch.testing.assert_close(*losses)
    first, second = (
        torch.autograd.grad(loss, list(m.parameters())) for loss, m in zip(losses, (ours, plain), strict=True)
    )
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-5)
    assert all(type(branch).__name__ == "Plain" for layer in plain.layers for branch in layer.branches.values())


def test_what_a_forward_pass_keeps_is_counted():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(5, 7))

        def forward(self, tokens):
            return torch.exp(self.w[tokens])  # exp keeps its result, the loss its logarithms, a number and tokens

    tokens = torch.zeros(2, 4, dtype=torch.int64)
    with_exp = residual.activation_bytes(Model(), tokens, "float32")
    assert with_exp == 2 * (2 * 3 * 7 * 4) + 2 * 4 * 8 + 6 * 8 + 4


def test_a_step_of_training_learns_and_one_forward_does_not():
    tokens = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = residual.own("llama", residual.Size(2, 8, 16, 11), "ngpt")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    logits = residual.step(model, tokens, "float32", forward=True)()
    assert not logits.requires_grad
    assert not model.training
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    train = residual.step(model, tokens, "float32", forward=False)
    assert model.training
    losses = [train().item() for _ in range(20)]
    assert losses[-1] < losses[0]
    torch.testing.assert_close(model.embedding.weight.norm(dim=1), torch.ones(11))


@pytest.mark.parametrize("dtype", ["mixed", "bfloat16"])
def test_placements_train_by_name_in_any_type(dtype, monkeypatch, capsys):
    monkeypatch.setattr(residual, "PEERS", {"gpt2": {}})
    assert cli.main([*TRAINING, "deepnorm", "--dtypes", dtype]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("gpt2")]
    assert [("pre-norm" in line, "deepnorm" in line) for line in lines] == [(True, False), (False, True)]


def test_the_processors_time_is_taken_on_one_thread():
    before = torch.get_num_threads()
    with threads(2):
        with threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before


def test_a_call_of_seconds_is_warmed_once():
    clock, count = Clock(), []

    def call():
        count.append(0)
        clock.now += timing.LONGEST + 1

    timing.race({"a": Entrant(call)}, repeats=1, clock=clock)
    assert len(count) == 2


@pytest.mark.parametrize(
    "seconds, calls", [(timing.LONG, timing.WARM_UP + 2), (1.1 * timing.LONG, 3), (timing.LONGEST, 3)]
)
def test_warming_up_ends_after_a_second_call_that_is_longer_than_the_bound(seconds, calls):
    clock, count = Clock(), []

    def call():
        count.append(0)
        clock.now += seconds

    timing.race({"a": Entrant(call)}, repeats=1, clock=clock)
    assert len(count) == calls


# ---- attention at growing lengths ----

ATTENTION = ["bench", "--room", "attention", "--repeats", "1", "--sizes", "32,16"]
FORMS = [(name, causal) for name in attention.races() for causal in nk.card(name).entry.forms]


def test_cores_race_at_growing_lengths(tmp_path, capsys):
    file = tmp_path / "bench.json"
    names = ["lightning", "normalized-attention", "softmax-free"]
    assert cli.main([*ATTENTION, *names, "--json", str(file), "--csv", str(tmp_path / "bench.csv"), "--markdown"]) == 0
    out, progress = capsys.readouterr()
    assert "causal attention of 32 tokens, float32" in progress
    rows = json.loads(file.read_text())["rows"]
    ran = [("normalized-attention", "whole"), ("softmax-free", "whole")]
    ran += [("lightning", "causal"), ("normalized-attention", "causal")]
    assert [(row["method"], row["form"], row["tokens"]) for row in rows] == [(*one, t) for one in ran for t in (16, 32)]
    assert {row["method"] for row in rows if row["linear"]} == {"lightning", "softmax-free"}
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert first["growth"] is None
        assert second["growth"] == second["seconds"] / first["seconds"]
        assert second["peak_growth"] == second["peak_bytes"] / first["peak_bytes"]
        assert second["softmax"] > 0
        assert (second["overtakes"] is not None) == second["linear"]
    assert "| lightning | causal | linear | 1x4x32x64 | float32 |" in out
    table = list(csv.DictReader(io.StringIO((tmp_path / "bench.csv").read_text())))
    assert [line["method"] for line in table] == [row["method"] for row in rows]


@pytest.mark.parametrize("name, causal", FORMS)
def test_every_core_can_be_made_at_a_length(name, causal):
    course = attention.Course(nk.card(name), causal, 48, "float32")
    core, inputs = attention.make(course)
    y = core(*inputs)
    assert 48 in inputs[0].shape
    # cores that take coordinates return them beside the features, of each head
    assert y.numel() == 48 * attention.HEADS * (attention.HEAD_DIM + nk.card(name).example.get("pos_dim", 0))
    assert isinstance(core.linear, bool)


def test_a_call_beyond_the_budget_is_not_made(monkeypatch, capsys):
    monkeypatch.setattr(attention, "SECONDS", 0.0)
    assert cli.main([*ATTENTION, "lightning", "--forward"]) == 0
    assert "would take about 0 s" in capsys.readouterr().out
    last = {"tokens": 1024, "seconds": 1e-3, "peak_bytes": 2**20, "linear": True}
    monkeypatch.setattr(attention, "SECONDS", 10.0)
    assert attention.too_much([last], 2**20) is None
    assert attention.too_much([last, {**last, "seconds": None}], 2**22) == "would hold about 4.0 GiB"
    assert attention.too_much([{**last, "linear": False}], 2**17) == "would take about 16 s"


def test_where_a_core_is_ahead_shorter_races_are_held(monkeypatch):
    held = []
    ahead = {128: 4.0, 64: 2.0, 32: 0.5}

    def at(self, length, cards, done):
        held.append(length)
        return [{"method": card.name, "tokens": length, "softmax": ahead[length], "linear": True} for card in cards]

    monkeypatch.setattr(attention.Race, "at", at)
    rows = attention.Race(True, "float32", False, 1, None).run([nk.card("lightning")], [128])
    assert held == [128, 64, 32]
    assert [row["overtakes"] for row in rows] == ["45"]


def test_a_table_of_rows_of_other_columns_has_unix_lines_and_holes():
    rows = [{"method": "eln", "seconds": {"normkit": 0.5, "torch": 1.0}}, {"method": "dyt", "bytes": 3}]
    assert report.csv_text(rows) == "method,seconds: normkit,seconds: torch,bytes\neln,0.5,1.0,\ndyt,,,3\n"
