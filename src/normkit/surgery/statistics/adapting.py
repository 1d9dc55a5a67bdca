"""Models that go on at test time from what they are shown: by their batch norms' statistics, or by learning."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from normkit import catalog, check
from normkit.activation.batch.alpha_batchnorm import AlphaBatchNorm
from normkit.kinds.adapter import ADAPTER, Adapter
from normkit.kinds.arguments import bind
from normkit.parameters import copy_model
from normkit.surgery.edits import replace_parts
from normkit.surgery.edits.changes import Change, Report, norm_words
from normkit.surgery.edits.layers import joined, takes_batch_statistics
from normkit.surgery.recognition.match import Followed, Match
from normkit.surgery.recognition.recognize import sized_table
from normkit.where import Where, require_known, selects

__all__ = ["adapt"]


@torch.inference_mode(False)
def adapt(
    model: nn.Module,
    *,
    weight: float | None = None,
    where: Where = None,
    inplace: bool = True,
    method: str | None = None,
    **options: Any,
) -> Any:
    """Let a model's batch norms mix the statistics that they learned with those of the batch that they are shown.

    For a trained network whose test images come from elsewhere: corrupted, or of another camera. With ``method``, such
    as "tent", the model goes on learning at test time: what is returned is called as the model is. Without it, each
    batch norm with running statistics whose channels are axis 1 becomes an ``alpha-batchnorm`` with the same numbers,
    which in evaluation normalizes by

        (1 - weight) learned + weight of the batch at hand

    and changes no state. What is behind the norm (timm's activations) stays. Other layers with batch statistics are
    left alone, and the report says so; the count of batches, which no evaluation uses, goes. One that joins its
    statistics over processes joins those of the batch at hand as well.

    Args:
        model: any model.
        weight: the share of the batch at hand: 0 changes nothing, 1 forgets what was learned; by default 0.1.
        where: only norms whose name fits a pattern, or whose class is the one given, or any of a list of such; or those
            for which a function of name and module is true.
        inplace: change the model; else a copy, which is the report's ``model``.
        method: an adapter's name, with or without arguments, ``"sar:lr=0.001"``: ``normkit list --kind adapter``, t3a,
            lame, or another method whose card says ``around``. It takes over the model, or with ``inplace=False`` a
            copy of it. T3a and lame answer from what goes into the last linear of the model, or the one that ``head``
            names; memo adapts on each sample of a batch.
        options: the arguments of that method, such as ``lr``.

    Returns a :class:`Report` of what was changed, or with ``method`` the adapter.

    Test-time Batch Statistics Calibration for Covariate Shift (You, Li, Zhao, 2021), arXiv 2110.04065.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    >>> [(change.site, change.became) for change in adapt(model)]
    [('1', "alpha-batchnorm, 0.1 of it the batch's")]
    """
    share = 0.1 if weight is None else check.number("adapt", "weight", weight, 0.0, 1.0)
    require_known("adapt", where, model)
    model = model if inplace else copy_model(model)
    if method is not None:
        return _around(model, method, where, weight, options)
    if options:
        raise TypeError(f"adapt: {', '.join(options)} is of a method, and none is named: give method=")

    def adapts(name: str, part: nn.Module) -> bool:
        return takes_batch_statistics(part) and selects(where, name, part)

    matches = sized_table(model, {}, adapts)
    changes, new = [], {}
    for name, match in matches.items():
        was = norm_words(match)
        why = _refusal(match)
        if why is None:
            new[name] = _mixing(model.get_submodule(name), match, share)
            changes.append(Change(name, was, f"alpha-batchnorm, {share:g} of it the batch's", tuple(match.carried)))
        else:
            changes.append(Change(name, was, why_not=why))
    if not new:
        left = "; ".join(f"{change.site or 'it'} stays: {change.why_not}" for change in changes)
        raise ValueError(f"adapt: {left or 'the model has no batch norm with running statistics there'}")
    return Report(replace_parts("adapt", model, new, inplace), changes)


def _around(model: nn.Module, method: str, where: Where, weight: float | None, options: dict[str, Any]) -> Adapter:
    """Return an adapter that has taken over the model."""
    make = adapter_of("adapt", "method", method)
    if where is not None:
        own = "norms= for names of norms" if "norms" in make.card.signature.parameters else "no choice of norms"
        raise ValueError(f"adapt: where is for batch norms that mix statistics; {method} has {own}")
    if weight is not None:
        raise ValueError(f"adapt: weight is for batch norms that mix statistics; {method} mixes none by it")
    return make(model, **options)


class Wrapping(NamedTuple):
    """What puts an adapter around a model: its method's card, and the arguments that were written with the name."""

    card: catalog.Card
    arguments: Mapping[str, Any]

    def __call__(self, model: nn.Module, **options: Any) -> Adapter:
        """Take over a model."""
        make = self.card.around or self.card.entry
        bound = bind(self.card.name, inspect.signature(make), (model,), {**self.arguments, **options})
        return make(*bound.args, **bound.kwargs)


def adapter_of(owner: object, argument: str, text: Any) -> Wrapping:
    """Return what puts around a model the adapter that a text names, or another method whose card tells how."""
    return Wrapping(*catalog.choose(owner, argument, text, ADAPTER, or_around=True))


def _refusal(match: Match) -> str | None:
    if not match:
        return match.why_not
    if match.name != "batchnorm" or "running_mean" not in match.carried:
        return f"{match.name} is not mixed, only batch norms with running statistics"
    if match.kwargs.get("channels_last"):
        return "a batch norm of tokens is not mixed, only one whose channels are axis 1"
    return None


@torch.no_grad()
def _mixing(old: nn.Module, match: Match, weight: float) -> nn.Module:
    """The same batch norm, which mixes in evaluation."""
    own: Any = match.module.norm if isinstance(match.module, Followed) else match.module
    learned = {name: p for name in ("weight", "bias") if (p := getattr(own, name, None)) is not None}
    momentum = match.kwargs.get("momentum", 0.1)
    with own.running_mean.device:
        new = AlphaBatchNorm(
            match.kwargs["num_features"],
            target_weight=weight,
            eps=own.eps,
            momentum=0.1 if momentum is None else momentum,
            affine=bool(learned),
            **joined(old),
        ).to(own.running_mean)
    start = new.state_dict()
    new.load_state_dict(start | {name: tensor for name, tensor in own.state_dict().items() if name in start})
    trained = any(p.requires_grad for p in learned.values())  # which holds for a shift that the norm has not
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(learned[name].requires_grad if name in learned else trained)
    mixing = Followed(new, list(match.module.layers)) if isinstance(match.module, Followed) else new
    return mixing.train(old.training)
