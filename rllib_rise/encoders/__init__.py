"""Encoders: frozen maps from observations to the embeddings in which distances are taken."""

from rllib_rise.encoders.base import Encoder, ImageLayout, image_layout, is_image, make_encoder
from rllib_rise.encoders.files import encoder_to_bytes, load_encoder, save_encoder
from rllib_rise.encoders.identity import IdentityEncoder
from rllib_rise.encoders.random import RandomEncoder
from rllib_rise.encoders.vae import FitProgress, NotFittedError, VAEEncoder

__all__ = [
    "Encoder",
    "FitProgress",
    "IdentityEncoder",
    "ImageLayout",
    "NotFittedError",
    "RandomEncoder",
    "VAEEncoder",
    "encoder_to_bytes",
    "image_layout",
    "is_image",
    "load_encoder",
    "make_encoder",
    "save_encoder",
]
