"""A changed model in a folder by one call, and back; and ``save_pretrained`` of changed models."""

from __future__ import annotations

import copy
import inspect
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normkit.files import replace_file
from normkit.optional import library
from normkit.surgery import saving, seals
from normkit.surgery.edits import bits, edits_between, inside, rewriting
from normkit.surgery.proof import require_model

__all__ = ["load", "save"]


def save(model: nn.Module, folder: str | Path, *, original: nn.Module | None = None) -> Path:
    """Write a model whose norms were changed into a new folder, which :func:`load` opens; nothing is pickled.

    What was changed is written in words, and weights as safetensors. transformers and timm, which would build the old
    model, refuse the folder.

    Args:
        model: a changed model; of what ``torch.compile`` gave, the model inside.
        folder: where to; it must be new or empty.
        original: the model as it was before. One of transformers or timm is built from its own configuration.
    """
    (_, model), (_, original) = inside(model), inside(original)
    require_model("save", model)
    return saving.save(build_unloaded(model) if original is None else original, model, str(folder))


def load(folder: str | Path) -> nn.Module:
    """Build the model that :func:`save`, a command's ``-o``, or ``save_pretrained`` of a changed model has written.

    It is in evaluation. ``folder`` is where it was written; of a model that a function of yours builds,
    ``"package.module:function@FOLDER"``.
    """
    return saving.load(str(folder))


def build_unloaded(model: Any) -> nn.Module:
    """Build what a model of transformers or timm was by its own configuration, without memory for its weights."""
    with torch.device("meta"):
        if saving.is_timm(model):
            read = getattr(library("timm").models, "get_model_args", None)
            arguments = read(model) if read else {"num_classes": model.num_classes}
            return library("timm").create_model(model.pretrained_cfg["architecture"], **arguments)
        if not hasattr(getattr(model, "config", None), "save_pretrained"):
            raise ValueError(f"save: original must be the model before its change; {type(model).__name__} names none")
        if hasattr(model, "get_base_model"):
            raise ValueError(
                f"save: {type(model).__name__} is a model with adapters around it: save model.merge_and_unload(), or "
                "the adapters alone by model.save_pretrained"
            )
        return saving.of_config(rewriting.own_class(model), copy.deepcopy(model.config))


def save_pretrained(plain: Any, self: Any, save_directory: str, *args: Any, **kwargs: Any) -> Any:
    """Save as ``plain``, transformers, does; the folder is opened by ``normkit.load``, and refused by transformers."""
    options = inspect.signature(library("transformers").PreTrainedModel.save_pretrained).parameters
    kwargs |= dict(zip([*options][2:], args, strict=False))
    if kwargs.get("push_to_hub"):
        raise ValueError(
            "save_pretrained: push_to_hub=True would upload the folder before it says what was changed: call "
            "model.push_to_hub(repo_id)"
        )
    if "save_original_format" in options:  # the hub's names of tensors, by which nothing but transformers can load
        kwargs.setdefault("save_original_format", False)
    if any(bits.words_of(part) for part in self.modules()):
        state = kwargs.get("state_dict")
        kwargs["state_dict"] = saving.in_parts(self.state_dict() if state is None else state)
    answer = plain(save_directory, **kwargs)
    if not kwargs.get("is_main_process", True):
        return answer
    place = Path(save_directory)
    _remove_earlier(place)
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    (place / saving.ORIGINAL).mkdir(exist_ok=True)
    replace_file(place / saving.ORIGINAL / "config.json", json.dumps(config, indent=1))
    replace_file(place / "config.json", json.dumps(_foreign_config(config), indent=1))
    replace_file(place / saving.PARTS, json.dumps(_description(self), indent=1))
    replace_file(place / seals.SEALS, seals.seal_lines(place))
    return answer


def save_unchanged(plain: Any, self: Any, save_directory: str, *args: Any, **kwargs: Any) -> Any:
    """Save as ``plain`` does, and delete what says how a changed model was written that the folder held before."""
    answer, place = plain(save_directory, *args, **kwargs), Path(save_directory)
    if (place / saving.PARTS).is_file():
        original = [f"{saving.ORIGINAL}/{name}" for name in ("config.json", saving.GENERATION)]
        for name in (saving.PARTS, seals.SEALS, saving.OWN_WEIGHTS, *original):
            (place / name).unlink(missing_ok=True)
        with suppress(OSError):  # which may hold more
            (place / saving.ORIGINAL).rmdir()
    return answer


def _remove_earlier(place: Path) -> None:
    """Delete what an earlier save has left in a folder, and transformers does not write anew: else it would be read."""
    for name in (saving.OWN_WEIGHTS, f"{saving.ORIGINAL}/{saving.GENERATION}"):
        (place / name).unlink(missing_ok=True)
    if (place / saving.INDEX).is_file():  # of this save, or of one whose files transformers has deleted
        sharded = all(file.is_file() for file in saving.weights_of(str(place)))
        (place / (saving.WEIGHTS if sharded else saving.INDEX)).unlink(missing_ok=True)


def _description(model: nn.Module) -> dict[str, Any]:
    """What is where in a model, or why that cannot be written: its weights are kept all the same."""
    try:
        old = build_unloaded(model)
        return {"edits": [edit.to_dict() for edit in edits_between(old, model)], **saving.foreign_class(old)}
    except ValueError as error:
        return {"unknown": str(error)}


def _foreign_config(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration that no class of transformers takes for its own: sizes and parts, all checked, are words."""
    common = library("transformers").PretrainedConfig()
    sizes = [name for name, value in config.items() if type(value) is int and not hasattr(common, name)]
    parts = [name for name, value in config.items() if type(value) is dict and "model_type" in value]
    return {
        "model_type": saving.CHANGED,
        "architectures": [saving.CHANGED],
        **dict.fromkeys([*sizes, *parts], saving.CHANGED),
    }
