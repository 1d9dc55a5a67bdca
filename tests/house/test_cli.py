"""The commands: what they print is read as a person would."""

import errno
import gc
import importlib.metadata
import io
import json
import os
import pathlib
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import tomllib
import torch

import normkit as nk
from normkit import cli, doctor, kernels, reference
from normkit.gradient._dialects import POLAR_EXPRESS
from normkit.kinds import ADAPTER, FUNCTION
from normkit.kinds.adapter import small_network

ROOT = pathlib.Path(__file__).parents[2]


def run(capsys, *words):
    assert cli.main(words) == 0
    return capsys.readouterr().out


def test_list_has_a_line_for_every_method(capsys):
    out = run(capsys, "list")
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert sorted(lines) == nk.methods()
    assert all(nk.card(name).summary in line for name, line in lines.items())
    assert "activation/token: One vector" in out


def test_list_is_narrowed_by_pattern_room_and_group(capsys):
    out = run(capsys, "list", "*rmsnorm", "--group", "token")
    assert "  rmsnorm " in out
    assert "batchnorm" not in out
    assert "  rmsnorm " in run(capsys, "list", "rms")
    names = [card["name"] for card in json.loads(run(capsys, "list", "--room", "activation", "--json"))]
    assert sorted(names) == nk.methods(room="activation")


@pytest.mark.parametrize(
    "typed, name, brings",
    [
        ("group-norm", "groupnorm", ""),
        ("LayerNorm", "layernorm", ""),
        ("gemma-rmsnorm", "rmsnorm", "offset=1.0"),
        ("SyncBatchNorm", "batchnorm", "sync=True"),
        ("instance_norm_2d", "instancenorm", "space=2"),
    ],
)
def test_another_name_finds_the_method_and_says_what_it_brings(typed, name, brings, capsys):
    out = run(capsys, "show", typed)
    assert out.startswith(f"{typed} is {name} with {brings}\n\n{name}: " if brings else f"{name}: ")
    assert [card["name"] for card in json.loads(run(capsys, "list", typed, "--json"))] == [name]


def test_show_tells_other_names_and_whose_arguments_are_taken(capsys):
    out = run(capsys, "show", "rmsnorm")
    assert "\n  GemmaRMSNorm " in out
    assert "torch.nn.RMSNorm " in out
    assert "normalized_shape (dim), eps, elementwise_affine (affine)" in out


@pytest.mark.parametrize("name", nk.methods())
def test_show_tells_everything_of_every_method(name, capsys):
    card, out = nk.card(name), run(capsys, "show", name)
    assert out.startswith(f"{name}: {card.summary}\n")
    flat = " ".join(out.split())
    for text in (card.paper, card.provenance, *card.exempt.values(), reference.statistic(card)):
        assert " ".join(text.split()) in flat
    for entry in card.kind.saved(card.small()):
        assert f"  {entry} " in out
    for argument in reference.arguments(card):
        assert f"  {argument.name} " in out


def test_show_cuts_a_long_default_so_that_lines_stay_short(capsys):
    out = run(capsys, "show", "dion2")
    assert "\n  ns_coefficients  ((8.156554524902461, [...]  " in out
    assert max(map(len, out.partition("\nArguments\n")[2].partition("\n\n")[0].splitlines())) <= 120
    full = json.loads(run(capsys, "show", "dion2", "--json"))["arguments"]["ns_coefficients"]["default"]
    assert full == repr(POLAR_EXPRESS)


@pytest.mark.parametrize("name", nk.methods())
def test_every_argument_is_explained(name):
    bare = [argument.name for argument in reference.arguments(nk.card(name)) if not argument.meaning]
    assert bare == [], "the docstring's Args section leaves them out"


@pytest.mark.parametrize("name", nk.methods())
def test_the_lines_of_code_that_show_prints_run(name):
    card = nk.card(name)
    code = reference.usage(card).rsplit("\n", 1)[0]
    scope = {name: make(768) for name, make in card.example.items() if callable(make)}  # the user's own modules
    linear = torch.nn.Linear(4, 3, bias=False)  # some optimizers take matrices only
    scope["model"] = small_network() if card.kind is ADAPTER else linear
    exec(code, scope)
    assert card.kind is FUNCTION or type(scope[card.kind.noun]) is type(card.small())


def test_state_is_reported_in_terms_of_the_width():
    shapes = {entry.name: (entry.shape, entry.kind) for entry in reference.state(nk.card("powernorm"))}
    assert shapes["weight"] == ("(C,)", "learned")
    assert shapes["running_phi"] == ("(C,)", "kept")
    assert shapes["iters"] == ("(1,)", "kept")


def test_state_of_a_method_of_one_width_is_reported_as_it_is():
    def small(width=5):
        if width != 5:
            raise ValueError
        return torch.nn.Linear(5, 2)

    kind = SimpleNamespace(saved=lambda module: {name: (value, True) for name, value in module.named_parameters()})
    entries = reference.state(SimpleNamespace(small=small, kind=kind))
    assert [(entry.name, entry.shape) for entry in entries] == [("weight", "(2, 5)"), ("bias", "(2,)")]


@pytest.mark.parametrize(
    "sizes, text",
    [
        ((8, 16, 24), "C"),
        ((16, 32, 48), "2C"),
        ((4, 8, 12), "C/2"),
        ((7, 15, 23), "C-1"),
        ((3, 3, 3), "3"),
        ((64, 256, 576), "C²"),
    ],
)
def test_a_size_is_written_as_it_follows_the_width(sizes, text):
    assert reference._size(*sizes) == text


def test_show_as_json_holds_the_same(capsys):
    shown = json.loads(run(capsys, "show", "rmsnorm", "--json"))
    assert shown["class"] == "RMSNorm"
    assert shown["arguments"]["eps"]["default"] == "1e-06"
    assert shown["state"]["weight"] == {"shape": "(C,)", "kind": "learned"}


def test_doctor_tells_versions_and_kernels(capsys):
    found = json.loads(run(capsys, "doctor", "--json"))
    assert found["torch"] == torch.__version__
    assert found["normkit"] == nk.__version__ == importlib.metadata.version("normkit")
    assert found["threads"] == torch.get_num_threads()
    text = " ".join(run(capsys, "doctor").split())
    assert all(" ".join(str(value).split()) in text for value in found.values())


def test_doctor_says_why_kernels_are_off(monkeypatch):
    absent = kernels.Status(False, "NORMKIT_KERNELS=off is set", None, "libnormkit.so", None)
    monkeypatch.setattr(kernels, "status", lambda: absent)
    assert doctor.cpu_kernels()["C kernels"] == "off: NORMKIT_KERNELS=off is set"


def test_doctor_says_which_instruction_sets_were_fuzzed_where(monkeypatch, tmp_path):
    now = {"cases": 70000, "date": "2027-01-31", "sources": doctor.sources()}
    record = {"avx2": {"Xeon": now, "EPYC": {**now, "sources": "of before"}}, "avx512": {"EPYC": now}}
    monkeypatch.setattr(doctor, "FUZZED", tmp_path / "fuzzed.json")
    assert set(doctor.fuzz_calls().values()) == {"never"}
    doctor.FUZZED.write_text(json.dumps(record))
    assert doctor.fuzz_calls() == {
        "fuzzed, baseline": "never",
        "fuzzed, avx2": "70,000 cases on Xeon, 2027-01-31; 70,000 cases on EPYC, 2027-01-31, of other sources",
        "fuzzed, avx512": "70,000 cases on EPYC, 2027-01-31",
    }


def test_the_record_of_the_fuzz_is_in_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed = project["tool"]["setuptools"]["package-data"]["normkit"]
    assert doctor.FUZZED.is_file()
    assert any(doctor.FUZZED.relative_to(pathlib.Path(nk.__file__).parent).match(pattern) for pattern in packed)


@pytest.mark.parametrize(
    "word, message",
    [("shwo", "no command 'shwo'; did you mean 'show'?"), ("zzz", "no command 'zzz'; 'normkit -h' shows all")],
)
def test_a_wrong_command_names_the_nearest(word, message, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main([word])
    assert left.value.code == 2
    assert capsys.readouterr().err == f"normkit: {message}\n"


@pytest.mark.parametrize(
    "word, message",
    [("mpa", "no step 'mpa'; did you mean 'map'?"), ("zzz", "no step 'zzz'; 'normkit text -h' shows all")],
)
def test_a_wrong_step_names_the_nearest(word, message, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["text", word])
    assert left.value.code == 2
    assert capsys.readouterr().err == f"normkit text: {message}\n"


def test_a_pattern_is_looked_for_in_words_and_not_across_them(capsys):
    assert cli.main(["list", "*rms*"]) == 0
    names = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert {"rmsnorm", "crmsnorm", "gated-rmsnorm"} <= names
    assert not {"pair-norm", "layernorm-scaling", "evonorm-s0", "farms"} & names
    assert cli.main(["list", "*qknorm*"]) == 0
    assert "qk-norm" in capsys.readouterr().out
    assert cli.main(["list", "*bn*"]) == 0
    out = capsys.readouterr().out
    assert "  ibn " in out
    assert "hubness" not in out
    assert cli.main(["list", "*arms*"]) == 0
    assert "  farms " in capsys.readouterr().out


def test_every_command_that_writes_takes_the_same_words_for_where():
    top = cli.parser()
    steps = next(a for a in top.commands["text"].described()._actions if a.dest == "step").choices
    commands = {**top.commands, **{f"text {name}": step for name, step in steps.items()}}
    words = {name: {*command.described()._option_string_actions} for name, command in commands.items()}
    ways = {"-o", "--out", "--output"}
    writing = {name for name, own in words.items() if ways & own}
    texts = {f"text {step}" for step in ("fit", "map", "table", "train")}
    assert writing == {*cli.SURGERY, *texts, "claim", "fit", "compare", "quantize", "rerank"}
    assert all(ways <= words[name] for name in writing)


@pytest.mark.parametrize(
    "words, message",
    [
        (["show", "rmsnrm"], "did you mean 'rmsnorm'"),
        (["list", "layernom"], "did you mean 'layernorm'"),
        (["list", "zzz*"], "no method fits 'zzz*'"),
        (["list", "*layernrm*"], "no method fits '*layernrm*' there; did you mean 'layernorm'"),
        (["list", "zzz"], "no method 'zzz'; 'normkit list' shows them all"),
        (["list", "token"], "no method 'token'; 'normkit list --group token' lists those of that folder"),
        (["list", "activation/token"], "'normkit list --room activation --group token' lists those of that folder"),
        (["list", "ln", "--group", "sets"], "no method fits 'ln' there; did you mean"),
        (["list", "rms", "--room", "weight"], "no method fits 'rms' there; "),
        (["list", "--room", "attic"], "no room 'attic'"),
        (["list", "--group", "tokens"], "no group 'tokens'"),
    ],
)
def test_a_wrong_word_gets_one_line_and_status_2(words, message, capsys):
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_pattern_that_is_a_folder_as_well_says_how_to_list_that(capsys):
    last = {}
    for word in ("spatial", "gradient", "token", "layernorm", "*"):
        cli.main(["list", word])
        last[word] = capsys.readouterr().out.splitlines()[-1:]
    assert [words[-1].rpartition("; ")[2] for words in last.values() if words] == [
        "'normkit show NAME' tells more, 'normkit list --group spatial' lists those of that folder",
        "'normkit show NAME' tells more, 'normkit list --room gradient' lists those of that folder",
        "'normkit show NAME' tells more",
        "'normkit show NAME' tells more",
    ]


@pytest.mark.parametrize("words", [["shw"], ["show"], ["list", "--rom", "x"], ["bench", "--repeats", "many"]])
def test_a_wrong_command_gets_one_line_and_status_2(words, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("module", ["normkit", "normkit.cli"])
def test_the_module_is_the_command(module):
    out = subprocess.check_output([sys.executable, "-m", module, "--version"], text=True)
    assert out == f"normkit {nk.__version__}\n"


def test_alone_it_prints_its_commands(capsys):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: normkit ")
    assert all(f"\n    {name} " in out for name in ("compare", "report", "list", "show", "check", "bench", "doctor"))


@pytest.mark.parametrize("words", [["--help"], ["--version"], [], ["compare", "--help"]])
def test_help_takes_less_than_a_second_and_no_torch(words):
    code = f"import sys; from normkit import cli; sys.argv[1:] = {words}\ntry: cli.main()\nexcept SystemExit: pass\n"
    code += "import time; print(time.process_time(), 'torch' in sys.modules)"
    out = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    seconds, torch_is_there = out[-1].split()
    assert float(seconds) < 1
    assert torch_is_there == "False"


def test_help_and_completion_import_only_what_the_command_needs():
    code = (
        "import sys, normkit; before = set(sys.modules); from normkit import cli; {}; print(*set(sys.modules) - before)"
    )
    told = "cli.parser().print_help()"
    out = subprocess.check_output([sys.executable, "-c", code.format(told)], text=True).splitlines()[-1].split()
    assert not {"normkit.bench", "normkit.reference", "normkit.doctor", "normkit.describe"} & set(out)
    assert not [name for name in out if name.startswith(("torch.", "rich", "scipy", "plotly", "accelerate"))]
    told = "cli.parser().parse_args(['bench', 'rmsnorm'])"
    assert "normkit.bench" in subprocess.check_output([sys.executable, "-c", code.format(told)], text=True)


@pytest.mark.parametrize(
    "typed, offered",
    [
        ("normkit sh", {"show"}),
        ("normkit show crms", {"crmsnorm"}),
        ("normkit compare --norm srms", {"srmsnorm"}),
        ("normkit bench --cp", {"--cpu-time"}),
    ],
)
def test_a_shell_offers_what_may_be_typed_next(typed, offered, tmp_path):
    shell = {"_ARGCOMPLETE": "1", "COMP_LINE": typed, "COMP_POINT": str(len(typed)), "_ARGCOMPLETE_IFS": "\n"}
    shell |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "out"), "COMP_TYPE": "9", "_ARGCOMPLETE_SHELL": "bash"}
    subprocess.run([sys.executable, "-m", "normkit"], env=os.environ | shell, check=True)
    assert {word.strip() for word in (tmp_path / "out").read_text().split()} == offered


def test_help_has_no_line_that_a_terminal_of_80_columns_would_break(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(["compare", "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_installed_command_answers():
    out = subprocess.check_output([sys.executable, "-m", "normkit.cli", "list", "rmsnorm"], text=True)
    assert "Divide each vector by its root mean square" in out


def test_a_warning_of_ours_is_a_line_and_that_of_others_says_whose_it_is(monkeypatch, capsys):
    def run(options):
        for file in (cli.__file__, torch.__file__):
            print(warnings.formatwarning("too hot", UserWarning, file, 7), end="")
        return 0

    monkeypatch.setattr(cli, "run_list", run)
    before = warnings.formatwarning
    assert cli.main(["list"]) == 0
    ours, theirs = capsys.readouterr().out.splitlines()[:2]
    assert ours == "normkit list: too hot"
    assert theirs == f"{torch.__file__}:7: UserWarning: too hot"
    assert warnings.formatwarning is before


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_output_that_is_not_utf_8_takes_what_it_can(encoding, capsys):
    cli.main(["show", "dyt"])
    plain = capsys.readouterr().out
    words = [sys.executable, "-m", "normkit.cli", "show", "dyt"]
    done = subprocess.run(words, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert done.stdout == plain.encode(encoding, errors="replace") != plain.encode()


def test_an_interrupt_while_a_command_is_imported_leaves_with_its_status(monkeypatch):
    monkeypatch.setattr(cli, "describe_list", lambda command: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert cli.main(["list"]) == 130


def test_a_command_runs_in_a_folder_that_was_deleted(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(["recognize", "torch.nn:Identity"]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("name, words", [("stdout", ["list", "ln"]), ("stderr", ["list", "zzz"])])
def test_a_command_runs_where_an_output_is_closed(name, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, name, None)
    assert cli.main(words) == (0 if name == "stdout" else 2)
    getattr(sys, name).close()
    assert capsys.readouterr() == ("", "")


def test_a_reader_who_leaves_a_table_early_makes_no_failure(monkeypatch):
    console = pytest.importorskip("rich.console").Console(file=io.StringIO())
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    monkeypatch.setattr(console, "_write_buffer", lambda: (_ for _ in ()).throw(BrokenPipeError()))
    monkeypatch.setattr(cli, "run_list", lambda options: console.print("a table"))
    assert cli.main(["list"]) == 0


@pytest.mark.parametrize("line", ["list | head -1", "show rmsnorm | true", "compare --help | true"])
def test_a_reader_who_leaves_early_sees_no_traceback(line):
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    command = ["bash", "-c", f"{sys.executable} -m normkit.cli {line}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=buffered)
    assert done.stdout.count("\n") == line.count("head")
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("words, at_once", [("list", False), ("list", True), ("-V", False), ("show -h", False)])
def test_an_output_on_a_full_disk_is_one_line(words, at_once, monkeypatch, capsys):
    with open("/dev/full", "wb", buffering=0 if at_once else -1) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=at_once))
        assert cli.main(words.split()) == 2
        sys.stdout.close()  # as Python does at its end
    assert capsys.readouterr().err == "normkit: standard output cannot be written: No space left on device\n"


def test_a_full_disk_of_a_user_s_own_is_not_that_of_the_output(monkeypatch, capsys):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(cli, "run_list", lambda options: (_ for _ in ()).throw(full))
    with pytest.raises(OSError, match="No space left on device") as error:
        cli.main(["list"])
    assert error.value is full
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_outputs_that_are_both_on_a_full_disk_raise_no_error(monkeypatch):
    def write(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=write))
        assert cli.main(["list"]) == 2


@pytest.mark.parametrize(
    "words, message",
    [
        (["--placement", "pre-nrm"], "normkit compare: --placement: placement must be one of"),
        (["--placement", "pre-nrm"], "not 'pre-nrm'; did you mean 'pre-norm'?"),
        (["--model", "timm:resnet81", "--norm", "rmsnorm"], "timm has no model 'resnet81'; nearest: resnet18"),
        (["--model", "hf:./nowhere"], "model 'hf:./nowhere': there is no folder './nowhere'"),
        (["--model", "hf:here/nowhere"], "model 'hf:here/nowhere': there is no folder"),
        (["--data", "hf:/no/where", "--model", "vit"], "data 'hf:/no/where': there is no folder '/no/where'"),
    ],
)
def test_what_compare_is_not_given_right_is_named_at_once(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert cli.main(["compare", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("normkit compare: ") == 1


@pytest.mark.parametrize(
    "place, why", [("x.foo", "--plot must end in .html"), ("no/x.svg", "no/x.svg cannot be written: No such file")]
)
def test_a_plot_that_cannot_be_drawn_is_refused_before_the_trainings(place, why, tmp_path, monkeypatch, capsys):
    from normkit.watching import widths

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(widths, "coordinate_check", lambda *_, **how: pytest.fail("it was trained"))
    assert cli.main(["inspect", "torch.nn:Identity", "--widths", "2,4", "--plot", place]) == 2
    assert why in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words, why",
    [
        (["--lr", "0.1", "--steps", "9"], "--lr and --steps go with --widths"),
        (["--plot", "x.svg"], "--plot goes with --widths"),
        (["--widths", "2,4", "--passes", "3"], "--passes goes without --widths"),
    ],
)
def test_an_option_without_effect_on_an_inspection_is_refused(words, why, capsys):
    assert cli.main(["inspect", "torch.nn:Identity", *words]) == 2
    assert why in capsys.readouterr().err


def replay(monkeypatch, exit, ends):
    """Let pytest end so, with these ends of tests of names."""

    def main(words, plugins):
        for name, outcome in ends:
            how = {e: e == outcome for e in ("passed", "failed", "skipped")}
            plugins[0].pytest_runtest_logreport(SimpleNamespace(when="call", normkit_name=name, **how))
        return exit

    monkeypatch.setattr(pytest, "main", main)


def test_a_check_says_of_which_names_nothing_was_tested(monkeypatch, capsys):
    replay(monkeypatch, 0, [("rmsnorm", "passed"), ("layernorm", "skipped")])
    monkeypatch.setenv("NORMKIT_CHECK", "")
    assert cli.main(["check", "rmsnorm", "layernorm", "-k", "scale"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "rmsnorm keeps the contract of a norm, version 1, in the 1 test that -k chose and that passed",
        "layernorm: nothing was tested: no test ran that fits -k 'scale'",
    ]
    replay(monkeypatch, 1, [("rmsnorm", "passed"), ("layernorm", "failed")])
    assert cli.main(["check", "rmsnorm", "layernorm"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "rmsnorm keeps the contract of a norm, version 1",
        "layernorm breaks the contract of a norm, version 1",
    ]


def test_a_check_in_several_processes_counts_the_tests_of_all(monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-n 1")
    words = [sys.executable, "-m", "normkit", "check", "dyt", "rmsnorm", "-k", "test_a_wrong_argument or half"]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    *_, first, last = ended.stdout.splitlines()
    assert first.startswith("dyt keeps the contract of a norm, version 1, in the ")
    assert last.startswith("rmsnorm keeps the contract of a norm, version 1, in the ")


@pytest.mark.parametrize("passed, exit, status", [(2, 0, 0), (0, 0, 2), (0, 5, 2)])
def test_a_check_of_chosen_tests_claims_no_more_than_those(passed, exit, status, monkeypatch, capsys):
    replay(monkeypatch, exit, [("rmsnorm", "passed")] * passed + [("rmsnorm", "skipped")])
    monkeypatch.setenv("NORMKIT_CHECK", "")
    assert cli.main(["check", "rmsnorm", "-k", "scale"]) == status
    out, err = capsys.readouterr()
    kept = "rmsnorm keeps the contract of a norm, version 1, in the 2 tests that -k chose and that passed\n"
    assert out == (kept if passed else "")
    assert err == ("" if passed else "normkit check: nothing was tested: no test ran that fits -k 'scale'\n")


@pytest.mark.parametrize("model, norm", [("decoder", "layernorm"), ("vit", "layernorm"), ("resnet", "batchnorm")])
def test_the_original_norm_of_a_built_in_model_is_the_one_that_it_is_known_with(model, norm):
    from normkit.lab.plan import tasks
    from normkit.lab.plan.plan import Settings, Variant

    task = tasks.load(Settings(model=model, data=tasks.default_data(model), length=8, batch=2))
    first, second = (task.build(Variant("a", norm=name), 1) for name in ("original", norm))
    assert [type(m) for m in first.modules()] == [type(m) for m in second.modules()]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert type(nk.create(norm, 8)).__name__ in repr(first)


def test_list_and_show_know_kinds_that_are_no_methods(capsys):
    assert cli.main(["list", "--kind", "flow"]) == 0
    assert "glow" in (listed := capsys.readouterr().out)
    assert "rmsnorm" not in listed
    assert cli.main(["list", "mala", "--kind", "sampler", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["kind"] == "sampler"
    assert cli.main(["show", "glow"]) == 0  # no method has the name
    assert "1807.03039" in capsys.readouterr().out
    assert cli.main(["show", "cnf", "--kind", "flow"]) == 0  # a method has the name too
    assert capsys.readouterr().out.startswith("flow cnf: ")
    assert cli.main(["list", "--kind", "loss"]) == 0
    assert "layernorm" not in capsys.readouterr().out
    assert cli.main(["list", "--kind", "los"]) == 2
    assert "did you mean 'loss'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("list --kind strategy --room loss", "--kind strategy takes no --room, --group or --fits"),
        ("list --kind flow --fits resnet", "--kind flow takes no --room, --group or --fits"),
        ("show rmsnorm --kind loss", "rmsnorm is of the kind norm, not loss"),
        ("show fedbn --kind norm", "fedbn is of the kind strategy, not norm"),
        ("show rmsnorm --kind los", "kind must be one of"),
        ("show rmsnorm --kind flow", "flow must be one of"),
    ],
)
def test_a_kind_that_does_not_fit_is_refused(words, answer, capsys):
    assert cli.main(words.split()) == 2
    output = capsys.readouterr()
    assert answer in output.err
    assert not output.out


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("swap my:make --to groupnorm", "normkit swap: does not take --to; 'normkit swap -h' shows all arguments"),
        ("compare --stepz 3", "normkit compare: does not take --stepz 3; did you mean --steps?"),
        ("text fit names.csv -o V --tunes=x", "normkit text fit: does not take --tunes=x; did you mean --tune?"),
        ("compare layernorm dyt", "normkit compare: does not take layernorm dyt; did you mean --norm layernorm dyt?"),
        ("--foo", "normkit: does not take --foo; 'normkit -h' shows all arguments"),
    ],
)
def test_an_argument_that_there_is_not_is_named_with_what_it_may_be_meant_for(words, answer, capsys):
    with pytest.raises(SystemExit):
        cli.main(words.split())
    assert capsys.readouterr().err.strip() == answer


@pytest.mark.parametrize("words, collects", [(["list", "rmsnorm"], False), (["doctor"], True)])
def test_garbage_is_looked_for_but_in_what_does_little_but_import(words, collects, monkeypatch):
    seen = []
    monkeypatch.setattr(f"normkit.cli.run_{words[0]}", lambda options: seen.append(gc.isenabled()) or 0)
    assert cli.main(words) == 0
    assert (seen, gc.isenabled()) == ([collects], True)
