"""PGFed's server: for each client a gradient of the others' risks, weighted as that client wants."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import counts, join, read, total, weighted
from normkit.federated.pgfed_client import PAPER

NAME = "pgfed-server"


@method(
    NAME,
    paper=PAPER,
    shape="K C",
    over="K",
    inputs={"gradient": "K C", "risk": "K", "alpha": "K K : unit", "count": "K : unit"},
    example={"entries": ("weight",), "mu": 0.1},
)
def pgfed_server(*states: Tensor, entries: Sequence[str], mu: float, momentum: float = 0.0) -> tuple[Tensor, ...]:
    """Average the clients' states, and make of their gradients what each learns of the others.

    For clients whose data differ, who want models of their own and should still learn from the others' losses; their
    half is ``pgfed-client``. The server keeps a gradient for each client. Where one model fits all, a plain average is
    enough.

        state = sum_k n_k state_k / sum_k n_k,    mean_gradient = (mu / M) sum_j gradient_j
        auxiliary_i = mu sum_j alpha_ij gradient_j,    risks_j = mu risk_j
        with momentum b:  auxiliary_i <- (1 - b) auxiliary_i + b previous_i

    Args:
        states: for each entry the clients', stacked (M, ...), and their gradients, then risk (M,), alpha (M, M), row i
            client i's, and sample counts n (M,); with a momentum also the auxiliaries of the last round. After the
            first round there are none yet, and so no momentum.
        entries: the names, in order.
        mu: how much the others count.
        momentum: b; above 0 it is PGFedMo.

    Returns state, mean gradient, and auxiliaries stacked, one tensor an entry each, then risks (M,).

    PGFed (Luo et al., 2023), arXiv 2212.01448.
    """
    mu = check.number(NAME, "mu", mu, 0.0)
    momentum = check.number(NAME, "momentum", momentum, 0.0, 1.0)
    size, rest = 2 * len(check.names(NAME, "entries", entries)), ("risk", "alpha", "count")
    # the previous auxiliaries come last: put in front of what is not by entry they can be read alike
    last = states[size + len(rest) :] if momentum else ()
    roles = ("", "gradient", "previous") if momentum else ("", "gradient")
    ordered = (*states[:size], *last, *states[size : len(states) - len(last)])
    tensors, [risk, alpha, count] = read(NAME, ordered, dict.fromkeys(roles, entries), rest)
    clients = len(states[0])
    check.shape(NAME, "states risk", risk, (clients,))
    check.shape(NAME, "states alpha", alpha, (clients, clients))
    weights = counts(NAME, "count", count, clients)
    state = [join(value, weights) for value in tensors[""]]
    shared = [(mu / clients * total(value)).to(value.dtype) for value in tensors["gradient"]]
    sums = [mu * torch.stack([weighted(value, row) for row in alpha]) for value in tensors["gradient"]]
    before = tensors.get("previous", tensors["gradient"])
    sums = [
        ((1 - momentum) * new + momentum * old.double()).to(old.dtype) for new, old in zip(sums, before, strict=True)
    ]
    return (*state, *shared, *sums, (mu * risk.double()).to(risk.dtype))
