"""The coordinate check: whether activations change alike at all widths in the first steps of a training."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.columns import aligned, number_of
from normkit.gradient import param_groups
from normkit.gradient._based import base_named
from normkit.gradient.groups import ParamGroups
from normkit.optional import hub_once, library
from normkit.parameters import remove_after, roles
from normkit.surgery import models
from normkit.surgery.statistics.batch_statistics import feed, field_of
from normkit.watching.drawn import Drawn, line, picture
from normkit.watching.inspecting import batches_for, make_batches
from normkit.watching.signals.signal import first_tensor
from normkit.watching.sites import blocks

Build = Callable[[int], nn.Module]
STANDARD = "standard"
FLAT = 0.25  # the power of the width that a change may grow or shrink with: 0 in the limit, 1 where a rate is too high
HEADS = ("num_attention_heads", "num_key_value_heads")
INNER = ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "moe_intermediate_size", "word_embed_proj_dim")
COLORS, DASHES = ("var(--c0)", "var(--c1)", "var(--c2)", "var(--c5)"), ("solid", "dash")


class CoordinateCheck(Drawn):
    """How far activations went in the first steps at each width; printed as a table.

    ``changes[parametrization][site]``: a table of widths and steps, each the root mean square of what has changed since
    the start, a mean over seeds.
    """

    name = "widths"

    def __init__(self, widths: Sequence[int], parametrization: str, what: str, changes: dict[str, dict[str, Tensor]]):
        self.widths, self.parametrization, self.what, self.changes = list(widths), parametrization, what, changes

    def power(self, parametrization: str, site: str) -> float:
        """Return the power of the width that a site's change grows with, after the last step.

        0: it is the same at all widths, as of a frozen site, which does not change. Infinite: it diverged, or is 0 at
        some widths alone.
        """
        last = self.changes[parametrization][site][:, -1]
        if not bool(last.any()):
            return 0.0
        if not bool((last.isfinite() & (last > 0)).all()):
            return math.inf
        return float(np.polyfit(np.log2(self.widths), last.log2().numpy(), 1)[0])

    def worst(self, parametrization: str) -> tuple[str, float]:
        """Return the site whose change depends on the width most, and its power."""
        powers = {site: self.power(parametrization, site) for site in self.changes[parametrization]}
        site = max(powers, key=lambda key: abs(powers[key]))
        return site, powers[site]

    def flat(self, parametrization: str) -> bool:
        """Whether the changes of all sites are flat in width."""
        return abs(self.worst(parametrization)[1]) <= FLAT

    def table(self) -> list[tuple[str, ...]]:
        """Return a row for each site under each parametrization, below the titles of the columns."""
        head = ("site", "parametrization", *map(str, self.widths), "power of width")
        return [head] + [
            (site, name, *(f"{change:.3g}" for change in changes[:, -1].tolist()), f"{self.power(name, site):+.2f}")
            for name, sites in self.changes.items()
            for site, changes in sites.items()
        ]

    def __str__(self) -> str:
        verdicts = []
        for name in self.changes:
            site, power = self.worst(name)
            how = f"flat within width^{FLAT:g}" if self.flat(name) else f"not flat: width^{power:+.2f} at {site}"
            verdicts.append(f"{name}: {how}")
        return "\n".join([self.what, "", *aligned(self.table(), numbers=True), "", *verdicts])

    def to_dict(self) -> dict[str, Any]:
        """Return what was measured, as JSON holds it."""
        return {
            "widths": self.widths,
            "what": self.what,
            "changes": {
                name: {site: changes.tolist() for site, changes in sites.items()}
                for name, sites in self.changes.items()
            },
            "flat": {name: self.flat(name) for name in self.changes},
        }

    def heading(self) -> tuple[str, str]:
        """Return the title of the page, and a line below it."""
        how = "flat in width" if self.flat(self.parametrization) else "not flat in width"
        return f"{self.parametrization}: {how}", self.what

    def pictures(self) -> list[dict[str, Any]]:
        """Return a picture for each parametrization: a line a site."""
        axes = {"type": "log", "tickvals": self.widths, "ticktext": list(map(str, self.widths))}
        pages = []
        for name, sites in self.changes.items():
            traces = [
                line(site, self.widths, changes[:, -1].tolist(), COLORS[place % len(COLORS)], DASHES[place % 2])
                for place, (site, changes) in enumerate(sites.items())
            ]
            caption = f"Change of each site's output since the start. {self.what}"
            pages.append(picture(name, caption, traces, "width", "change", axes, {"type": "log"}))
        return pages


def coordinate_check(
    build: Build,
    widths: Sequence[int],
    *,
    parametrization: str = "mup",
    optimizer: str = "adamw",
    lr: float | None = None,
    steps: int = 4,
    seeds: int = 2,
    batches: Iterable[Any] | None = None,
) -> CoordinateCheck:
    """Train a model for a few steps at several widths, and see how far the outputs of its layers go.

    It trains on one batch under the standard parametrization, one rate for all, and under ``parametrization``, whose
    base is the smallest width. If rates carry over from one width to the next, what changes is the same at all of them.

    Args:
        build: makes the model of a width, newly drawn each time.
        widths: at least two.
        parametrization: ``"mup"`` or ``"spectral"``, see :func:`normkit.param_groups`; ``"standard"``: that alone.
        optimizer: its name, of the catalogue or of torch.optim.
        lr: the learning rate at the smallest width; None: the optimizer's usual one.
        steps: how many.
        seeds: how many models of each width.
        batches: the first is what the model is fed; without them, random numbers that suit its first layer.
    """
    widths = [check.size("coordinate_check", "widths", width) for width in sorted(set(widths))]
    if len(widths) < 2:
        raise ValueError(f"coordinate_check: widths must be at least two different numbers, not {widths}")
    check.choice("coordinate_check", "parametrization", parametrization, (STANDARD, "mup", "spectral"))
    steps, seeds = (check.size("coordinate_check", *pair) for pair in (("steps", steps), ("seeds", seeds)))
    step: Any = base_named("coordinate_check", optimizer, "optimizer")
    names = list(dict.fromkeys((STANDARD, parametrization)))
    batch = None if batches is None else batches_for("coordinate_check", batches, 1)[0]
    runs: dict[str, list[list[dict[str, Tensor]]]] = {name: [] for name in names}
    with torch.random.fork_rng(), torch.inference_mode(False):
        for seed in range(seeds):
            base = _build_model(build, widths[0], seed)
            batch = next(make_batches(base)) if batch is None else batch
            for name in names:
                runs[name].append([])
                for width in widths:
                    model = _build_model(build, width, seed)
                    groups = _groups(model, optimizer, name, base if name == "mup" else widths[0], lr)
                    trained = step(groups, **({} if lr is None else {"lr": lr}))
                    runs[name][-1].append(_changes(model, trained, batch, steps))
    changes = {
        name: {site: torch.stack([torch.stack([w[site] for w in own]) for own in runs[name]]).mean(0) for site in sites}
        for name in names
        if (sites := runs[name][0][0])
    }
    rate = inspect.signature(step).parameters["lr"].default if lr is None else lr
    what = f"{number_of(steps, 'step')} of {optimizer} at lr {rate:g} on one batch, {number_of(seeds, 'seed')}; "
    what += f"base width {widths[0]}"
    return CoordinateCheck(widths, parametrization, what, changes)


def _build_model(build: Build, width: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = build(width)
    if not isinstance(model, nn.Module):
        raise TypeError(f"coordinate_check: build({width}) gives {type(model).__name__}, not a torch.nn.Module")
    return model


def _groups(model: nn.Module, optimizer: str, parametrization: str, base: Any, lr: float | None) -> ParamGroups:
    """The groups of a model, whose weights get the initial scales that go with them."""
    if parametrization == STANDARD:
        return param_groups(model, optimizer, weight_decay=0.0, blocks=False)
    groups = param_groups(
        model, optimizer, weight_decay=0.0, blocks=False, parametrization=parametrization, base=base, lr=lr
    )
    groups.initialize()
    return groups


def _changes(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, steps: int) -> dict[str, Tensor]:
    """Train a model, and return how far each site's output has gone after each step."""
    model.eval()  # no dropout: what changes is the weights' doing
    places = _sites(model)
    start: dict[str, Tensor] = {}
    changes = {name: torch.zeros(steps, device="cpu") for name in places}
    for step in range(steps + 1):
        with _outputs(places) as outputs:
            inputs = _feed(model, batch)
        for name, output in outputs.items():
            if step:
                changes[name][step - 1] = (output - start[name]).square().mean().sqrt()
        start = start or outputs
        if step < steps:
            optimizer.zero_grad()
            _loss(inputs).backward()
            optimizer.step()
    return changes


def _sites(model: nn.Module) -> dict[str, nn.Module]:
    """The modules whose outputs are compared: embeddings, blocks, and what makes the output."""
    rows = [row for row in roles(model) if row.role in ("embedding", "head")]
    owners = {row.name.rpartition(".")[0] for row in rows}
    last = {} if any(row.role == "head" for row in rows) else {"output": model}
    modules = {name: m for name, m in model.named_modules() if name in owners and name}
    inside = dict(blocks(model))
    tables = {name: m for name, m in modules.items() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}
    return {**tables, **inside, **{name: m for name, m in modules.items() if name not in tables}, **last}


@contextmanager
def _outputs(places: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    activations: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            tensor = field_of(output, "logits")
            tensor = first_tensor(output) if tensor is None else tensor
            if tensor is not None:
                activations[name] = tensor.detach().float().clone()

        return hook

    hooks = [module.register_forward_hook(keep(name)) for name, module in places.items()]
    with remove_after(hooks):
        yield activations


def _feed(model: nn.Module, batch: Any) -> Any:
    try:
        return feed(model, batch)
    except Exception as error:
        raise ValueError(
            f"coordinate_check: {type(model).__name__} fails on the batch of the smallest width "
            f"({type(error).__name__}: {error}); inputs must not grow with the width: hand in batches"
        ) from error


def _loss(output: Any) -> Tensor:
    """The model's own loss, else the cross-entropy of classes that are drawn, or the distance to numbers that are."""
    own = field_of(output, "loss")
    if isinstance(own, Tensor):
        return own
    scores = field_of(output, "logits")
    scores = first_tensor(output) if scores is None else scores
    if scores is None:
        raise ValueError(f"coordinate_check: the model gives {type(output).__name__}, which holds no floating tensor")
    chance = torch.Generator().manual_seed(0)
    rows = scores.flatten(0, -2) if scores.dim() > 1 else scores[None]
    if rows.shape[-1] == 1:
        target = torch.randn(rows.shape, generator=chance, dtype=torch.float32, device="cpu")
        return F.mse_loss(rows.float(), target.to(rows.device))
    classes = torch.randint(rows.shape[-1], rows.shape[:1], generator=chance, device="cpu").to(rows.device)
    return F.cross_entropy(rows.float(), classes)


def builder(word: str) -> Build:
    """Return what builds a model, named as :func:`normkit.surgery.models.load` takes it, at a width.

    A model of transformers keeps the size of its heads, and its head is not tied; one of timm takes ``embed_dim``; a
    factory ``module:name`` is called with the width.
    """
    source, colon, rest = word.partition(":")
    if source == "timm" and rest:
        return _of_timm(rest)
    if source == "hf" and rest:
        return _of_transformers(rest)
    if colon:
        factory = models.import_object(word, "model", "; with widths it is package.module:factory, called with a width")
        if not callable(factory) or isinstance(factory, nn.Module):
            raise ValueError(f"{word} must be a function that is called with a width, not {type(factory).__name__}")
        return factory
    return _of_transformers(word)


def _of_timm(name: str) -> Build:
    timm = models.timm_with(name)
    first = timm.create_model(name)
    width, heads = getattr(first, "embed_dim", 0), len(getattr(first, "blocks", ()))
    attention = first.blocks[0].attn if heads and hasattr(first.blocks[0], "attn") else None
    if not isinstance(width, int) or attention is None:
        raise ValueError(f"timm:{name} has no width that can be set; write a factory that is called with one")
    size = width // attention.num_heads
    return lambda width: timm.create_model(name, embed_dim=width, num_heads=_whole(width, size))


def _of_transformers(word: str) -> Build:
    transformers = library("transformers")
    try:
        with hub_once(word):
            config = transformers.AutoConfig.from_pretrained(word)
    except OSError as error:
        raise ValueError(f"there is no model {word!r}: a model is {models.FORMS}, called with a width") from error
    if not isinstance(getattr(config, "hidden_size", None), int):
        raise ValueError(f"{word} has no hidden_size that can be set; write a factory that is called with a width")
    named = getattr(transformers, (config.architectures or ["AutoModel"])[0], transformers.AutoModel)

    def build(width: int) -> nn.Module:
        own = copy.deepcopy(config)
        times = width / own.hidden_size
        for name in (*HEADS, *INNER):
            value = getattr(own, name, None)
            if isinstance(value, int):
                if (value * times) % 1:
                    raise ValueError(f"at width {width} the {name} of {word} would be {value * times:g}")
                setattr(own, name, int(value * times))
        own.hidden_size, own.tie_word_embeddings = width, False
        return named.from_config(own) if named is transformers.AutoModel else named(own)

    return build


def _whole(width: int, size: int) -> int:
    if width % size:
        raise ValueError(f"width {width} is not a multiple of {size}, the size of a head")
    return width // size


def widths_of(words: str) -> list[int]:
    """Read widths between commas.

    >>> widths_of("64,128")
    [64, 128]
    """
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise ValueError(f"--widths must be whole numbers between commas, such as 64,128,256, not {words!r}") from None
