"""What is noted of the repositories that goldens' sources name: licences, and where they were read."""

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("notices", ROOT / "docs/notices.py")
notices = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(notices)
ROWS = notices.rows()


@pytest.mark.parametrize(
    "source, repositories",
    [
        ("authors' code (BIT-DA/RoTTA, core/utils/memory.py CSTU), float64", {"BIT-DA/RoTTA"}),
        ("authors' code (lucaslie/torchprune, method/alds and method/base_decompose)", {"lucaslie/torchprune"}),
        ("karpathy/nanochat (nanochat/gpt.py: GPT.forward)", {"karpathy/nanochat"}),
        (
            "NVlabs/MUNIT layer as carried in cv-rits/CoMoGAN, networks/backbones/comomunit.py",
            {"NVlabs/MUNIT", "cv-rits/CoMoGAN"},
        ),
        ("wiring of eqs. 2-6 around wdlctc/open-attention-residuals' block", {"wdlctc/open-attention-residuals"}),
        ("transformers 5.23 (models/gpt_oss: GptOssTopKRouter)", {"huggingface/transformers"}),
        ("HF transformers formula (GemmaRMSNorm), float64", {"huggingface/transformers"}),
        ("authors' code (tnq177/transformers_without_tears, layers.py)", {"tnq177/transformers_without_tears"}),
        ("torch (nn.BatchNorm1d/2d/3d)", {"pytorch/pytorch"}),
        ("multipliers on torch.optim.AdamW", {"pytorch/pytorch"}),
        ("equations in float64: diffusers' BasicTransformerBlock", {"huggingface/diffusers"}),
        ("authors' code (STORM: rescaler networks of the task model)", {"STORM"}),
        ("authors' lines in torch, float64", set()),
        ("paper equations (arXiv 2107.11817), float64", set()),
    ],
)
def test_a_source_names_repositories_and_packages(source, repositories):
    assert notices.repositories(source) == repositories


def test_no_row_is_without_a_golden_and_a_release_names_what_has_none(monkeypatch):
    named = notices.methods()
    assert {row["repository"] for row in ROWS} <= set(named)
    assert [row["repository"] for row in ROWS] == sorted((row["repository"] for row in ROWS), key=str.lower)
    assert notices.missing() == sorted(set(named) - {row["repository"] for row in ROWS})
    monkeypatch.setattr(notices, "methods", lambda: {**named, "somebody/new": ["rmsnorm"]})
    assert "somebody/new" in notices.missing()


def test_a_licence_is_of_the_list_and_says_where_it_was_read():
    for row in ROWS:
        assert set(row) == set(notices.COLUMNS)
        assert all(row.values()), f"{row}: a cell without anything has a dash"
        own = re.fullmatch(r"LicenseRef-[A-Za-z0-9.-]+", row["licence"])
        assert own or row["licence"] in notices.SPDX | notices.NEITHER, row
        assert not own or row["note"] != "-", f"{row}: the note has the title of a holder's own text"
        assert (row["read"] == "-") == (row["licence"] in notices.NEITHER), row
        assert row["at"] == "-" if row["licence"] == "unknown" else re.fullmatch(r"[0-9a-f]{8}|\S+ \d[\d.]+", row["at"])
        assert row["holder"] == "-" or row["licence"] in notices.PERMISSIVE, row


def test_the_tables_show_each_row_and_its_methods():
    tables = notices.tables()
    assert all(f"[{row['repository']}](" in tables or f"| {row['repository']} |" in tables for row in ROWS)
    (row,) = (line for line in tables.splitlines() if line.startswith("| [bzhangGo/rmsnorm]"))
    assert row.split(" | ")[1:] == ["BSD-3-Clause", "2019 Biao Zhang", "`LICENSE` at 2e726f1a", "[[rmsnorm]] |"]


def test_packages_leave_the_recorded_numbers_out_as_the_page_says():
    assert "prune tests" in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
