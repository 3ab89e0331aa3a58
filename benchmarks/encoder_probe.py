"""What do embeddings know, and do their distances? Writes results/encoder_probe/.

Each encoder is fitted to 10,000 frames of a random policy, as the first phase of RISE does, and
embeds frames of other episodes, for which the positions of objects are known. Two probes ask for
them: ridge regression on standardised embeddings (is a position linearly decodable?) and the mean
of the 5 nearest neighbours in raw embedding distance (do distances, which the bonus uses, know
it?). Both report R2 on episodes (for the maze: cells) that the probe has not seen.

How to run (resumes where it stopped; needs the extras `atari` and `dev`):

    python benchmarks/encoder_probe.py            # measure what is missing, then write the outputs
    python benchmarks/encoder_probe.py --outputs  # write figure, summary and docs table only
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import platform
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rllib_rise.encoders import RandomEncoder, VAEEncoder
from rllib_rise.encoders.vae import VAEErrors
from rllib_rise.envs import Maze

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "encoder_probe"
PAGE = ROOT / "docs" / "encoders.md"
COLUMNS = ("environment", "encoder", "seed", "measure", "quantity", "value")

FIT_FRAMES = 10_000
# Every third of 12,000 frames: more episodes for the same number of rows.
PROBE_FRAMES, PROBE_EVERY = 12_000, 3
EMBEDDING = 128
SEEDS = (0, 1, 2)
NEIGHBOURS = 5
ALPHAS = tuple(10.0**power for power in range(-4, 4))
ACTIVE_VARIANCE = 1e-2

# Bytes of the emulator's memory, as annotated by Anand et al. 2019 (AtariARI). Each was compared
# with the object's place on the screen by its colour: correlation at least 0.99.
RAM = {
    "SpaceInvaders": {"player_x": 28, "enemies_x": 26, "enemies_left": 17},
    "Pong": {"player_y": 51, "enemy_y": 50, "ball_x": 49, "ball_y": 54},
}
# Quantities of an object that is off the screen where this byte is 0.
SHOWN = {"ball_x": 54, "ball_y": 54}
ENVIRONMENTS = (*RAM, "Maze")


@dataclass
class Frames:
    """Observations `[n, 84, 84, C]`, known quantities (NaN where unseen), and what to split by."""

    obs: Tensor
    quantities: dict[str, NDArray[np.float64]]
    groups: NDArray[np.int64]


def play_atari(game: str, count: int, seed: int) -> Frames:
    """Random actions; 84 x 84 grey, frame skip 4, the last 4 frames as channels."""
    import ale_py
    import gymnasium as gym
    from gymnasium.wrappers import AtariPreprocessing

    gym.register_envs(ale_py)
    env = gym.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
    env = AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=84)
    rng = np.random.default_rng(seed)
    obs = np.empty((count, 84, 84, 4), np.uint8)
    memory = np.empty((count, 128), np.uint8)
    episodes = np.empty(count, np.int64)
    frame, _ = env.reset(seed=seed)
    stack, episode = np.repeat(frame[:, :, None], 4, axis=2), 0
    for i in range(count):
        obs[i], episodes[i] = stack, episode
        memory[i] = env.unwrapped.ale.getRAM()
        frame, _, terminated, truncated, _ = env.step(int(rng.integers(env.action_space.n)))
        if terminated or truncated:
            frame, _ = env.reset()
            stack, episode = np.repeat(frame[:, :, None], 4, axis=2), episode + 1
        else:
            stack = np.concatenate([stack[:, :, 1:], frame[:, :, None]], axis=2)
    env.close()
    quantities = {name: memory[:, byte].astype(float) for name, byte in RAM[game].items()}
    for name, byte in SHOWN.items():
        if name in quantities:
            quantities[name][memory[:, byte] == 0] = np.nan
    return Frames(torch.from_numpy(obs), quantities, episodes)


def play_maze(count: int, seed: int) -> Frames:
    """Random actions in a 20 x 20 maze seen from above; one picture per cell, so groups are cells.

    Another episode shows the same pictures again, and the nearest neighbour would be the frame
    itself: only unseen cells tell what a distance knows.
    """
    env = Maze(size=20, layout="loops", observation="image", image_size=84, maze_seed=seed)
    rng = np.random.default_rng(seed)
    obs = np.empty((count, 84, 84, 3), np.uint8)
    cells = np.empty(count, np.int64)
    picture, info = env.reset(seed=seed)
    for i in range(count):
        obs[i], cells[i] = picture, info["cell"]
        picture, _, terminated, truncated, info = env.step(int(rng.integers(4)))
        if terminated or truncated:
            picture, info = env.reset()
    quantities = {"row": cells // 20 * 1.0, "column": cells % 20 * 1.0}
    return Frames(torch.from_numpy(obs), quantities, cells)


def play(environment: str, count: int, seed: int) -> Frames:
    if environment == "Maze":
        return play_maze(count, seed)
    return play_atari(environment, count, seed)


class AuthorsScaling(VAEEncoder):
    """Control: the loss of the authors' code, on our networks.

    Inputs 0-255, squared error averaged over everything, KL summed over latents and over the 512
    observations of a batch; one pass, Adam 0.0005. As a Gaussian likelihood over D pixels this is
    sigma^2 = 512 D / 2: 2688 grey levels at 84 x 84 x 4, which nothing in an image exceeds.
    """

    BATCH = 512

    def __init__(self, obs_shape: tuple[int, ...], *, embedding_size: int, seed: int) -> None:
        options = {"epochs": 1, "lr": 5e-4, "batch_size": self.BATCH}
        super().__init__(obs_shape, embedding_size=embedding_size, seed=seed, **options)
        torch.nn.init.zeros_(self.log_variance.bias)

    def _measure(self, obs: Tensor) -> None:
        self.scale.fill_(1 / 255)

    def errors(self, obs: Tensor, generator: torch.Generator | None = None) -> VAEErrors:
        """The KL divergence is that of the whole batch."""
        errors = super().errors(obs, generator)
        return errors._replace(kl=self.BATCH * errors.kl)

    def _reconstruction(self, mse: Tensor) -> Tensor:
        return mse


Embed = Callable[[Tensor], NDArray[np.float32]]


def fit_vae(encoder: VAEEncoder, obs: Tensor) -> Embed:
    for progress in encoder.fit(obs):
        print("   ", progress, flush=True)
    return lambda frames: encoder(frames).numpy()


def fit_pca(obs: Tensor, seed: int) -> Embed:
    from sklearn.decomposition import PCA

    # 4,000 frames span the first components well, and all would take 1 GB as floats.
    rows = torch.randperm(len(obs), generator=torch.Generator().manual_seed(seed))[:4000]
    pca = PCA(EMBEDDING, svd_solver="randomized", random_state=seed).fit(pixels(obs[rows]))
    return lambda frames: pca.transform(pixels(frames)).astype(np.float32)


def pixels(obs: Tensor) -> NDArray[np.float32]:
    return obs.flatten(1).numpy().astype(np.float32) / 255


def make_embedding(name: str, obs: Tensor, seed: int) -> Embed:
    shape = tuple(obs.shape[1:])
    if name == "vae":
        return fit_vae(VAEEncoder(shape, embedding_size=EMBEDDING, seed=seed), obs)
    if name == "vae, authors' scaling":
        return fit_vae(AuthorsScaling(shape, embedding_size=EMBEDDING, seed=seed), obs)
    if name == "random":
        random = RandomEncoder(shape, embedding_size=EMBEDDING, seed=seed)
        return lambda frames: random(frames).numpy()
    return fit_pca(obs, seed) if name == "pca" else pixels


# Cheap ones first: a stopped run then has most of the table.
ENCODERS = ("random", "pca", "identity", "vae", "vae, authors' scaling")


def r2(truth: Tensor, guess: Tensor) -> float:
    return 1 - float((truth - guess).square().sum() / (truth - truth.mean()).square().sum())


class Probes:
    """Both probes of one embedding `[n, m]`; parts 0, 1 and 2 are to fit, to choose and to test.

    The matrices of all rows are made once and serve every quantity.
    """

    def __init__(self, x: NDArray[np.float32], part: NDArray[np.int64]) -> None:
        self.part = torch.from_numpy(part)
        # By the moments of all rows: what only moves in part 2 must not count a millionfold.
        z = torch.from_numpy((x - x.mean(0)) / np.maximum(x.std(0), 1e-6 * x.std()))
        # Ridge in its dual form: y = K (K + penalty)^-1 y, the same cost for any m.
        self.kernel = (z @ z.T).double() / z.shape[1] + 1
        raw = torch.from_numpy(x)
        self.distances = torch.cdist(raw, raw, compute_mode="use_mm_for_euclid_dist")

    def ridge(self, y: Tensor) -> float:
        """R2 on part 2; the penalty is chosen on part 1, fitted to part 0."""
        fit, choose, test = (torch.nonzero((self.part == i) & ~y.isnan())[:, 0] for i in range(3))
        best = max(ALPHAS, key=lambda alpha: self._ridge(y, fit, choose, alpha))
        return self._ridge(y, torch.cat([fit, choose]), test, best)

    def _ridge(self, y: Tensor, rows: Tensor, new: Tensor, alpha: float) -> float:
        mean = y[rows].mean()
        penalty = alpha * torch.eye(len(rows), dtype=torch.float64)
        factor = torch.linalg.cholesky(self.kernel[rows][:, rows] + penalty)
        weights = torch.cholesky_solve((y[rows] - mean)[:, None], factor)[:, 0]
        return r2(y[new], mean + self.kernel[new][:, rows] @ weights)

    def neighbours(self, y: Tensor) -> float:
        """R2 on part 2 of the mean over the nearest neighbours in parts 0 and 1."""
        rows = torch.nonzero((self.part < 2) & ~y.isnan())[:, 0]
        test = torch.nonzero((self.part == 2) & ~y.isnan())[:, 0]
        nearest = self.distances[test][:, rows].topk(NEIGHBOURS, largest=False).indices
        return r2(y[test], y[rows[nearest]].mean(1))


def split(groups: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Parts 0, 1, 2 (fit, choose, test): 40, 20 and 40 % of the groups, each one whole."""
    names = np.random.default_rng(seed).permutation(np.unique(groups))
    place = {name: i / len(names) for i, name in enumerate(names)}
    return np.array([0 if place[g] < 0.4 else 1 if place[g] < 0.6 else 2 for g in groups])


def measure(environment: str, encoder: str, seed: int, data: tuple[Frames, Frames]) -> list[list]:
    """All rows of one environment, encoder and seed."""
    fit, probe = data
    start = time.process_time()
    embed = make_embedding(encoder, fit.obs, seed)
    seconds = time.process_time() - start
    x, part = embed(probe.obs), split(probe.groups, seed)
    rows: list[tuple[str, str, float]] = [("fit_cpu_seconds", "", seconds)]
    if encoder.startswith("vae"):
        rows.append(("active_units", "", int((x.var(0) > ACTIVE_VARIANCE).sum())))
    probes = Probes(x, part)
    for quantity, values in probe.quantities.items():
        y = torch.from_numpy(values)
        rows.append(("ridge_r2", quantity, probes.ridge(y)))
        rows.append(("knn_r2", quantity, probes.neighbours(y)))
    return [[environment, encoder, seed, m, q, f"{value:.4f}"] for m, q, value in rows]


def read_rows() -> list[dict[str, str]]:
    path = RESULTS / "results.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append_rows(rows: list[list]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "results.csv"
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(COLUMNS)
        writer.writerows(rows)


def run() -> None:
    done = {(row["environment"], row["encoder"], int(row["seed"])) for row in read_rows()}
    for seed in SEEDS:
        for environment in ENVIRONMENTS:
            todo = [name for name in ENCODERS if (environment, name, seed) not in done]
            if not todo:
                continue
            # Probe frames come from another run: other episodes of the same environment.
            data = play(environment, FIT_FRAMES, seed), play_probe(environment, seed)
            for encoder in todo:
                print(environment, encoder, seed, flush=True)
                append_rows(measure(environment, encoder, seed, data))


def play_probe(environment: str, seed: int) -> Frames:
    if environment != "Maze":
        return rows_of(play(environment, PROBE_FRAMES, seed + 1000), slice(None, None, PROBE_EVERY))
    # The maze is fixed by its seed: other episodes are those after the ones to fit on.
    frames = rows_of(play("Maze", FIT_FRAMES + PROBE_FRAMES, seed), slice(FIT_FRAMES, None))
    return rows_of(frames, np.unique(frames.groups, return_index=True)[1])


def rows_of(frames: Frames, rows: slice | NDArray[np.int64]) -> Frames:
    quantities = {name: values[rows] for name, values in frames.quantities.items()}
    return Frames(frames.obs[rows], quantities, frames.groups[rows])


def means() -> dict[tuple[str, str, str, str], list[float]]:
    """Values of all seeds by environment, encoder, measure and quantity."""
    values: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for row in read_rows():
        key = row["environment"], row["encoder"], row["measure"], row["quantity"]
        values[key].append(float(row["value"]))
    return dict(values)


def cell(values: list[float] | None) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return "-"
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {statistics.stdev(values):.2f}"


def table() -> str:
    """The two R2 of every quantity, one column per encoder, the best in bold."""
    values = means()
    names = [name for name in ENCODERS if any(key[1] == name for key in values)]
    lines = [
        f"| environment | quantity | probe | {' | '.join(names)} |",
        "|---|---|---|" + "---|" * len(names),
    ]
    quantities = dict.fromkeys((key[0], key[3]) for key in values if key[3])
    for environment, quantity in quantities:
        for measure_name, label in (("ridge_r2", "ridge"), ("knn_r2", "5-NN")):
            found = [values.get((environment, name, measure_name, quantity)) for name in names]
            best = max(statistics.fmean(v) for v in found if v)
            cells = [
                f"**{cell(v)}**" if v and statistics.fmean(v) == best else cell(v) for v in found
            ]
            lines.append(f"| {environment} | {quantity} | {label} | {' | '.join(cells)} |")
    for environment in dict.fromkeys(key[0] for key in values):
        found = [values.get((environment, name, "active_units", "")) for name in names]
        cells = ["-" if v is None else f"{statistics.fmean(v):.0f} of {EMBEDDING}" for v in found]
        lines.append(f"| {environment} | active latents | | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


_MARKERS = re.compile(r"(<!-- encoder probe: [^\n]* -->\n).*?(<!-- end -->)", re.DOTALL)


def page() -> str:
    """The docs page with a fresh table."""
    return _MARKERS.sub(lambda match: match[1] + table() + match[2], PAGE.read_text())


def write_figure() -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "encoder_probe"
    values = means()
    labels = list(dict.fromkeys((key[0], key[3]) for key in values if key[3]))
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
    titles = {"ridge_r2": "linear: ridge regression", "knn_r2": "distances: 5 nearest neighbours"}
    for axis, (measure_name, title) in zip(axes, titles.items(), strict=True):
        for shift, name in enumerate(ENCODERS):
            spots, points = [], []
            for place, (environment, quantity) in enumerate(labels):
                for value in values.get((environment, name, measure_name, quantity), []):
                    spots.append(place + 0.14 * (shift - 2))
                    # Worse than a constant is all the same.
                    points.append(max(value, -0.1))
            axis.plot(points, spots, "o", ms=4, alpha=0.8, label=name)
        axis.set(title=title, xlabel="R² (−0.1 and below at −0.1)", xlim=(-0.13, 1.03))
        axis.set_yticks(range(len(labels)), [f"{e}: {q}" for e, q in labels])
        axis.grid(axis="x", alpha=0.3)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(RESULTS / "probe.svg", metadata={"Date": None})
    plt.close(figure)


def write_summary() -> None:
    packages = ("torch", "numpy", "scikit-learn", "gymnasium", "ale-py")
    summary = {
        "command": "python benchmarks/encoder_probe.py",
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "machine": f"{platform.system()} {platform.machine()}, 1 torch thread",
        "settings": {
            "fit_frames": FIT_FRAMES,
            "probe_frames": PROBE_FRAMES // PROBE_EVERY,
            "embedding_size": EMBEDDING,
            "seeds": list(SEEDS),
            "neighbours": NEIGHBOURS,
        },
        "results": [
            {
                "environment": environment,
                "encoder": encoder,
                "measure": name,
                "quantity": quantity,
                "mean": round(statistics.fmean(values), 4),
                "deviation": round(statistics.stdev(values), 4) if len(values) > 1 else None,
                "seeds": len(values),
            }
            for (environment, encoder, name, quantity), values in means().items()
        ],
    }
    (RESULTS / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs", action="store_true", help="measure nothing, write outputs")
    if not parser.parse_args().outputs:
        torch.set_num_threads(1)
        run()
    write_figure()
    write_summary()
    PAGE.write_text(page())


if __name__ == "__main__":
    sys.exit(main())
