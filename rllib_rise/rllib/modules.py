"""The algorithms' networks: RLlib's own, and the paper's for PPO. All take images as bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import gymnasium as gym
import torch
from ray.rllib.algorithms.appo.torch.default_appo_torch_rl_module import DefaultAPPOTorchRLModule
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.torch.encoder import TorchCNNEncoder, TorchMLPEncoder
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor, nn

from rllib_rise.encoders.base import as_float, image_layout, is_image
from rllib_rise.errors import ConfigError

# Output channels, kernel and stride of each convolution: 84 -> 20 -> 9 -> 7 pixels.
_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (32, 3, 1))
_SMALLEST_IMAGE = 36
_DENSE = 512
_HIDDEN = 64
# Convolutions over a part of a large batch stay in the CPU's cache; measured faster than one piece.
_IMAGES_PER_CHUNK = 128
_IMAGE_DIMENSIONS = 4
_OPTIONS = ("vf_share_layers", "precision")
_PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}
_Layer = TypeVar("_Layer", nn.Linear, nn.Conv2d)


class _TakesImages:
    """Lets RLlib's default networks take images as bytes, and with channels first.

    Bytes are cast to [0, 1] on the device: RLlib's convolutions refuse them, and floats take four
    times the memory on every way.
    """

    def __init__(
        self, *args: Any, observation_space: gym.Space | None = None, **kwargs: Any
    ) -> None:
        # RLlib plans its convolutions from the space, and takes the last dimension for channels.
        planned = _channels_last(observation_space)
        self._channels_first = planned is not observation_space
        super().__init__(*args, observation_space=planned, **kwargs)  # type: ignore[call-arg]
        self.observation_space = observation_space

    def setup(self) -> None:
        """Build the networks; first layers, also of copies made of them, prepare their inputs."""
        super().setup()  # type: ignore[misc]
        prepare = partial(_prepare_images, channels_first=self._channels_first)
        for module in self.modules():  # type: ignore[attr-defined]
            if isinstance(module, (TorchCNNEncoder, TorchMLPEncoder)):
                module.register_forward_pre_hook(prepare)


class PPOModule(_TakesImages, DefaultPPOTorchRLModule):
    """The networks of PPO and IMPALA."""


class APPOModule(_TakesImages, DefaultAPPOTorchRLModule):
    """The networks of APPO."""


class DQNModule(_TakesImages, DefaultDQNTorchRLModule):
    """The networks of DQN."""


class SACModule(_TakesImages, DefaultSACTorchRLModule):
    """The networks of SAC."""


class PaperPPOModule(TorchRLModule, ValueFunctionAPI, InferenceOnlyAPI):
    """The paper's networks: convolutions for images, 64-64 tanh for all else.

    1. Images, bytes or floats, channels first or last: conv 8x8 32 stride 4, 4x4 64 stride 2,
       3x3 32 stride 1, dense 512, all ReLU. The strides are not in the paper's table; these are
       those of the PPO code that it used.
    2. Vectors: dense 64, dense 64, tanh.
    3. Policy and value have networks of their own, as in the paper's table, or one for both with
       `model_config={"vf_share_layers": True}`.
    4. Continuous actions: a diagonal Gaussian whose log standard deviation is a parameter of its
       own, 0 at first, and does not depend on the state.
    5. Orthogonal weights (gain sqrt(2), 0.01 for the policy's head, 1 for the value's), biases 0.
    6. `model_config={"precision": "bfloat16"}` computes the layers below the heads in bfloat16,
       about twice as fast where the processor has instructions for it; weights, heads and losses
       stay float32.
    """

    def setup(self) -> None:
        """Build the networks from the spaces."""
        options = dict(self.model_config or {})
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ConfigError(
                f"model_config.{unknown[0]}: PaperPPOModule has the layers of the paper and knows "
                f"only {', '.join(_OPTIONS)}; leave rl_module out to choose layers"
            )
        if not isinstance(self.observation_space, gym.spaces.Box):
            raise ConfigError(
                f"PaperPPOModule needs a Box of observations, this is {self.observation_space}: "
                "flatten them by a wrapper or by RLlib's FlattenObservations"
            )
        precision = options.get("precision", "float32")
        if precision not in _PRECISIONS:
            raise ConfigError(
                f"model_config.precision={precision!r} is none of {', '.join(_PRECISIONS)}"
            )
        self._reduced = _PRECISIONS[precision]
        shape = tuple(self.observation_space.shape)
        self._images = is_image(shape)
        self._channels_first = self._images and image_layout(shape).channels_first
        self.policy, size = paper_network(shape)
        self.policy_head = _layer(nn.Linear(size, _outputs(self.action_space)), gain=0.01)
        self.log_std: nn.Parameter | None = None
        if isinstance(self.action_space, gym.spaces.Box):
            self.log_std = nn.Parameter(torch.zeros(self.policy_head.out_features))
        self.value = None if options.get("vf_share_layers") else paper_network(shape)[0]
        self.value_head = _layer(nn.Linear(size, 1), gain=1.0)

    def get_non_inference_attributes(self) -> list[str]:
        """What env runners do not need: acting takes no value."""
        return ["value", "value_head"]

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self._act(self._features(batch, self.policy)[0])}

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        # Both networks on the same inputs: images are cast once, while they are in the cache.
        networks = (self.policy,) if self.value is None else (self.policy, self.value)
        features = self._features(batch, *networks)
        return {
            Columns.ACTION_DIST_INPUTS: self._act(features[0]),
            Columns.EMBEDDINGS: features[-1],
        }

    def compute_values(self, batch: Mapping[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """V(s), `[N]`; `embeddings` are what `forward_train` has computed for it already."""
        if embeddings is None:
            network = self.policy if self.value is None else self.value
            embeddings = self._features(batch, network)[0]
        return self.value_head(embeddings).squeeze(-1)

    def _act(self, features: Tensor) -> Tensor:
        outputs = self.policy_head(features)
        if self.log_std is None:
            return outputs
        return torch.cat((outputs, self.log_std.expand_as(outputs)), dim=-1)

    def _features(self, batch: Mapping[str, Any], *networks: nn.Module) -> list[Tensor]:
        """What each of the networks makes of the observations."""
        obs = batch[Columns.OBS]
        with torch.autocast(obs.device.type, self._reduced, enabled=self._reduced is not None):
            if not self._images:
                obs = as_float(obs).flatten(1)
                found = [network(obs) for network in networks]
            else:
                found = self._image_features(obs, networks)
        return [features.float() for features in found]

    def _image_features(self, obs: Tensor, networks: Sequence[nn.Module]) -> list[Tensor]:
        if not self._channels_first:
            obs = obs.movedim(-1, 1)
        chunks = obs.split(_IMAGES_PER_CHUNK) if obs.device.type == "cpu" else (obs,)
        parts = [[network(images) for network in networks] for images in map(_packed, chunks)]
        return [torch.cat(part) for part in zip(*parts, strict=True)]


def _prepare_images(
    encoder: nn.Module, inputs: tuple[dict[str, Any]], channels_first: bool
) -> tuple[dict[str, Any]]:
    batch = inputs[0]
    obs = batch[Columns.OBS]
    # Of SAC's two streams, actions are one.
    if channels_first and obs.dim() >= _IMAGE_DIMENSIONS:
        obs = obs.movedim(-3, -1)
    return ({**batch, Columns.OBS: as_float(obs)},)


def _packed(images: Tensor) -> Tensor:
    # Channels last in memory, as the weights are: measured faster, the same numbers.
    return as_float(images).contiguous(memory_format=torch.channels_last)


def paper_network(shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
    """The layers below a head, and the number of their outputs."""
    if not is_image(shape):
        layers: list[nn.Module] = []
        for inputs in (math.prod(shape), _HIDDEN):
            layers += [_layer(nn.Linear(inputs, _HIDDEN)), nn.Tanh()]
        return nn.Sequential(*layers), _HIDDEN
    height, width, channels, _ = image_layout(shape)
    if min(height, width) < _SMALLEST_IMAGE:
        raise ConfigError(
            f"PaperPPOModule's convolutions need images of {_SMALLEST_IMAGE} x {_SMALLEST_IMAGE} "
            f"pixels or more, these are {height} x {width}: make them larger, or leave rl_module "
            "out and set model_config.conv_filters"
        )
    layers = []
    for filters, kernel, stride in _CONVOLUTIONS:
        layers += [_layer(nn.Conv2d(channels, filters, kernel, stride)), nn.ReLU()]
        channels, height, width = (
            filters,
            (height - kernel) // stride + 1,
            (width - kernel) // stride + 1,
        )
    dense = _layer(nn.Linear(channels * height * width, _DENSE))
    network = nn.Sequential(*layers, nn.Flatten(), dense, nn.ReLU())
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    return network, _DENSE


def _layer(layer: _Layer, gain: float = math.sqrt(2)) -> _Layer:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(cast(Tensor, layer.bias))
    return layer


def _outputs(space: gym.Space) -> int:
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.Box) and len(space.shape) == 1:
        return int(space.shape[0])
    raise ConfigError(
        f"PaperPPOModule knows Discrete and one-dimensional Box actions, this is {space}: leave "
        "rl_module out to take RLlib's networks"
    )


def _channels_last(space: gym.Space | None) -> gym.Space | None:
    """The space as RLlib expects it; the same object where it is so already."""
    if not isinstance(space, gym.spaces.Box) or not is_image(space.shape):
        return space
    if not image_layout(space.shape).channels_first:
        return space
    low, high = (bound.transpose(1, 2, 0) for bound in (space.low, space.high))
    return gym.spaces.Box(low, high, dtype=space.dtype)
