"""`normkit recognize MODEL`: a model by a word, and what is printed of it."""

import importlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import ClassVar

import pytest

from normkit import cli
from normkit.lab.plan import data, tasks
from normkit.lab.plan.settings import Settings
from normkit.optional import library
from normkit.surgery import models
from normkit.watching import widths


def llama(folder, weights):
    transformers = library("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=50, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    config.save_pretrained(folder)
    if weights:
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("weights", [True, False])
def test_the_norms_of_a_folder_of_transformers_are_reported(weights, tmp_path, capsys):
    assert cli.main(["recognize", llama(tmp_path, weights)]) == 0
    told = capsys.readouterr().out
    assert told.count("rmsnorm(dim=32, eps=1e-06)") == 3
    assert "model.layers.0.input_layernorm" in told
    assert "3 recognized, 0 not" in told
    assert cli.main(["recognize", f"hf:{tmp_path}"]) == 0
    assert capsys.readouterr().out == told


def test_json_says_what_was_tried(capsys):
    assert cli.main(["recognize", "torch.nn:Identity", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {}
    assert cli.main(["recognize", "near_misses:Layer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[""]["evidence"]


def test_what_looks_like_a_norm_and_is_none_is_reported_with_the_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worded.py").write_text(
        "from torch import nn\n"
        "class OddNorm(nn.LayerNorm):\n"
        "    def forward(self, x): return x + super().forward(x)\n"
        "def model(): return nn.Sequential(nn.Linear(8, 8), OddNorm(8), nn.LayerNorm(8))\n"
    )
    assert cli.main(["recognize", "worded:model"]) == 1
    told = capsys.readouterr().out
    assert "1 recognized, 1 not" in told
    assert "1: no method of the catalogue computes this" in told


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("nothing", "there is no model 'nothing': a model is a folder"),
        ("resnet18", "there is no model 'resnet18': did you mean timm:resnet18?"),
        ("hf:/nothing", "there is no model '/nothing': no such folder$"),
        ("./nothing", "there is no model './nothing': no such folder$"),
        (__file__, "it is a file; name a function that makes the model and loads it"),
        ("timm:resnet19", "timm has no model 'resnet19'; nearest: resnet"),
        ("no_such_module:f", "model 'no_such_module:f' cannot be imported: No module named 'no_such_module'; a "),
        ("nets/mine.py:Net", "must be a module of the working directory and a name in it: nets.mine:Net"),
        ("./nets/mine.py:Net", "model './nets/mine.py:Net' must be a module of the .* name in it: nets.mine:Net"),
        ("../mine.py:Net", "name in it: mine:Net"),
        ("..nets.mine:Net", "name in it: nets.mine:Net"),
        (":Net", "name in it: MODULE:Net"),
        ("json:dumps", "dumps"),
    ],
)
def test_a_word_that_is_no_model_is_refused(word, said):
    with pytest.raises((ValueError, TypeError), match=said):
        models.load(word)


def test_weights_that_are_not_read_are_refused_and_fresh_ones_named(tmp_path):
    """A model of random numbers in their stead would be folded, quantized and written."""
    llama(tmp_path / "whole", weights=True)
    folder = llama(tmp_path / "other", weights=False)
    with pytest.warns(UserWarning, match="has fresh weights, which no training has seen"):
        models.load(folder)
    (tmp_path / "other" / "pytorch_model.bin").touch()
    with pytest.raises(ValueError, match=r"are in pytorch_model\.bin, which is not read; save them as safetensors"):
        models.load(folder)
    whole = (tmp_path / "whole" / "model.safetensors").read_bytes()
    (tmp_path / "other" / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cannot be loaded: "):
        models.load(folder)


def test_a_tag_of_timm_is_that_of_weights(monkeypatch):
    timm, asked = library("timm"), []
    monkeypatch.setattr(timm, "create_model", lambda name, **given: asked.append((name, given)))
    with pytest.warns(UserWarning, match=r"timm:resnet18 has fresh weights.*timm:resnet18\.TAG loads"):
        models.load("timm:resnet18")
    models.load("timm:resnet18.a1_in1k")
    assert asked == [("resnet18", {}), ("resnet18.a1_in1k", {"pretrained": True})]


def test_a_name_behind_hf_is_one_of_transformers(monkeypatch):
    seen = []
    monkeypatch.setattr(models, "_transformers", lambda word, _: seen.append(word))
    models.load("hf:gpt2")
    assert seen == ["gpt2"]


def test_the_hub_is_not_asked_for_what_is_missing_in_a_folder(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(models, "_transformers", lambda word, _: seen.append(word))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets").mkdir()
    with pytest.raises(ValueError, match=r"no model 'nets/llama': no such folder; hf:nets/llama asks the hub$"):
        models.load("nets/llama")
    for word in ("hf:nets/llama", "no-one/llama"):
        models.load(word)
    assert seen == ["nets/llama", "no-one/llama"]


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no config\.json"):
        models.load(str(tmp_path))


def test_a_model_that_the_hub_cannot_give_is_refused_in_a_sentence(monkeypatch, capsys):
    def fails(word, **_):
        raise OSError("We couldn't connect to the hub.")

    monkeypatch.setattr(library("transformers").AutoConfig, "from_pretrained", fails)
    assert cli.main(["recognize", "hf:no-one/nothing"]) == 2
    assert "model 'hf:no-one/nothing' cannot be loaded: We couldn't connect" in capsys.readouterr().err


ASKING = {
    "a model": lambda: models.load("hf:nope"),
    "weights of timm": lambda: models.load("timm:test_resnet.r160_in1k"),
    "a model to compare": lambda: tasks.load(Settings(model="hf:nope")),
    "a tokenizer": lambda: tasks._tokenize(library("transformers"), "nope", SimpleNamespace(vocab_size=9), Settings()),
    "data": lambda: data.text_of("hf:nope"),
    "widths": lambda: widths.builder("hf:nope"),
}


def hub_at(place, monkeypatch):
    """Have the hub at another place than huggingface.co."""
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", place)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", place + "/{repo_id}/resolve/{revision}/{filename}")
    return constants


@pytest.mark.parametrize("what", ASKING)
def test_the_hub_is_asked_once_where_there_is_no_connection(what, monkeypatch):
    slept = []
    constants = hub_at("http://127.0.0.1:9", monkeypatch)
    monkeypatch.setattr(library("datasets").config, "HF_ENDPOINT", constants.ENDPOINT)
    monkeypatch.setattr("time.sleep", slept.append)
    with pytest.raises(ValueError, match=r"nope' cannot be loaded|no model 'nope'|has no tokenizer|timm:test_resnet"):
        ASKING[what]()
    assert slept == []
    assert not constants.HF_HUB_OFFLINE


class Nothing(BaseHTTPRequestHandler):
    """A hub that has no models."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self):
        self.asked.append(self.path)
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_model_that_the_hub_does_not_have_is_asked_for_once(monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub_at(f"http://127.0.0.1:{server.server_port}", monkeypatch)
        with pytest.raises(ValueError, match=r"^model 'hf:nope' cannot be loaded: nope is not a local folder"):
            models.load("hf:nope")
        server.shutdown()
    assert Nothing.asked == ["/", "/nope/resolve/main/config.json"]
