"""What the table of machine code says of a kernel: its loops, how many run at once, and what speed that leaves."""

import pytest
from test_gpu_bench import variant

from normkit.kernels import cuda
from normkit.kernels.cuda import static

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))


def test_code_without_a_loop_is_counted_whole_for_an_entry():
    one = variant("row forward, rms", 768)
    code, row = static.read(one.compiled("sm_90"), "sm_90", one.warps), one.row("sm_90")
    assert code.loop == row["loop"] == 0
    assert row["each"] == pytest.approx(code.instructions * 32 * one.warps / one.entries / one.used)


def test_of_code_with_a_loop_an_entry_takes_what_the_loop_has():
    one = variant("row backward, rms", 768)
    code, row = static.read(one.compiled("sm_90"), "sm_90", one.warps), one.row("sm_90")
    assert 0 < code.loop < code.instructions
    assert row["each"] == pytest.approx(code.loop * 32 * one.warps / one.entries / one.used)


def code(target="sm_90", registers=32, shared=0, warps=4):
    return static.Code(target, registers, 0, shared, {128: 2}, {128: 1}, 100, 0, warps)


@pytest.mark.parametrize(
    "given, occupancy, limit",
    [
        (code(), 1.0, ""),
        (code(registers=33), 12 / 16, "registers"),
        (code(registers=128), 4 / 16, "registers"),
        (code(registers=3, warps=1), 32 / 64, "programs"),
        (code(shared=100 << 10), 2 / 16, "shared"),
        (code("sm_80", shared=100 << 10), 1 / 16, "shared"),
        (code("gfx942", registers=64), 1.0, ""),
        (code("gfx942", registers=128), 4 / 8, "registers"),
        (code("gfx942", registers=64, shared=32 << 10), 2 / 8, "shared"),
    ],
)
def test_what_runs_at_once_is_what_there_is_of_registers_memory_and_programs(given, occupancy, limit):
    assert (given.occupancy, given.limit) == (occupancy, limit)
    assert (given.row()["occupancy"], given.row()["limit"]) == (occupancy, limit)


def test_a_copys_speed_is_reached_where_enough_is_under_way_and_instructions_are_few():
    full, seldom = code(), code(registers=128)
    assert full.hidden(64) == pytest.approx(2048 * 64 * 132 / 3.35e12)
    assert seldom.hidden(64) == pytest.approx(full.hidden(64) / 4)
    assert full.best(64, 4, 1.0) == 1.0
    latency = 478.8 / 1.98e9
    assert seldom.best(8, 4, 1.0) == pytest.approx(2048 / 4 * 8 * 132 / 3.35e12 / latency)
    starts = 132 * 128 * 1.98e9
    assert full.best(64, 4, 50.0) == pytest.approx(starts / 50 * 4 / 3.35e12)
    assert code("sm_100").best(1e-6, 4, 1.0) == 1.0, "whose latency nobody has published"
