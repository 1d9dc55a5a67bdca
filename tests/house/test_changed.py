"""After a change `pytest --changed` runs the tests that were seen to fail with a mistake in that file."""

import pathlib

import pytest

from changed import Selection, differing

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = "tests/test_goldens.py::test_agrees_with_its_golden"
SEEN_BY = {  # in each file a mistake was made, and this test failed
    "src/normkit/activation/token/scalenorm.py": f"{GOLDEN}[scalenorm/clamped-row]",
    "src/normkit/text/rewrite/homophone_normalization.py": f"{GOLDEN}[homophone-normalization/amharic_labialized]",
    "src/normkit/weight/_gram.py": f"{GOLDEN}[group-orthogonality/inter_conv]",
    "src/normkit/lab/tiny.py": "tests/house/test_docs.py::test_the_examples_of_the_docstrings[normkit.lab.tiny]",
    "src/normkit/watching/rules/running_statistics.py": "tests/watching/test_watch_rules.py::test_running_statistics",
    "src/normkit/density/samplers/mala.py": (
        "tests/density/test_walks.py::test_every_sampler_samples_a_users_density[mala]"
    ),
    "docs/surgery.md": "tests/house/test_docs.py::test_the_python_of_a_page_runs[surgery.md]",
}


class Collected:
    """The tests of some files, after a selection."""

    def pytest_collection_finish(self, session):
        self.names = {item.nodeid for item in session.items}


def selected(changed, *tests):
    """The tests that are left of some files, and what no test reaches."""
    collected, selection = Collected(), Selection([ROOT / changed])
    words = ["--collect-only", "-qq", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    pytest.main([*words, *(str(ROOT / test) for test in tests)], plugins=[selection, collected])
    return collected.names, selection.unreached


@pytest.mark.parametrize("changed", SEEN_BY)
def test_what_saw_a_mistake_is_selected(changed):
    names, unreached = selected(changed, SEEN_BY[changed].partition("::")[0])
    assert SEEN_BY[changed] in names
    assert not unreached


def test_other_methods_keep_one_case_a_kind():
    names, _ = selected("src/normkit/activation/token/scalenorm.py", "tests/test_goldens.py")
    others = [name for name in names if "scalenorm/" not in name]
    assert 2 <= len(others) <= 12


def test_of_tests_elsewhere_that_use_a_method_one_a_folder_is_kept():
    elsewhere = ["tests/lab/test_few_bits.py", "tests/lab/test_growth.py", "tests/surgery/test_edits.py"]
    names, _ = selected("src/normkit/activation/token/dyt.py", *elsewhere)
    assert sorted(name.partition("::")[0] for name in names if "[" not in name) == elsewhere[::2]
    growing, _ = selected("src/normkit/lab/training/runs.py", "tests/lab/test_growth.py")
    assert len(growing) > 10, "of a file of the room all are"


def test_cases_that_would_not_be_kept_are_not_made():
    selection = Selection([ROOT / "src/normkit/activation/token/scalenorm.py"])
    names = ["adamp", "dion2", "layernorm", "rmsnorm", "scalenorm"]
    assert selection.wanted(names) == ["adamp", "layernorm", "scalenorm"]
    assert selection.wanted([(name, "eps") for name in names[2:]]) == [("layernorm", "eps"), ("scalenorm", "eps")]
    assert selection.wanted([f"{name}/case" for name in names[2:]]) == ["layernorm/case", "scalenorm/case"]
    assert selection.wanted(["train", "eval"]) == ["train", "eval"]
    assert Selection([ROOT / "tests/goldens/rmsnorm/x.npz"]).wanted(names[2:]) == ["layernorm", "rmsnorm"]


def test_files_are_collected_that_go_over_methods_of_the_room_of_a_change():
    selection = Selection([ROOT / "src/normkit/activation/token/scalenorm.py"])
    collected = [
        'nk.methods(room="activation")',
        'nk.methods(group="token")',
        "nk.methods()",
        "methods(fits)",
        "METHODS",
    ]
    assert [text for text in collected if not selection.goes_over_reached(text)] == []
    left = ['nk.methods(room="attention")', 'nk.methods(group="batch")', '"""Beyond the contract."""']
    assert [text for text in left if selection.goes_over_reached(text)] == []


def test_a_tool_with_the_name_of_what_it_imports_is_followed_once():
    selection = Selection([ROOT / "src/normkit/activation/token/scalenorm.py"])
    files = selection.files("from known import row", ROOT / "tests/house/test_known.py")
    assert ROOT / "src/normkit/surgery/recognition/known.py" in files


def test_helpers_that_are_imported_by_their_place_are_followed():
    selection = Selection([ROOT / "tests/fuzz/near.py"])
    file = ROOT / "tests/fuzz/test_fuzz.py"
    assert selection.leads(ROOT / "tests/fuzz/near.py", file, None)
    assert not selection.leads(ROOT / "tests/fuzz/sanitized.py", ROOT / "tests/fuzz/test_gpu_fuzz.py", None)
    assert ROOT / "src/normkit/ops/row.py" in selection.files(file.read_text(), file)


def test_a_change_of_what_all_share_selects_everything():
    names, _ = selected("src/normkit/ops/rope.py", "tests/density/test_walks.py")
    assert any("mala" in name for name in names)


def test_a_file_that_no_test_reaches_is_named():
    assert selected("src/normkit/lab/tiny.py", "tests/density/test_walks.py") == (set(), ["src/normkit/lab/tiny.py"])


def test_a_base_that_is_no_commit_is_refused():
    with pytest.raises(pytest.UsageError, match="'tests/house' is no commit; before a path, name one"):
        differing(ROOT, "tests/house")


def test_of_the_whole_house_what_is_quick_is_kept():
    names, _ = selected(
        "src/normkit/activation/token/scalenorm.py", "tests/house/test_names.py", "tests/house/test_mutate.py"
    )
    assert names
    assert not any("test_mutate" in name for name in names)
    examples, _ = selected("src/normkit/activation/token/scalenorm.py", "tests/house/test_changed.py")
    assert not examples
    own, _ = selected("tools/changed.py", "tests/house/test_changed.py")
    assert len(own) > 10
