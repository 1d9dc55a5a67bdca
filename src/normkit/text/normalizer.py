"""The normalizer: normal form = decide(rescore(candidates(rewrite(text))))."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from normkit import check
from normkit.columns import number_of
from normkit.kinds import Text
from normkit.text import frames, vocabulary
from normkit.text.candidates.aliases import Aliases
from normkit.text.candidates.candidate_ensemble import CandidateEnsemble
from normkit.text.candidates.ngrams import NGrams
from normkit.text.decide.fusion import Fusion
from normkit.text.decide.nil_decision import NilDecision
from normkit.text.decide.threshold import Threshold
from normkit.text.match import NIL, Answer, Decide, rank
from normkit.text.measures.evaluation import KS, Evaluation, Gold, evaluate
from normkit.text.rescore.spelling import Spelling
from normkit.text.rewrite.fold import fold
from normkit.text.vocabulary import Names

Progress = Callable[[int, int], None]
AT_ONCE = 512  # texts, between two tellings of progress
SURE = 0.8  # chance of being right that nobody need look at


class Proposed(NamedTuple):
    """A text as it is compared, candidates in the order of the vocabulary, by whom, and scores, of parts and joined.

    Where none of them is a candidate, the scores have a last row for it.
    """

    plain: str
    ids: list[str]
    by: list[tuple[str, ...]]
    table: np.ndarray
    joined: np.ndarray


class Normalizer:
    """Bring texts to the entries of a vocabulary that they mean, or to none.

        >>> norm = Normalizer().fit({"DEU": ["Germany", "Deutschland"], "AUT": ["Austria", "Österreich"]})
        >>> [match.id for match in norm.normalize(["Germny", "osterreich", "Narnia"])]
        ['DEU', 'AUT', None]
        >>> norm("Germny").candidates[0]
        Candidate(id='DEU', score=0.857..., by=('ngrams', 'aliases'))

    Texts and names are compared as ``rewrite`` makes them, by default in NFKC, without case and with single spaces;
    matches hold texts as they came. What says nothing, such as NULL, n/a and -, is taken for an empty text unless it is
    a name. Equal scores are in the order of the vocabulary, and the same texts give the same matches in any company.

    A part is any object. One that proposes candidates has ``fit({id: names})`` and, called with a list of texts,
    returns for each [(id, score), ...]; its ``name`` is what candidates say that they are by. One that rescores is
    called with a text and the names of each candidate, and returns a number for each. One that decides is called with
    scores, the best first, and returns the place of what is taken, or None; or it is ``nil-decision`` of the catalogue,
    for which "none" is a candidate that rescorers know as ``"[NIL]"``.

    Until :meth:`tune` has fitted weights, a candidate's score is the first rescorer's; without one, what the parts'
    scores are joined to, which is the largest of them unless ``fuse`` says otherwise.

    Args:
        candidates: a list of what proposes entries, by default n-grams, and aliases by equality and spelling.
        rescore: what scores them anew, or a list of it, by default several measures of spelling.
        decide: what takes one, or none.
        rewrite: what is done to texts and names: functions of a string, or methods of the catalogue, in order.
        fuse: how many candidates of each part are taken, from which score on, and with which weight, by its name, such
            as ``{"ngrams": {"k": 5, "weight": 0.5}}``, for ``candidate-ensemble``; by default all. Or what is called as
            that is.
    """

    def __init__(
        self,
        candidates: Sequence[Any] | None = None,
        rescore: Any = None,
        decide: Decide | None = None,
        rewrite: Any = fold,
        fuse: Any = None,
    ):
        if candidates is None and rescore is None:
            rescore = [Spelling(by) for by in ("edits", "beginning", "words", "weighted")]
        self.candidates: list[Any] = [NGrams(), Aliases(threshold=0.6)] if candidates is None else list(candidates)
        self.rescore = _several(rescore)
        self.decide: Any = decide or Threshold(0.6)
        self.rewrite = _several(rewrite)
        self.fusion: Fusion | None = None
        self.tuned: dict[str, Any] | None = None
        self.names: Names | None = None
        self.nothing: set[str] = set()  # texts, rewritten, that were said to mean no entry
        self._decided: dict[str, str] = {}  # and that were said to mean one, though others may have such a name
        self._check()
        self._called = _different(map(_name, self.candidates))
        self.fuse = fuse if callable(fuse) else self._ensemble(fuse or {})

    def _ensemble(self, settings: Mapping[str, Mapping[str, float | None]]) -> CandidateEnsemble:
        if not isinstance(settings, Mapping):
            raise TypeError(f"Normalizer: fuse must be settings by a part's name, or callable, not {settings!r}")
        for name in settings:
            check.choice(self, "name in fuse", name, tuple(self._called))
        return CandidateEnsemble(
            {name: {"k": None, "threshold": None, **settings.get(name, {})} for name in self._called}
        )

    def _check(self) -> None:
        for at, part in enumerate(self.candidates):
            if not (callable(part) and callable(getattr(part, "fit", None))):
                raise TypeError(f"Normalizer: candidates[{at}] must have fit(vocabulary) and be callable, not {part!r}")
        for argument, parts in (("rescore", self.rescore), ("decide", [self.decide]), ("rewrite", self.rewrite)):
            for part in parts:
                if not callable(part):
                    raise TypeError(f"Normalizer: {argument} must be callable, not {part!r}")
        if not self.candidates:
            raise ValueError("Normalizer: candidates must have at least one part")
        if self._nil and not self.rescore:
            raise ValueError(f"Normalizer: decide is nil-decision, which needs rescore: a part that scores {NIL!r} too")

    @property
    def _nil(self) -> bool:
        """Whether none of them is a candidate."""
        return isinstance(self.decide, NilDecision) and self.decide.nil

    def fit(self, source: Any, id: str = "id", name: str = "name", encoding: str = vocabulary.UTF8) -> Normalizer:
        """Take a vocabulary: {id: names}, pairs (id, name), a data frame or a file with columns ``id`` and ``name``."""
        names = vocabulary.read_vocabulary(source, id, name, encoding)
        before = [
            (vars(one), {**vars(one)}) for one in (self, *self.candidates, *self.rescore) if hasattr(one, "__dict__")
        ]
        try:
            self._take(names)
            for part in self.candidates:
                part.fit(self._rewritten)
            self._fit_rescorers()
        except BaseException:
            for state, old in before:
                state.clear()
                state.update(old)
            raise
        return self

    def _fit_rescorers(self) -> None:
        for part in self.rescore:
            if callable(getattr(part, "fit", None)):
                part.fit(self._rewritten)

    def _take(self, names: Names) -> None:
        if not names:
            raise ValueError("Normalizer: vocabulary has no names")
        plain = self._plain([name for own in names.values() for name in own])
        flat = iter(plain)
        self._rewritten = {key: [next(flat) for _ in own] for key, own in names.items()}
        self._known = {name for own in self._rewritten.values() for name in own} - {""}
        self._place = {key: place for place, key in enumerate(names)}
        self.names, self.fusion, self.tuned, self.nothing, self._decided = names, None, None, set(), {}

    def __call__(self, text: str) -> Answer:
        """Return what one text was taken for."""
        if isinstance(text, Iterable) and not isinstance(text, str | bytes):
            raise TypeError(f"Normalizer: one text is wanted, not {type(text).__name__}; normalize takes several")
        return self.normalize([text])[0]

    def normalize(self, texts: str | Iterable[str | None], progress: Progress | None = None) -> list[Answer]:
        """Return a match for each text, in order; None and NaN are taken for none.

        ``progress(done, all)`` gets the number of different texts that are done.
        """
        mentions = _texts(texts)
        self._fit()
        distinct = list(dict.fromkeys(mentions))
        matches: dict[str, Answer] = {}
        for start in range(0, len(distinct), AT_ONCE):
            some = distinct[start : start + AT_ONCE]
            for text, own in zip(some, self.proposed(some), strict=True):
                match = rank(text, own.ids, self._scores(own), own.by, self.decide)
                matches[text] = self._as_reviewed(match, own.plain)
            if progress is not None:
                progress(min(start + AT_ONCE, len(distinct)), len(distinct))
        return [matches[text] for text in mentions]

    def _as_reviewed(self, match: Answer, plain: str) -> Answer:
        """Return the answer of a person, where there is one; its entry is before others of the same score."""
        if plain in self.nothing:
            return dataclasses.replace(match, id=None)
        if plain not in self._decided:
            return match
        id = self._decided[plain]
        ordered = sorted(match.candidates, key=lambda one: (-one.score, one.id != id))
        return dataclasses.replace(match, id=id, candidates=tuple(ordered))

    def proposed(self, texts: Sequence[str]) -> list[Proposed]:
        """Return the candidates of each text, with all that is known of them before it is decided."""
        plain = ["" if self.is_empty(text, own) else own for text, own in zip(texts, self._plain(texts), strict=True)]
        filled = [text for text in dict.fromkeys(plain) if text]
        lists = [self._ask(at, filled) for at in range(len(self.candidates))]
        proposals = dict(zip(filled, zip(*lists, strict=True), strict=True))
        return [self._propose(text, proposals.get(text, ())) for text in plain]

    def is_empty(self, text: str, plain: str | None = None) -> bool:
        """Whether a text is empty, or says that there is nothing and is no name."""
        return vocabulary.says_nothing(text) and (self._plain([text])[0] if plain is None else plain) not in self._known

    def _ask(self, at: int, texts: Sequence[str]) -> Sequence[Sequence[tuple[str, float]]]:
        lists = self.candidates[at](texts)
        if len(lists) != len(texts):
            raise ValueError(f"candidates[{at}], {self._called[at]}, gave {len(lists)} lists for {len(texts)} texts")
        return lists

    def _propose(self, text: str, answers: Sequence[Sequence[tuple[str, float]]]) -> Proposed:
        lists = dict(zip(self._called, answers, strict=False))
        joined = self.fuse({name: [(id, float(score)) for id, score in own] for name, own in lists.items()})
        unknown = next((one for one in joined if one[0] not in self._place), None)
        if unknown:
            raise ValueError(f"{', '.join(unknown[2])} proposed {unknown[0]!r}, which is not in the vocabulary")
        joined = sorted(joined, key=lambda one: self._place[one[0]])
        ids, by = [id for id, _, _ in joined], [tuple(names) for _, _, names in joined]
        table = np.zeros((len(ids) + (self._nil and bool(ids)), len(self.candidates) + len(self.rescore)))
        for column, name in enumerate(lists):
            scores = dict(sorted(lists[name], key=lambda one: one[1]))  # of an id that comes twice, the best
            table[: len(ids), column] = [scores[id] if name in own else 0.0 for id, own in zip(ids, by, strict=True)]
        if ids:
            self._rescore(text, ids, table)
        return Proposed(text, ids, by, table, np.array([score for _, score, _ in joined]))

    def _rescore(self, text: str, ids: Sequence[str], table: np.ndarray) -> None:
        names = [self._rewritten[id] for id in ids] + [[NIL]] * self._nil
        for column, part in enumerate(self.rescore, len(self.candidates)):
            scores = np.asarray(part(text, names), dtype=float)
            if scores.shape != (len(names),) or np.isnan(scores).any():
                raise ValueError(f"{_name(part)} must give {len(names)} numbers for {text!r}, not {scores}")
            table[:, column] = scores

    def _scores(self, own: Proposed) -> np.ndarray:
        if self.fusion is not None:
            return self.fusion(own.table)
        return own.table[:, len(self.candidates)] if self.rescore else own.joined

    def map(self, frame: Any, column: str, progress: Progress | None = None) -> Any:
        """Return a data frame, of pandas or polars, with the id, the name and the score of each cell beside it.

        Columns of an earlier mapping are replaced; one that has such a name without the others is too, with a warning.

        >>> import pandas
        >>> norm = Normalizer().fit({"BE": ["Bern", "Berne"], "GE": ["Genf", "Genève"]})
        >>> norm.map(pandas.DataFrame({"city": ["Geneve", None, "bern"]}), "city")["city_id"].fillna("?").tolist()
        ['GE', '?', 'BE']
        """
        cells = frames.columns(frame)
        if str(column) not in cells:  # labels of pandas may be numbers
            raise ValueError(f"there is no column {column!r}; the columns are {', '.join(map(repr, cells))}")
        texts = [frames.as_text("Normalizer", one) for one in cells[str(column)]]
        added = {f"{column}_{key}": own for key, own in self.columns(self.normalize(texts, progress)).items()}
        taken = [name for name in added if name in cells]
        if 0 < len(taken) < len(added):
            warnings.warn(f"Normalizer.map: the frame's own {', '.join(map(repr, taken))} is replaced", stacklevel=2)
        return frames.with_columns(frame, added)

    def columns(self, matches: Sequence[Answer]) -> dict[str, list[Any]]:
        """Return ids, first names and scores of matches, as columns of a table."""
        names = self._fit()
        ids = [match.id for match in matches]
        firsts = [None if id is None else names[id][0] for id in ids]
        return {"id": ids, "name": firsts, "score": [match.score for match in matches]}

    def evaluate(self, texts: Iterable[str | None], gold: Sequence[Gold], k: Sequence[int] = KS) -> Evaluation:
        """Measure against what each text means: an id, several of which each is right, or None.

        It warns where it was tuned on all of these mentions, which measures it too well, and of ids that are not in the
        vocabulary, which count as mistakes.
        """
        from normkit.text import tuning

        mentions = _texts(texts)
        notes = tuning.too_well(self, mentions, gold)
        if unknown := tuning.beyond(self, gold):
            notes.append(f"{unknown}; each counts as a mistake, and what has no entry is None")
        for note in notes:
            warnings.warn(f"Normalizer.evaluate: {note}", UserWarning, stacklevel=2)
        return evaluate(self.normalize(mentions), gold, k, notes=notes)

    def tune(
        self,
        mentions: Iterable[str | None],
        gold: Sequence[Gold],
        folds: int = 5,
        seed: int = 0,
        aim: str = "accuracy",
    ) -> Evaluation:
        """Fit the weights of the parts and the threshold, and measure on mentions that were not fitted on.

        Every mention is scored by weights and decided by a threshold that were fitted without it, or another of the
        same text; the measures and their intervals are of these. What is kept is fitted on all. The threshold is that
        with the most mentions decided rightly, or with ``aim="nil_f1"`` the best F1 of those without an entry. It warns
        where it saw too little to be relied on.
        """
        from normkit.text import tuning

        return tuning.tune(self, _texts(mentions), gold, folds, seed, aim)

    def aliases(self, pairs: Iterable[tuple[str, str]], none: Iterable[str] = ()) -> Normalizer:
        """Take further names, (id, name) each, as a review by hand finds them, and texts that mean no entry.

        A text that is one of these names is taken for its entry, though another entry may have the name as well; the
        last call counts. A name that one call gives to several entries decides nothing. One that it also takes for none
        is left out with a warning. What was tuned stays.
        """
        names = {key: list(own) for key, own in self._fit().items()}
        pairs = [(frames.as_text("Normalizer", id), frames.as_text("Normalizer", name)) for id, name in pairs]
        rows: list[tuple[str | None, str]] = [*pairs, *((None, text) for text in _texts(none))]
        plain = self._plain([name for _, name in rows])
        meant = dict.fromkeys(zip(plain, (id for id, _ in rows), strict=True))
        entries = Counter(text for text, _ in meant)
        for (id, name), text in zip(pairs, plain, strict=False):
            if id not in names:
                raise ValueError(f"the alias {name!r} is of {id!r}, which is not in the vocabulary")
            if entries[text] > 1 and (text, None) in meant:
                also = f"{name!r} is given both as {id!r} and as no entry, so it decides nothing"
                warnings.warn(f"Normalizer.aliases: {also}", stacklevel=2)
            elif name not in names[id]:
                names[id].append(name)
        sole = {text: id for text, id in meant if entries[text] == 1}
        nothing = self.nothing.difference(plain).union(text for text, id in sole.items() if id is None)
        decided = {text: id for text, id in self._decided.items() if text not in entries}
        decided |= {text: id for text, id in sole.items() if text and id is not None}
        kept = self.fusion, self.tuned
        self.fit(names)
        self.fusion, self.tuned = kept
        self.nothing, self._decided = nothing, decided
        return self

    def doubt(self, match: Answer, margin: float = 0.15, lead: float = 0.05) -> str:
        """Return why a person should look at a match, or nothing: no entry, near the threshold, or two fit alike.

        Near is within the margin, or half of what is left to 1 above a high threshold. Where it is tuned, also what has
        a chance of being right below 0.8.
        """
        plain = self._plain([match.text])[0]
        if plain in self.nothing or plain in self._decided:
            return ""
        first, second = [*(one.score for one in match.candidates[:2]), 0.0, 0.0][:2]
        least = self.decide.least if isinstance(self.decide, Threshold) else None
        if match.id is None:
            return "nothing fits" if least is None or first < least - margin else "nearly fits"
        if len(match.candidates) > 1 and first - second < lead:
            return "two entries fit alike"
        sure = max(
            0.0 if least is None else least + min(margin, (1 - least) / 2), SURE if self.fusion is not None else 0.0
        )
        return "fits barely" if first < sure else ""

    def report(self) -> str:
        """Return what it holds and how it searches, in a few lines."""
        names = self._fit()
        count = sum(map(len, names.values()))
        lines = [f"{number_of(len(names), 'entry', 'entries')} with {number_of(count, 'name')}"]
        blank = [key for key, own in self._rewritten.items() if "" in own]
        if blank:
            many = number_of(len(blank), "entry has", "entries have")
            lines.append(f"{many} a name that is empty as texts are compared, such as {blank[0]!r}")
        owners: dict[str, set[str]] = {}
        for key, own in self._rewritten.items():
            for name in own:
                owners.setdefault(name, set()).add(key)
        shared = [name for name, keys in owners.items() if name and len(keys) > 1 and name not in self._decided]
        if shared:
            many = f"{len(shared):,} names are" if len(shared) > 1 else "a name is"
            lines.append(f"{many} of several entries, such as {shared[0]!r}: the first is taken")
        notes = [getattr(part, "report", lambda: "")() for part in self.candidates]
        lines += [
            f"{_name(part)}: {note}" if note else _name(part) for part, note in zip(self.candidates, notes, strict=True)
        ]
        lines.append(self._way())
        return "\n".join(lines)

    def _way(self) -> str:
        least = f"{self.decide.least:.3g} or more is taken" if isinstance(self.decide, Threshold) else "a part decides"
        if self.fusion is not None and self.tuned is not None:
            mentions = number_of(self.tuned["mentions"], "mention")
            return f"tuned on {mentions}: a score is the chance of being right, and {least}"
        return f"not tuned: a score is by {_name(self.rescore[0]) if self.rescore else 'the best part'}, and {least}"

    def save(self, path: str | Path) -> None:
        """Write it as a folder, JSON and arrays; nothing in it is run when it is loaded."""
        from normkit.text import folder

        folder.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, **parts: Any) -> Normalizer:
        """Read it again; parts that are not of this package are handed in, ``candidates=[...]`` for example."""
        from normkit.text import folder

        return folder.load(cls, Path(path), parts)

    def _fit(self) -> Names:
        if self.names is None:
            raise ValueError("Normalizer: it has no vocabulary yet; call fit first")
        return self.names

    def _plain(self, texts: Sequence[str]) -> list[str]:
        strings = list(texts)
        for step in self.rewrite:
            together: Any = step
            strings = together(strings) if isinstance(step, Text) else [step(text) for text in strings]
            wrong = next((one for one in strings if not isinstance(one, str)), None)
            if wrong is not None:
                raise TypeError(f"Normalizer: rewrite must give strings, and {_name(step)} gave {wrong!r}")
        return strings


def _several(parts: Any) -> list[Any]:
    if parts is None:
        return []
    return list(parts) if isinstance(parts, list | tuple) else [parts]


def _name(part: Any) -> str:
    return getattr(part, "name", type(part).__name__.lower())


def _different(names: Iterable[str]) -> list[str]:
    """Return names with a number behind those that were there before."""
    labels: list[str] = []
    for name in names:
        others = (f"{name}-{number}" for number in itertools.count(2))
        labels.append(next(one for one in itertools.chain([name], others) if one not in labels))
    return labels


def _texts(texts: Any) -> list[str]:
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"Normalizer: texts must be a string or several, not {texts!r}")
    if isinstance(texts, Mapping) or frames.is_frame(texts):
        raise TypeError("Normalizer: texts must be a string or several, not a table; map(frame, column) takes that")
    return [_text(one) for one in texts]


def _text(value: Any) -> str:
    if frames.is_missing(value):
        return ""
    if not isinstance(value, str):
        raise TypeError(f"Normalizer: texts must be strings, or None, not {value!r}")
    return value
