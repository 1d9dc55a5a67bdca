"""Fewer bits: for the weights of linears, and for the keys and values that attention keeps."""

from normkit.surgery.quantizing.caching import nsnquant_cache
from normkit.surgery.quantizing.weights import Quantized, perplexity, quantize

__all__ = ["Quantized", "nsnquant_cache", "perplexity", "quantize"]
