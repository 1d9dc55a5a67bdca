"""The reference transformer, in which placement, norm and attention core are three independent names."""

from normkit.transformer.model import Decoder, Encoder, EncoderDecoder
from normkit.transformer.presets import preset
from normkit.transformer.score_clip import ScoreClip

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "ScoreClip", "preset"]
