"""Dense vectors: names whose embeddings lie nearest to a mention's."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from normkit import check
from normkit.optional import library
from normkit.text.candidates._names import NameIndex, Scored, owned
from normkit.text.candidates._tfidf import best
from normkit.text.models import loaded, sentence_transformers

EXACT = 200_000  # names that a mention is compared with one by one
PROBES, MOVED = 8, 0.03  # names whose vectors, of length 1, tell by how far they are off whether a model was changed
SAMPLE, AT = 200, 5  # mentions and neighbours that an index is measured on


class Dense:
    """Propose the entries whose names an encoder puts nearest to a mention, by cosine.

    Up to 200,000 names every one is compared; above, usearch's index is asked (one small wheel for every system, and no
    compiler), whose recall is measured when it is built and is in ``report``.

    Args:
        encoder: a folder of a sentence-transformers model, or a function from a list of texts to an array of vectors.
        k: how many names are taken.
        exact: up to how many names every one is compared.
    """

    name = "dense"
    _kept_in = "encoder"  # the folder of its model

    def __init__(self, encoder: str | Callable[[list[str]], Any], k: int = 32, exact: int = EXACT):
        if not (isinstance(encoder, str) or callable(encoder)):
            raise TypeError(f"Dense: encoder must be a folder or a function of texts, not {encoder!r}")
        self.encoder = os.path.abspath(encoder) if isinstance(encoder, str) else encoder
        self.k = check.size(self, "k", k)
        self.exact = check.size(self, "exact", exact, least=0)
        self._encode = sentence_encoder(encoder) if isinstance(encoder, str) else encoder
        self._index: Any = None
        self.recall: float | None = None

    def fit(self, vocabulary: Mapping[str, Sequence[str]]) -> Dense:
        """Encode the names of {id: names}."""
        self._named = NameIndex(vocabulary)
        self._vectors = self._units(self._named.names)
        self._build()
        return self

    def __call__(self, texts: Sequence[str]) -> list[Scored]:
        """Return [(id, score), ...] for each text, best first."""
        if not len(texts):
            return []
        asked = self._units(texts)
        neighbours = self._near(asked, self.k) if self._index is not None else self._exactly(asked, self.k)
        return [owned(self._named, places, scores) for places, scores in neighbours]

    def report(self) -> str:
        """How it searches."""
        if self._index is None:
            return "every name compared"
        return f"usearch's index, recall@{AT} {self.recall:.3f} of the exact search on {SAMPLE} names"

    def settings(self) -> dict[str, Any]:
        """What it was built with; a function cannot be written down."""
        if not isinstance(self.encoder, str):
            raise ValueError("Dense: encoder is a function, which cannot be saved; give the folder of a model")
        return {"encoder": self.encoder, "k": self.k, "exact": self.exact}

    def arrays(self) -> dict[str, np.ndarray]:
        """The vectors of the names, and the index as usearch writes it, with its recall."""
        if self._index is None:
            return {"vectors": self._vectors}
        index = np.frombuffer(bytes(self._index.save()), dtype=np.uint8)
        return {"vectors": self._vectors, "index": index, "recall": np.array(self.recall)}

    def restore(self, vocabulary: Mapping[str, Sequence[str]], arrays: dict[str, np.ndarray]) -> Dense:
        """Take what was saved, in the place of a fit; where the model is another by now, encode the names anew."""
        self._named, self._vectors = NameIndex(vocabulary), arrays["vectors"]
        if not self._as_saved():
            warnings.warn(
                f"Dense: the model in {self.encoder} is another than when the names' vectors were saved; they are "
                "encoded anew. Save it again, and tune it anew if it was tuned",
                stacklevel=5,
            )
            return self.fit(vocabulary)
        if "index" not in arrays:
            self._build()
            return self
        self._index = self._empty()
        self._index.load(arrays["index"].tobytes())
        self.recall = float(arrays["recall"])
        return self

    def _as_saved(self) -> bool:
        """Whether the model gives the first names the vectors that were saved, but for another machine's rounding."""
        saved = self._vectors[:PROBES]
        now = self._units(self._named.names[:PROBES])
        return now.shape == saved.shape and bool(((now - saved) ** 2).sum(1).max() < MOVED**2)

    def _units(self, texts: Sequence[str]) -> np.ndarray:
        vectors = np.asarray(self._encode(list(texts)), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(f"Dense: encoder must give a vector for each of {len(texts)} texts, not {vectors.shape}")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(norms == 0, 1, norms)

    def _build(self) -> None:
        self._index, self.recall = None, None
        if len(self._vectors) <= self.exact:
            return
        index = self._empty()
        index.add(np.arange(len(self._vectors)), self._vectors, threads=1)  # with one, the same graph each time
        self._index = index
        some = self._vectors[np.linspace(0, len(self._vectors) - 1, SAMPLE, dtype=int)]
        pairs = zip(self._near(some, AT), self._exactly(some, AT), strict=True)
        self.recall = float(np.mean([len({*near} & {*true}) / len(true) for (near, _), (true, _) in pairs]))

    def _empty(self) -> Any:
        return library("usearch.index").Index(ndim=self._vectors.shape[1], metric="ip", dtype="f32")

    def _near(self, asked: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        neighbours = [self._index.search(one, k, threads=1).keys.astype(int) for one in asked]
        return [best(keys, self._vectors[keys] @ one, k, -np.inf) for keys, one in zip(neighbours, asked, strict=True)]

    def _exactly(self, asked: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        places = np.arange(len(self._vectors))
        return [best(places, self._vectors @ one, k, -np.inf) for one in asked]


STEP = Dense


def sentence_encoder(path: str) -> Callable[[list[str]], np.ndarray]:
    """Return the function from texts to vectors of a sentence-transformers model in a folder."""
    make = sentence_transformers().SentenceTransformer
    model = loaded("Dense", path, lambda where: make(where, local_files_only=True))
    return lambda texts: model.encode(texts, convert_to_numpy=True, show_progress_bar=False)
