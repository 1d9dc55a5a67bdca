"""Training of a lexical model: words as they are written to words as they are meant, by transformers' own trainer."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from normkit import check
from normkit.files import folder_beside
from normkit.optional import library, require
from normkit.text.decide.lexical_decision import LexicalDecision
from normkit.text.models import loaded, quiet
from normkit.text.training._trainer import SMALL, Progress, new_model, settings, train
from normkit.text.vocabulary import UTF8, decode

Sentences = list[list[str]]
BEFORE, AFTER = "<extra_id_0>", "<extra_id_1>"  # around the word that is asked for
IGNORED = -100


def read_multilexnorm(path: str | Path, encoding: str = UTF8) -> tuple[Sentences, Sentences]:
    """Return the sentences of a file of MultiLexNorm, as they are written and as they are meant.

    A line a word: the word, a tab, its normal form, which may have spaces or be empty; an empty line between sentences.
    """
    raw: Sentences = [[]]
    gold: Sentences = [[]]
    lines = re.split(r"\r\n?|\n", decode(Path(path), encoding))  # a word may hold what splitlines takes for an end
    for number, line in enumerate(lines, 1):
        if not line:
            raw.append([])
            gold.append([])
            continue
        word, tab, normal = line.partition("\t")
        if not tab:
            raise ValueError(f"{path}, line {number}: a word, a tab and its normal form are wanted, not {line!r}")
        raw[-1].append(word)
        gold[-1].append(normal)
    return [own for own in raw if own], [own for own in gold if own]


class LexicalModel:
    """Write each word of a sentence in its normal form, by a sequence-to-sequence model of bytes.

    The model reads the sentence with one word between marks, and its beams are decided by :class:`LexicalDecision`.

    Args:
        path: the folder of the model, as :func:`train_lexical` or transformers writes it.
        beams: how many forms are considered.
        decide: what chooses among them.
    """

    def __init__(self, path: str | Path, beams: int = 3, decide: LexicalDecision | None = None):
        self.beams = check.size(self, "beams", beams)
        self.tokenizer, self.model = _load_model("LexicalModel", path)
        self.decide = LexicalDecision() if decide is None else decide

    def __call__(self, sentences: Sequence[Sequence[str]]) -> Sentences:
        """Return each sentence's words in their normal form."""
        proposed = iter(self._propose([text for own in sentences for text in mark(own)]))
        return [[self.decide(word, next(proposed)) for word in own] for own in sentences]

    @torch.no_grad()
    def _propose(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        proposals: list[list[tuple[str, float]]] = []
        for start in range(0, len(texts), 64):
            tokens = self.tokenizer(list(texts[start : start + 64]), return_tensors="pt", padding=True)
            many = {"num_beams": self.beams, "num_return_sequences": self.beams, "max_new_tokens": 48}
            generated = self.model.generate(**tokens, **many, output_scores=True, return_dict_in_generate=True)
            words = self.tokenizer.batch_decode(generated.sequences, skip_special_tokens=True)
            scores = generated.sequences_scores.tolist() if self.beams > 1 else [0.0] * len(words)
            pairs = list(zip(words, scores, strict=True))
            proposals += [pairs[at : at + self.beams] for at in range(0, len(pairs), self.beams)]
        return proposals


def mark(sentence: Sequence[str]) -> list[str]:
    """Return the sentence for each of its words, with marks around that.

    >>> mark(["c", "u"])
    ['<extra_id_0>c<extra_id_1> u', 'c <extra_id_0>u<extra_id_1>']
    """
    parts = [[*sentence[:at], f"{BEFORE}{word}{AFTER}", *sentence[at + 1 :]] for at, word in enumerate(sentence)]
    return [" ".join(own) for own in parts]


def train_lexical(
    raw: Sequence[Sequence[str]],
    gold: Sequence[Sequence[str]],
    output: str | Path,
    *,
    model: str | None = None,
    steps: int = 500,
    batch: int = 32,
    lr: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Train a model to write the words of sentences in their normal form, and write it to a folder.

    Args:
        raw: sentences as they are written, a list of words each.
        gold: the normal form of each word, which may have spaces or be empty.
        output: the folder to write, for :class:`LexicalModel`.
        model: the folder of a ByT5 model to begin with; None: a small one with random weights.
        steps: batches.
        batch: words in a batch.
        lr: the learning rate; by default 1e-3 for a given model and 3e-3 for a fresh one.
        seed: of weights and order.
        progress: called with the number of steps done, and of all.
    """
    require("transformers", "accelerate")
    check.size("train_lexical", "steps", steps)
    check.size("train_lexical", "batch", batch)
    place = new_model("train_lexical", output)
    if [len(own) for own in raw] != [len(own) for own in gold] or not any(map(len, raw)):
        raise ValueError("train_lexical: gold must have a form for each word of raw, and there must be words")
    transformers = library("transformers")
    torch.manual_seed(seed)
    tokenizer, network = _fresh() if model is None else _load_model("train_lexical", model)
    asked = tokenizer([text for own in raw for text in mark(own)])["input_ids"]
    labels = tokenizer([word for own in gold for word in own])["input_ids"]
    rows = [{"input_ids": one, "labels": other} for one, other in zip(asked, labels, strict=True)]
    with folder_beside(place) as folder:
        options = settings(folder / "running", steps, batch, lr or (1e-3 if model else 3e-3), seed)
        arguments = transformers.Seq2SeqTrainingArguments(**options)
        collator = transformers.DataCollatorForSeq2Seq(tokenizer, network, label_pad_token_id=IGNORED)
        train(transformers.Seq2SeqTrainer(network, arguments, data_collator=collator, train_dataset=rows), progress)
        with quiet():
            network.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        shutil.rmtree(folder / "running", ignore_errors=True)
    return place


def _fresh() -> tuple[Any, Any]:
    """A tokenizer of bytes, and a small model with random weights."""
    transformers = library("transformers")
    config = transformers.T5Config(**SMALL, dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
    return transformers.ByT5Tokenizer(), transformers.T5ForConditionalGeneration(config)


def _load_model(owner: str, path: str | Path) -> tuple[Any, Any]:
    """The tokenizer and the model in a folder."""
    tokenizer, kind = library("transformers").ByT5Tokenizer, library("transformers").AutoModelForSeq2SeqLM
    network = loaded(owner, path, lambda where: kind.from_pretrained(where, local_files_only=True).eval())
    if getattr(network.config, "decoder_start_token_id", None) is None:
        raise ValueError(f"{owner}: {path} holds a model that reads and does not write; a ByT5 is wanted")
    return loaded(owner, path, lambda where: tokenizer.from_pretrained(where, local_files_only=True)), network
