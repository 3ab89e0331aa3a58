"""Encoders: frozen maps from observations to the embeddings in which distances are taken."""

from rllib_rise.encoders.base import Encoder, make_encoder
from rllib_rise.encoders.identity import IdentityEncoder
from rllib_rise.encoders.random import RandomEncoder

__all__ = ["Encoder", "IdentityEncoder", "RandomEncoder", "make_encoder"]
