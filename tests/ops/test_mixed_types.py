"""The types that norms take, compute in and give, as docs/parallel.md has them."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_types_that_norms_compute_in(monkeypatch):
    pytest.importorskip("torchao")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import mixed

    page = (ROOT / "docs" / "parallel.md").read_text(encoding="utf-8")
    written = page.split("<!-- types -->\n")[1].split("<!-- end of types -->")[0]
    assert written.strip() == mixed.table().strip()
    monkeypatch.setitem(mixed.NORMS, "rmsnorm", lambda: mixed.nk.RMSNorm(mixed.WIDTH, cast="late"))
    assert mixed.cell("rmsnorm", mixed.half) == "bfloat16 → float32 → bfloat16"
    monkeypatch.delitem(sys.modules, "mixed")
