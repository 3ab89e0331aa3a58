"""The YAML schema of an experiment, and how it becomes an RLlib config.

algorithm: PPO
env: {id: rise/Maze-v0, size: 20}     # or just the id
seed: 0
stop: {env_steps: 150000}
rllib: {lr: 0.0003, model_config: {fcnet_hiddens: [64, 64]}}  # or rl_module: package.module:Class
intrinsic: {method: rise, alpha: 0.1}
base: ../maze.yaml                    # a file whose data stand for what is not said in this one
methods:                              # what `rise compare` gives the other methods
  re3: {lambda_0: 0.05}
  rise-5: {method: rise, k: 5}        # a name of your own, with the method it stands for
"""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from ray.tune import registry

from rllib_rise.bonuses.registry import (
    WITHOUT_BONUS,
    explain,
    nearest,
    parse_settings,
    resolve_bonus,
)
from rllib_rise.envs import IDS, bullet
from rllib_rise.errors import ConfigError, RiseError
from rllib_rise.experiments.yaml_files import check_plain, parse_yaml, read_yaml

# RLlib settings that have a place of their own in the schema.
_ELSEWHERE = {
    "env": "env.id",
    "env_config": "env",
    "seed": "seed",
    "intrinsic_settings": "intrinsic",
}


_METHOD_KEYS = ("method", "intrinsic.method")


class EnvSpec(BaseModel):
    """An environment: a Gymnasium or RLlib id, and keyword arguments for its constructor."""

    model_config = ConfigDict(extra="allow", frozen=True)
    id: str

    @property
    def kwargs(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return dict(self.model_extra or {})


class StopSpec(BaseModel):
    """When a run is over."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    env_steps: int = Field(gt=0, description="Environment steps, whatever they were used for.")
    episode_return: float | None = Field(
        None, description="Stop earlier once the mean episode return reaches this."
    )


class Experiment(BaseModel):
    """One experiment, as in a YAML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: Literal["PPO", "APPO", "IMPALA", "DQN", "SAC"] = Field(
        "PPO", description="RLlib's algorithm that trains."
    )
    env: EnvSpec = Field(
        description="An environment's id (`package.module:id`, where a module of yours registers "
        "it), or a mapping: `id` and arguments of its constructor."
    )
    seed: int = Field(0, ge=0, lt=2**31, description="Seed of every random number generator.")
    stop: StopSpec = Field(description="When a run is over.")
    rllib: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of RLlib's config, by the names of its attributes.",
    )
    intrinsic: dict[str, Any] = Field(
        default_factory=lambda: {"method": "rise"},
        description="`method`, and the settings of this bonus.",
    )
    methods: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="For `rise compare`: names, and the settings that stand for them.",
    )

    @field_validator("env", mode="before")
    @classmethod
    def _id_alone(cls, value: Any) -> Any:
        return {"id": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _known_keys(self) -> Experiment:
        known = rllib_keys(self.algorithm)
        for key in self.rllib:
            if key in _ELSEWHERE:
                raise ConfigError(f"rllib.{key} belongs under {_ELSEWHERE[key]!r}")
            if key not in known:
                raise ConfigError(
                    f"rllib.{key} is not a setting of {self.algorithm}{nearest(key, known)}"
                )
        for method in (self.method, *self.methods):
            self.settings_of(method)
        return self

    @property
    def method(self) -> str:
        """The name of the intrinsic reward."""
        return self.intrinsic.get("method", "rise")

    def run_name(self, file: Path) -> str:
        """What a run of this experiment is called, which was read from `file`."""
        return f"{file.stem}-{self.method.replace(':', '.')}-seed{self.seed}"

    def names(self, method: str) -> bool:
        """Whether this file says how a method is set, or nothing is to be set."""
        return method in (self.method, *self.methods, *WITHOUT_BONUS)

    def settings_of(self, method: str) -> dict[str, Any]:
        """The full, validated settings of a method: this file's, over the method's defaults.

        Under `methods` an entry may have any name if it says which `method` it is.
        """
        given = self.intrinsic if method == self.method else self.methods.get(method, {})
        name = method if method == self.method else given.get("method", method)
        given = {key: value for key, value in given.items() if key != "method"}
        if name in WITHOUT_BONUS:
            if given:
                raise ConfigError(
                    f"intrinsic.method={name!r} takes no settings, got {sorted(given)}"
                )
            return {"method": name}
        settings = parse_settings(resolve_bonus(name), given)
        return {"method": name, **settings.model_dump(mode="json")}

    def with_method(self, method: str, seed: int) -> Experiment:
        """The same experiment with another method and seed."""
        return self.model_copy(
            update={"intrinsic": self.settings_of(method), "methods": {}, "seed": seed}
        )

    def resolved(self) -> dict[str, Any]:
        """As plain data, defaults filled in; what a run directory keeps."""
        data = self.model_dump(mode="json")
        data["intrinsic"] = self.settings_of(self.method)
        if not data["methods"]:
            del data["methods"]
        return data


def load_experiment(path: Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read a YAML file, apply `key=value` overrides, validate."""
    data = read_data(path)
    if "search" in data:
        raise ConfigError(f"{path} is a sweep: `rise tune {path}` runs it")
    return parse_experiment(apply_overrides(data, overrides), source=str(path))


def read_data(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The data of a file, over those of its `base`."""
    data = read_yaml(path)
    if path.resolve() in above:
        raise ConfigError(f"{path} is its own base")
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping with the keys {', '.join(_top_level())}")
    base = data.pop("base", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise ConfigError(f"{path}: base={base!r} must be the name of a file")
    below = read_data(path.parent / base, (*above, path.resolve()))
    if "methods" in data:  # what is compared is the file's own affair
        below.pop("methods", None)
    return _over(below, data)


def bases(path: Path) -> list[Path]:
    """The files that a file builds on, the nearest first; it can be read."""
    base = read_yaml(path).get("base")
    if base is None:
        return []
    below = path.parent / str(base)
    return [below, *bases(below)]


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Mappings are merged, all else is replaced; another `method` or `id` begins anew."""
    defaults = {"method": "rise", "id": None}
    if any(key in above and above[key] != below.get(key, d) for key, d in defaults.items()):
        return above
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(below.get(key), dict)
        merged[key] = _over(below[key], value) if both else value
    return merged


def parse_experiment(data: dict[str, Any], *, source: str = "") -> Experiment:
    """Validate plain data; errors name the source, the key and the nearest valid one."""
    check_plain(data, source or "experiment")
    try:
        return Experiment(**data)
    except ValidationError as error:
        found = explain(error, Experiment)
        raise ConfigError(f"{source}: {found}" if source else found) from None


def apply_overrides(data: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Apply `dotted.path=value`; a bare name that is no top-level key means `intrinsic.<name>`."""
    data = copy.deepcopy(data)
    if isinstance(data.get("env"), str):
        data["env"] = {"id": data["env"]}
    # The method first: choosing another one drops the settings of the old.
    for override in sorted(overrides, key=lambda o: o.split("=")[0] not in _METHOD_KEYS):
        path, separator, text = override.partition("=")
        if not separator or not path:
            raise ConfigError(f"--set {override!r}: write it as key=value, e.g. alpha=0.5")
        value = _parse_value(text)
        try:
            set_value(data, full_path(path.strip()), value)
        except ConfigError as error:
            raise ConfigError(f"--set {override!r}: {error}") from None
    return data


def full_path(path: str) -> str:
    """A path of `--set` in full: a bare name that is no top-level key means `intrinsic.<name>`."""
    if path == "env":
        return "env.id"
    return path if "." in path or path in _top_level() else f"intrinsic.{path}"


def set_value(data: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a dotted path; another method begins with the settings that it has here."""
    *above, last = path.split(".")
    if path == "intrinsic.method":
        present = _mapping_at(data, "intrinsic")
        if present.get("method", "rise") != value:
            named = _mapping_at(data, "methods") if "methods" in data else {}
            own = _mapping_at(named, value) if isinstance(value, str) and value in named else {}
            data["intrinsic"] = {"method": value, **own}
        return
    node = data
    for key in above:
        node = _mapping_at(node, key)
    node[last] = value


def number_or_text(value: Any) -> Any:
    """A value of a YAML file, with numbers such as 1e-3, which YAML 1.1 reads as text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _mapping_at(data: dict[str, Any], key: str) -> dict[str, Any]:
    found = data.setdefault(key, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{key!r} holds a value, not a mapping")
    return found


def build_config(experiment: Experiment) -> Any:
    """The RLlib config of an experiment."""
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec

    check_env(experiment.env)
    settings = copy.deepcopy(experiment.rllib)
    model_config = settings.pop("model_config", None)
    for key in _class_settings():
        if settings.get(key) is not None:
            settings[key] = import_class(key, settings[key])
    rl_module, learner_class = settings.pop("rl_module", None), settings.pop("learner_class", None)
    config = new_config(experiment.algorithm)
    config.environment(experiment.env.id, env_config=experiment.env.kwargs)
    config.debugging(seed=experiment.seed)
    config.update_from_dict(settings)
    if model_config is not None:
        config.rl_module(model_config=model_config)
    if learner_class is not None:
        config.learners(learner_class=learner_class)
    if rl_module is not None:
        config.rl_module(rl_module_spec=RLModuleSpec(module_class=rl_module))
    return config.intrinsic(**experiment.settings_of(experiment.method))


def check(experiment: Experiment) -> None:
    """Raise whatever can be known to be wrong before anything is started."""
    try:
        build_config(experiment).validate()
    except RiseError:
        raise
    except (ValueError, TypeError) as error:
        reason = str(error).split("\nTo suppress all validation errors")[0]
        raise ConfigError(f"RLlib refuses the settings under rllib: {reason}") from error


def check_warmup(steps: int, budget: int) -> None:
    """Raise where Phase 1 leaves nothing of the budget."""
    if steps >= budget:
        raise ConfigError(
            f"Phase 1 takes {steps:,} steps (intrinsic.warmup_steps), which leaves nothing of "
            f"stop.env_steps={budget:,}: lower the one, or raise the other"
        )


def import_class(key: str, path: str) -> Any:
    """The class behind a setting under `rllib`, written as package.module:ClassName."""
    module_name, separator, name = str(path).partition(":")
    if not separator:
        raise ConfigError(
            f"rllib.{key}={path!r}: write it as package.module:ClassName, "
            "e.g. rllib_rise.rllib.modules:PaperPPOModule"
        )
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"rllib.{key}={path!r} cannot be imported: {error}") from None
    base = _class_settings()[key]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"rllib.{key}={path!r} is no subclass of RLlib's {base.__name__}")
    return found


def _class_settings() -> dict[str, type]:
    """Settings that are classes, and what these have to be."""
    from ray.rllib.core.learner.learner import Learner
    from ray.rllib.core.rl_module.rl_module import RLModule
    from ray.rllib.env.env_runner import EnvRunner

    return {"rl_module": RLModule, "learner_class": Learner, "env_runner_cls": EnvRunner}


def check_env(env: EnvSpec) -> None:
    """Refuse an unknown environment, and arguments that it does not take.

    Environments of this package are made once: that finds every wrong value and missing extra.
    """
    if env.id in bullet.IDS:
        bullet.load()
    elif (
        registry._global_registry.contains(registry.ENV_CREATOR, env.id)
        and env.id not in gym.registry
    ):
        return  # an RLlib environment of the user's, which only its creator knows
    module, _, name = env.id.rpartition(":")
    try:
        if module:  # `package.module:id`, the module that registers it
            importlib.import_module(module)
        spec = gym.spec(name)
        entry_point = spec.entry_point
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    except (gym.error.Error, ImportError) as error:
        hint = nearest(env.id, gym.registry)
        raise ConfigError(f"env.id={env.id!r} cannot be made: {error}{hint}") from None
    if creator is None:
        return
    parameters = inspect.signature(creator).parameters
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key in () if any_name else env.kwargs:
        if key not in parameters:
            raise ConfigError(f"env.{key} is not an argument of {env.id}{nearest(key, parameters)}")
    if env.id in IDS:
        gym.make(env.id, **env.kwargs).close()


def new_config(algorithm: str) -> Any:
    """An empty config of the algorithm with this name."""
    from rllib_rise.rllib.registration import ALGORITHMS

    return ALGORITHMS[f"RISE-{algorithm}"].get_default_config()


@cache
def rllib_keys(algorithm: str) -> frozenset[str]:
    """Names that may stand under `rllib`: the attributes of the algorithm's config."""
    config = new_config(algorithm)
    stored = {key for key in vars(config) if not key.startswith("_")}
    # Some are kept behind a property, e.g. train_batch_size_per_learner.
    hidden = {key[1:] for key in vars(config) if key.startswith("_") and hasattr(config, key[1:])}
    # Where fits are kept is the command's business.
    ours = {*_ELSEWHERE, "intrinsic_cache"}
    return frozenset((stored | hidden | {"model_config", "rl_module"}) - ours)


def _top_level() -> list[str]:
    return list(Experiment.model_fields)


def _parse_value(text: str) -> Any:
    return number_or_text(parse_yaml(text, f"--set: {text!r}"))
