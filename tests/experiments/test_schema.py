from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.schema import (
    apply_overrides,
    build_config,
    check,
    load_experiment,
    parse_experiment,
)

MINIMAL = {"env": "CartPole-v1", "stop": {"env_steps": 100}}
ENDLESS: dict = {}
ENDLESS["lr"] = ENDLESS
CONFIGS = sorted(Path(__file__).parents[2].glob("configs/**/*.yaml"))


def test_a_minimal_file_means_rise_on_ppo():
    experiment = parse_experiment(MINIMAL)
    assert (experiment.algorithm, experiment.method, experiment.seed) == ("PPO", "rise", 0)
    assert experiment.resolved()["intrinsic"]["alpha"] == 0.1


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_our_configs_are_valid(path: Path):
    build_config(load_experiment(path)).validate()


def test_a_resolved_experiment_reads_back_the_same():
    experiment = parse_experiment({**MINIMAL, "rllib": {"lr": 0.1}, "seed": 4})
    again = parse_experiment(yaml.safe_load(yaml.safe_dump(experiment.resolved())))
    assert again.resolved() == experiment.resolved()


def test_settings_reach_the_rllib_config():
    experiment = parse_experiment(
        {
            "env": {"id": "rise/Maze-v0", "size": 7},
            "stop": {"env_steps": 100},
            "seed": 5,
            "rllib": {
                "lr": 0.01,
                "train_batch_size_per_learner": 256,
                "model_config": {"fcnet_hiddens": [8]},
            },
            "intrinsic": {"method": "rise", "k": 9},
        }
    )
    config = build_config(experiment)
    assert config.lr == 0.01
    assert config.train_batch_size_per_learner == 256
    assert config.model_config["fcnet_hiddens"] == [8]
    assert config.env_config == {"size": 7}
    assert config.seed == 5
    assert config.intrinsic_settings["k"] == 9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"envv": "x"}, "did you mean 'env'"),
        ({"rllib": {"learning_rate": 1}}, "rllib.learning_rate is not a setting"),
        ({"rllib": {"num_epoch": 1}}, "did you mean 'num_epochs'"),
        ({"rllib": {"seed": 1}}, "belongs under 'seed'"),
        ({"intrinsic": {"method": "rise", "lamda_0": 1}}, "did you mean 'lambda_0'"),
        ({"intrinsic": {"method": "rize"}}, "did you mean 'rise'"),
        ({"intrinsic": {"method": "rise", "alpha": 2}}, "box-cox"),
        ({"methods": {"re3": {"alpha": 0.1}}}, "alpha"),
        ({"algorithm": "A3C"}, "algorithm"),
        ({"stop": {}}, "stop.env_steps"),
        ({"stop": {"env_steps": 0}}, "stop.env_steps=0"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**31}, "seed=2147483648"),
        ({"stop": {"env_steps": 9, "episode_return": float("nan")}}, "stop.episode_return=nan"),
        ({"intrinsic": {"method": None}}, "intrinsic.method=None"),
        ({"intrinsic": {"method": ["rise"]}}, "intrinsic.method=['rise']"),
        ({"methods": {"mine": {"method": 1.5}}}, "intrinsic.method=1.5"),
        ({1: 2}, "the whole has the key 1: write it in quotes"),
        ({"rllib": {"model_config": {True: 2}}}, "rllib.model_config has the key True"),
        ({"rllib": {"gamma": b"\xff"}}, "rllib.gamma=b'\\xff' is a bytes"),
        ({"rllib": {"lr": [0.1, date(2001, 1, 1)]}}, "rllib.lr.1=datetime.date(2001, 1, 1)"),
        ({"rllib": ENDLESS}, "rllib.lr.lr"),
        ({"stop": {"env_step": 5, "env_steps": 9}}, "did you mean 'env_steps'"),
    ],
)
def test_bad_files_are_refused_in_words(change: dict, words: str):
    with pytest.raises(ConfigError) as caught:
        parse_experiment({**MINIMAL, **change})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"- 1",
        b"a: [",
        b"!!python/object/apply:os.system ['true']",
        b"\xff\xfe\xff",
        b"seed: !!int x",
        b"seed: !!bool x",
        b"seed: 2001-13-13",
        b"seed: " + b"9" * 5_000,
        b"rllib: " + b"[" * 1_000,
        b"base: [x.yaml]",
        b"base: bad.yaml",
        b'base: "bad.yaml\\0"',
    ],
)
def test_files_that_are_no_plain_mapping_are_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        load_experiment(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_experiment(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_experiment(tmp_path)


def test_overrides():
    changed = apply_overrides(
        MINIMAL, ["alpha=0.5", "rllib.lr=1e-4", "env.size=9", "seed=3", "intrinsic.k=2"]
    )
    assert changed["intrinsic"] == {"alpha": 0.5, "k": 2}
    assert changed["rllib"]["lr"] == 1e-4
    assert changed["env"] == {"id": "CartPole-v1", "size": 9}
    assert changed["seed"] == 3
    assert MINIMAL == {"env": "CartPole-v1", "stop": {"env_steps": 100}}


def test_overriding_the_method_drops_the_settings_of_the_old_one():
    data = {
        **MINIMAL,
        "intrinsic": {"method": "rise", "alpha": 0.3},
        "methods": {"rnd": {"lr": 1.0}},
    }
    assert apply_overrides(data, ["method=rnd"])["intrinsic"] == {"method": "rnd", "lr": 1.0}
    assert apply_overrides(data, ["method=rise"])["intrinsic"]["alpha"] == 0.3


def test_the_order_of_overrides_does_not_matter():
    for overrides in (["lambda_0=0.7", "method=re3"], ["method=re3", "lambda_0=0.7"]):
        changed = apply_overrides({**MINIMAL, "intrinsic": {"alpha": 0.3}}, overrides)
        assert changed["intrinsic"] == {"method": "re3", "lambda_0": 0.7}


@pytest.mark.parametrize("rllib", [{"minibatch_size": 99_999}, {"lr": "abc"}])
def test_what_rllib_refuses_is_one_sentence(rllib: dict):
    with pytest.raises(ConfigError, match="RLlib refuses"):
        check(parse_experiment({**MINIMAL, "rllib": rllib}))


@pytest.mark.parametrize("size", [0, -1, 0.5, "many", 10**20])
@pytest.mark.parametrize("key", ["rollout_fragment_length", "num_envs_per_env_runner"])
def test_sizes_that_never_fill_a_batch_are_refused(key: str, size: Any):
    with pytest.raises(ConfigError, match=f"{key}={size!r} must be an integer of at least 1"):
        check(parse_experiment({**MINIMAL, "rllib": {key: size}}))


@pytest.mark.parametrize("place", ["intrinsic", "methods", "rise"])
def test_another_method_where_a_mapping_should_be_is_refused(place: str):
    data = {**MINIMAL, **({"methods": {"rise": 1}} if place == "rise" else {place: [1]})}
    data.setdefault("intrinsic", {"method": "rnd"})
    with pytest.raises(ConfigError, match=f"{place!r} holds a value, not a mapping"):
        apply_overrides(data, ["method=rise"])


@pytest.mark.parametrize(
    "override", ["alpha", "=3", "seed.x=1", "alpha=[1", "k=!!int x", "k={1: 2}"]
)
def test_malformed_overrides_are_refused(override: str):
    with pytest.raises(ConfigError, match="--set"):
        apply_overrides({**MINIMAL, "seed": 1}, [override])


def test_compare_gives_each_method_its_own_settings():
    experiment = parse_experiment(
        {
            **MINIMAL,
            "intrinsic": {"method": "rise", "lambda_0": 0.2},
            "methods": {"re3": {"lambda_0": 0.3}},
        }
    )
    assert experiment.with_method("rise", 1).intrinsic["lambda_0"] == 0.2
    assert experiment.with_method("re3", 1).intrinsic["lambda_0"] == 0.3
    assert experiment.with_method("none", 1).intrinsic == {"method": "none"}
    assert experiment.with_method("re3", 7).seed == 7


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"id": "rise/Maze-v0", "sise": 5}, "did you mean 'size'"),
        ("rise/Mase-v0", "rise/Maze-v0"),
        ("NoSuchEnv-v3", "NoSuchEnv"),
    ],
)
def test_unknown_environments_and_arguments_are_refused(env, words: str):
    with pytest.raises(ConfigError) as caught:
        build_config(parse_experiment({**MINIMAL, "env": env}))
    assert words in str(caught.value)


def test_a_method_may_have_a_name_of_its_own_in_a_comparison(tmp_path: Path):
    file = tmp_path / "e.yaml"
    file.write_text(
        "env: rise/Maze-v0\nstop: {env_steps: 100}\nintrinsic: {method: rise, k: 3}\n"
        "methods:\n  shuffled: {method: rise, k: 4, shuffle: true}\n  chance: {method: random}\n"
    )
    experiment = load_experiment(file)
    shuffled = experiment.with_method("shuffled", 7)
    assert shuffled.method == "rise"
    assert (shuffled.intrinsic["k"], shuffled.intrinsic["shuffle"]) == (4, True)
    assert experiment.with_method("rise", 7).intrinsic["k"] == 3
    assert experiment.with_method("chance", 7).intrinsic == {"method": "random"}
    chosen = load_experiment(file, ["method=shuffled", "alpha=0.5"])
    assert chosen.settings_of("rise")["k"] == 4
    assert chosen.settings_of("rise")["alpha"] == 0.5


def test_a_method_of_an_unknown_kind_is_refused(tmp_path: Path):
    file = tmp_path / "e.yaml"
    file.write_text("env: rise/Maze-v0\nstop: {env_steps: 9}\nmethods: {mine: {k: 4}}\n")
    with pytest.raises(ConfigError, match="'mine' is unknown"):
        load_experiment(file)


def test_a_base_gives_what_a_file_does_not_say(tmp_path: Path):
    (tmp_path / "base.yaml").write_text(
        "env: {id: rise/Maze-v0, size: 7}\nstop: {env_steps: 100}\nrllib: {lr: 0.1, gamma: 0.9}\n"
        "intrinsic: {method: rise, k: 3}\nmethods: {re3: {k: 2}}\n"
    )
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "e.yaml"
    file.write_text("base: ../base.yaml\nrllib: {lr: 0.2}\nintrinsic: {alpha: 0.5}\n")
    experiment = load_experiment(file)
    assert experiment.rllib == {"lr": 0.2, "gamma": 0.9}
    assert experiment.intrinsic == {"method": "rise", "k": 3, "alpha": 0.5}
    assert experiment.env.kwargs == {"size": 7}
    file.write_text(
        "base: ../base.yaml\nintrinsic: {method: rnd}\nenv: {id: rise/MountainCar-v0}\n"
    )
    experiment = load_experiment(file)
    assert experiment.intrinsic == {"method": "rnd"}
    assert experiment.env.kwargs == {}
    file.write_text("base: e.yaml\n")
    with pytest.raises(ConfigError, match="its own base"):
        load_experiment(file)
