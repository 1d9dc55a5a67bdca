"""Cross initialization: new tokens begin at what the text encoder gives, not at what it takes."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate


@method(
    "cross-initialization",
    paper="Cross Initialization for Personalized Text-to-Image Generation (Pang et al., 2024), arXiv 2312.15905",
    shape="C I",
    over="I",
    inputs={"initial": "C I"},
    example={"columns": lambda tokens: tokens, "anchor": 0.5},
    exempt={"gradcheck": "where the tokens begin is a constant", "higher-derivatives": "for the same reason"},
)
class CrossInitialization(Loss):
    """Begin the embeddings of new tokens at the text encoder's output for a mean name, and pull them back to there.

    For textual inversion of a face: learned embeddings end up as long as the encoder's outputs are, up to two orders
    longer than ordinary ones; to begin there takes a few hundred steps in the place of thousands. Once,

        initial = take(encoder(sequence(names, lengths, bos, eos, pad)))

    the whole encoder, positions and last norm included, and in training add to the denoising loss

        anchor mean over tokens |embedding - initial + 1e-6|

    The 1e-6 is added to every entry, and the length is not squared: the pull is as strong at any distance.

    Args:
        columns: how many new tokens there are.
        length: of a sequence.
        anchor: strength of the pull.

    ``loss(embeddings, initial)``: both (columns, D).

    Cross Initialization for Personalized Text-to-Image Generation (Pang et al., 2024), arXiv 2312.15905.
    """

    def __init__(self, *, columns: int = 2, length: int = 77, anchor: float = 1e-5):
        super().__init__()
        self.columns = check.size(self, "columns", columns)
        self.length = check.size(self, "length", length)
        self.anchor = check.number(self, "anchor", anchor, 0.0)

    def forward(self, embeddings: Tensor, initial: Tensor) -> Tensor:
        """Return the pull, a single number."""
        return self.loss(embeddings, initial)

    def loss(self, embeddings: Tensor, initial: Tensor) -> Tensor:
        """Return the pull of ``embeddings`` towards ``initial``, a constant."""
        check.values(self, "embeddings", embeddings, (self.columns, None), embeddings)
        check.values(self, "initial", initial, embeddings.shape, embeddings)
        apart = accurate(embeddings) - accurate(initial.detach()) + 1e-6
        return (self.anchor * torch.linalg.vector_norm(apart, dim=1).mean()).to(embeddings.dtype)

    def sequence(self, names: Tensor, lengths: Tensor, bos: Tensor, eos: Tensor, pad: Tensor) -> Tensor:
        """Return the encoder's input (length, D): the mean name between the marks, then padding.

        ``names`` (N, K, D) are embeddings of N names, of which ``lengths`` (N,) tokens count; the marks are (D,).
        Column c is the mean over the names with more than c tokens.
        """
        check.values(self, "names", names, (None, None, None), names)
        check.index(self, "lengths", lengths, names.shape[:1], names.shape[1] + 1, names)
        for key, mark in (("bos", bos), ("eos", eos), ("pad", pad)):
            check.values(self, key, mark, names.shape[2:], names)
        longest = int(lengths.max()) if len(lengths) else 0
        if longest < self.columns or self.length < self.columns + 2:
            raise ValueError(
                f"{type(self).__name__}: columns={self.columns} needs a name with as many tokens and two more places, "
                f"but lengths goes to {longest} and length is {self.length}"
            )
        means = [accurate(names[lengths > c, c]).mean(0).to(names.dtype) for c in range(self.columns)]
        return torch.stack([bos, *means, eos, *[pad] * (self.length - self.columns - 2)])

    def take(self, hidden: Tensor) -> Tensor:
        """Return the rows of the new tokens, (columns, D), of the encoder's output (length, D)."""
        check.values(self, "hidden", hidden, (self.length, None), hidden)
        return hidden[1 : self.columns + 1]
