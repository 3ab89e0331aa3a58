"""Atari games as the paper plays them, on ALE's native vector environment.

The emulator, the preprocessing and the threads are ALE's. What an episode is, what is clipped and
what is counted is decided here, because ALE's own `episodic_life` starts a new game at every lost
life, so that later lives are never seen, and its clipped rewards are all that it reports.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rllib_rise.envs.figures import EPISODE_FIGURES
from rllib_rise.envs.maze_structure import check_integer
from rllib_rise.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from ale_py import AtariVectorEnv

_NOOP, _FIRE = 0, 1


@dataclass(frozen=True, kw_only=True)
class AtariSettings:
    """The arguments of `rise/Atari-v0`; the defaults are the paper's training environment.

    Attributes:
        game: `SpaceInvaders` or `space_invaders`.
        sticky: Probability that the emulator repeats the previous action (0.25 in `ALE/...-v5`).
        frame_skip: Frames per action; an observation is the maximum over the last two of them.
        image_size: Side of the grey image in pixels.
        stack: Images per observation, the newest last.
        noop_max: A game begins after a random number of frames without action, below this one.
        fire: Press FIRE at the start of a game and of a life, in games that wait for it.
        episodic_life: End an episode with each life; the game itself goes on.
        clip_rewards: Give the agent the sign of the reward only. Figures are never clipped.
        max_frames: Length at which a game is truncated.
        full_action_space: All 18 actions, also those without a meaning in this game.
        threads: Threads of the emulators. 0: what `OMP_NUM_THREADS` says, which Ray sets to the
            CPUs of a worker, and without it one per core.
    """

    game: str = "SpaceInvaders"
    sticky: float = 0.0
    frame_skip: int = 4
    image_size: int = 84
    stack: int = 4
    noop_max: int = 30
    fire: bool = True
    episodic_life: bool = True
    clip_rewards: bool = True
    max_frames: int = 108_000
    full_action_space: bool = False
    threads: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.sticky <= 1.0:
            raise ConfigError(f"sticky={self.sticky!r} is no probability: use 0, or 0.25.")
        smallest = {"noop_max": 0, "threads": 0}
        for name in ("frame_skip", "image_size", "stack", "noop_max", "max_frames", "threads"):
            check_integer(name, getattr(self, name), minimum=smallest.get(name, 1))

    @classmethod
    def from_arguments(cls, arguments: dict[str, Any]) -> AtariSettings:
        """Settings from keyword arguments; unknown ones are refused by name."""
        known = [field.name for field in fields(cls)]
        for name in arguments:
            if name not in known:
                raise ConfigError(f"{name} is not an argument of Atari: use {', '.join(known)}.")
        return cls(**arguments)

    def native(self, num_envs: int) -> AtariVectorEnv:
        """ALE's vector environment, with whole games and unclipped rewards."""
        ale_py = _ale()
        return ale_py.AtariVectorEnv(
            _rom(self.game),
            num_envs,
            num_threads=self.threads or _threads_of_process(),
            repeat_action_probability=self.sticky,
            full_action_space=self.full_action_space,
            max_num_frames_per_episode=self.max_frames,
            frameskip=self.frame_skip,
            img_height=self.image_size,
            img_width=self.image_size,
            stack_num=self.stack,
            noop_max=self.noop_max,
            use_fire_reset=self.fire,
            reward_clipping=False,
            autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP,
        )


class AtariVector(gym.vector.VectorEnv):
    """Several games of `rise/Atari-v0` at once, for `gymnasium.make_vec` and RLlib.

    Observations are uint8 `[num_envs, stack, image_size, image_size]`, black where an image is
    older than the episode. Each call returns arrays of its own. A finished environment is reset by
    the next step, whose action and reward do not count (Gymnasium's next-step autoreset). After a
    lost life that step does not start a new game: it presses FIRE where the game needs it, and
    nothing elsewhere.

    `info["lives"]` is always there. At the end of an episode `info["episode_figures"]` holds
    `one_life_return`, the unclipped return since the life began (with `episodic_life`), and at the
    end of a game `game_return`, that of the whole game.

    Args:
        num_envs: Number of games.
        arguments: See `AtariSettings`.

    Raises:
        ConfigError: If an argument is unknown or out of its range.
        MissingExtraError: If ale-py is not installed.
    """

    # A plain class attribute without ClassVar, because Gymnasium's base declares it so.
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012

    _lives: NDArray[np.int32]
    _life_return: NDArray[np.float64]
    _game_return: NDArray[np.float64]
    _images: NDArray[np.int64]
    _episode_over: NDArray[np.bool_]
    _game_over: NDArray[np.bool_]

    def __init__(self, num_envs: int = 1, **arguments: Any) -> None:
        self.settings = AtariSettings.from_arguments(arguments)
        self.num_envs = check_integer("num_envs", num_envs, minimum=1)
        self._native = self.settings.native(num_envs)
        self.single_observation_space = self._native.single_observation_space
        self.single_action_space = self._native.single_action_space
        self.observation_space = self._native.observation_space
        self.action_space = self._native.action_space
        self._next_life = _next_life_action(self._native, fire=self.settings.fire)
        self._begin(np.zeros(num_envs, dtype=np.int32))

    @property
    def between_lives(self) -> NDArray[np.bool_]:
        """Where the last step lost a life in a game that goes on, `[num_envs]`."""
        return self._episode_over & ~self._game_over

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start new games. An integer seeds them with consecutive numbers."""
        # ALE takes nothing but None, an int or an array: no list, and no NumPy integer.
        native_seed = seed if seed is None else np.asarray(seed)
        if native_seed is not None and native_seed.ndim == 0:
            native_seed = native_seed.item()
        obs, info = self._native.reset(seed=native_seed)
        self._begin(info["lives"])
        return obs, {"lives": info["lives"]}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[
        NDArray[np.uint8],
        NDArray[np.float64],
        NDArray[np.bool_],
        NDArray[np.bool_],
        dict[str, Any],
    ]:
        """Play one action in each game."""
        next_life, next_game = self.between_lives, self._game_over
        actions = np.where(next_life, self._next_life, actions).astype(np.int64)
        obs, rewards, terminated, truncated, info = self._native.step(actions)
        self._life_return = np.where(self._episode_over, 0.0, self._life_return) + rewards
        self._game_return = np.where(next_game, 0.0, self._game_return) + rewards

        # A step that stands for a reset cannot end an episode: nobody looks at its flags.
        over_at_once = next_life & (terminated | truncated)
        if over_at_once.any():
            obs, info = self._native.reset(options={"reset_mask": over_at_once})
            terminated, truncated = terminated & ~over_at_once, truncated & ~over_at_once
            self._life_return[over_at_once] = self._game_return[over_at_once] = 0.0

        lives = info["lives"]
        self._game_over = terminated | truncated
        if self.settings.episodic_life:
            # Some games show 0 lives for a while before they are over: that is one end, not two.
            lost = (lives < self._lives) & (lives > 0) & ~next_life & ~self._game_over
            terminated = terminated | lost
        self._lives = lives
        self._episode_over = terminated | truncated
        self._images = np.where(
            next_life | next_game, 1, np.minimum(self._images + 1, self.settings.stack)
        )
        for i in np.flatnonzero(self._images < self.settings.stack):
            obs[i, : self.settings.stack - self._images[i]] = 0
        clipped = np.sign(rewards) if self.settings.clip_rewards else rewards
        infos = {"lives": lives, **self._figures()}
        return obs, clipped.astype(np.float64), terminated, truncated, infos

    def _begin(self, lives: NDArray[np.int32]) -> None:
        """Count from zero, in new games."""
        self._lives = lives
        self._life_return = np.zeros(self.num_envs)
        self._game_return = np.zeros(self.num_envs)
        self._images = np.ones(self.num_envs, dtype=np.int64)
        self._episode_over = np.zeros(self.num_envs, dtype=np.bool_)
        self._game_over = np.zeros(self.num_envs, dtype=np.bool_)

    def _figures(self) -> dict[str, Any]:
        if not self._episode_over.any():
            return {}
        figures = {"game_return": self._game_return.copy(), "_game_return": self._game_over}
        if self.settings.episodic_life:
            figures["one_life_return"] = self._life_return.copy()
            figures["_one_life_return"] = self._episode_over
        return {EPISODE_FIGURES: figures, f"_{EPISODE_FIGURES}": self._episode_over}


class Atari(gym.Env):
    """One game: `rise/Atari-v0`.

    Steps exactly as one environment of `AtariVector` with the same seed. After a lost life
    `reset()` goes on with the game, unless it is given a seed.

    Args:
        render_mode: Only `None`.
        arguments: See `AtariSettings`.

    Raises:
        ConfigError: If an argument is unknown or out of its range.
        MissingExtraError: If ale-py is not installed.
    """

    def __init__(self, *, render_mode: None = None, **arguments: Any) -> None:
        if render_mode is not None:
            raise ConfigError(f"render_mode={render_mode!r} is unknown: Atari has only None.")
        self._vector = AtariVector(1, **arguments)
        self.settings = self._vector.settings
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start the next life, or a new game."""
        super().reset(seed=seed)
        if seed is None and self._vector.between_lives[0]:
            obs, _, _, _, infos = self._vector.step(np.array([_NOOP]))
        else:
            obs, infos = self._vector.reset(seed=seed)
        return obs[0], _single_info(infos)

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Play one action."""
        obs, rewards, terminated, truncated, infos = self._vector.step(np.array([action]))
        return (
            obs[0],
            float(rewards[0]),
            bool(terminated[0]),
            bool(truncated[0]),
            _single_info(infos),
        )


def game_names() -> list[str]:
    """The games that ALE has, as in `space_invaders`."""
    _ale()
    from ale_py import roms

    return sorted(roms.get_all_rom_ids())


def _threads_of_process() -> int:
    """What OMP_NUM_THREADS says; 0, which means one per core, where it says nothing."""
    # A list of numbers is for nested loops: the first is that of the outermost.
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdigit() else 0


def _single_info(infos: dict[str, Any]) -> dict[str, Any]:
    info: dict[str, Any] = {"lives": int(infos["lives"][0])}
    if EPISODE_FIGURES in infos:
        figures = infos[EPISODE_FIGURES]
        info[EPISODE_FIGURES] = {
            name: float(values[0])
            for name, values in figures.items()
            if not name.startswith("_") and figures[f"_{name}"][0]
        }
    return info


def _rom(game: str) -> str:
    names = {name.replace("_", ""): name for name in game_names()}
    wanted = game.replace("_", "").lower()
    if wanted not in names:
        near = difflib.get_close_matches(wanted, names, n=1)
        hint = f", did you mean {names[near[0]]!r}?" if near else "."
        raise ConfigError(f"game={game!r} is no Atari game that ALE knows{hint}")
    return names[wanted]


def _next_life_action(native: AtariVectorEnv, *, fire: bool) -> int:
    """FIRE, in games that have it as their first action, else nothing."""
    has_fire = native.ale.get_action_set()[_FIRE] == _ale().Action.FIRE
    return _FIRE if fire and has_fire else _NOOP


def _ale() -> Any:
    try:
        import ale_py
    except ImportError as error:
        raise MissingExtraError(
            "rise/Atari-v0 needs ale-py; "
            "in the repository: pip install -c constraints.txt -e '.[atari]'"
        ) from error
    # Its greeting, once per emulator, hides what matters.
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py
