"""Weights in few bits, as torchao keeps them: the words that tell such a tensor, its parts, and it from both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit.parameters import own_parameter
from normkit.quant.learned_rounding import LearnedRounding
from normkit.surgery.edits.layers import as_linear

UNPACKED, PACKED = "IntxUnpackedToInt8Tensor", "Int4OpaqueTensor"
PACKED_BITS = 4
NAMES = {UNPACKED: ("qdata", "scale", "zero_point"), PACKED: ("qdata", "scale_and_zero")}


def parts(weight: Tensor) -> dict[str, Tensor]:
    """Return the tensors that one of few bits is made of, by their names; none of any other."""
    return {name: getattr(weight.data, name) for name in NAMES.get(type(weight.data).__name__, ())}


def words_of(layer: nn.Module) -> dict[str, Any] | None:
    """Return the words of a layer whose weight is of few bits; None of any other."""
    weight: Any = own_parameter(layer, "weight")
    if weight is None or not parts(weight):
        return None
    own, packed = weight.data, type(weight.data).__name__ == PACKED
    bits = PACKED_BITS if packed else int(str(own.target_dtype).rpartition("int")[2])
    dtype = own.scale_and_zero.dtype if packed else own.dtype
    return {"bits": bits, "group": own.block_size[-1], "packed": packed, "dtype": str(dtype).rpartition(".")[2]}


def require_floats(owner: str, model: nn.Module, besides: str = "") -> None:
    """Refuse weights in few bits, which are neither averaged nor compared in float64; ``besides`` ends the message."""
    for name, weight in model.named_parameters():
        if parts(weight):
            raise ValueError(f"{owner}: {name} is in few bits: hand in the model as it was before quantize{besides}")


def round_weight(rounding: LearnedRounding, weight: Tensor, width: int) -> Tensor:
    """Return a weight on the grid of a rounding, each ``width`` of a row on its own."""
    half, shape = 2 ** (rounding.bits - 1), (len(weight), weight.shape[1] // width)
    codes = rounding.codes(weight.reshape(rounding.shape)).reshape(weight.shape)
    zero = rounding.zero_point.reshape(shape) - half
    own = {"qdata": codes - half, "scale": rounding.scale.reshape(shape).to(weight.dtype), "zero_point": zero}
    words = {"bits": rounding.bits, "group": width, "packed": False, "dtype": str(weight.dtype).rpartition(".")[2]}
    return join_parts(own, words, weight.shape)


def nearest(weight: Tensor, bits: int, width: int) -> LearnedRounding:
    """Return the grid of a weight, and rounding to the nearest of its numbers."""
    with weight.device:
        rounding = LearnedRounding((weight.numel() // width, width), bits=bits)
    rounding.scale = rounding.scale.to(weight.dtype)  # codes are of the scale that is kept
    rounding.fit(weight.reshape(-1, width))
    return rounding


def packed(weight: Any) -> Tensor:
    """Return a weight of four bits in the form of torchao's kernel, two numbers a byte."""
    half = 2 ** (PACKED_BITS - 1)
    zero = -weight.zero_point.to(weight.scale.dtype) * weight.scale  # the kernel adds it to (code - half) scale
    own = {
        "qdata": torch.ops.aten._convert_weight_to_int4pack_for_cpu(weight.qdata.to(torch.int32) + half, 1),
        "scale_and_zero": torch.stack([weight.scale, zero], -1).transpose(0, 1).contiguous(),
    }
    return join_parts(own, {"group": weight.block_size[-1], "packed": True}, weight.shape)


def join_parts(parts: Mapping[str, Tensor], words: Mapping[str, Any], shape: torch.Size) -> Tensor:
    """Return the tensor of few bits that some parts are."""
    block = (1, words["group"])
    if words["packed"]:
        from torchao.prototype.quantization.int4.int4_opaque_tensor import Int4OpaqueTensor

        return Int4OpaqueTensor(*(parts[name] for name in NAMES[PACKED]), list(block), shape)
    from torchao.quantization import IntxUnpackedToInt8Tensor

    codes, scale, zero = (parts[name] for name in NAMES[UNPACKED])
    target, dtype = getattr(torch, f"int{words['bits']}"), getattr(torch, words["dtype"])
    return IntxUnpackedToInt8Tensor(codes.to(torch.int8), scale, zero.to(torch.int8), target, block, dtype, None)


@torch.no_grad()
def layer(old: nn.Module, words: Mapping[str, Any], state: Mapping[str, Tensor]) -> nn.Module:
    """Return a linear with the weight that a state has in parts, or else with its own, rounded to the nearest."""
    was: Any = as_linear(old)
    names = NAMES[PACKED if words["packed"] else UNPACKED]
    if "weight" in state and parts(state["weight"]):
        weight = state["weight"]
    elif f"weight.{names[0]}" in state:
        weight = join_parts({name: state[f"weight.{name}"] for name in names}, words, was.weight.shape)
    else:
        own = was.weight.detach()
        weight = round_weight(nearest(own, words["bits"], words["group"]), own, words["group"])
        weight = packed(weight) if words["packed"] else weight
    linear = nn.Linear(was.in_features, was.out_features, was.bias is not None, device="meta")
    linear.weight, linear.bias = nn.Parameter(weight, requires_grad=False), was.bias
    return linear
