"""Every repository that a golden's source names has a row with its licence, and the page is that of the rows."""

import re

import pytest

import notices

ROWS = notices.read(notices.ROWS.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def named():
    """The methods with numbers from each repository, read off all goldens."""
    return notices.methods()


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


def test_every_repository_of_a_golden_has_a_row_and_no_row_is_without_a_golden(named):
    assert [row["repository"] for row in ROWS] == sorted(named, key=str.lower)


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


def test_the_page_shows_the_rows_of_the_file(named):
    page = notices.PAGE.read_text(encoding="utf-8")
    assert page == notices.written(page, ROWS, named), "python tools/notices.py writes it"


def test_packages_leave_the_recorded_numbers_out_as_the_page_says():
    assert "prune tests" in (notices.ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
