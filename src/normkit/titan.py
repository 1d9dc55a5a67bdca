"""Norms and optimizers of ours in torchtitan's trainer, by name: what a script of its user would have to define.

torchtitan builds what it trains from configurations, each of which belongs to a class. :func:`use` changes a
``Trainer.Config``; :func:`on_cpu` lets it run without a GPU, to try it out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.gradient.groups import param_groups
from normkit.optional import at_hand

__all__ = ["on_cpu", "use"]


def use(config: Any, *, norm: str | None = None, optimizer: str | None = None, **options: Any) -> Any:
    """Put a norm of the catalogue in the place of every norm of torchtitan's, and an optimizer of it; both by name.

    >>> config = use(llama3_debugmodel(), norm="layernorm", optimizer="normuon", lr=0.01)     # doctest: +SKIP
    >>> Trainer(config).train()     # doctest: +SKIP

    Args:
        config: torchtitan's ``Trainer.Config``, which is changed and returned.
        norm: a norm of vectors, such as ``"layernorm"``. It starts as it does elsewhere.
        optimizer: such as ``"normuon"``, for parameters in the groups that :func:`normkit.param_groups` makes.
        options: what the optimizer takes, ``lr`` among them.
    """
    _require_config("use", config)
    if norm is not None:
        _use_norm(config.model_spec.model, norm)
    if optimizer is not None:
        config.optimizer = _optimizers().Config(name=catalog.card(optimizer).name, options=options)
    elif options:
        raise TypeError(f"use: {', '.join(options)} are options of an optimizer, which is not named")
    return config


def on_cpu(config: Any) -> Any:
    """Let torchtitan 0.3 train a configuration on CPUs, where it asks for what only GPUs have; the changed ``config``.

    A device that answers for memory takes the place of CUDA; attention is torch's, since FlexAttention has no backward
    pass there; gradients are summed, which gloo can do, and not averaged; activations are kept.
    """
    _require_config("on_cpu", config)
    attention = at_hand("torchtitan.models.common.attention")
    _answer_as_device()
    spec = config.model_spec
    for _, _, owner, name in list(spec.model.traverse(attention.FlexAttention.Config)):
        _put(owner, name, attention.ScaledDotProductAttention.Config())
    spec.parallelize_fn = _summing(spec.parallelize_fn)
    config.activation_checkpoint = None
    config.parallelism.spmd_backend = "partial_dtensor"
    config.training.disable_cuda_graphs = True
    config.training.mixed_precision_param = "float32"
    return config


def _require_config(function: str, config: Any) -> None:
    if getattr(config, "model_spec", None) is None:
        raise TypeError(
            f"{function}: config must be torchtitan's Trainer.Config with a model_spec, as llama3_debugmodel() gives, "
            f"not {type(config).__name__}"
        )


def _put(owner: Any, name: Any, value: Any) -> None:
    """Put a configuration in its place, in a list or in another configuration."""
    if isinstance(owner, list):
        owner[name] = value
    else:
        setattr(owner, name, value)


def _use_norm(model: Any, name: str) -> None:
    new = _norm(name)
    modules = at_hand("torchtitan.models.common.nn_modules")
    sites = [site for old in (modules.RMSNorm, modules.LayerNorm) for site in model.traverse(old.Config)]
    if not sites:
        raise ValueError(f"use: {type(model).__qualname__} has no RMSNorm or LayerNorm to replace")
    for _, old, owner, key in sites:
        _put(owner, key, new.Config(normalized_shape=old.normalized_shape))


def _norm(name: str) -> Any:
    """The class of a norm as torchtitan wants it: built from its configuration, which may happen without numbers."""
    card = catalog.card(name)
    if card.room != "activation" or card.shape.axes[0] != "...":
        raise ValueError(f"use: norm must be a norm of vectors, such as 'layernorm', not {name!r}")
    kind: Any = card.entry
    module: Any = at_hand("torchtitan.protocols.module").Module

    class Configured(kind, module):
        @dataclass(kw_only=True, slots=True)
        class Config(module.Config):
            normalized_shape: int

        def __init__(self, config: Any):
            super().__init__(config.normalized_shape)
            self.size = config.normalized_shape

        @torch.no_grad()
        def _init_self_parameters(self) -> None:
            fresh = dict(kind(self.size).named_parameters())
            for key, value in self.named_parameters():
                value.copy_(_placed(fresh[key].to(value.device), value))

    return Configured


def _placed(value: Tensor, like: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def _optimizers() -> Any:
    """The class of torchtitan's container of optimizers, one for each part of a model."""
    container: Any = at_hand("torchtitan.components.optimizer").OptimizersContainer

    class Optimizers(container):
        @dataclass(kw_only=True, slots=True)
        class Config(container.Config):
            name: str
            options: dict = field(default_factory=dict)

        def __init__(self, config: Any, *, model_parts: list[nn.Module]):
            self.model_parts = model_parts
            self.optimizers = [_optimizer(part, config) for part in model_parts]
            self._post_init([p for part in model_parts for p in part.parameters()])

    return Optimizers


def _optimizer(model: nn.Module, config: Any) -> torch.optim.Optimizer:
    """An optimizer that knows its parameters' names, by which torchtitan saves it."""
    optimizer = catalog.create(config.name, param_groups(model, config.name), **config.options)
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        group["param_names"] = [names[parameter] for parameter in group["params"]]
    return cast("torch.optim.Optimizer", optimizer)


def _answer_as_device() -> None:
    """Put a CPU in the place of the device that torchtitan's modules ask, also where they have imported it."""
    answers = {"get_device_name": str, "get_device_properties": lambda _: SimpleNamespace(total_memory=2**30)}
    answers |= {"memory_stats": lambda _: {}, "reset_peak_memory_stats": lambda: None, "empty_cache": lambda: None}
    device = SimpleNamespace(**vars(torch.cpu) | answers | {"current_device": lambda: 0})
    at_hand("torchtitan.tools.utils")
    for name, module in list(sys.modules.items()):
        if name.startswith("torchtitan."):
            own = {"device_module": device, "device_type": "cpu"}
            vars(module).update({key: value for key, value in own.items() if key in vars(module)})
    if not hasattr(torch.distributed, "set_timeout"):  # of torch 2.14
        vars(torch.distributed)["set_timeout"] = lambda *_: None


def _summing(parallelize: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Let a model that is shared out add gradients up: gloo has no averages of fractions, which NCCL has."""

    def by_sums(model: nn.Module, **options: Any) -> nn.Module:
        from torch.distributed.fsdp import FSDPModule

        for module in parallelize(model, **options).modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
        return model

    return by_sums
