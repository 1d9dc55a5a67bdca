"""Goldens of calculations that ``create`` does not build in the recording's form: name -> factory of a module."""

from collections.abc import Callable
from functools import partial

from torch import nn

import normkit as nk
from normkit import statistics
from normkit.attention import attention_entropy as entropy
from normkit.attention import attention_separation as separation
from normkit.contract.goldens import Call
from normkit.surgery.exact.pairs import fold_batchnorm


def separate(top: int, temperature: float = 1.0, step: float = 1e-3) -> nn.Module:
    """The measures of separation, with one set of arguments for all."""
    named = {
        "sensitivity": partial(separation.sensitivity, temperature=temperature, step=step),
        "jacobian_norm": partial(separation.jacobian_norm, temperature=temperature),
    }
    return Call(separation.attention_separation, named, top=top)


def network(form: str, classes: int) -> nn.Sequential:
    """The network of all goldens of adaptation, by its norms."""
    if form == "layernorm":
        layers = {"lin1": nn.Linear(5, 8, bias=False), "lin2": nn.Linear(8, 6, bias=False)}
        norms = [nn.LayerNorm(8), nn.LayerNorm(6)]
    else:
        second = nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False)
        layers = {"conv1": nn.Conv2d(3, 4, 3, padding=1, bias=False), "conv2": second}
        norms = [nn.BatchNorm2d(width) if form == "batchnorm" else nn.GroupNorm(2, width) for width in (4, 6)]
    made = nn.Sequential()
    for number, ((name, layer), norm) in enumerate(zip(layers.items(), norms, strict=True), 1):
        for key, part in {name: layer, f"norm{number}": norm, f"relu{number}": nn.ReLU()}.items():
            made.add_module(key, part)
    if form != "layernorm":
        made.add_module("pool", nn.AdaptiveAvgPool2d(1))
        made.add_module("flat", nn.Flatten())
    made.add_module("head", nn.Linear(6, classes))
    return made


class Around(nn.Module):
    """That network, around which an adapter is put at the first call: the golden's numbers are in it by then."""

    def __init__(self, name: str, network_form: str, classes: int = 4, **fixed):
        super().__init__()
        self.model, self.build, self.made = network(network_form, classes), partial(nk.create, name, **fixed), []

    def adapter(self) -> nn.Module:
        """The adapter, made at the first call."""
        if not self.made:
            self.made.append(self.build(self.model))
        return self.made[0].train(self.training)

    def forward(self, *inputs):
        """Call the adapter."""
        return self.adapter()(*inputs)

    def fisher(self, *batches):
        """Call EATA's."""
        return self.adapter().fisher(*batches)

    def adapt(self, memory):
        """Call NOTE's."""
        return self.adapter().adapt(memory)

    def state_dict(self, *args, **kwargs):
        """The adapter's, or the network's as long as there is none."""
        return self.made[0].state_dict() if self.made else super().state_dict(*args, **kwargs)


def adapter(name: str) -> Callable[..., nn.Module]:
    """An adapter around the network of a golden; an augmentation is named there."""
    augments = {"flip": lambda x: x.flip(-1)}

    def build(network: str, **fixed) -> nn.Module:
        return Around(name, network, **{k: augments[v] if k == "augment" else v for k, v in fixed.items()})

    return build


def tuned(bias: bool = True, **fixed) -> nn.Module:
    """AdaQuant of a layer with or without a bias, which is then neither taken nor given."""
    function = partial(nk.adaquant, **fixed)

    def call(weight, *others):
        """Leave the bias out on both sides."""
        found = function(weight, *others) if bias else function(weight, None, *others)
        return tuple(value for value in found if value is not None)

    return Call(call)


ADAPTERS = ("cotta", "delta", "deyo", "eata", "memo", "note", "rotta", "sar", "tent")
BOUNDS = {"lower_bound": entropy.entropy_lower_bound, "spectral_bound": entropy.spectral_bound}

FUNCTIONS: dict[str, Callable[..., nn.Module]] = {
    **{name: adapter(name) for name in ADAPTERS},
    "adaquant": tuned,
    "attention-entropy": lambda **fixed: Call(entropy.attention_entropy, BOUNDS, **fixed),
    "attention-separation": separate,
    "fold-batchnorm": lambda layer, **fixed: Call(fold_batchnorm, layer=layer, **fixed),
    "merge-statistics": lambda **fixed: Call(statistics.merge, **fixed),
}
