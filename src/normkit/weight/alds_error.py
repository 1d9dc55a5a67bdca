"""ALDS's error: what a low rank of a split weight loses."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.weight._fold import as_kernel, curve, fold

NAME = "alds-error"


@method(
    NAME,
    paper="Compressing Neural Networks: Towards Determining the Optimal Layer-wise Decomposition (Liebenwein et al., "
    "2021), arXiv 2107.11442",
    shape="C I",
    over="C I",
    exempt={"gradcheck": "it is taken of values, without a gradient"},
)
@torch.no_grad()
def alds_error(weight: Tensor, *, splits: int = 1, scheme: int = 0) -> Tensor:
    """Return the relative error of a weight whose columns are split and cut to each rank.

    For choosing ranks layer by layer (``alds-allocate``). With M the folded weight, M_b its blocks of columns and s
    singular values,

        error[j] = max_b s_j(M_b) / s_0(M)

    is what is lost if the first j of each block are kept. It is not the norm of the difference: side by side blocks
    add up to sqrt(splits) times more.

    Args:
        weight: (out, in), or (out, in, kh, kw).
        splits: number of blocks.
        scheme: 0: rows are outputs; 1: outputs and kernel rows; 2: outputs and kernel columns; 3: outputs and the
            whole kernel.

    Compressing Neural Networks (Liebenwein, Maalouf, Feldman, Rus, 2021), arXiv 2107.11442.
    """
    kernel = as_kernel(NAME, weight)
    check.size(NAME, "splits", splits)
    check.choice(NAME, "scheme", scheme, (0, 1, 2, 3))
    check.divides(NAME, "splits", splits, "columns of weight", fold(kernel, scheme).shape[1])
    return curve(kernel.double(), splits, scheme).to(weight.dtype)
