"""Span subtype classifier: what kind of thing each span of a text is, and which normal term it stands for."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate
from normkit.text.training._layers import run

HIDDEN = -1e30  # instead of tokens outside of a span
INPUTS = ("logits", "none")


@method(
    "span-subtype-classifier",
    paper="Extracting Radiological Findings With Normalized Anatomical Information Using a Span-Based BERT Relation "
    "Extraction Model (Lybarger et al., 2021), arXiv 2108.09211",
    shape="B 24 C",
    inputs={"masks": "B S 24 : bool", "sizes": "B S : index 20"},
    example={
        "entity_types": 3,
        "subtypes": {"anatomy": 4, "assertion": 2},
        "size_dim": 3,
        "max_size": 20,
        "dropout": 0.0,
    },
)
class SpanSubtypeClassifier(Method):
    """Classify spans by the maximum of their tokens, the first token and their length, then each by subtypes.

    For extractors that also normalize: a span's subtype is the normal term, a body part say. Of the encoder's output h,

        r = dropout([h of token 0, max over the span's tokens of h, embedding of the size])
        entity = Linear(r),    subtype_l = Linear_l([r, entity])

    The subtypes' gradient flows into the entity classifier, too. A span without tokens has a maximum of about -1e30, or
    of 0 where layers compute in float16.

    Args:
        in_features: the width of h.
        entity_types: how many kinds of entities.
        subtypes: how many classes each layer of subtypes has, by the layer's name.
        size_dim: the width of the embedding of sizes.
        max_size: sizes are below.
        subtype_input: ``"logits"``, or ``"none"``: subtype_l = Linear_l(r).
        adjacent: give the span's vector a second time; of its neighbours, which the name promises, nothing is read.
        dropout: probability of r's entries to be dropped in training.

    ``module(h, masks, sizes)``: (B, T, in_features), first token for all, booleans (B, S, T), (B, S) -> entity
    logits (B, S, E), then the logits of each layer. ``module.loss(entity_logits, entity_labels, mask, subtype_labels,
    *subtype_logits)``: the sum of the cross-entropies, each the mean over the spans of the mask; labels (B, S), and (B,
    S, layers).

    Extracting Radiological Findings (Lybarger et al., 2021), arXiv 2108.09211.
    """

    def __init__(
        self,
        in_features: int,
        entity_types: int,
        subtypes: Mapping[str, int],
        size_dim: int = 25,
        max_size: int = 100,
        subtype_input: str = "logits",
        adjacent: bool = False,
        dropout: float = 0.1,
    ):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.entity_types = check.size(self, "entity_types", entity_types)
        self.max_size = check.size(self, "max_size", max_size)
        self.subtype_input = check.choice(self, "subtype_input", subtype_input, INPUTS)
        self.adjacent = adjacent
        self.dropout = check.number(self, "dropout", dropout, 0.0, 1.0)
        self.classes = {layer: check.size(self, f"subtypes[{layer!r}]", count) for layer, count in subtypes.items()}
        if refused := [layer for layer in subtypes if not layer or "." in layer or hasattr(nn.ModuleDict(), layer)]:
            raise ValueError(f"{type(self).__name__}: subtypes must not be named {refused[0]!r}, which torch refuses")
        width = (3 if adjacent else 2) * in_features + check.size(self, "size_dim", size_dim)
        self.size = nn.Embedding(max_size, size_dim)
        self.entity = nn.Linear(width, entity_types)
        wide = width + (entity_types if subtype_input == "logits" else 0)
        self.subtypes = nn.ModuleDict({layer: nn.Linear(wide, count) for layer, count in self.classes.items()})

    def forward(self, h: Tensor, masks: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of entities, then those of each layer of subtypes."""
        check.values(self, "h", h, (None, None, self.in_features), h)
        check.mask(self, "masks", masks, (len(h), None, h.shape[1]), h)
        check.index(self, "sizes", sizes, masks.shape[:2], self.max_size, h)
        r = F.dropout(self._read(h, masks, sizes), self.dropout, self.training)
        entity = run(self.entity, r).to(r.dtype)
        wide = torch.cat([r, entity], -1) if self.subtype_input == "logits" else r
        outputs = [entity, *(run(layer, wide) for layer in self.subtypes.values())]
        return tuple(logits.to(h.dtype) for logits in outputs)

    def _read(self, h: Tensor, masks: Tensor, sizes: Tensor) -> Tensor:
        """The vectors that spans are classified by."""
        wide = accurate(h)
        span = torch.where(masks.unsqueeze(-1), wide.unsqueeze(1), HIDDEN).amax(2)
        device, computed = h.device.type, self.entity.weight.dtype
        if not h.is_meta and torch.is_autocast_enabled(device):
            computed = torch.get_autocast_dtype(device)
        if torch.finfo(computed).min > HIDDEN:  # infinite there, which makes NaN of each gradient, also of other spans
            span = torch.where(masks.any(-1, keepdim=True), span, 0)
        first = wide[:, :1].expand(-1, masks.shape[1], -1)
        size = accurate(self.size(sizes)).to(wide.dtype)
        return torch.cat([first, span, size] + [span] * self.adjacent, -1)

    def loss(
        self,
        entity_logits: Tensor,
        entity_labels: Tensor,
        mask: Tensor,
        subtype_labels: Tensor,
        *subtype_logits: Tensor,
    ) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "entity_logits", entity_logits, (None, None, self.entity_types), entity_logits)
        spans, layers = entity_logits.shape[:2], len(self.subtypes)
        check.mask(self, "mask", mask, spans, entity_logits)
        check.shape(self, "subtype_labels", subtype_labels, (*spans, layers), entity_logits)
        if len(subtype_logits) != layers:
            raise ValueError(
                f"SpanSubtypeClassifier: subtype_logits must be {layers} tensors, not {len(subtype_logits)}"
            )
        loss = self._entropy("entity", entity_logits, entity_labels, mask)
        for layer, logits, labels in zip(self.subtypes, subtype_logits, subtype_labels.unbind(-1), strict=True):
            check.values(self, f"logits of {layer}", logits, (*spans, self.classes[layer]), entity_logits)
            loss = loss + self._entropy(layer, logits, labels, mask)
        return loss.to(entity_logits.dtype)

    def _entropy(self, name: str, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The mean over the spans of the mask, 0 where there are none."""
        check.shape(self, f"labels of {name}", labels, mask.shape, logits)
        known = torch.where(mask, labels, 0)
        check.index(self, f"labels of {name}", known, mask.shape, logits.shape[-1], logits)
        each = -torch.log_softmax(accurate(logits), -1).gather(-1, known.unsqueeze(-1)).squeeze(-1)
        return torch.where(mask, each, 0).sum() / mask.sum().clamp(min=1)
