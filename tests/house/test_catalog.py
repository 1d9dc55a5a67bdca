"""The catalogue: names, files and folders are one list, and methods of other packages are first-class."""

import re
import textwrap

import numpy as np
import pytest
import torch

import forked
import normkit as nk
from normkit import catalog, cli, describe, families
from normkit.contract import asked
from normkit.kinds.arguments import nearest
from normkit.layout import DRAWN, Layout
from normkit.residual import Branch, Wiring

OTHERS = {
    "my_package/__init__.py": "",
    "my_package/my_norm.py": """
        import torch
        from torch import nn
        from normkit import method, Norm

        @method("my-norm", paper="none", shape="... C", over="C", aliases={"my-doubled-norm": {"gain": 2.0}})
        class MyNorm(Norm):
            '''Divide by the largest number.'''

            def __init__(self, dim: int, *, gain: float = 1.0):
                super().__init__()
                self.weight = nn.Parameter(torch.full((dim,), gain))

            def forward(self, x):
                '''Normalize.'''
                return x / x.abs().amax(-1, keepdim=True).clamp(min=1e-6) * self.weight.to(x.dtype)
    """,
    "my_package-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n",
    "my_package-1.0.dist-info/entry_points.txt": "[normkit.methods]\nmine = my_package.my_norm\n",
}


def put(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(OTHERS[name]))


def run(code, *path):
    """Run code in a process of its own, with folders before all others on its path."""
    start = f"import sys\nsys.path[:0] = {[str(p) for p in path]}\n"
    done = forked.run("-c", start + textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_every_file_has_the_name_of_its_method_and_every_class_that_of_its_file():
    for name in nk.methods():
        card = nk.card(name)
        assert card.module.rsplit(".", 1)[1].replace("_", "-") == name
        assert getattr(nk, card.entry.__name__) is card.entry


def test_a_room_without_groups_says_so_and_a_kind_is_printed_in_a_line():
    with pytest.raises(ValueError, match="no group 'token'; the room gradient has none"):
        nk.methods(room="gradient", group="token")
    assert repr(nk.card("muon").kind) == "OptimizerKind(name='optimizer', noun='optimizer', room='gradient')"


def test_a_name_imports_one_file():
    out = run("""
        import normkit as nk
        before = set(sys.modules)
        nk.create("rmsnorm", 4)
        new = {name for name in set(sys.modules) - before if name.startswith("normkit.activation.")}
        print(*(name for name in new if not name.split(".")[-1].startswith("_")))
    """)
    assert sorted(out) == ["normkit.activation.token", "normkit.activation.token.rmsnorm"]


def test_a_script_can_enter_a_method_and_nothing_breaks():
    out = run("""
        import torch, normkit as nk
        from torch import nn

        @nk.method("halved", over="")
        class Halved(nn.Module):
            "Divide by two."
            def __init__(self, dim):
                super().__init__()
            def forward(self, x):
                return x / 2

        assert "halved" in nk.methods() and "halved" in nk.methods(room="activation")
        card = nk.card("halved")
        assert (card.room, card.group, card.kind.name) == ("activation", "", "norm")
        model = nk.Decoder(vocab=11, dim=8, depth=1, heads=2, norm="halved")
        print(type(model.layers[0].attention_norm).__name__, float(nk.create("halved", 4)(torch.ones(4))[0]))
    """)
    assert out == ["Halved", "0.5"]


@pytest.fixture
def entered():
    """Enter methods until the test ends."""
    before = dict(catalog._cards)
    yield lambda name, entry, **card: nk.method(name, **card)(entry)
    catalog._cards.clear()
    catalog._cards.update(before)


def test_a_class_without_a_constructor_takes_no_arguments(entered):
    class Cubed(nk.Loss):
        """Average the cube of absolute differences."""

        def forward(self, x, target):
            """Return the loss."""
            return (x - target).abs().pow(3).mean()

    entered("cubed", Cubed, shape="N C", inputs={"target": "N C"})
    loss = nk.card("cubed").small()
    assert repr(loss) == "Cubed()"
    assert loss(*nk.card("cubed").draw()).dim() == 0
    with pytest.raises(TypeError, match=re.escape("Cubed: too many positional arguments; its arguments are (*, dev")):
        nk.create("cubed", 8)


def test_what_the_example_of_a_card_lacks_is_named(entered):
    class Half(nk.Block):
        """Halve what each sublayer writes."""

        wiring = Wiring(Branch(scale=0.5))

    entered("half", Half)
    with pytest.raises(TypeError, match=r"^half: the card's example lacks attention, feedforward, which a smallest"):
        nk.card("half").small()


def test_a_constructor_is_described_without_what_it_returns(entered):
    class Halved(nk.Norm):
        """Divide by two."""

        def __init__(self, dim: int) -> None:
            super().__init__()

    entered("halved", Halved)
    with pytest.raises(TypeError, match=re.escape("(dim: int, *, device=None, dtype=None)") + "$"):
        nk.create("halved", 8, 9)


def test_a_cell_may_be_run_again_but_a_name_is_one_method():
    def entered(name):
        @nk.method(name)
        class Again(torch.nn.Module):
            """Do nothing."""

            def __init__(self, dim):
                super().__init__()

        return Again

    try:
        entered("again")
        second = entered("again")
        assert nk.card("again").entry is second
        with pytest.raises(ValueError, match="'rmsnorm' is taken by"):
            entered("rmsnorm")
        elsewhere = type("Again", (torch.nn.Module,), {"__doc__": "Another.", "__module__": "elsewhere"})
        elsewhere.__qualname__ = second.__qualname__
        with pytest.raises(ValueError, match=f"'again' is taken by {__name__}"):
            nk.method("again")(elsewhere)
    finally:
        catalog._cards.pop("again", None)


@pytest.mark.parametrize("name", ["layer-norm", "rms-normalization"])
def test_a_name_that_reads_like_anothers_is_taken(entered, name):
    class Mine(nk.Norm):
        """Do nothing."""

    with pytest.raises(ValueError, match=f"the name '{name}' is taken by normkit.activation.token"):
        entered(name, Mine)
    entered("mine-norm", Mine)
    with pytest.raises(ValueError, match=f"the name 'mine-normalization' is taken by {__name__}"):
        entered("mine-normalization", type("Other", (Mine,), {}))


def test_a_class_with_an_alias_for_its_name_leaves_the_alias_as_it_was(entered):
    entered("my-gemma", type("GemmaRMSNorm", (nk.Norm,), {}))
    assert nk.GemmaRMSNorm(8).offset == nk.create("GemmaRMSNorm", 8).offset == 1.0


def test_a_file_that_fails_at_import_is_named_with_its_line(tmp_path, monkeypatch, capsys):
    file = tmp_path / "broken_one.py"
    file.write_text("import normkit as nk\n\n\n@nk.method('broken-one', exemptt={})\ndef broken(x):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    known = catalog._files() | {"broken-one": catalog._Place("broken_one", "activation", "token", file)}
    monkeypatch.setattr(catalog, "_files", lambda: known)
    flows = families.Family("flow", "FLOW")
    flows.files = {"broken-one": "broken_one"}
    for load in (lambda: nk.card("broken-one"), lambda: flows["broken-one"]):
        with pytest.raises(ValueError, match=rf"^{file}:4: .*unexpected keyword argument 'exemptt'"):
            load()
    assert cli.main(["list", "broken"]) == 2
    assert capsys.readouterr().err.startswith(f"normkit list: {file}:4: method() got an unexpected keyword")


TWO = """
    import normkit as nk

    @nk.method("carded")
    class Carded(nk.Norm):
        def __init__(self, dim: int):
            super().__init__()

    class Other(nk.Norm):
        pass
"""


def test_a_class_without_a_card_is_no_other_method_of_its_module(tmp_path, monkeypatch, entered):
    (tmp_path / "two.py").write_text(textwrap.dedent(TWO))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"no method 'two.Other'; Other has no card: put @nk.method"):
        nk.create("two.Other", 4)
    with pytest.raises(ValueError, match=r"no method 'two.Typo'; the module holds two.Carded"):
        nk.create("two.Typo", 4)
    with pytest.raises(ValueError, match=r"no method 'three.Typo'; Python has no module 'three' to import it from"):
        nk.create("three.Typo", 4)
    assert repr(nk.create("two.carded", 4)) == "Carded(4)"


def test_a_method_without_a_docstring_is_not_described_by_its_base(entered):
    class Bare(nk.Norm):
        def __init__(self, dim: int):
            super().__init__()

    entered("bare", Bare)
    assert (nk.card("bare").summary, nk.card("bare").docstring) == ("", "")
    assert "Bare" in "".join(text for _, text in describe.sections(nk.card("bare")))


def test_a_decorator_without_a_name_and_a_word_for_several_are_named():
    with pytest.raises(TypeError, match=r'a name comes first, as in @method\("my-norm"\), not <class'):
        nk.method(torch.nn.Module)
    for field in ("aliases", "replaces", "invariant"):
        with pytest.raises(TypeError, match=rf"^mine: {field} must be a tuple, \('scale',\), not 'scale'"):
            nk.method("mine", **{field: "scale"})


@pytest.mark.parametrize("name", ["", "my:norm", "my.norm", "my norm", "my--norm", "-norm", "nörm", "norm\n"])
def test_a_name_that_could_not_be_written_where_names_are_is_refused(name):
    with pytest.raises(ValueError, match=r"^method: name must be letters, digits, and hyphens between"):
        nk.method(name)


def test_an_axis_without_a_size_is_named_where_one_is_drawn(entered):
    class Spread(nk.Norm):
        """Do nothing."""

        def __init__(self, dim: int, *, Q: int):
            super().__init__()

    entered("spread", Spread, shape="N 2Q")
    with pytest.raises(ValueError, match=r"^the axis '2Q' of 'N 2Q' has no size: give one in the card's example"):
        nk.card("spread").draw()
    catalog._cards.pop("spread")
    entered("spread", Spread, shape="N 2Q", example={"Q": 3})
    assert nk.card("spread").draw()[0].shape == (4, 6)


def test_an_installed_package_is_found_by_its_entry_point(tmp_path):
    put(tmp_path, *OTHERS)
    out = run(
        """
        import normkit as nk
        print("my-norm" in nk.methods(), nk.card("my-norm").module, float(nk.create("my-doubled-norm", 3).weight[0]))
        """,
        tmp_path,
    )
    assert out == ["True", "my_package.my_norm", "2.0"]


@pytest.mark.parametrize("name", ["my_package.my_norm", "my_package.my_norm.MyNorm"])
def test_a_module_on_the_path_is_found_by_its_dotted_name(tmp_path, name):
    put(tmp_path, "my_package/__init__.py", "my_package/my_norm.py")
    assert run(f"import normkit as nk; print(nk.create({name!r}, 3))", tmp_path) == ["MyNorm(3,", "gain=1.0)"]


def test_a_file_here_is_answered_with_the_name_of_its_method(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_norm.py").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "norm.py").touch()
    names = {"my_norm": "my_norm", "my_norm.py": "my_norm", "./my_norm.py": "my_norm", "mine/norm.py": "mine.norm"}
    for name, module in names.items():
        file = f"{name.removesuffix('.py')}.py"
        with pytest.raises(
            ValueError, match=f"no method '{name}'; one of {file} is named with its class, such as {module}.MyNorm"
        ):
            nk.card(name)


def test_a_module_of_several_methods_names_them(tmp_path):
    put(tmp_path, "my_package/__init__.py", "my_package/my_norm.py")
    one = (tmp_path / "my_package/my_norm.py").read_text()
    other = one.replace("MyNorm", "MyOther").replace("my-", "my-other-")
    (tmp_path / "my_package/norms.py").write_text(one + other)
    out = run(
        """
        import normkit as nk
        print(nk.create("my_package.norms.MyOther", 3))
        try:
            nk.card("my_package.norms")
        except ValueError as error:
            print(error)
        """,
        tmp_path,
    )
    assert " ".join(out[2:]) == (
        "no method 'my_package.norms'; the module holds my_package.norms.MyNorm, my_package.norms.MyOther"
    )


def test_an_entry_point_that_fails_is_reported_and_the_others_stay(tmp_path):
    put(tmp_path, *OTHERS)
    (tmp_path / "my_package/my_norm.py").write_text("raise RuntimeError('broken')")
    out = run(
        """
        import warnings, normkit as nk
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            print(len(nk.methods()) > 100, "my_package.my_norm" in str(seen[0].message))
        """,
        tmp_path,
    )
    assert out == ["True", "True"]


def test_a_function_is_created_with_its_options_bound():
    scores, bank = torch.randn(3, 4), torch.randn(5, 4)
    bound = nk.create("inverted-softmax", beta=3.0)
    assert torch.equal(bound(scores, bank), nk.inverted_softmax(scores, bank, beta=3.0))
    with pytest.raises(TypeError, match="'beta'"):
        nk.create("inverted-softmax", betta=3.0)


def test_a_functions_options_are_bound_in_their_order_and_its_inputs_are_refused():
    bound = nk.create("qk-clip", 4, 2, bound=50.0)
    assert bound.keywords == {"heads": 4, "kv_heads": 2, "bound": 50.0}
    assert nk.create("local-normalization-distortion", "top_k", 3).keywords == {"mode": "top_k", "k": 3}
    for one in (torch.ones(()), torch.ones(3), np.ones(3)):
        with pytest.raises(TypeError, match=r"inverted-softmax: too many positional arguments; .*\(\*, beta"):
            nk.create("inverted-softmax", one)
    for args, kwargs in (((4, 2), {"kv_heads": 2}), ((4, 2, 1.0, 0.5, 1, 1, 1), {})):
        with pytest.raises(TypeError, match=r"qk-clip: too many positional arguments"):
            nk.create("qk-clip", *args, **kwargs)


@pytest.mark.parametrize(
    "text, channels, samples",
    [("N C *", 1, 0), ("... C", -1, 0), ("T N C", -1, 1), ("N C H W", 1, 0), ("N heads T C", -1, 0), ("N", None, 0)],
)
def test_a_layout_knows_where_channels_and_samples_are(text, channels, samples):
    assert (Layout(text).channels, Layout(text).samples) == (channels, samples)
    assert Layout(text).features_last == (channels == -1)


@pytest.mark.parametrize("text", ["N C-", "N : colour", "N C! H"])
def test_a_layout_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match="layout"):
        Layout(text)


def check(tmp_path, *words):
    return forked.run("-m", "normkit.cli", "check", *words, cwd=tmp_path)


def test_the_contract_holds_a_method_of_a_users_package(tmp_path):
    put(tmp_path, "my_package/__init__.py", "my_package/my_norm.py")
    few = "half or strided or pickle or unknown_keyword"
    done = check(tmp_path, "my_package.my_norm", "-k", few)
    assert done.returncode == 0, done.stdout
    assert "my-norm keeps the contract of a norm" in done.stdout
    assert "warning" not in done.stdout.lower()
    path = tmp_path / "my_package/my_norm.py"
    path.write_text(path.read_text().replace("return x /", "return (x if x.dtype == torch.float64 else 1.1 * x) /"))
    done = check(tmp_path, "my_package.my_norm", "-k", "half")
    assert done.returncode == 1
    assert "my-norm breaks the contract of a norm" in done.stdout
    assert check(tmp_path, "my_package.your_norm").returncode == 2


PYTEST = """
import sys, pytest
sys.path.remove("")  # where the command `pytest` begins, and `python -c` does not
sys.exit(pytest.main(["-p", "normkit.contract.plugin", "-p", "no:cacheprovider", "-q", {words}]))
"""


@pytest.mark.parametrize("words", ["", ', "--pyargs", "normkit.contract.test_mistakes"'])
def test_pytest_holds_a_file_of_the_current_folder_to_the_contract(tmp_path, words):
    put(tmp_path, "my_package/__init__.py", "my_package/my_norm.py")
    (tmp_path / "test_mine.py").write_text("def test_unknown_keyword():\n    assert False\n")
    code = PYTEST.format(words=f'"--normkit-check", "my_package.my_norm", "-k", "unknown_keyword"{words}')
    done = forked.run("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* passed", done.stdout)


def test_what_is_named_to_pytest_is_run_and_not_the_contract(tmp_path):
    (tmp_path / "test_mine.py").write_text("def test_mine():\n    pass\n")
    code = PYTEST.format(words='"--normkit-check", "rmsnorm", "test_mine.py"')
    assert "1 passed" in forked.run("-c", code, cwd=tmp_path).stdout


def test_points_that_are_drawn_for_a_ball_lie_in_it():
    lengths = DRAWN["ball"]((50, 3), torch.Generator().manual_seed(0)).norm(dim=-1)
    assert lengths.max() < 1
    assert lengths.min() > 0


def test_of_many_names_none_is_listed_where_a_way_to_all_is_reported():
    few, many = ["alpha", "beta"], [f"name{at}" for at in range(30)]
    assert nearest("alpa", few, "see all") == "did you mean 'alpha'?"
    assert nearest("zzz", few, "see all") == "it takes alpha, beta"
    assert nearest("zzz", []) == "it takes none"
    assert nearest("zzz", many, "see all") == "see all"
    assert nearest("zzz", many) == "it takes " + ", ".join(many)


def test_an_own_methods_inputs_may_be_left_out_where_it_says_so(monkeypatch):
    monkeypatch.setattr(catalog, "_cards", {**catalog._cards})

    class Weighed(nk.Norm):
        """Multiply."""

        def forward(self, x, gate, mask=None):
            """Multiply."""
            return x * gate

    nk.method("weighed", paper="none", shape="N C", over="C", inputs={"gate": "N C", "mask?": "N"})(Weighed)
    inputs = catalog._cards["weighed"].inputs
    assert {key: (str(layout), layout.optional) for key, layout in inputs.items()} == {
        "gate": ("N C", False),
        "mask": ("N", True),
    }


def test_the_contract_takes_a_method_by_another_name_of_it():
    assert asked.named("weightnorm") == [(asked.METHOD, "weight-norm")]
    assert asked.named("LayerNorm") == [(asked.METHOD, "layernorm")]
