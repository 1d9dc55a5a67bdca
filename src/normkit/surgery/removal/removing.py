"""Layer norms taken out of a trained pre-norm transformer, one after another while it is fine-tuned."""

from __future__ import annotations

import copy
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normkit import check
from normkit.columns import number_of
from normkit.parameters import copy_model, require_whole
from normkit.safe import say
from normkit.surgery import proof
from normkit.surgery.edits import all_places, replace_parts
from normkit.surgery.edits.changes import Change, Report, name_others, norm_words, take_over, ties_of, untie
from normkit.surgery.edits.edit import put
from normkit.surgery.edits.layers import without_history
from normkit.surgery.exact.folding import make_plain
from normkit.surgery.exact.pairs import is_plain
from normkit.surgery.flow import Graph, Stays
from normkit.surgery.recognition.match import Match, is_layer_norm
from normkit.surgery.recognition.recognize import sized_table
from normkit.surgery.recognition.specimen import inputs_of
from normkit.surgery.removal.fading import Fading, Tokens
from normkit.surgery.removal.order import FINAL, Part, parts, timetable
from normkit.surgery.removal.weaning import Loss, Progress, Run, Weaning, mean_loss, next_token, origin_of
from normkit.where import Where, require_known, selects

__all__ = ["remove"]

MEASURED = 8  # batches of ``data`` that losses before and after are measured on, where there are none held out
SAVED = "removal.pt"
REPORT_EVERY = 10


@dataclass(frozen=True)
class Removal(Report):
    """What was taken out, and what it cost: the losses before, after, and after the same training with all norms."""

    before: float = math.nan
    after: float = math.nan
    kept: float | None = None
    losses: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: the changes, and the losses."""
        losses = {"before": self.before, "after": self.after, "kept": self.kept, "steps": self.losses}
        return {"changes": super().to_dict(), "loss": losses}

    def __str__(self) -> str:
        summary = f"loss {self.before:.4f} before, {self.after:.4f} after {number_of(len(self.losses), 'step')}"
        beside = "" if self.kept is None else f"; with the norms kept, {self.kept:.4f} after as many"
        return f"{super().__str__()}\n{summary}{beside}"

    __repr__ = __str__


@torch.inference_mode(False)
def remove(
    model: nn.Module,
    data: Iterable[Any],
    *,
    steps: int = 300,
    start: int = 20,
    gaps: tuple[int, int, int] = (2, 2, 3),
    lr: float = 6e-4,
    weight_decay: float = 0.01,
    auxiliary: float = 0.1,
    separator: int | None = None,
    loss: Loss | None = None,
    val: Iterable[Any] | None = None,
    compare: bool = False,
    folder: str | Path | None = None,
    log: Callable[[Progress], object] | None = None,
    where: Where = None,
    inplace: bool = True,
) -> Removal:
    """Take the layer norms out of a trained pre-norm transformer, by fine-tuning it while they go one by one.

    Each norm is made to divide by a constant, the deviation that it has by then, which makes it a linear map: from step
    ``start`` those before feedforwards, the first block first; then those before attention, for queries and keys; then
    for values; then the last. First tokens, and the tokens between texts, keep a deviation of their own till after
    that. What is left is folded into the layers that read it, and proven to be the same. The model's graph shows which
    norm is where, and which results of a layer are values.

    The numbers change, and the report says what that costs. A copy is trained: stopped or refused, the model is as it
    was.

    Args:
        model: a trained transformer whose layer norms are read by linear layers alone.
        data: batches of what it was trained on, gone over again when they end: token ids (B, T); or dictionaries of
            arguments, with ``labels``, of a model that returns its loss; or whatever ``loss`` takes.
        steps: how many batches it is trained on. A GPT-2 of 12 blocks has lost its norms after 116 of them.
        start: the steps before the first norm goes.
        gaps: the steps between two norms before feedforwards, between two for queries and keys, between two for values.
        lr: learning rate of Adam-W, which falls to a half along a cosine.
        weight_decay: of Adam-W.
        auxiliary: factor of a loss that keeps the deviations of the last norm's inputs near each other.
        separator: the token between texts, where there is one.
        loss: ``loss(model, batch)``; by default the next token's, or what the model returns.
        val: batches held out, on which losses before and after are measured; by default the first of ``data``.
        compare: train a second copy as long with its norms kept, to tell what training alone does.
        folder: where to keep what is needed to go on after an interruption: call again with the same arguments. After
            the end, they give the same result at once. Another model, other data or settings are refused.
        log: called with the progress at every step; by default a line now and then on standard error.
        where: only norms whose name fits a pattern, or whose class is the one given, or any of a list of such; or those
            for which a function of name and module is true.
        inplace: change the model; else a copy, which is the report's ``model``.

    Transformers Don't Need LayerNorm at Inference Time (Baroni et al., 2025), arXiv 2507.02559.

    Differs from the authors' code in: a norm's constant is fixed once, when queries and keys lose it, and values take
    the same; the deviations of first and separating tokens are measured, not set.
    """
    require_whole("remove", model)
    require_known("remove", where, model)
    plan = Weaning(*map(check.plain, (steps, lr, weight_decay, auxiliary)))
    separator = check.plain(separator)
    proof.check_model("remove", model)
    was = copy.deepcopy(model).eval()
    measured, example = _batches(was, data, val)
    proof.ready("remove", was, example)
    if not any(parameter.requires_grad for parameter in was.parameters()):
        raise ValueError("remove: the model is frozen, and is trained while its norms go; let parameters require_grad")
    make_plain("remove", was)
    norms, order = _norms_in_order(was, example, where)
    how: dict[str, Any] = {"loss": loss or next_token, "log": log or _tell}
    wean = replace(plan, table=timetable(order, start, gaps))
    kept_at: dict[str, Any] = {}
    if folder:
        kept_at = {"place": Path(folder, SAVED), "origin": origin_of(was, data, loss, separator)}
    work, fading, losses = _wean(was, data, wean, order, norms, separator, how | kept_at)
    changed = _fold(work, order, fading)
    after = _put(copy.deepcopy(work), copy.deepcopy(changed))
    far = proof.proven("remove", work, after, example)
    costs = mean_loss(was, measured, how["loss"]), mean_loss(after, measured, how["loss"])
    kept = _loss_with_all(was, plan, how, data, measured) if compare else None
    rows = [Change(p.site, norm_words(norms[p.site]), f"into {', '.join(p.readers)}", (), far) for p in order]
    target = model if inplace else copy_model(model)
    make_plain("remove", target)
    take_over(target, work)
    return Removal(_put(target, changed), rows, *costs, kept, losses)


def _wean(
    model: nn.Module,
    data: Iterable[Any],
    plan: Weaning,
    order: Sequence[Any],
    norms: Mapping[str, Any],
    separator: int | None,
    how: Mapping[str, Any],
) -> tuple[nn.Module, dict[str, Any], list[float]]:
    """A copy that was trained while its norms went, those norms as they are then, and the losses."""
    work = copy.deepcopy(model)
    fading, release = _fade(work, order, norms, Tokens(separator))
    last = [fading[part.site] for part in order if part.role == FINAL]
    losses = Run(work, plan, **how, norms=fading, last=last).through(data)
    release()
    without_history(work)
    return work.eval(), fading, losses


def _loss_with_all(
    model: nn.Module, plan: Weaning, how: dict[str, Any], data: Iterable[Any], measured: Sequence[Any]
) -> float:
    """The loss after the same training with all norms."""
    Run(model, plan, **how).through(data)
    return mean_loss(model, measured, how["loss"])


def _batches(model: nn.Module, data: Iterable[Any], val: Iterable[Any] | None) -> tuple[list[Any], Any]:
    """The batches that losses are measured on, and the first of ``data`` as the model is called on it.

    Of a batch of several parts the model is called on the first, or on as many as it needs.
    """
    check.repeatable("remove", "data", data)
    batch = next(iter(data), None)
    example = example_of(batch)
    parts = [batch[: end + 1] for end in range(len(batch))] if isinstance(batch, tuple | list) else []
    example = next((tuple(some) for some in parts if _is_taken(model, some)), example)
    measured = list(itertools.islice(data, MEASURED) if val is None else val)
    if not measured:
        raise ValueError("remove: val holds no batch")
    return measured, example


def _is_taken(model: nn.Module, example: Any) -> bool:
    """Whether a model can be called on an example."""
    try:
        proof.call_model(copy.deepcopy(model), example)
    except Exception:
        return False
    return True


def example_of(batch: Any) -> Any:
    """A batch as the model is called on it."""
    if batch is None:
        raise ValueError("data holds no batch")
    return batch if isinstance(batch, Mapping) else (batch[0] if isinstance(batch, tuple | list) else batch,)


def _layer_norms(model: nn.Module, example: Any, where: Where) -> dict[str, Match]:
    sites = sized_table(model, inputs_of(model, example))
    matches = sites.found
    selected = {name: match for name, match in matches.items() if selects(where, name, model.get_submodule(name))}
    norms = {name: match for name, match in selected.items() if _is_removable(match)}
    if not norms:
        names = sorted({str(match.name) for match in selected.values()})
        raise ValueError(
            f"remove: the model has no layer norm to remove; it has "
            f"{', '.join(names) or 'no norm'}{name_others(sites.rest)}"
        )
    return norms


def _is_removable(match: Match) -> bool:
    return is_layer_norm(match.name, match.kwargs) and not match.behind and isinstance(match.kwargs["dim"], int)


def _norms_in_order(model: nn.Module, example: Any, where: Where) -> tuple[dict[str, Match], list[Part]]:
    """The norms, and their parts in the order of their calls; refused where anything but layers reads one."""
    norms = _layer_norms(model, example, where)
    layers = [name for name, part in model.named_modules() if is_plain(part)]
    try:
        return norms, parts(Graph(model, example, [*norms, *layers]), norms)
    except Stays as error:
        raise ValueError(f"remove: refused, and the model is as it was: {error}") from error


def _fade(
    model: nn.Module, order: Sequence[Part], norms: Mapping[str, Match], tokens: Tokens
) -> tuple[dict[str, Fading], Callable[[], None]]:
    """Put norms that can go into the places of a copy's; and what takes the hooks off that this needs."""
    fading: dict[str, Fading] = {}
    hooks = [tokens.watch(model)]
    for part in order:
        one = fading[part.site] = Fading.of(norms[part.site], tokens, bool(part.values))
        for reader, rows in part.values.items():
            hooks.append(model.get_submodule(reader).register_forward_hook(one.values_of(rows)))
    held = all_places(model)
    for site, one in fading.items():
        put(model, held[model.get_submodule(site)], one)

    def release() -> None:
        for hook in hooks:
            hook.remove()

    return fading, release


def _fold(model: nn.Module, order: Sequence[Part], fading: Mapping[str, Fading]) -> dict[str, nn.Module]:
    """What stands where once the linear maps that norms have become, in the model, are in the layers that read them."""
    held = all_places(model)
    for one in fading.values():
        put(model, held[one], one.left())
    changed: dict[str, nn.Module] = {}
    for part in order:
        fixed: Any = model.get_submodule(part.site)
        changed[part.site] = nn.Identity()
        changed |= {reader: fixed.into(model.get_submodule(reader)) for reader in part.readers}
    return changed


def _put(model: nn.Module, changed: Mapping[str, nn.Module]) -> nn.Module:
    """Put modules into their places; a head that was tied to the embedding is not any more."""
    if any(ties_of(model, changed).values()):
        untie(model)
    for name, new in changed.items():
        new.train(model.get_submodule(name).training)
    return replace_parts("remove", model, changed, True)


def _tell(progress: Progress) -> None:
    if progress.step % REPORT_EVERY == 0 or progress.step == progress.steps:
        say(progress, file=sys.stderr)
