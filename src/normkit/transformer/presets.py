"""Known models as arguments of :class:`Decoder`."""

from __future__ import annotations

import functools
from typing import Any

from normkit import catalog, check
from normkit.transformer.model import Decoder

# fmt: off
PRESETS: dict[str, dict[str, Any]] = {
    # GPT-2 small (Radford et al., 2019)
    "gpt2": {
        "vocab": 50257, "length": 1024, "dim": 768, "depth": 12, "heads": 12, "hidden": 3072,
        "placement": "pre-norm", "norm": "layernorm", "activation": "gelu_tanh", "positions": "learned", "bias": True,
        "std": 0.02, "scale_outputs": True,
    },
    # LLaMA 7B, arXiv 2302.13971
    "llama": {
        "vocab": 32000, "length": 2048, "dim": 4096, "depth": 32, "heads": 32, "hidden": 11008,
        "placement": "pre-norm", "norm": "rmsnorm", "activation": "swiglu", "tied": False, "std": 0.02,
    },
    # Gemma 2 2B, arXiv 2408.00118
    "gemma2": {
        "vocab": 256000, "length": 8192, "dim": 2304, "depth": 26, "heads": 8, "kv_heads": 4, "head_dim": 256,
        "hidden": 9216, "placement": "peri-norm", "embedding_norm": False, "scale_embedding": True,
        "norm": functools.partial(catalog.create, "rmsnorm", offset=1.0), "activation": "geglu_tanh",
        "window": (4096, None), "core_options": {"softcap": 50.0}, "logit_softcap": 30.0, "std": 0.02,
    },
    # OLMo 2 7B, arXiv 2501.00656
    "olmo2": {
        "vocab": 100352, "length": 4096, "dim": 4096, "depth": 32, "heads": 32, "hidden": 11008,
        "placement": "res-post-norm", "norm": "rmsnorm", "query_key_norm": "width", "activation": "swiglu",
        "rotary_base": 500000.0, "tied": False, "std": 0.02,
    },
    # nGPT 0.5B, arXiv 2410.01131
    "ngpt": {
        "vocab": 50304, "dim": 1024, "depth": 24, "heads": 16, "hidden": 4096, "placement": "ngpt", "tied": False,
    },
    # DeepNet's layer, arXiv 2203.00555, 200 times in one stack
    "deepnet-200": {
        "vocab": 50257, "length": 1024, "dim": 512, "depth": 200, "heads": 8, "hidden": 2048,
        "placement": "deepnorm", "norm": "layernorm", "activation": "relu", "positions": "learned", "bias": False,
    },
}
# fmt: on


def preset(name: str, **changes: Any) -> Decoder:
    """Build a known model by name, with the arguments of :class:`Decoder` that are given changed.

    >>> preset("llama", vocab=11, dim=8, depth=2, heads=4, kv_heads=2, hidden=12).layers[0].attention.key
    Linear(in_features=8, out_features=4, bias=False)

    The names: ``gpt2``, ``llama``, ``gemma2``, ``olmo2``, ``ngpt``, ``deepnet-200``. Weights are drawn, not downloaded.

    Args:
        name: one of these.
        **changes: arguments of :class:`Decoder`; the others are those of the name.
    """
    return Decoder(**{**PRESETS[check.choice("preset", "name", name, tuple(PRESETS))], **changes})
