"""What a decoding rule's normalization at each token does to the probability of whole texts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.kinds import beside

MODES = ("top_k", "nucleus", "temperature")
NAME = "local-normalization-distortion"


class Distortion(NamedTuple):
    """Logarithms of a text's probability under the decoder, of its weight under a global one, and their difference."""

    log_local: Tensor
    log_global: Tensor
    log_distortion: Tensor


@method(
    NAME,
    paper="Local Normalization Distortion and the Thermodynamic Formalism of Decoding Strategies for Large Language "
    "Models (Kempton and Burrell, 2025), arXiv 2503.21929",
    evidence="equations",
    shape="N T C",
    over="C",
    inputs={"tokens": "N T : index C"},
    example={"mode": "temperature", "temperature": 0.7},
    invariant=("shift",),
)
def local_normalization_distortion(
    logits: Tensor,
    tokens: Tensor,
    *,
    mode: str,
    k: int | None = None,
    p: float | None = None,
    temperature: float | None = None,
) -> Distortion:
    """Split the probability of a text into the weight of its tokens and what normalizing at each token did to it.

    For asking how much of a decoder's choice of texts comes from normalizing a token at a time, and for weights that
    undo it. It looks at texts that are there already; to draw some, ``distribution`` is enough.

    Top-k, nucleus and temperature sampling all normalize a token at a time, and so favour texts through uncertain
    places. With l the log-softmax and w = l on the tokens that are kept, -inf on others, or w = l / temperature,

        log_global = sum_t w[t, token_t],    log_distortion = - sum_t logsumexp(w[t]),
        log_local = log_global + log_distortion

    log_local is the text's log-probability under the usual decoder; weights exp(-log_distortion) lead to the decoder
    that is normalized over whole texts. A token that is not kept gives -inf for both.

    Args:
        logits: along given texts, (B, T, V).
        tokens: the texts, int64 (B, T).
        mode: ``"top_k"``, ``"nucleus"`` or ``"temperature"``.
        k: how many tokens top_k keeps; those equal to the k-th stay as well.
        p: nucleus keeps the most probable tokens until their mass reaches it.
        temperature: what log-probabilities are divided by.

    Returns three times (B,). Beside it: ``distribution(logits)``, the probabilities of the decoder, for any leading
    axes.

    Local Normalization Distortion (2025), arXiv 2503.21929.
    """
    scores(NAME, "logits", logits, (None, None, None))
    check.index(NAME, "tokens", tokens, logits.shape[:2], logits.shape[2], logits)
    weights = _weights(logits, mode, k, p, temperature)
    of_text = weights.gather(2, tokens.unsqueeze(2)).squeeze(2).sum(1)
    distortion = -torch.logsumexp(weights, 2).sum(1)
    return Distortion(*(x.to(logits.dtype) for x in (of_text + distortion, of_text, distortion)))


@beside(local_normalization_distortion)
def distribution(
    logits: Tensor, *, mode: str, k: int | None = None, p: float | None = None, temperature: float | None = None
) -> Tensor:
    """Return the probabilities of a decoder's next token for logits (..., V)."""
    check.floating(NAME, logits, "logits")
    scores(NAME, "logits", logits, logits.shape)
    return torch.softmax(_weights(logits, mode, k, p, temperature), -1).to(logits.dtype)


def _weights(logits: Tensor, mode: str, k: int | None, p: float | None, temperature: float | None) -> Tensor:
    """The logarithms of what the decoder normalizes."""
    check.choice(NAME, "mode", mode, MODES)
    known = torch.log_softmax(scores(NAME, "logits", logits, logits.shape), -1)
    if mode == "temperature":
        return known / check.number(NAME, "temperature", temperature, 0.0, open_low=True)
    if mode == "top_k":
        k = check.size(NAME, "k", k)
        least = known.topk(min(k, known.shape[-1]), -1).values[..., -1:]
        return torch.where(known >= least, known, -torch.inf)
    return torch.where(_nucleus(known.detach(), check.number(NAME, "p", p, 0.0, 1.0)), known, -torch.inf)


def _nucleus(known: Tensor, p: float) -> Tensor:
    """Which tokens have less than p of the mass before them; the most probable one always stays."""
    ordered, order = known.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    kept = (before < p).index_fill(-1, torch.zeros(1, dtype=torch.int64, device=known.device), True)
    return torch.zeros_like(kept).scatter(-1, order, kept)
