"""Tasks: data, a model to build for a variant, and the loss.

>>> from normkit.lab.plan.settings import Settings
>>> from normkit.lab.plan.variants import Variant
>>> task = load(Settings(length=8, batch=2))
>>> model = task.build(Variant("rmsnorm", norm="rmsnorm"), seed=1)
>>> task.loss(model, task.data.train(1, 1)).shape
torch.Size([])
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import catalog
from normkit.choice import parsed
from normkit.lab.clock import OF_A_RUN, RECOGNITION
from normkit.lab.fit import table
from normkit.lab.fit.training import bits, numbers_of
from normkit.lab.plan import clients, data, handed, losses, measures, models, optimizers, samples
from normkit.lab.plan.builtin import IMAGES, MATRICES, MODELS, SAMPLES, SIGNALS, TEXT, Model, is_own, row
from normkit.lab.plan.data import Data
from normkit.lab.plan.exchanges import exchange, layers
from normkit.lab.plan.settings import BATCHES, Settings, fields, spell
from normkit.lab.plan.variants import ORIGINAL, Variant, lets_leak
from normkit.optional import hub_once, library
from normkit.parameters import tensors_in
from normkit.prints import print_of_value
from normkit.surgery import saving
from normkit.surgery.models import timm_with
from normkit.surgery.replacement import fits, swapping
from normkit.surgery.statistics.batch_statistics import field_of
from normkit.watching.inspecting import CLASSES, DISTANCE, NEXT, OWN, classes_last, refuse_float_classes

MASKED = 0.15  # the share of tokens that a masked language model is to tell
NEXT_HEADS = ("CausalLM", "LMHeadModel")  # how transformers' classes end that predict the next token


@dataclass
class Task:
    """What is trained: batches, a model to build, the loss of a batch, its size, and how often a model is right.

    labels: how many labels of a batch the loss is a mean over, where their number is not that of the samples.
    metric: a user's own measure, of a model and all held-out batches.
    scored: the scores and labels that the loss is of, where it is of such: then another loss may be trained.
    causal: whether tokens are predicted from those before them, so that nothing may show what comes later.
    loss_name: what the loss is, where a user's batches decide it.
    """

    data: Data
    build: Callable[[Variant, int], nn.Module]
    loss: Callable[[nn.Module, Any], Tensor]
    size: Callable[[Any], int]
    accuracy: Callable[[nn.Module, Any], Tensor] | None = None
    metric: Callable[[nn.Module, list[Any]], Any] | None = None
    scored: losses.Of | None = None
    causal: bool = False
    loss_name: str = ""
    labels: Callable[[nn.Module, Any], int] | None = None

    def weigh(self, model: nn.Module, batch: Any) -> int:
        """Return what a batch counts for in a mean over batches: by how much its loss and accuracy are a mean."""
        return self.size(batch) if self.labels is None else self.labels(model, batch)

    def objective(self, variant: Variant) -> losses.Objective:
        """Return what a variant is trained to lower: the loss that all are compared by, or one of its own."""
        if variant.loss == losses.PLAIN:
            return self.loss
        if self.scored is None:
            raise ValueError(f"loss {variant.loss!r} needs scores and labels, one of a class each, and there are none")
        return losses.objective(variant.loss, self.scored)


def load(settings: Settings) -> Task:
    """Read the data and prepare to build the model that ``settings`` name; what was loaded last is kept."""
    return load_task(_of_a_task(settings))


def _of_a_task(settings: Settings) -> Settings:
    return Settings(**{name: getattr(settings, name) for name in fields(task=True)})


def held_out_print(settings: Settings, known: str = "") -> str:
    """Return a print of the held-out data; empty where it differs from a known one, and each time they are read."""
    print_ = print_of_value(load(settings).data.validation())
    if not handed.differ(known, print_):
        return print_
    try:
        again = print_of_value(load_task.__wrapped__(_of_a_task(settings)).data.validation())
    except Exception:  # data of the user's own that can be read only once
        return ""
    return print_ if again == print_ else ""


@functools.lru_cache(maxsize=1)
def load_task(settings: Settings) -> Task:
    """Return the task; only what the settings say of model, data and measure is looked at."""
    task = _task(settings)
    task.data = portion(task.data, settings.share)
    measure = measures.of(vars(settings))
    if measure.key == measures.OWN:
        task.metric = measures.import_measure(settings.metric or "")
    if measure.is_share and task.accuracy is None:
        raise ValueError(f"model {settings.model!r} on data {settings.data!r} has no accuracy: it tells no classes")
    return dataclasses.replace(task, build=_builder(task, settings))


def portion(whole: Data, share: float) -> Data:
    """Return data with a share of what is trained on, of text its beginning; a smaller share is a part of a larger.

    Of samples as much of each class as all have; what is held out stays.
    """
    if share == 1:
        return whole
    if not hasattr(whole, "part"):
        raise ValueError(
            f"{spell('ladder_of')} data takes a part of the samples: hand in a data set, or a loader whose samples "
            "have numbers"
        )
    count = clients.size_of(whole)
    order = data.spread_order(count, clients.labels_of(whole))
    order = torch.arange(count) if isinstance(whole, data.Tokens) else order
    return whole.part(order[: max(1, round(share * count))].sort().values)


def _builder(task: Task, settings: Settings) -> Callable[[Variant, int], nn.Module]:
    """Build a model from the start that the variant names, then put in what any model takes."""
    causal = task.causal and not settings.allow_leak
    has_norms = row(settings.model) is None and not _is_built_with_norm(settings.model)

    def built(variant: Variant, seed: int) -> nn.Module:
        variant = variant.with_built_norm()
        if causal and variant.norm != ORIGINAL:
            fits.require_causal(catalog.find(variant.norm).card, lets_leak())
        model = task.build(variant, seed)
        if variant.norm != ORIGINAL and has_norms:
            with OF_A_RUN.part(RECOGNITION):
                model = exchange(model, variant.norm, settings.model, lambda: _example(task))
        model = models.permute_outputs(model, seed) if variant.start == "permuted" else model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return variant.put(model)

    return built


def _example(task: Task) -> Any:
    """Return what the loss of a first batch calls a model with; None where that cannot be told."""
    calls: list[Any] = []
    model: Any = lambda *given, **named: calls.append(named or given)  # noqa: E731
    with suppress(Exception):  # it returns nothing that a loss could be of
        task.loss(model, task.data.train(1, 1))
    return next(iter(calls), None)


def _task(settings: Settings) -> Task:
    name = settings.model
    if (model := row(name)) is not None:
        return _built_in(model, *parsed(name), settings)
    source, _, rest = name.partition(":")
    if source == "timm" and rest:
        return _timm(rest, settings)
    if source == "hf" and rest:
        return _hugging_face(rest, settings)
    if rest:
        return _own(name, settings)
    raise ValueError(
        f"no model {name!r}; models are {', '.join(map(repr, MODELS))}, "
        "'hf:PATH_OR_NAME', 'timm:NAME' and 'module:factory'"
    )


def _built_in(model: Model, name: str, arguments: dict[str, Any], settings: Settings) -> Task:
    for argument in arguments:
        if argument not in model.sizes:
            raise ValueError(f"model {name!r} has no {argument!r}; it has {', '.join(model.sizes)}")
    sizes = {**model.sizes, **arguments}
    inputs: list[Any] = [settings.length]

    def build(variant: Variant, seed: int) -> nn.Module:
        if not model.parts:
            variant.require_parts_of(name)
        if variant.norm == ORIGINAL:
            variant = dataclasses.replace(variant, norm=model.original)
        torch.manual_seed(seed)
        return getattr(models, name)(variant, seed, *inputs, sizes)

    if model.takes == TEXT:
        return _own_data(settings, build) or next_token(_bytes(settings), build)
    if model.takes == SAMPLES:
        inputs = [rows := _rows(settings)]
        return likelihood(rows, build)
    inputs = [pictures := _matrices(settings) if model.takes == MATRICES else _images(settings)]
    return image_class(pictures, build)


def _timm(name: str, settings: Settings) -> Task:
    timm = timm_with(name)
    pictures = _images(settings, 32)

    def make() -> nn.Module:
        arguments: dict[str, Any] = {"num_classes": pictures.classes, "in_chans": pictures.shape[0]}
        try:
            return timm.create_model(name, img_size=pictures.shape[-1], **arguments)
        except TypeError:  # convolutional networks take any size, and no argument for it
            return timm.create_model(name, **arguments)

    return image_class(pictures, lambda v, seed: _build(make, f"timm:{name}", v, seed))


def _build(make: Callable[[], nn.Module], name: str, variant: Variant, seed: int) -> nn.Module:
    """Build from the seed; norms are exchanged afterwards, so that all else starts the same."""
    variant.require_parts_of(name)
    torch.manual_seed(seed)
    return make()


def _hugging_face(name: str, settings: Settings) -> Task:
    transformers = library("transformers")
    data.require_folder("model", name)
    if saving.is_closed(name):
        raise ValueError(f"model 'hf:{name}' was changed by normkit: name what it was; runs begin anew")
    try:
        with hub_once(name):
            config = transformers.AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"model 'hf:{name}' cannot be loaded: {error}") from error
    auto, kind = _head(transformers, config, name)

    def build(variant: Variant, seed: int) -> nn.Module:
        return _build(lambda: auto.from_config(config), f"hf:{name}", variant, seed)

    own = _own_data(settings, build)
    if own is not None:
        return dataclasses.replace(own, causal=kind == "next")
    if kind == "image":
        seeing = getattr(config, "vision_config", config)  # CLIP and its kin have a part that sees
        pictures = _images(settings, getattr(seeing, "image_size", 32), getattr(seeing, "num_channels", 3))
        config.num_labels = pictures.classes
        return image_class(pictures, build)
    tokens, mask = _tokenize(transformers, name, config, settings)
    return next_token(tokens, build) if kind == "next" else masked_token(tokens, build, mask)


def _head(transformers: Any, config: Any, name: str) -> tuple[Any, str]:
    """Return the auto class and the kind of a model: by its architecture's name, else by what its config can build.

    A config that can build both language models, such as BERT's, sees all positions unless it says that it decodes.
    """
    kinds = {
        "MaskedLM": (transformers.AutoModelForMaskedLM, "masked"),
        **dict.fromkeys(NEXT_HEADS, (transformers.AutoModelForCausalLM, "next")),
        "ImageClassification": (transformers.AutoModelForImageClassification, "image"),
    }
    stored = (getattr(config, "architectures", None) or [""])[0]
    for ending, head in kinds.items():
        if stored.endswith(ending):
            return head
    for auto, kind in kinds.values():
        decodes = kind == "masked" and getattr(config, "is_decoder", False)
        if type(config) in auto._model_mapping and not decodes:
            return auto, kind
    raise ValueError(f"model 'hf:{name}' is no causal or masked language model and no image classifier")


def _tokenize(transformers: Any, name: str, config: Any, settings: Settings) -> tuple[data.Tokens, int]:
    """Cut text with the model's own tokenizer, or into bytes where it has none; also tell the masking token."""
    try:
        with hub_once(name):
            tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    except Exception:  # which one depends on what is missing
        tokenizer = None
    if tokenizer is None or not len(tokenizer):
        if config.vocab_size < 256:
            raise ValueError(
                f"model 'hf:{name}' has no tokenizer, and its vocabulary of {config.vocab_size} is too small for bytes"
            )
        return _bytes(settings), config.vocab_size - 1

    def encode(text: str) -> Tensor:
        return torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    mask = tokenizer.mask_token_id
    return _tokens(encode, settings), config.vocab_size - 1 if mask is None else mask


def _own(name: str, settings: Settings) -> Task:
    factory = data.resolve(name, "model")
    takes_norm = _takes_norm(factory)

    def build(variant: Variant, seed: int) -> nn.Module:
        def make() -> nn.Module:
            if not takes_norm:
                return factory()
            return _as_it_is(factory, name) if variant.norm == ORIGINAL else factory(norm=fits.maker(variant.norm))

        return _build(make, name, variant, seed)

    own = _own_data(settings, build)
    if own is not None:
        return own
    images = data.kind_of(settings.data) in (IMAGES, SIGNALS)
    return image_class(_images(settings), build) if images else next_token(_bytes(settings), build)


def _as_it_is(factory: Callable[..., Any], name: str) -> nn.Module:
    """Build a model that takes a norm with the one that it has by default."""
    if inspect.signature(factory).parameters["norm"].default is inspect.Parameter.empty:
        raise ValueError(f"{name} takes a norm and has none by default: name some, such as layernorm rmsnorm dyt")
    return factory()


def _takes_norm(factory: Callable[..., Any]) -> bool:
    return "norm" in inspect.signature(factory).parameters


def _is_built_with_norm(model: str) -> bool:
    """Whether a model of the user's own takes the norm when it is built."""
    return is_own(model) and ":" in model and _takes_norm(data.resolve(model, "model"))


def _own_data(settings: Settings, build: Callable[[Variant, int], nn.Module]) -> Task | None:
    """Return the task of learning a user's batches, if the data are such."""
    if data.kind_of(settings.data) != "batches":
        return None
    return own_batches(samples.own_data(settings.data, settings.val, settings.batch, settings.eval_batches), build)


def _apart(settings: Settings) -> str | None:
    """Return the source of the held-out data, if it is one of its own; a bare word names a split of the data's."""
    if settings.val is None:
        return None
    whole = data.split_of(settings.data)[0]
    split = whole.startswith("hf:") and settings.val.isidentifier() and not Path(settings.val).exists()
    source = f"{whole}@{settings.val}" if split else settings.val
    data.require_apart(settings.data, source)
    return source


def _bytes(settings: Settings) -> data.Tokens:
    return _tokens(data.bytes_of, settings)


def _tokens(encode: Callable[[str], Tensor], settings: Settings) -> data.Tokens:
    apart = _apart(settings)
    for source in filter(None, (settings.data, apart)):
        if data.kind_of(source) not in ("text", "either"):
            raise ValueError(f"model {settings.model!r} learns from text, which data {source!r} is not")
    tokens, held_out = (None if source is None else encode(data.text_of(source)) for source in (settings.data, apart))
    assert tokens is not None
    batch = settings.batch or BATCHES[TEXT]
    return data.Tokens(tokens, batch, settings.length, settings.eval_batches, settings.data, held_out)


def _images(settings: Settings, size: int | None = None, channels: int | None = None) -> data.Images:
    apart = _apart(settings)
    splits = [_pictures(source, settings, size, channels) for source in filter(None, (settings.data, apart))]
    _require_classes(apart, splits, fits=splits[-1].names == splits[0].names)
    held_out = None if apart is None else (splits[1].images, splits[1].labels)
    return data.Images(splits[0].images, splits[0].labels, settings.batch or BATCHES[IMAGES], settings.data, held_out)


def _require_classes(apart: str | None, splits: Sequence[data.Pictures], fits: bool) -> None:
    """Refuse held-out data whose classes do not fit those of the data, or whose samples have another shape."""
    if not fits:
        raise ValueError(f"held-out data {apart!r} has classes {splits[-1].names}, and the data {splits[0].names}")
    shapes = [tuple(one.images.shape[1:]) for one in splits]
    if shapes[0] != shapes[-1]:
        raise ValueError(f"held-out data {apart!r} are of shape {shapes[-1]}, and the data of {shapes[0]}")


def _matrices(settings: Settings) -> data.Matrices:
    apart = _apart(settings)
    sources = [settings.data, *filter(None, [apart])]
    for source in sources:
        if data.kind_of(source) != "matrices":
            raise ValueError(f"model {settings.model!r} learns from 'spd' or a FILE.npz, which data {source!r} is not")
    splits = [data.matrices_of(source) for source in sources]
    _require_classes(apart, splits, fits=len(splits[-1].names) <= len(splits[0].names))
    held = None if apart is None else splits[1][:2]
    return data.Matrices(splits[0].images, splits[0].labels, settings.batch or BATCHES[IMAGES], settings.data, held)


def _rows(settings: Settings) -> data.Rows:
    """The samples that a density is of, as ``normkit fit`` reads them."""
    apart = _apart(settings)
    tables = [table.read(source) for source in filter(None, (settings.data, apart))]
    if tables[0].values.shape[1:] != tables[-1].values.shape[1:] or tables[0][1:] != tables[-1][1:]:
        raise ValueError(f"held-out data {apart!r} have other columns or categories than {settings.data!r}")
    values = [numbers_of(one, data.generator(place)) for place, one in enumerate(tables)]
    held = None if apart is None else values[1]
    return data.Rows(values[0], settings.batch or BATCHES[SAMPLES], settings.data, held, tables[0].bytes)


def _pictures(source: str, settings: Settings, size: int | None, channels: int | None) -> data.Pictures:
    kind, known = data.kind_of(source), row(settings.model)
    signals = is_own(settings.model) or (known is not None and known.signals)
    if kind not in (IMAGES, "either", *([SIGNALS] if signals else [])):
        raise ValueError(f"model {settings.model!r} learns from images, which data {source!r} is not")
    if kind == SIGNALS:
        return data.signals_of(source)
    pictures = data.images_of(source, size)
    if channels in (None, pictures.images.shape[1]):
        return pictures
    return pictures._replace(images=pictures.images.mean(1, keepdim=True).expand(-1, channels, -1, -1))


def scores(output: Any) -> Tensor:
    """Take the scores from what a model returns: Hugging Face wraps them, and a mapping has them by name."""
    wrapped = field_of(output, "logits")
    return output if wrapped is None else wrapped


def own_loss(output: Any) -> Tensor:
    """Return the loss in what a model returns."""
    value = output if isinstance(output, Tensor) and output.dim() == 0 else field_of(output, "loss")
    if value is None:
        raise ValueError(f"a model that is fed mappings must return its loss, as 'loss', not {type(output).__name__}")
    return value


def next_token(tokens: data.Tokens, build: Callable[[Variant, int], nn.Module]) -> Task:
    """Predict every token from those before it."""

    def scored(model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
        return scores(model(batch[:, :-1])).flatten(0, 1), batch[:, 1:].flatten()

    return Task(
        tokens, build, losses.cross_entropy(scored), lambda batch: batch[:, 1:].numel(), scored=scored, causal=True
    )


def masked_token(tokens: data.Tokens, build: Callable[[Variant, int], nn.Module], mask: int) -> Task:
    """Predict tokens that are hidden; which ones follows from the batch alone."""

    def hidden_in(batch: Tensor) -> Tensor:
        return torch.rand(batch.shape, generator=data.generator(int(batch.sum()))).to(batch.device) < MASKED

    def scored(model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
        hidden = hidden_in(batch)
        logits = scores(model(torch.where(hidden, mask, batch)))
        return logits.flatten(0, 1), torch.where(hidden, batch, losses.HIDDEN).flatten()

    return Task(
        tokens,
        build,
        losses.cross_entropy(scored),
        lambda batch: batch.numel(),
        scored=scored,
        labels=lambda _, batch: int(hidden_in(batch).sum()),
    )


def image_class(images: data.Images, build: Callable[[Variant, int], nn.Module]) -> Task:
    """Tell what an image shows, or a matrix."""

    def scored(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        output = scores(model(batch[0]))
        if isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] < images.classes:
            raise ValueError(f"the data have {images.classes} classes, and the model {output.shape[1]} outputs")
        return output, batch[1]

    return Task(
        images, build, losses.cross_entropy(scored), lambda batch: len(batch[1]), share_right(scored), None, scored
    )


def likelihood(rows: data.Rows, build: Callable[[Variant, int], nn.Module]) -> Task:
    """Give data the highest density; the loss is in bits for each number."""

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return bits(model(batch[0]), rows.shape, whole=False).mean() + rows.offset

    return Task(rows, build, loss, lambda batch: len(batch[0]))


def share_right(scored: losses.Of) -> Callable[[nn.Module, Any], Tensor]:
    """Return how often the class of the highest score is the right one, where one is known."""

    def accuracy(model: nn.Module, batch: Any) -> Tensor:
        logits, labels = scored(model, batch)
        known = labels != losses.HIDDEN
        return ((logits.argmax(-1) == labels) & known).sum() / known.sum().clamp(min=1)

    return accuracy


def own_batches(batches: Data, build: Callable[[Variant, int], nn.Module]) -> Task:
    """Train on a user's batches.

    A mapping goes to the model as keywords, and the model gives the loss; of a pair, the second is what the model
    should give: classes if it is integers, else numbers, whose squared distance is the loss; a tensor of integers is a
    row of tokens.
    """

    def scored(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        if isinstance(batch, Mapping):
            return scores(model(**batch)), batch["labels"]
        if isinstance(batch, tuple | list) and len(batch) != 2:
            raise ValueError("a batch must be a pair of inputs and targets, such as ((x, z), y), or a mapping")
        inputs, target = (batch[:, :-1], batch[:, 1:]) if isinstance(batch, Tensor) else batch
        preds = scores(model(inputs))
        if target.is_floating_point():
            return _as_wanted(preds, target), target
        return _classes_last(preds, target).flatten(0, target.dim() - 1), target.flatten().long()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        if isinstance(batch, Mapping):
            return own_loss(model(**batch))
        preds, target = scored(model, batch)
        return F.mse_loss(preds, target) if target.is_floating_point() else F.cross_entropy(preds, target)

    first = next(iter(batches.validation()), None)
    classes = classes_of(first) is not None
    labelled = classes or (not isinstance(first, Mapping) and not _wants_numbers(first))
    accuracy = share_right(scored) if classes else None
    return Task(
        batches,
        build,
        loss,
        _own_size,
        accuracy,
        scored=scored if labelled else None,
        causal=isinstance(first, Tensor),
        loss_name=_name_loss(first),
        labels=_own_labels,
    )


def _name_loss(batch: Any) -> str:
    """Say which loss a user's batches are trained by, as :func:`normkit.watching.inspecting.known_loss` does."""
    if isinstance(batch, Mapping):
        return OWN
    if isinstance(batch, Tensor):
        return NEXT
    if _wants_numbers(batch):
        return DISTANCE
    return CLASSES if is_pair(batch) else ""


def _as_wanted(preds: Tensor, target: Tensor) -> Tensor:
    """Numbers in the shape of those that are wanted, from which they may differ by axes of 1."""
    if preds.squeeze().shape != target.squeeze().shape:
        refuse_float_classes(preds, target)
        raise ValueError(f"it gives numbers of shape {tuple(preds.shape)}, and those wanted have {tuple(target.shape)}")
    return preds.reshape(target.shape)


def _classes_last(preds: Tensor, target: Tensor) -> Tensor:
    """Scores with their classes last, refused where they do not fit those that are wanted."""
    scores = classes_last(preds, target)
    if scores.shape[:-1] != target.shape:
        raise ValueError(f"its scores of shape {tuple(preds.shape)} do not fit classes of shape {tuple(target.shape)}")
    return scores


def classes_of(batch: Any) -> Tensor | None:
    """Return the classes that a batch wants, one a sample; None if it wants something else."""
    labels = _target_of(batch)
    whole = isinstance(labels, Tensor) and labels.dim() == 1 and not labels.is_floating_point()
    return labels if whole else None


def _target_of(batch: Any) -> Any:
    """Return what a model should give for a batch, None where the batch does not tell it apart."""
    return batch.get("labels") if isinstance(batch, Mapping) else batch[1] if is_pair(batch) else None


def is_pair(batch: Any) -> bool:
    """Whether a batch is of two parts."""
    return isinstance(batch, tuple | list) and len(batch) == 2


def _wants_numbers(batch: Any) -> bool:
    return is_pair(batch) and isinstance(batch[1], Tensor) and batch[1].is_floating_point()


def _own_size(batch: Any) -> int:
    """Return the samples of a batch, by what it wants, as the loss is a mean over that; else by its first tensor."""
    tensors = (part for part in (_target_of(batch), *tensors_in(batch)) if isinstance(part, Tensor))
    return next((len(part) for part in tensors if part.dim()), 1)


def _own_labels(model: nn.Module, batch: Any) -> int:
    """Return how many labels of a batch are to be learned; its samples, where they are no classes."""
    labels = batch[:, 1:] if isinstance(batch, Tensor) else _target_of(batch)
    if not isinstance(labels, Tensor) or not labels.dim() or labels.is_floating_point():
        return _own_size(batch)
    if isinstance(batch, Mapping) and _predicts_the_next(model):
        labels = labels[..., 1:]
    return int((labels != losses.HIDDEN).sum())


def _predicts_the_next(model: nn.Module) -> bool:
    """Whether a model shifts the labels that it is given, as causal ones of transformers do, PEFT's around them too."""
    return type(model).__name__.endswith(NEXT_HEADS) and hasattr(model, "loss_type")


def check_variant(variant: Variant, settings: Settings) -> int:
    """Pass one batch through a variant, there and back, to find a misfit before training; return its parameters."""
    task = load(settings.of(variant))
    batch: Any = None
    try:
        model = task.build(variant, 1)
        parameters = sum(p.numel() for p in model.parameters())  # as a run counts them, before it trains
        optimizers.make_optimizer(variant.optimizer, model, 0.0, settings.weight_decay)
        objective, batch = task.objective(variant), task.data.train(1, 1)
        objective(model, batch).backward()
        with OF_A_RUN.part(RECOGNITION):
            layers(model, variant, settings.model)
        if settings.federated:
            clients.check(variant, model, task.data, settings)
    except Exception as error:
        misfit = _describe_batch(batch, settings) if is_own(settings.model) and batch is not None else ""
        if any(t.dim() > 3 for t in tensors_in(batch)) and _is_built_with_norm(settings.model):
            misfit += "; its argument norm makes norms of the last axis, without it those that it has are exchanged"
        raise ValueError(f"variant {variant.name!r} does not fit{misfit}: {error}") from error
    _check_metric(task, model, settings)
    return parameters


def _describe_batch(batch: Any, settings: Settings) -> str:
    """Say what came to a model of the user's own, and where it was taken from."""
    model, source = handed.in_words(settings.model), handed.in_words(settings.data)
    default = settings.data == default_data(settings.model)
    way = f", taken where none are named; name your own with {spell('data')}" if default else ""
    return f", or model {model!r} does not take data {source!r} ({_shapes(batch)}{way})"


def _shapes(batch: Any) -> str:
    """Say what a batch is.

    >>> _shapes((torch.zeros(2, 8), torch.zeros(2).long()))
    '(float32 2x8, int64 2)'
    """
    if isinstance(batch, Tensor):
        return f"{str(batch.dtype)[6:]} {'x'.join(map(str, batch.shape))}"
    if isinstance(batch, Mapping):
        return f"{{{', '.join(f'{key}: {_shapes(value)}' for key, value in batch.items())}}}"
    return f"({', '.join(map(_shapes, batch))})" if isinstance(batch, tuple | list) else type(batch).__name__


@torch.no_grad()
def _check_metric(task: Task, model: nn.Module, settings: Settings) -> None:
    if task.metric is None:
        return
    try:
        score = float(task.metric(model.eval(), task.data.validation()))
    except Exception as error:
        raise ValueError(
            f"metric {settings.metric!r} fails: {type(error).__name__}: {error}; it is called with the model and a "
            "list of held-out batches, and returns a number"
        ) from error
    if not math.isfinite(score):
        raise ValueError(f"metric {settings.metric!r} gives {score} for a model that is not trained; wanted a number")


def places(model: str) -> set[fits.Place]:
    """Return where the norms of a model stand, as it is built."""
    if (known := row(model)) and known.place and ":" not in model:
        return {known.place}
    if _is_built_with_norm(model):
        return {fits.Place(fits.STREAM, causal=True)}
    task = load(Settings(model=model, data=default_data(model)))
    sites = swapping.places(task.build(Variant("as it is", norm=ORIGINAL), 1))
    return {place._replace(causal=task.causal) for place in sites}


def default_data(model: str) -> str:
    """Return the data that a model is trained on where none is named."""
    name, _, rest = model.partition(":")
    if (known := row(model)) is not None:
        if not known.data:
            raise ValueError(f"a density is of a table or of images: name it with {spell('data')} FILE")
        return known.data
    if name == "timm":
        return "digits"
    local = Path(rest) / "config.json"
    return "digits" if local.is_file() and "ImageClassification" in local.read_text(encoding="utf-8") else "python-docs"
