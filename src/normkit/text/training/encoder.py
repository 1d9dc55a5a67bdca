"""Training of an encoder: mentions near to the names of what they mean, by the trainer of sentence-transformers."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.files import folder_beside
from normkit.optional import library, require
from normkit.text.candidates.dense import Dense
from normkit.text.models import loaded, quiet, sentence_transformers
from normkit.text.samples import mistype
from normkit.text.training._trainer import SMALL, Progress, new_model, settings, train
from normkit.text.training.in_batch_ranking_loss import InBatchRankingLoss

NOISY = 0.8  # share of anchors that are mistyped


class _Ranking(nn.Module):
    """The room's loss as the trainer calls one: with the tokens of anchors and of positives."""

    def __init__(self, model: Any, scale: float):
        super().__init__()
        self.model, self.loss = model, InBatchRankingLoss(scale)

    def forward(self, features: Sequence[Mapping[str, Tensor]], labels: Any = None) -> Tensor:
        """Return the loss of a batch."""
        return self.loss(*(self.model(dict(one))["sentence_embedding"] for one in features))


def train_encoder(
    vocabulary: Mapping[str, Sequence[str]],
    output: str | Path,
    mentions: Sequence[str] = (),
    gold: Sequence[str | None] = (),
    *,
    model: str | None = None,
    steps: int = 500,
    batch: int = 64,
    lr: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Train an encoder so that mentions lie nearest to the names of their entries, and write it to a folder.

    A step takes a batch of different entries. The anchor is a known mention or one of the names, mostly mistyped; the
    positive is any name of the entry. The loss is :class:`InBatchRankingLoss`. The folder is that of a
    sentence-transformers model, for :class:`Dense`.

    Args:
        vocabulary: {id: names}.
        output: the folder to write.
        mentions: texts whose ids are known, if there are any.
        gold: their ids; those without one are left out.
        model: the folder of a sentence-transformers model to begin with; None: a small one of bytes, from nothing.
        steps: batches.
        batch: pairs in a batch; no more than there are entries.
        lr: the learning rate; by default 2e-5 for a given model and 3e-3 for a fresh one.
        seed: of weights, noise and order.
        progress: called with the number of steps done, and of all.
    """
    require("sentence_transformers", "datasets", "accelerate")
    pairs = _pairs(vocabulary, mentions, gold)
    batch = min(check.size("train_encoder", "batch", batch, least=2), len(pairs))
    if batch < 2:
        raise ValueError("train_encoder: vocabulary must have at least two entries")
    check.size("train_encoder", "steps", steps)
    place = new_model("train_encoder", output)
    package = sentence_transformers()
    encoder = fresh_encoder(seed) if model is None else load_encoder(model)
    rows = _draw(pairs, steps * batch, batch, random.Random(seed))
    encoder.model_card_data.widget = [{}]  # else the trainer picks examples for a card that is not written
    with folder_beside(place) as folder:
        options = settings(folder / "running", steps, batch, lr or (2e-5 if model else 3e-3), seed)
        arguments = package.SentenceTransformerTrainingArguments(**options, batch_sampler=_in_order)
        data = library("datasets").Dataset.from_dict(rows)
        trainer = package.SentenceTransformerTrainer(encoder, arguments, data, loss=_Ranking(encoder, 20.0))
        train(trainer, progress)
        with quiet():
            encoder.save(str(folder), create_model_card=False)  # which would show texts of the user's
        shutil.rmtree(folder / "running", ignore_errors=True)
    return place


def load_encoder(path: str) -> Any:
    """Return the sentence-transformers model in a folder."""
    make = sentence_transformers().SentenceTransformer
    return loaded("train_encoder", path, lambda where: make(where, local_files_only=True))


def fresh_encoder(seed: int = 0) -> Any:
    """Return a small encoder of bytes with random weights, as a sentence-transformers model."""
    torch.manual_seed(seed)
    package, transformers = sentence_transformers(), library("transformers")
    parts = library("sentence_transformers.sentence_transformer.modules")
    with tempfile.TemporaryDirectory() as folder, quiet():
        transformers.T5EncoderModel(transformers.T5Config(**SMALL, dropout_rate=0.0)).save_pretrained(folder)
        transformers.ByT5Tokenizer().save_pretrained(folder)
        words = parts.Transformer(folder, max_seq_length=64)
    return package.SentenceTransformer(modules=[words, parts.Pooling(SMALL["d_model"])], device="cpu")


def nearest_share(encoder: Any, vocabulary: Mapping[str, Sequence[str]], seed: int, most: int = 300) -> float:
    """Return the share of mistyped names whose entry an encoder puts nearest, among at most so many entries."""
    generator = random.Random(f"{seed} is not that of training")
    ids = generator.sample(list(vocabulary), min(most, len(vocabulary)))
    mentions = [mistype(generator.choice(vocabulary[id]), generator) for id in ids]
    part = Dense(lambda texts: encoder.encode(texts, show_progress_bar=False), k=1)
    rankings = part.fit({id: vocabulary[id] for id in ids})(mentions)
    return sum(id in [one for one, _ in own] for id, own in zip(ids, rankings, strict=True)) / len(ids)


def _pairs(
    vocabulary: Mapping[str, Sequence[str]], mentions: Sequence[str], gold: Sequence[str | None]
) -> dict[str, list[str]]:
    """Return what is known to mean each entry."""
    if len(mentions) != len(gold):
        raise ValueError(f"train_encoder: gold must be as long as mentions, {len(mentions)}, not {len(gold)}")
    examples = {id: list(names) for id, names in vocabulary.items() if names}
    for text, id in zip(mentions, gold, strict=True):
        if id is not None and id not in examples:
            raise ValueError(f"train_encoder: gold has {id!r}, which is not in the vocabulary")
        if id is not None:
            examples[id].append(text)
    return examples


def _draw(pairs: Mapping[str, list[str]], count: int, batch: int, generator: random.Random) -> dict[str, list[str]]:
    """Draw anchors and positives, so that no entry is twice in a batch."""
    ids: list[str] = []
    while len(ids) < count:
        ids += generator.sample(list(pairs), batch)
    positives = [generator.choice(pairs[id]) for id in ids]
    anchors = [generator.choice(pairs[id]) for id in ids]
    noisy = [mistype(text, generator) if generator.random() < NOISY else text for text in anchors]
    return {"anchor": noisy, "positive": positives}


def _in_order(dataset: Any, batch_size: int, **others: Any) -> Any:
    """Take the rows in their order: batches were drawn already."""
    rows = library("torch.utils.data").SequentialSampler(dataset)
    return library("sentence_transformers.base.sampler").DefaultBatchSampler(rows, batch_size, **others)
