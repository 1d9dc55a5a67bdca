"""What the table of machine code says of kernels with a loop and without one."""

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
