"""A changed model in a folder by one call, and back; nobody opens it as what it was."""

import copy
import functools
import inspect
import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import cli
from normkit.optional import library
from normkit.surgery import keeping, saving
from normkit.surgery.edits import edit, guarding

TOKENS = torch.arange(10)[None]


def gpt2(**given):
    transformers = library("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        **{"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, **given}
    )
    return transformers.GPT2LMHeadModel(config).eval()


def logits(model):
    with torch.no_grad():
        return model(TOKENS).logits


def refused(folder):
    transformers = library("transformers")
    for kind in (transformers.AutoModelForCausalLM, transformers.AutoModel, transformers.GPT2LMHeadModel):
        with pytest.raises(Exception, match=r"changed by normkit|no file named model.safetensors"):
            kind.from_pretrained(folder)


class WithAdapters(nn.Module):
    """A model of transformers in the hands of peft, which writes its adapters alone."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.config = base.config

    def get_base_model(self):
        return self.base

    def save_pretrained(self, folder):
        Path(folder).mkdir()
        Path(folder, "adapter_config.json").write_text("{}")


def test_adapters_are_written_with_a_warning_and_what_is_around_them_as_a_changed_model(tmp_path):
    model = WithAdapters(gpt2())
    nk.swap(model, "dyt")
    model = pickle.loads(pickle.dumps(model))
    with pytest.warns(UserWarning, match="save_pretrained writes adapters alone, without the norms") as warned:
        model.save_pretrained(tmp_path / "adapter")
    assert warned[0].filename == __file__
    assert [path.name for path in (tmp_path / "adapter").iterdir()] == ["adapter_config.json"]
    with pytest.raises(ValueError, match="save: WithAdapters is a model with adapters around it"):
        nk.save(model, tmp_path / "whole")
    model.base.save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(nk.load(tmp_path / "merged")), logits(model.base))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("how", ["save_pretrained", "shards", "save", "copy", "pickle"])
def test_a_changed_model_of_transformers_is_opened_as_what_it_is_or_not_at_all(tmp_path, how, tied):
    model, folder = gpt2(tie_word_embeddings=tied), tmp_path / "swapped"
    nk.swap(model, "dyt")
    if how == "copy":
        model = copy.deepcopy(model)
        model.transformer.h[0].ln_1.weight.data.mul_(2)
    if how == "pickle":
        model = pickle.loads(pickle.dumps(model))
    wanted = logits(model)
    if how == "save":
        nk.save(model, folder)
    else:
        model.save_pretrained(folder, **({"max_shard_size": "20KB"} if how == "shards" else {}))
    assert (folder / "model.safetensors.index.json").is_file() == (how == "shards")
    refused(folder)
    again = nk.load(folder)
    torch.testing.assert_close(logits(again), wanted, rtol=0, atol=0)
    assert isinstance(again.transformer.h[0].ln_1, nk.DyT)
    assert (again.lm_head.weight is again.transformer.wte.weight) == tied
    again.save_pretrained(tmp_path / "again")
    refused(tmp_path / "again")


def put_by_hand(model):
    model.transformer.ln_f = nk.swap(model.transformer.ln_f, "rmsnorm", inplace=False).model


PARTS = {
    "backbone": lambda model: nk.swap(model.transformer, "dyt"),
    "list": lambda model: nk.swap(model.transformer.h, "dyt"),
    "convert": lambda model: nk.convert(model.transformer, "pre-rmsnorm", TOKENS),
    "by hand": put_by_hand,
    "fused": lambda model: (nk.swap(model.transformer, "rmsnorm"), nk.fuse(model.transformer)),
}


@pytest.mark.parametrize("change", PARTS)
def test_a_model_of_transformers_with_a_changed_part_is_saved_as_a_changed_one(change, tmp_path):
    model = gpt2()
    PARTS[change](model)
    model.save_pretrained(tmp_path / "saved")
    refused(tmp_path / "saved")
    again = nk.load(tmp_path / "saved")
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)
    again.save_pretrained(tmp_path / "again")
    refused(tmp_path / "again")


@pytest.mark.parametrize("how", ["swapped", "loaded", "fused"])
def test_a_part_of_a_changed_model_is_saved_as_a_changed_one(how, tmp_path):
    model = gpt2()
    nk.swap(model, "rmsnorm")
    if how == "loaded":
        nk.save(model, tmp_path / "saved")
        model = nk.load(tmp_path / "saved")
    if how == "fused":
        nk.fuse(model)
    model.transformer.save_pretrained(tmp_path / "part")
    refused(tmp_path / "part")
    again = nk.load(tmp_path / "part")
    torch.testing.assert_close(again(TOKENS)[0], model.transformer(TOKENS)[0], rtol=0, atol=0)


@pytest.mark.parametrize(
    "copied", [lambda model: model, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
@pytest.mark.parametrize("calls", [True, False])
def test_a_changed_model_whose_class_saves_itself_is_saved_as_a_changed_one(calls, copied, monkeypatch, tmp_path):
    config, transformers = gpt2().config, library("transformers")

    class Own(transformers.GPT2LMHeadModel):
        def save_pretrained(self, folder, **given):
            if calls:
                super().save_pretrained(folder, **given)
            else:
                Path(folder).mkdir()
                state = {name: value for name, value in self.state_dict().items() if name != "lm_head.weight"}
                library("safetensors.torch").save_file(state, Path(folder, "model.safetensors"), {"format": "pt"})
                self.config.save_pretrained(folder)
            held = json.loads(Path(folder, "config.json").read_text())
            Path(folder, "config.json").write_text(json.dumps({**held, "architectures": ["Own"], "own_note": "mine"}))

    monkeypatch.setitem(globals(), "Own", Own)
    Own.__qualname__ = "Own"
    monkeypatch.setitem(vars(transformers), "Own", Own)
    model = Own(config).eval()
    nk.swap(model, "dyt")
    model = copied(model)
    model.save_pretrained(tmp_path / "saved")
    refused(tmp_path / "saved")
    again = nk.load(tmp_path / "saved")
    assert type(again) is Own
    assert again.config.own_note == "mine"
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)


def test_an_unchanged_model_leaves_nothing_in_a_folder_of_what_says_that_it_was_changed(tmp_path):
    model, old = gpt2(), gpt2()
    nk.swap(model.transformer, "dyt")
    model.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved/note.txt").write_text("mine")
    old.save_pretrained(tmp_path / "saved")
    files = {path.name for path in (tmp_path / "saved").iterdir()}
    assert files == {"config.json", "generation_config.json", "model.safetensors", "note.txt"}
    torch.testing.assert_close(logits(nk.load(tmp_path / "saved")), logits(old), rtol=0, atol=0)


def test_a_model_of_models_is_refused_by_its_configuration(tmp_path):
    transformers = library("transformers")
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    decoder = transformers.BertConfig(**small, is_decoder=True, add_cross_attention=True)
    parts = transformers.BertConfig(**small), decoder
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*parts)
    model = transformers.EncoderDecoderModel(config).eval()
    nk.swap(model.encoder, "dyt")
    model.save_pretrained(tmp_path / "saved")
    with pytest.raises(Exception, match="changed by normkit"):
        transformers.EncoderDecoderModel.from_pretrained(tmp_path / "saved")
    given = {"input_ids": TOKENS, "decoder_input_ids": TOKENS}
    torch.testing.assert_close(nk.load(tmp_path / "saved")(**given)[0], model(**given)[0], rtol=0, atol=0)


def test_a_part_of_a_model_of_ones_own_is_saved_as_a_changed_one(tmp_path):
    model = nn.Sequential(gpt2())
    nk.swap(model, "dyt")
    model[0].save_pretrained(tmp_path / "part")
    refused(tmp_path / "part")
    torch.testing.assert_close(logits(nk.load(tmp_path / "part")), logits(model[0]), rtol=0, atol=0)


def test_a_changed_part_that_another_process_unpickles_is_saved_as_one(monkeypatch, tmp_path):
    model, kind = gpt2(), library("transformers").PreTrainedModel
    nk.swap(model.transformer, "dyt")
    pickled = pickle.dumps(model)
    monkeypatch.setattr(kind, "save_pretrained", inspect.unwrap(kind.save_pretrained))
    guarding._look_for_marks.cache_clear()
    model = pickle.loads(pickled)
    model.save_pretrained(tmp_path / "saved")
    refused(tmp_path / "saved")
    torch.testing.assert_close(logits(nk.load(tmp_path / "saved")), logits(model), rtol=0, atol=0)


def test_a_changed_model_that_was_pickled_before_there_were_marks_is_saved_as_one(tmp_path):
    model = gpt2()
    nk.swap(model, "rmsnorm")
    for part in model.modules():
        vars(part).pop(guarding.CHANGED, None)
    model.save_pretrained = functools.partial(edit._save_pretrained, model)
    model = pickle.loads(pickle.dumps(model))
    model.save_pretrained(tmp_path / "saved")
    refused(tmp_path / "saved")
    torch.testing.assert_close(logits(nk.load(tmp_path / "saved")), logits(model), rtol=0, atol=0)


def trained(model, folder):
    """A Trainer after one step, of which it has written a checkpoint."""
    transformers = library("transformers")
    options = {"max_steps": 1, "save_steps": 1, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    arguments = transformers.TrainingArguments(str(folder), **options)
    data = [{"input_ids": TOKENS[0], "labels": TOKENS[0]}] * 2
    trainer = transformers.Trainer(model, arguments, train_dataset=data)
    trainer.train()
    model.eval()
    return trainer


def test_checkpoints_of_a_trainer_hold_a_changed_part(tmp_path):
    model = gpt2()
    nk.swap(model.transformer, "dyt")
    trained(model, tmp_path).save_model(tmp_path / "final")
    for folder in ("checkpoint-1", "final"):
        refused(tmp_path / folder)
        torch.testing.assert_close(logits(nk.load(tmp_path / folder)), logits(model), rtol=0, atol=0)


def test_adapters_that_transformers_holds_are_written_with_a_warning(monkeypatch, tmp_path):
    model, kind = gpt2(), library("transformers").PreTrainedModel
    nk.swap(model.transformer, "dyt")
    model._hf_peft_config_loaded = True
    model.peft_config = {"default": types.SimpleNamespace(save_pretrained=lambda place: None)}
    monkeypatch.setattr(kind, "active_adapters", lambda self: ["default"])
    monkeypatch.setattr(kind, "get_adapter_state_dict", lambda self, **given: {"lora": torch.ones(2)})
    with pytest.warns(UserWarning, match="save_pretrained writes adapters alone, without the norms") as warned:
        model.save_pretrained(tmp_path / "adapter")
    assert warned[0].filename == __file__
    assert (tmp_path / "adapter/adapter_model.safetensors").is_file()


@pytest.mark.parametrize("how", ["plain", "shards", "swapped", "packed", "checkpoint", "part"])
def test_a_quantized_model_of_transformers_is_saved_as_any_changed_one(tmp_path, how):
    pytest.importorskip("torchao")
    model, folder = gpt2(), tmp_path / "few"
    if how == "swapped":
        nk.swap(model, "dyt")
    part = model.transformer if how == "part" else model
    nk.quantize(part, bits=4, inplace=True, **({"pack": True, "group": 32} if how == "packed" else {}))
    given = {"shards": {"max_shard_size": "20KB"}, "checkpoint": {"state_dict": model.state_dict()}}
    model.save_pretrained(folder, **given.get(how, {}))
    refused(folder)
    again = nk.load(folder)
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)
    assert type(again.transformer.h[0].mlp.c_fc.weight) is type(model.transformer.h[0].mlp.c_fc.weight)
    again.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(logits(nk.load(tmp_path / "again")), logits(model), rtol=0, atol=0)


def test_a_quantized_folder_is_recognized_and_inspected_and_what_needs_float64_is_refused(tmp_path, capsys):
    pytest.importorskip("torchao")
    config = library("transformers").LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model, folder = library("transformers").LlamaForCausalLM(config).eval(), str(tmp_path / "few")
    nk.save(nk.quantize(model).model, folder)
    assert len(nk.recognize(nk.load(folder)).found) == 3
    assert cli.main(["inspect", folder, "--passes", "1"]) in (0, 1)
    assert "model.layers.0" in capsys.readouterr().out
    again, x = nk.load(folder), {"input_ids": torch.arange(6)[None]}
    calls = {"fold": lambda: nk.fold(again, x), "ready": lambda: nk.ready(again, "rotation", x)}
    calls |= {"fuse": lambda: nk.fuse(again, x)}
    for name, call in {**calls, "average": lambda: nk.average([again, again])}.items():
        with pytest.raises(ValueError, match=f"{name}: model.layers.0.self_attn.q_proj.weight is in few bits"):
            call()
    assert cli.main(["fuse", folder]) == 2
    said = "model.layers.0.self_attn.q_proj.weight is in few bits: hand in the model as it was before quantize; "
    assert f"{said}its norms alone need no example" in capsys.readouterr().err
    assert [change.site for change in nk.fuse(again, where="model.norm").changes] == ["model.norm"]


@pytest.mark.parametrize("how", ["save", "save_pretrained", "unchanged"])
def test_how_a_model_generates_is_kept(tmp_path, how):
    model, folder = gpt2(), tmp_path / "kept"
    model.generation_config.update(max_new_tokens=3, eos_token_id=[1, 5], temperature=0.5)  # which is without effect
    if how != "unchanged":
        nk.swap(model, "dyt")
    if how == "save_pretrained":
        model.generation_config.temperature = None  # which transformers would not write
    model.save_pretrained(folder) if how == "save_pretrained" else nk.save(model, folder)
    again = nk.load(folder) if how != "unchanged" else type(model).from_pretrained(folder)
    assert again.generation_config.to_dict() == model.generation_config.to_dict()
    assert again.generation_config.eos_token_id == [1, 5]


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_is_of_the_type_again_that_it_was_saved_in(dtype, changed, tmp_path):
    model = gpt2().to({torch.float32: torch.bfloat16, torch.bfloat16: torch.float32}[dtype])
    model.save_pretrained(tmp_path / "before")
    model = type(model).from_pretrained(tmp_path / "before").eval().to(dtype)
    if changed:
        nk.swap(model, "dyt")
    was = model.config.to_dict()
    nk.save(model, tmp_path / "saved")
    assert model.config.to_dict() == was
    again = nk.load(tmp_path / "saved")
    assert again.dtype is again.config.dtype is dtype
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)


def test_a_checkpoint_of_experts_keeps_the_names_that_load_looks_for(tmp_path):
    transformers = library("transformers")
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=2,
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config).eval()
    nk.swap(model, "dyt")
    model.save_pretrained(tmp_path / "experts")
    torch.testing.assert_close(logits(nk.load(tmp_path / "experts")), logits(model), rtol=0, atol=0)


def test_what_fuse_makes_is_saved_as_before_and_what_was_not_changed_too(tmp_path):
    model = gpt2()
    wanted = logits(model)
    nk.surgery.edits.replace_parts("fuse", model, {"transformer.ln_f": nk.LayerNorm(32)}, True)
    model.save_pretrained(tmp_path / "fused")
    again = library("transformers").AutoModelForCausalLM.from_pretrained(tmp_path / "fused")
    torch.testing.assert_close(logits(again.eval()), wanted)


ANEW = {
    "whole": lambda model, folder: model.save_pretrained(folder),
    "shards": lambda model, folder: model.save_pretrained(folder, max_shard_size="20KB"),
    "save": nk.save,
}


@pytest.mark.parametrize(
    ("first", "second"), [("shards", "whole"), ("whole", "shards"), ("save", "whole"), ("save", "shards")]
)
def test_what_is_saved_into_a_folder_anew_is_what_is_opened(first, second, tmp_path):
    models = [gpt2(), gpt2()]
    for model, length in zip(models, (3, 5), strict=True):
        nk.swap(model, "dyt")
        model.generation_config.max_length = length
    with torch.no_grad():
        models[1].transformer.wte.weight.mul_(2)
    ANEW[first](models[0], tmp_path / "saved")
    ANEW[second](models[1], tmp_path / "saved")
    again = nk.load(tmp_path / "saved")
    torch.testing.assert_close(logits(again), logits(models[1]), rtol=0, atol=0)
    assert again.generation_config.max_length == 5
    kept = {path.name for path in (tmp_path / "saved").iterdir() if "safetensors" in path.name}
    alone = tmp_path / "alone"
    ANEW[second](models[1], alone)
    assert kept == {path.name for path in alone.iterdir() if "safetensors" in path.name}


def test_weights_are_kept_where_a_change_has_no_words(tmp_path):
    model = gpt2()
    nk.swap(model, "dyt")
    model.lm_head = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 64))
    model.save_pretrained(tmp_path / "odd")
    refused(tmp_path / "odd")
    with pytest.raises(ValueError, match="build the model yourself and load its weights; a Linear is new in a Linear"):
        nk.load(tmp_path / "odd")
    assert (tmp_path / "odd/model.safetensors").is_file()


def test_other_processes_write_nothing(tmp_path):
    model = gpt2()
    nk.swap(model, "dyt")
    model.save_pretrained(tmp_path / "rank1", is_main_process=False)
    assert not (tmp_path / "rank1/normkit.json").exists()


@pytest.mark.parametrize("named", [True, False])
def test_save_pretrained_uploads_nothing_and_names_push_to_hub(named, tmp_path):
    model = gpt2()
    nk.swap(model, "dyt")
    args, options = ((), {"push_to_hub": True}) if named else ((True, None, True), {})
    with pytest.raises(ValueError, match=r"save_pretrained: push_to_hub=True .*: call model\.push_to_hub\(repo_id\)"):
        model.save_pretrained(tmp_path / "swapped", *args, **options)
    assert not list(tmp_path.iterdir())


def test_what_push_to_hub_uploads_is_opened_as_the_changed_model_or_not_at_all(monkeypatch, tmp_path):
    model, hub = gpt2(), library("transformers.utils.hub")
    nk.swap(model, "dyt")
    made = types.SimpleNamespace(repo_id="me/swapped")
    monkeypatch.setattr(hub, "hf_api", lambda: types.SimpleNamespace(create_repo=lambda *args, **kwargs: made))
    card = types.SimpleNamespace(save=lambda place: Path(place).write_text(""))
    monkeypatch.setattr(hub, "create_and_tag_model_card", lambda *args, **kwargs: card)
    upload = lambda self, folder, *args, **kwargs: shutil.copytree(folder, tmp_path / "hub")  # noqa: E731
    monkeypatch.setattr(type(model), "_upload_modified_files", upload)
    model.push_to_hub("me/swapped")
    refused(tmp_path / "hub")
    torch.testing.assert_close(logits(nk.load(tmp_path / "hub")), logits(model), rtol=0, atol=0)
    assert (tmp_path / "hub/normkit.sha256").is_file()


def test_models_of_timm_and_of_ones_own(tmp_path):
    timm = library("timm")
    model = timm.create_model("resnet10t", num_classes=7).eval()
    nk.swap(model, "frn", example=torch.randn(2, 3, 32, 32))
    nk.save(model, tmp_path / "timm")
    x = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(nk.load(tmp_path / "timm")(x), model.eval()(x))
    own = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    before = copy.deepcopy(own)
    nk.swap(own, "rmsnorm")
    with pytest.raises(ValueError, match="original must be the model before its change; Sequential names none"):
        nk.save(own, tmp_path / "own")
    nk.save(own, tmp_path / "own", original=before)
    (edit,) = json.loads((tmp_path / "own/normkit.json").read_text())["edits"]
    assert (edit["site"], edit["kind"], edit["words"]["norm"]) == ("1", "norm", "rmsnorm")


@pytest.mark.parametrize("how", ["save", "save_pretrained"])
def test_a_model_that_needs_the_type_of_its_configuration_is_opened(tmp_path, how):
    transformers = library("transformers")
    config = transformers.ApertusConfig(
        vocab_size=64, hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, dtype="float32",
    )  # fmt: skip
    model = transformers.ApertusForCausalLM._from_config(config).eval()
    nk.swap(model, "dyt")
    model.config.dtype = "float32"  # as transformers leaves it when it saves a model
    nk.save(model, tmp_path / "typed") if how == "save" else model.save_pretrained(tmp_path / "typed")
    torch.testing.assert_close(logits(nk.load(tmp_path / "typed")), logits(model), rtol=0, atol=0)


@functools.cache
def own_gpt2(name):
    """A class of one's own, which gives other numbers than that of transformers that it is derived from."""
    theirs = library("transformers").GPT2LMHeadModel

    def forward(self, input_ids=None, labels=None, **given):  # whose names a Trainer asks for
        answer = theirs.forward(self, input_ids, labels=labels, **given)
        answer.logits = answer.logits.tanh()
        return answer

    return type(name, (theirs,), {"forward": forward, "__module__": __name__, "__qualname__": name})


def build_own_gpt2():
    return own_gpt2("GPT2LMHeadModel")(gpt2().config).eval()


def in_a_checkpoint(model, folder):
    trained(model, folder)
    return folder / "checkpoint-1"


def by_save(model, folder):
    return nk.save(model, folder)


def by_save_pretrained(model, folder):
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OwnLM"])
@pytest.mark.parametrize("write", [by_save, by_save_pretrained, in_a_checkpoint])
def test_a_class_of_ones_own_is_never_opened_as_that_of_transformers(write, name, tmp_path):
    model = own_gpt2(name)(gpt2().config).eval()
    nk.swap(model, "dyt")
    place = write(model, tmp_path / "saved")
    wanted = rf"holds a {__name__}.{name}, which transformers does not build: name what does, module:factory@{place}"
    with pytest.raises(ValueError, match=wanted):
        nk.load(place)
    again = nk.load(f"{__name__}:build_own_gpt2@{place}")
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)


def test_an_unchanged_model_of_ones_own_class_is_not_opened_as_that_of_transformers(tmp_path):
    nk.save(build_own_gpt2(), tmp_path / "saved")
    with pytest.raises(ValueError, match=r"holds a .*GPT2LMHeadModel, which transformers does not build"):
        nk.load(tmp_path / "saved")


@pytest.fixture
def registered(monkeypatch):
    """A configuration and a class that transformers knows for the time of a test."""
    transformers = library("transformers")
    configs, models = transformers.CONFIG_MAPPING, transformers.AutoModelForCausalLM._model_mapping
    monkeypatch.setattr(configs, "_extra_content", dict(configs._extra_content))
    monkeypatch.setattr(models, "_extra_content", dict(models._extra_content))
    config = type("OwnConfig", (transformers.GPT2Config,), {"model_type": "own-of-a-test"})
    transformers.AutoConfig.register(config.model_type, config)
    return config, transformers.AutoModelForCausalLM.register


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OwnLM"])
@pytest.mark.parametrize("write", [by_save, by_save_pretrained])
def test_a_class_that_is_registered_with_transformers_is_opened(write, name, registered, tmp_path):
    config, register = registered
    kind = type(name, (own_gpt2(name),), {"config_class": config})
    model = kind(config(**gpt2().config.to_diff_dict() | {"model_type": config.model_type})).eval()
    nk.swap(model, "dyt")
    place = write(model, tmp_path / "saved")
    with pytest.raises(ValueError, match=r"name what does, module:factory@"):
        nk.load(place)
    register(config, kind)
    again = nk.load(place)
    assert type(again) is kind
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)


@pytest.mark.parametrize("mapped", [True, False])
def test_a_configuration_that_transformers_does_not_know_asks_no_question(mapped, monkeypatch, tmp_path):
    transformers = library("transformers")
    config = type("OwnConfig", (transformers.GPT2Config,), {"model_type": "own-of-a-test"})
    if mapped:  # as models whose code lies in a folder have it
        config.auto_map = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnLM"}
    model = own_gpt2("OwnLM")(config(n_embd=32, n_layer=1, n_head=4, vocab_size=64))
    nk.swap(model, "dyt")
    model.save_pretrained(tmp_path / "saved")
    monkeypatch.setattr("builtins.input", lambda *words: pytest.fail("asked on the terminal"))
    with pytest.raises(ValueError, match=r"holds a .*OwnLM, which transformers does not build: .*module:factory@"):
        nk.load(tmp_path / "saved")


def test_a_model_of_timm_inside_one_of_transformers_is_opened_as_the_latter(tmp_path):
    transformers = library("transformers")
    config = transformers.TimmWrapperConfig(architecture="test_vit", num_labels=5)
    model = transformers.TimmWrapperForImageClassification(config).eval()
    nk.swap(model, "dyt")
    nk.save(model, tmp_path / "wrapped")
    x = torch.randn(1, 3, 160, 160)
    torch.testing.assert_close(nk.load(tmp_path / "wrapped")(x).logits, model(x).logits, rtol=0, atol=0)


def test_a_model_of_timm_is_opened_with_the_arguments_that_it_was_built_with(tmp_path):
    timm = library("timm")
    model = timm.create_model("test_vit", class_token=False, global_pool="avg", num_classes=0).eval()
    nk.swap(model, "dyt")
    nk.save(model, tmp_path / "tokens")
    x = torch.randn(1, 3, 160, 160)
    torch.testing.assert_close(nk.load(tmp_path / "tokens")(x), model(x), rtol=0, atol=0)


def test_features_of_a_model_of_timm_are_saved_as_a_model_of_ones_own(tmp_path):
    model = features()
    before = copy.deepcopy(model)
    nk.swap(model, "dyt")
    with pytest.raises(ValueError, match="original must be the model before its change; FeatureListNet names none"):
        nk.save(model, tmp_path / "features")
    nk.save(model, tmp_path / "features", original=before)
    x = torch.randn(1, 3, 64, 64)
    again = nk.load(f"{__name__}:features@{tmp_path / 'features'}")
    torch.testing.assert_close(again(x)[-1], model(x)[-1], rtol=0, atol=0)


@pytest.mark.parametrize("word", [".", "../empty"])
def test_the_working_directory_is_not_replaced(word, tmp_path, monkeypatch):
    place = tmp_path / "empty"
    place.mkdir()
    monkeypatch.chdir(place)
    with pytest.raises(ValueError, match=rf"^{re.escape(word)} is the working directory; name a new folder$"):
        nk.save(gpt2(), word)
    assert Path.cwd() == place
    nk.save(gpt2(), "inside")
    assert [path.name for path in place.iterdir()] == ["inside"]


def features():
    return library("timm").create_model("test_convnext", features_only=True).eval()


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)).eval()


class Tied(nn.Module):
    """Words in and out by one weight, and one norm before two layers."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.first = self.second = nn.BatchNorm1d(4)
        self.last = nn.LayerNorm(4)
        self.head.weight = self.words.weight

    def forward(self, words):
        x = self.words(words)
        x = self.two(self.second(self.one(self.first(x))))
        return self.head(self.last(x))


def tied_model():
    torch.manual_seed(0)
    return Tied().eval()


def whole(model):
    """Nothing is changed for one of its places."""


def other_head(model):
    model.head.weight = nn.Parameter(model.head.weight.detach() * 2)


def other_norm(model):
    model.second = copy.deepcopy(model.first)
    model.second.running_mean.add_(1)
    model.second.weight = model.first.weight


def one_layer_more(model):
    model.two.weight = model.one.weight


TIES = {whole: 6, other_head: 5, other_norm: 2, one_layer_more: 7}


def ties_of(model):
    names = {}
    for kind in (model.named_parameters, model.named_buffers):
        for name, tensor in kind(remove_duplicate=False):
            names.setdefault(id(tensor), []).append(name)
    return [same for same in names.values() if len(same) > 1]


@pytest.mark.parametrize("change", TIES)
@pytest.mark.parametrize("swapped", [True, False])
def test_what_is_one_tensor_is_one_again_and_what_is_two_stays_two(change, swapped, tmp_path):
    model = tied_model()
    before = copy.deepcopy(model)
    if swapped:
        nk.swap(model, {"layernorm": "rmsnorm"})
    change(model)
    nk.save(model, tmp_path / "saved", original=before)
    again, words = nk.load(f"{__name__}:tied_model@{tmp_path / 'saved'}"), torch.arange(8)
    assert ties_of(again) == ties_of(model)
    assert len(ties_of(model)) == TIES[change]
    torch.testing.assert_close(again(words), model(words), rtol=0, atol=0)
    for each in (model, again):
        optimizer = torch.optim.SGD(each.parameters(), 1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            each(words).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(again(words), model(words), rtol=0, atol=0)


def test_a_norm_put_into_one_of_two_places_by_hand_is_read_in_that_place(tmp_path):
    model = tied_model()
    before = copy.deepcopy(model)
    model.second = nk.DyT(4)
    nk.save(model, tmp_path / "saved", original=before)
    again = nk.load(f"{__name__}:tied_model@{tmp_path / 'saved'}")
    assert [type(again.first), type(again.second)] == [nn.BatchNorm1d, nk.DyT]
    torch.testing.assert_close(again(torch.arange(8)), model(torch.arange(8)), rtol=0, atol=0)


def test_a_folder_of_before_ties_were_written_gives_the_numbers_that_it_gave(tmp_path):
    model = tied_model()
    before = copy.deepcopy(model)
    nk.swap(model, {"layernorm": "rmsnorm"})
    nk.save(model, tmp_path / "saved", original=before)
    words = tmp_path / "saved/normkit.json"
    words.write_text(json.dumps({"edits": json.loads(words.read_text())["edits"]}))
    (tmp_path / "saved/normkit.sha256").unlink()
    again = nk.load(f"{__name__}:tied_model@{tmp_path / 'saved'}")
    assert again.head.weight is not again.words.weight
    torch.testing.assert_close(again(torch.arange(8)), model(torch.arange(8)), rtol=0, atol=0)


@pytest.mark.parametrize("swapped", [True, False])
def test_what_was_tied_or_untied_by_hand_is_opened_so_whatever_its_configuration_says(swapped, tmp_path):
    for tied in (True, False):
        model, folder = gpt2(tie_word_embeddings=tied), tmp_path / f"saved {tied}"
        head = model.lm_head
        head.weight = nn.Parameter(head.weight.detach() * 2) if tied else model.transformer.wte.weight
        model.transformer.h[1].ln_1.weight = model.transformer.h[0].ln_1.weight
        if swapped:
            nk.swap(model, "dyt", where="transformer.ln_f")
        nk.save(model, folder)
        again = nk.load(folder)
        assert ties_of(again) == ties_of(model)
        torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)


OPENS = """
import sys, torch, normkit as nk
from test_keeping import ties_of
for word in sys.argv[1:]:
    model = nk.load(word)
    print(sum(parameter.numel() for parameter in model.parameters()), ties_of(model))
"""


def test_another_process_opens_what_is_tied_as_tied(tmp_path):
    model, own = gpt2(), tied_model()
    before = copy.deepcopy(own)
    nk.swap(model, "dyt")
    nk.save(model, tmp_path / "gpt2")
    nk.swap(own, {"layernorm": "rmsnorm"})
    nk.save(own, tmp_path / "own", original=before)
    wanted = [f"{sum(p.numel() for p in each.parameters())} {ties_of(each)}" for each in (model, own)]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    words = [tmp_path / "gpt2", f"{__name__}:tied_model@{tmp_path / 'own'}"]
    run = [sys.executable, "-c", OPENS, *words]
    found = subprocess.run(run, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert found.stdout.splitlines() == wanted


def own_model(folder):
    model = make()
    with torch.no_grad():
        model[1].weight.uniform_(0.5, 2)
    before = copy.deepcopy(model)
    nk.fold(model, example=torch.randn(3, 4))
    nk.swap(model, "rmsnorm")
    nk.save(model, folder, original=before)
    return f"{__name__}:make@{folder}", lambda model: model(torch.linspace(-1, 2, 8).view(2, 4))


def swapped_gpt2(folder):
    model = gpt2()
    nk.swap(model, "dyt")
    model.save_pretrained(folder, max_shard_size="40KB")
    return folder, logits


def fused_gpt2(folder):
    nk.save(gpt2(), folder)
    return folder, logits


def test_checksums_of_a_folder_from_windows_are_in_the_form_of_sha256sum(tmp_path, windows_lines):
    own_model(tmp_path / "saved")
    assert b"\r" not in (tmp_path / "saved/normkit.sha256").read_bytes()


@pytest.mark.parametrize("made", [own_model, swapped_gpt2, fused_gpt2])
def test_no_flip_or_cut_of_a_model_folder_is_read_as_another_model(made, tmp_path):
    word, numbers = made(tmp_path / "saved")
    draw, right = random.Random(0), numbers(nk.load(word)).detach()
    files = sorted(path for path in (tmp_path / "saved").rglob("*") if path.is_file())
    assert "normkit.sha256" in {path.name for path in files}
    for turn in range(300):
        path = files[turn % len(files)]
        whole = path.read_bytes()
        at = draw.randrange(len(whole))
        flip = whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :]
        path.write_bytes(flip if draw.random() < 0.5 else whole[:at])
        found, error = None, ""
        try:
            found = numbers(nk.load(word))
        except ValueError as refusal:
            error = str(refusal)
        assert path.name in error if found is None else torch.equal(found, right)
        assert found is None or path.name in ("normkit.sha256", "generation_config.json")
        path.write_bytes(whole)


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore::UserWarning")
def test_a_value_that_is_no_tensor_is_named_and_nothing_is_written(tmp_path):
    model = torch.ao.quantization.quantize_dynamic(make(), {nn.Linear})
    before = copy.deepcopy(model)
    nk.swap(model, "rmsnorm")
    with pytest.raises(ValueError, match=r"0\._packed_params\.dtype is a dtype, and a folder holds tensors alone"):
        nk.save(model, tmp_path / "few", original=before)
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_named_and_a_folder_of_before_there_were_checksums_loads(tmp_path):
    word, numbers = own_model(tmp_path / "saved")
    right = numbers(nk.load(word))
    (tmp_path / "saved" / "normkit.json").rename(tmp_path / "aside")
    with pytest.raises(ValueError, match=re.escape("normkit.json")):
        nk.load(word)
    (tmp_path / "aside").rename(tmp_path / "saved" / "normkit.json")
    (tmp_path / "saved" / "normkit.sha256").unlink()
    assert torch.equal(numbers(nk.load(word)), right)


def kept_gpt2(folder):
    model = gpt2()
    nk.swap(model, "dyt")
    nk.save(model, folder)
    return folder, logits


@pytest.mark.parametrize("made", [kept_gpt2, own_model])
def test_checksums_of_a_folder_are_read_whatever_its_path(made, tmp_path):
    word, numbers = made(tmp_path / "a@b:c/d@e")
    assert numbers(nk.load(word)).isfinite().all()
    (file,) = (tmp_path / "a@b:c/d@e").glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f"{file} is damaged: it is not what was written")):
        nk.load(word)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path):
    path.write_bytes(b"")


def listed(path):
    path.write_text("[]")


def other_edits(path):
    path.write_text('{"edits": [{"site": 3}]}')


DAMAGE = [
    *((made, "normkit.json", how) for made in (own_model, kept_gpt2, swapped_gpt2) for how in (cut, emptied, listed)),
    *((made, "normkit.json", other_edits) for made in (own_model, kept_gpt2)),
    *((made, "normkit.json", Path.unlink) for made in (own_model, kept_gpt2, swapped_gpt2)),
    *((own_model, "model.safetensors", how) for how in (cut, emptied, Path.unlink)),
    *((kept_gpt2, "normkit.safetensors", how) for how in (cut, emptied, Path.unlink)),
    *((swapped_gpt2, "model-00001-of-00004.safetensors", how) for how in (cut, Path.unlink)),
    *((swapped_gpt2, "model.safetensors.index.json", how) for how in (cut, listed, other_edits)),
    *((kept_gpt2, "original/config.json", how) for how in (cut, listed)),
]


@pytest.mark.parametrize(("made", "name", "how"), DAMAGE)
def test_a_damaged_or_missing_file_is_named_without_checksums_too(made, name, how, tmp_path):
    word, _ = made(tmp_path / "saved")
    (tmp_path / "saved/normkit.sha256").unlink()
    how(tmp_path / "saved" / name)
    why = "is missing" if how is Path.unlink else "is damaged: "
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'saved' / name} {why}")):
        nk.load(word)


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.ones(5), "the weights do not fit the model: size mismatch for "),
        (torch.ones(8).long(), "is of torch.int64"),
    ],
)
def test_weights_that_do_not_fit_the_model_are_named_without_checksums_too(tensor, why, tmp_path):
    word, _ = own_model(tmp_path / "saved")
    (tmp_path / "saved/normkit.sha256").unlink()
    state, file = saving._safetensors(), tmp_path / "saved/model.safetensors"
    weights = state.load_file(file)
    name = next(name for name in weights if name.endswith("weight"))
    state.save_file({**weights, name: tensor}, file)
    with pytest.raises(ValueError, match=why):
        nk.load(word)


@pytest.mark.parametrize("loader", ["nk.load", "normkit.surgery.saving.load"])  # the latter in older folders
def test_a_folder_whose_kept_configuration_is_missing_says_so(tmp_path, loader):
    folder, _ = kept_gpt2(tmp_path / "saved")
    config = (folder / "config.json").read_text()
    assert "changed by normkit: nk.load opens its folder" in config
    (folder / "config.json").write_text(config.replace("nk.load", loader))
    for name in ("normkit.sha256", "original/config.json"):
        (folder / name).unlink()
    with pytest.raises(ValueError, match=re.escape(f"{folder / 'original/config.json'} is missing")):
        nk.load(folder)


@pytest.mark.parametrize("made", [own_model, kept_gpt2, swapped_gpt2, fused_gpt2])
def test_checksums_that_leave_a_file_out_are_damaged(made, tmp_path):
    word, numbers = made(tmp_path / "saved")
    right, seals = numbers(nk.load(word)), tmp_path / "saved/normkit.sha256"
    lines = seals.read_text().splitlines(keepends=True)
    (tmp_path / "saved/tokenizer_config.json").write_text("{}")  # as a Trainer does, once the model is written
    assert torch.equal(numbers(nk.load(word)), right)
    for left in ([], *(lines[:at] + lines[at + 1 :] for at in range(len(lines)) if "generation" not in lines[at])):
        seals.write_text("".join(left))
        gone = min(line.split()[1] for line in lines if line not in left and "generation" not in line)
        with pytest.raises(ValueError, match=re.escape(f"{seals} is damaged: it has no line for {gone}; delete it")):
            nk.load(word)


@pytest.mark.parametrize("how", ["save", "before", "save_pretrained", "inside"])
def test_what_was_compiled_is_saved_as_the_model_inside(how, tmp_path):
    model, before, folder = gpt2(), gpt2(), tmp_path / "swapped"
    compiled = torch.compile(model, backend="eager")
    nk.swap(compiled, {"layernorm": "rmsnorm"})
    if how == "save":
        nk.save(compiled, folder)
    elif how == "before":
        nk.save(compiled, folder, original=torch.compile(before, backend="eager"))
    else:
        (compiled if how == "save_pretrained" else model).save_pretrained(folder)
    edits = json.loads((folder / "normkit.json").read_text())["edits"]
    assert [edit["site"] for edit in edits] == [
        *(f"transformer.h.{i}.{norm}" for i in range(2) for norm in ("ln_1", "ln_2")),
        "transformer.ln_f",
    ]
    refused(folder)
    torch.testing.assert_close(logits(nk.load(folder)), logits(model), rtol=0, atol=0)
    torch.testing.assert_close(logits(copy.deepcopy(compiled)), logits(compiled), rtol=0, atol=0)


CHANGES = {
    "fold": lambda model: nk.fold(model, TOKENS),
    "convert": lambda model: nk.convert(model, "pre-rmsnorm", TOKENS),
    "remove": lambda model: nk.remove(
        model, [TOKENS], steps=18, start=1, gaps=(1, 1, 1), where="*0.ln_*", log=lambda progress: None
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_compiled_is_changed_as_the_model_inside_and_saved(change, tmp_path):
    plain = gpt2(n_layer=1, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    compiled = torch.compile(copy.deepcopy(plain), backend="eager")
    wanted = CHANGES[change](plain)
    report = CHANGES[change](compiled)
    assert [row.site for row in report.done] == [f"_orig_mod.{row.site}" for row in wanted.done]
    assert wanted.done
    torch.testing.assert_close(logits(compiled), logits(plain), rtol=1e-4, atol=1e-5)
    nk.save(compiled, tmp_path / "changed")
    torch.testing.assert_close(logits(nk.load(tmp_path / "changed")), logits(plain), rtol=1e-4, atol=1e-5)


def test_every_size_of_a_kept_configuration_is_a_word_and_names_stay_out():
    library("transformers")
    kept = keeping._foreign_config({"n_embd": 32, "activation": "gelu", "scale": True, "n_layer": 2})
    changed = saving.CHANGED
    assert kept == {"model_type": changed, "architectures": [changed], "n_embd": changed, "n_layer": changed}


def test_a_state_is_of_the_models_own_memory_but_for_what_shares_it():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model[2].weight = nn.Parameter(torch.randn(3, 3).T)
    state = saving._state(model)
    own = [name for name, tensor in model.state_dict().items() if tensor.data_ptr() == state[name].data_ptr()]
    assert own == ["0.weight", "0.bias", "1.bias", "2.bias"]
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert all(tensor.is_contiguous() and not tensor.requires_grad for tensor in state.values())
