"""The benchmark of the GPU's kernels, whose whole way is gone here on the interpreter; and their machine code."""

import importlib.util
import json
import pathlib
import re
from functools import partial

import pytest
import torch

from normkit import bench, cli, ops
from normkit.bench import gpu, report
from normkit.contract import asked
from normkit.kernels import cuda
from normkit.ops import paths

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))
TINY = ["bench", "--device", "interpreter", "--sizes", "3x8", "--dtypes", "bfloat16", "--repeats", "1"]


def test_every_op_is_held_to_its_formula_and_timed_forward_and_backward(capsys, tmp_path):
    file = tmp_path / "found.json"
    assert cli.main([*TINY, "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [(row["kernel"], row["pass"]) for row in rows] == [
        (op, way) for op in gpu.OPS for way in ("forward", "backward")
    ]
    assert all(row["path"] == "Triton kernel, interpreted" for row in rows)
    assert all(0 < row["off"] < 2.0**-6 and {"normkit", "eager", "copy"} <= set(row["seconds"]) for row in rows)
    assert rows[0]["least_bytes"] == 2 * 3 * 8 * 2
    assert "Triton kernel, interpreted" in capsys.readouterr().out


def test_what_is_wrong_is_not_timed(monkeypatch):
    engine = cuda.library(True)
    honest = engine.row_forward

    def off(plan, rows, *tensors):
        honest(plan, rows, *tensors)
        tensors[5].mul_(1.1)

    monkeypatch.setattr(engine, "row_forward", off)
    record = gpu.measure(cli.parser().parse_args([*TINY, "--forward"]))
    assert {row["kernel"] for row in record["rows"]} == {"dyt", "batch_norm", "group_norm"}
    assert "its numbers are off by 1.0e-01 of the largest" in record["failed"]["rms_norm 3x8 bfloat16"]


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match=r"torch .* sees no GPU.*--static.*--device interpreter"):
        gpu.measure(cli.parser().parse_args(["bench", "--device", "cuda"]))
    with pytest.raises(ValueError, match="needs --device cuda"):
        cli.parser().parse_args(["bench", "--static"]).run(cli.parser().parse_args(["bench", "--static"]))
    with pytest.raises(ValueError, match="needs --device cuda"):
        bench.find_study(cli.parser().parse_args(["bench", "--static", "--device", "interpreter"]))


@pytest.mark.parametrize(
    "words, named",
    [
        (["--sizes", "3x8"], "'3x8' is no width such as 768"),
        (["--sizes", "0"], "'0' is no width"),
        (["--dtypes", "float64"], "the GPU's kernels have no 'float64', only float32, bfloat16, float16"),
        (["--dtypes", "mixed"], "no 'mixed'"),
    ],
)
def test_what_the_table_of_machine_code_cannot_have_is_named(words, named):
    options = cli.parser().parse_args(["bench", "--device", "cuda", "--static", *words])
    with pytest.raises(ValueError, match=named):
        gpu.measure(options)


def test_the_interpreters_times_are_said_to_tell_nothing(capsys, monkeypatch):
    assert cli.main([*TINY, "--forward"]) == 0
    assert "`off` and `path` tell something here, times do not" in capsys.readouterr().out
    monkeypatch.setattr(cuda, "absent", lambda: "Triton is not installed")
    with pytest.raises(ValueError, match="--device interpreter: Triton is not installed"):
        gpu.measure(cli.parser().parse_args(TINY))
    monkeypatch.undo()
    options = cli.parser().parse_args(["bench", "--device", "interpreter", "--dtypes", "float64"])
    with pytest.raises(ValueError, match="no 'float64'"):
        gpu.measure(options)


def test_an_op_that_is_named_runs_alone_and_a_wrong_name_is_named(capsys):
    assert cli.main(["bench", "dyt", *TINY[1:], "--forward"]) == 0
    assert "rms_norm" not in capsys.readouterr().out
    options = cli.parser().parse_args(["bench", "rms_nrm", *TINY[1:]])
    with pytest.raises(ValueError, match="no op 'rms_nrm'; there are rms_norm, layer_norm"):
        gpu.measure(options)


def test_a_device_that_is_not_here_is_named(monkeypatch):
    monkeypatch.setenv("NORMKIT_DEVICE", "cpux")
    with pytest.raises(ValueError, match="NORMKIT_DEVICE must be a device of this machine, not 'cpux'"):
        asked.device()


def variant(name, width, kind="bf16"):
    from normkit.kernels.cuda import variants

    return next(found for found in variants.variants([kind], [width]) if found.name == name)


def test_a_row_is_read_once_and_written_once_in_loads_of_128_bits_and_nothing_spills():
    code = variant("row forward, rms", 4096).row("sm_90")
    threads = 32 * code["warps"]
    wanted = (4096 * 2 + 4096 * 4) // 16 // threads  # x in bfloat16, the gain in float32
    assert code["loads"] == {128: wanted}
    assert code["stores"] == {128: 4096 * 2 // 16 // threads, 32: 1}  # y, and a number for the backward pass
    assert code["spills"] == 0
    assert code["occupancy"] >= 0.5


def test_a_backward_pass_reads_x_and_the_gradient_once_and_nothing_spills():
    code = variant("row backward, layer", 4096).row("sm_90")
    threads = 32 * code["warps"]
    assert code["loads"] == {128: (2 * 4096 * 2 + 4096 * 4) // 16 // threads, 32: 3}
    assert code["stores"] == {128: (4096 * 2 + 2 * 4096 * 4) // 16 // threads}  # dx, and shares of two gradients
    assert code["spills"] == 0


def test_a_loop_that_is_left_by_a_call_is_counted_whole():
    code = variant("row backward, layer", 4096).row("sm_80")
    assert code["loop"] > 16 * 10, "sixteen entries a thread, ten operations each and more"
    assert code["instructions"] > code["loop"]


def test_heads_are_normalized_and_turned_in_one_pass_of_bytes():
    from normkit.kernels.cuda import variants

    code = variant("norm and turn, forward", 128).row("sm_90")
    assert 2 <= code["stored"] < 3, "bytes an entry: y in bfloat16, and a number a row"
    assert code["spills"] == 0
    assert {made.used for made in variants.heads("bf16", 96)} == {0.75}, "pairs of entries lie in blocks of 64"


def test_channels_are_read_and_written_once_a_pass_in_wide_loads_and_nothing_spills():
    found = {name: variant(f"channels first, batch, {name}", 4096).row("sm_90") for name in ("measure", "write_back")}
    each = 1024 * 2 // 16 // 128  # loads of a tile in bfloat16, on four warps
    assert found["measure"]["loads"] == {128: 2 * each}, "the first tile, and one in the loop"
    assert found["write_back"]["loads"][128] == 2 * each
    assert found["write_back"]["stores"] == {128: each}
    assert all(code["spills"] == 0 for code in found.values())
    last = variant("channels last, batch, reduce", 256).row("gfx942")
    assert last["spills"] == 0
    assert last["loads"][128] == 2, "x and the gradient, on four waves of 64 threads"


def test_liger_stands_in_the_same_table_where_it_is_installed():
    pytest.importorskip("liger_kernel")
    ours, theirs = (
        variant("row forward, rms", 4096).row("sm_90"),
        variant("Liger's rms_norm, forward", 4096).row("sm_90"),
    )
    assert ours["loaded"] <= theirs["loaded"]
    assert 0 < ours["each"] <= theirs["each"]
    assert ours["best"] == 1.0


@pytest.mark.parametrize("way, width", [("forward", 5120), ("backward", 768)])
def test_a_row_that_fills_no_block_takes_no_more_instructions_than_ligers(way, width):
    pytest.importorskip("liger_kernel")
    ours, theirs = (variant(name, width).row("sm_90") for name in (f"row {way}, layer", f"Liger's layer_norm, {way}"))
    assert ours["each"] <= theirs["each"]


def test_where_a_tile_of_a_row_is_empty_nothing_is_loaded():
    code = variant("row forward, rms", 768).row("sm_90")
    assert code["loads"] == {128: (4 * 768 * 2 + 768 * 4) // 16 // 32}, "four rows, and the gain once"
    assert code["stores"] == {128: 4 * 768 * 2 // 16 // 32, 32: 1}


def test_dyt_takes_no_more_instructions_than_ligers():
    pytest.importorskip("liger_kernel")
    for way in ("forward", "backward"):
        ours, theirs = (variant(name, 768).row("sm_90") for name in (f"pointwise {way}, tanh", f"Liger's dyt, {way}"))
        assert 0 < ours["each"] <= theirs["each"]


def made_of(kernel, each, moved, spills=0):
    about = {"kernel": kernel, "type": "bf16", "width": 768, "target": "sm_90", "best": 1.0, "spills": spills}
    return {**about, "each": each, "loaded": moved - 1, "stored": 1}


def test_where_another_moves_less_or_does_with_less_is_said():
    ours = [made_of("row backward_long, layer", 9.0, 8), made_of("row gains_long, layer", 4.0, 3)]
    theirs = [made_of("Liger's layer_norm, backward", 12.0, 9, 56)]
    theirs.append(made_of("Inductor's layer_norm, backward 1", 14.0, 9))
    spilled = "56 bytes of registers in memory"
    assert gpu.misses([*ours, *theirs]) == [
        f"layer_norm backward, 768, bf16, sm_90: 13.0 instructions an entry, Liger's 12.0, {spilled}",
        f"layer_norm backward, 768, bf16, sm_90: 11.0 bytes an entry, Liger's 9.0, {spilled}",
    ]
    alone = made_of("row forward, rms", 9.0, 8), made_of("unit, group, forward", 9.0, 8)
    even = made_of("Liger's rms_norm, forward", 9.0, 8)
    assert gpu.misses([*alone, even]) == ["nobody's code has fewer instructions an entry or moves fewer bytes"]


def test_what_inductor_writes_stands_there_too_and_reads_no_less():
    from normkit.kernels.cuda import inductor
    from normkit.ops.machine import _formula

    shapes = [((16384, 1024), torch.bfloat16), ((1024,), torch.float32)]
    passes = inductor.generate(partial(_formula, ops.rms_norm, 1024), shapes, learning=True)
    forward, backward = passes
    large, kept = 16384 * 1024 * 2, 16384 * 4 + 1024 * 4
    assert forward.moved == 2 * large + kept
    assert backward.moved >= 3 * large + kept
    [written] = inductor.variants(forward, "Inductor's", "bf16", 1024)
    theirs, ours = written.row("sm_90"), variant("row forward, rms", 1024).row("sm_90")
    assert ours["needed"] == theirs["needed"] == 4
    assert ours["loaded"] <= theirs["loaded"]
    assert theirs["instructions"] > 50
    [pointwise] = inductor.generate(torch.tanh, [((64, 64), torch.bfloat16)], learning=False)
    [written] = inductor.variants(pointwise, "Inductor's", "bf16", 64)
    assert written.entries == written.constants["XBLOCK"]


def test_rows_of_our_own_come_from_a_torch_whose_insides_are_others(monkeypatch):
    from normkit.kernels.cuda import inductor, variants
    from normkit.ops.machine import machine_code

    few = [variant("row forward, rms", 128)]
    monkeypatch.setattr(variants, "variants", lambda types, widths: few)
    monkeypatch.setattr(inductor, "_pretend_gpu", lambda: inductor.gone)
    with pytest.warns(UserWarning, match=r"Inductor of torch .* generates nothing .* its rows are left out") as warned:
        rows = list(machine_code(["sm_90"], ["bf16"], [128]))
    assert [row["target"] for row in rows] == ["sm_90"]
    assert warned[0].filename == __file__, "the caller's line is named"


def test_what_limits_a_kernel_is_reported():
    from normkit.kernels.cuda.static import Code

    full = Code("sm_90", 32, 0, 0, {128: 1}, {128: 1}, 100, 0, 4)
    assert (full.occupancy, full.limit) == (1.0, "")
    assert full.best(16, 4, 20.0) == 1.0
    assert full.best(16, 4, 80.0) == pytest.approx(132 * 128 * 1.98e9 / 80 * 4 / 3.35e12)
    held = Code("sm_90", 128, 0, 0, {128: 1}, {128: 1}, 100, 0, 4)
    assert (held.occupancy, held.limit) == (0.25, "registers")
    assert held.best(1, 4, 1.0) == pytest.approx(0.25 * 2048 * 132 / (478.8 / 1.98e9) / 3.35e12)
    shared = Code("sm_90", 32, 0, 40960, {}, {}, 100, 0, 4)
    assert (shared.occupancy, shared.limit) == (5 / 16, "shared"), "of 228 KiB, a KiB a program being the system's"
    lone = Code("sm_80", 32, 0, 0, {}, {}, 100, 0, 1)
    assert (lone.occupancy, lone.limit) == (0.5, "programs")
    amd = Code("gfx942", 70, 0, 0, {}, {}, 100, 0, 4)
    assert (amd.occupancy, amd.limit) == (0.875, "registers")
    assert amd.best(1, 1, 100) == pytest.approx(304 * 64 * 2.1e9 / 100 / 5.3e12), "no latency is known"
    assert amd.hidden(16) == pytest.approx(0.875 * 2048 * 16 * 304 / 5.3e12)
    assert held.hidden(1) / held.best(1, 4, 1.0) == pytest.approx(478.8 / 1.98e9)


def test_the_same_source_compiles_for_an_amd_gpu():
    code = variant("row forward, layer", 768).row("gfx942")
    assert code["spills"] == 0
    assert set(code["loads"]) <= {128, 64, 32}
    assert code["registers"] <= 192
    assert code["loop"] == 0, "it takes its rows in one go"
    assert code["each"] == pytest.approx(code["instructions"] * 64 * code["warps"] / (4 * 768))


def test_the_table_is_reported(capsys):
    row = {**variant("norm and turn, forward", 128).row("sm_90"), "absent": {}}
    record = {"machine": {**report.machine(), "clock": ""}, "rows": [row], "failed": {}}
    told = report.text(record, gpu.COLUMNS, gpu.LEGEND)
    assert "norm and turn, forward" in told
    assert "spills: bytes of registers that go to memory" in told
    assert "GB/s" not in told


def test_unknown_targets_are_named():
    from normkit.ops.machine import machine_code

    with pytest.raises(ValueError, match=r"^machine_code: target must .*sm_75"):
        list(machine_code(["sm_75"], ["bf16"], [64]))
    assert paths.watching() is None


def load(name):
    path = pathlib.Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_tables_are_what_is_on_file_and_what_bytes_predict():
    tables = load("gpu_tables")
    page = tables.PAGE.read_text()
    rows = tables.rows()
    assert page == tables.written(page, tables.tables())
    ours = [row for row in rows if not row["kernel"].startswith(("Liger", "Inductor"))]
    assert {row["target"] for row in ours} == {"sm_80", "sm_90", "sm_100", "gfx942"}
    assert not any(row["spills"] for row in ours)


def test_what_bytes_predict_of_published_times():
    first, _, short, small = load("h100").PUBLISHED
    assert first.predicted / first.took == pytest.approx(2988 / 3350)
    assert short.predicted / short.took == pytest.approx(2000 / 3350)
    assert small.predicted == pytest.approx(4096 * 1024 * 6 / 3.35e12)
    assert small.took == 0.30e-3


WIDE = ["row forward, rms", "row backward, layer", "pointwise forward, tanh", "unit, group, forward"]


@pytest.mark.parametrize("name", [*WIDE, "channels first, batch, measure"])
def test_entries_lie_at_offsets_of_64_bits(name):
    code = variant(name, 512).compiled("sm_90").asm["ttir"]
    offsets = re.findall(r"tt.addptr .* : tensor<\w+x\w+x!tt.ptr<bf16>>, tensor<\w+x\w+x(i\d+)>", code)
    assert offsets
    assert set(offsets) == {"i64"}
