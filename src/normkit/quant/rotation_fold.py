"""A norm folded into its neighbours, and the residual stream between them rotated."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate, full_precision

NAME = "rotation-fold"


@method(
    NAME,
    paper="QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs (Ashkboos et al., 2024), arXiv 2404.00456",
    shape="N C",
    over="C",
    inputs={"gain": "C", "read_weight": "K C", "write_weight": "C I", "rotation": "C C"},
)
def rotation_fold(embedding: Tensor, gain: Tensor, *others: Tensor, center: bool = False, bias: bool = False):
    """Fold a norm's gain and shift into the layer that reads it, and rotate all that write to or read the stream.

    For quantizing a transformer's activations, where large numbers in single channels take up the range. Norms must
    span the whole stream, and their readers and writers be linear: not ``dyt``, not ``batchnorm``, not a norm a head.
    Where weights alone are quantized, ``learned-rounding`` needs no rotation.

    The network stays the same, and large numbers in single channels are spread over all. With R the rotation and with
    ``center`` (layer norm) P = I - 11'/D, without (RMSNorm) P = I,

        read'  = read diag(gain) R,    read_bias' = read_bias + read shift
        embedding' = embedding P R,    write' = R' P write,    write_bias' = R' P write_bias

    Between them is x / sqrt(mean x² + eps), without gain and mean, which any rotation passes.

    Args:
        embedding: (V, D).
        gain: of the norm, (D,).
        others: ``shift`` (D,) with ``center``; ``read_weight`` (O, D), of the layer behind the norm; ``read_bias`` (O,)
            with ``bias``; ``write_weight`` (D, I), of a layer that adds to the stream; ``write_bias`` (D,) with
            ``bias``; ``rotation`` (D, D), orthogonal.
        center: the norm is a layer norm.
        bias: the layers have biases.

    Returns embedding, read weight, read bias (with ``bias`` or ``center``), write weight and write bias (with
    ``bias``). Untie embedding and head first: the head is a layer behind the last norm.

    QuaRot (Ashkboos et al., 2024), arXiv 2404.00456; the folding is SliceGPT's, arXiv 2401.15024.
    """
    wide = {k: accurate(value) for k, value in _by_name(embedding, gain, others, center, bias).items()}
    with full_precision(embedding):
        tensors = _folded(accurate(embedding), accurate(gain), wide, center, bias)
    return tuple(value.to(embedding.dtype) for value in tensors)


def _folded(embedding: Tensor, gain: Tensor, wide: dict[str, Tensor], center: bool, bias: bool) -> list[Tensor]:
    turn, read = wide["rotation"], wide["read_weight"]
    back = turn.mT @ _center(torch.eye(len(turn), dtype=turn.dtype, device=turn.device), center)
    tensors = [_center(embedding, center) @ turn, (read * gain) @ turn]
    if bias or center:
        shift = read @ wide["shift"] if center else read.new_zeros(len(read))
        tensors.append(shift + wide["read_bias"] if bias else shift)
    tensors.append(back @ wide["write_weight"])
    if bias:
        tensors.append(back @ wide["write_bias"])
    return tensors


def _by_name(
    embedding: Tensor, gain: Tensor, others: tuple[Tensor, ...], center: bool, bias: bool
) -> dict[str, Tensor]:
    """The inputs behind the gain by name, all checked."""
    names = ["shift"] * center + ["read_weight"] + ["read_bias"] * bias + ["write_weight"] + ["write_bias"] * bias
    names.append("rotation")
    if len(others) != len(names):
        raise TypeError(f"{NAME}: with center={center} and bias={bias} the inputs are {', '.join(names)} behind gain")
    given = dict(zip(names, others, strict=True))
    for name, value in {"embedding": embedding, **given}.items():
        check.floating(NAME, value, name if name == "embedding" else f"others: {name}")
    check.shape(NAME, "embedding", embedding, (None, None))
    width = embedding.shape[1]
    shapes = {"gain": (width,), "shift": (width,), "read_weight": (None, width), "write_weight": (width, None)}
    shapes |= {"write_bias": (width,), "rotation": (width, width)}
    if bias:
        shapes["read_bias"] = (len(given["read_weight"]),)
    for name, value in {"gain": gain, **given}.items():
        check.values(NAME, name if name == "gain" else f"others: {name}", value, shapes[name], embedding)
    return given


def _center(x: Tensor, center: bool) -> Tensor:
    """Take the mean off each row."""
    return x - x.mean(-1, keepdim=True) if center else x
