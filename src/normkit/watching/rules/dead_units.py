"""Channels that are zero whatever comes in."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching import proposals
from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History
from normkit.watching.store import Sign
from normkit.watching.trials import Trial, reading

SHARE = 0.3
"""Of a layer's channels, as functions and blocks give them; a norm's gain may start at zero. A channel counts only if
it was zero for all samples of a batch: of fresh ones none is, and what is lost does not come back, since a dead channel
has no gradient."""
GIVEN, FED = Sign("dead", SHARE), Sign("dead_inputs", SHARE)
NEEDS = Needs("units are dead", ("dead",))
TRIAL = Trial(
    what=lambda history, finding: f"the share of dead units of {finding.where[0]}",
    read=lambda history, finding: reading(history, finding.where[0], "dead", "dead_inputs"),
    write="{:.0%}".format,
    shows=lambda share: share > SHARE,
)


def find(history: History) -> Iterator[Finding]:
    """Look at what layers and functions give, and what layers are given: a function need not be a module."""
    layers: dict[str, tuple[float, str]] = {}
    for name, share in history.late("dead").items():
        if share > SHARE and history.facts["kinds"].get(name) in ("function", "block"):
            layers[name] = (share, "dead")
    for name, share in history.late("dead_inputs").items():
        if share > SHARE:
            layers.setdefault(name, (share, "dead_inputs"))
    if not layers:
        return
    order = sorted(layers, key=lambda name: -layers[name][0])
    share, what = layers[order[0]]
    phrase = "of what goes into" if what == "dead_inputs" else "of"
    more = f"; also {', '.join(f'{name} {layers[name][0]:.0%}' for name in order[1:4])}" if len(order) > 1 else ""
    yield Finding(
        "units are dead",
        3.0 + share,
        tuple(order),
        f"{share:.0%} {phrase} {order[0]} is zero for every sample of a batch{more}.",
        since=history.since(order[0], FED if what == "dead_inputs" else GIVEN),
        leads="a narrower network than was paid for; dead units get no gradient and stay so",
        otherwise=f"at most {SHARE:.0%} of them; of fresh units none is dead",
        margin=share / SHARE,
        remedies=_remedies(history, order),
    )


def _remedies(history: History, names: list[str]) -> tuple[Remedy, ...]:
    """Propose a norm before the function, where the model has none."""
    norms = proposals.norms_before(history, names[0])
    line = proposals.replacement(history, tuple(names), "nn.LeakyReLU(0.1)")
    other = (Remedy("a function that does not die", line),) if line else ()
    layer = proposals.layer_before(history, names[0])[0]
    again = f'model.get_submodule("{layer}").reset_parameters()'
    return norms or (*other, *((Remedy("another start of the layer", again),) if layer else ()))
