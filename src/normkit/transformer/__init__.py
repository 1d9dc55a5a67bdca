"""The reference transformer, in which placement, norm and attention core are three independent names."""

from normkit.transformer.model import Decoder, Encoder, EncoderDecoder
from normkit.transformer.presets import preset

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "preset"]
