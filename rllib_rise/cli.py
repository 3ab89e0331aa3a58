"""`rise`: the command line. It parses arguments and calls `rllib_rise.experiments`."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from rllib_rise.errors import ConfigError, LostProcessError, RiseError
from rllib_rise.experiments.run.restarts import LOST, die_with_parent, is_child, run_with_restarts

app = typer.Typer(
    help="State-entropy exploration for Ray RLlib. Begin with `rise train configs/maze.yaml` and "
    "open the page that it names; `rise COMMAND --help` describes each command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
_INTERRUPTED = 130  # what typer makes of Ctrl-C
# What is left to do after Ctrl-C; other commands begin again.
_GOES_ON = {
    **dict.fromkeys(("train", "compare", "tune"), "with --resume it goes on"),
    "reproduce": "the same command goes on (maze, atari, bullet) or begins again (the others)",
    "submit": "what was submitted goes on; the same command with --follow shows it again",
}
# Click's class, or that of the copy of click which newer typers bring.
_ClickException: Any = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)

Config = Annotated[Path, typer.Argument(help="A YAML file, e.g. configs/maze.yaml.")]
Overrides = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting: alpha=0.5 (short for intrinsic.alpha), rllib.lr=1e-4, env.size=10. "
        "May be repeated.",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Where to write; by default under runs/.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where it was interrupted.")]
Seed = Annotated[int | None, typer.Option(help="Overrides the file's seed.")]
CheckpointEvery = Annotated[
    int,
    typer.Option(
        min=1, help="Iterations between checkpoints; a run also makes one every five minutes."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(help="Use a running Ray cluster: `auto`, or HOST:PORT of its head node."),
]
Explore = Annotated[
    bool, typer.Option("--explore", help="Sample actions instead of taking the likeliest ones.")
]
Restarts = Annotated[
    int,
    typer.Option(
        min=0, help="How many times to begin again from the last checkpoint when a process dies."
    ),
]


@app.command()
def train(
    config: Config,
    set_: Overrides = [],  # noqa: B006 (typer wants a list)
    seed: Seed = None,
    out: Out = None,
    resume: Resume = False,
    checkpoint_every: CheckpointEvery = 50,
    keep: Annotated[int, typer.Option(min=1, help="Checkpoints to keep.")] = 2,
    restarts: Restarts = 0,
    address: Address = None,
) -> None:
    """Train one run and write its report."""
    _restarting(restarts)
    from rllib_rise.experiments import display, report, resources, schema, session
    from rllib_rise.experiments.run.train import train as run_training
    from rllib_rise.experiments.submit.environment import differences
    from rllib_rise.rllib.phase1.cache import CACHE_FOLDER

    session.silence_rllib()
    _warn(differences())
    overrides = [*set_, *([f"seed={seed}"] if seed is not None else [])]
    experiment = schema.load_experiment(config, overrides)
    schema.check(experiment)
    directory = out or Path("runs") / experiment.run_name(config)
    title = f"{config.stem}: {experiment.algorithm} + {experiment.method}, seed {experiment.seed}"
    cpus = resources.needed_cpus(experiment)
    with session.ray_session(cpus=cpus, address=address, folder=directory):
        _warn(resources.lacking(experiment, cluster=address is not None))
        with display.RunDisplay(title, experiment.stop.env_steps, console) as shown:
            result = run_training(
                experiment,
                directory,
                resume=resume,
                checkpoint_every=checkpoint_every,
                keep_checkpoints=keep,
                cache=directory.parent / CACHE_FOLDER,
                on_row=shown.update,
                on_phase1=shown.phase1,
            )
    _warn(result.pop("warnings", []))
    for name, value in result.items():
        nothing = "never" if name == "first_goal_steps" else "no episode ended"
        text = nothing if value is None else _number(value)
        console.print(f"{name:>18}  {text}", highlight=False)
    _point_to(report.write_report([directory]))


@app.command()
def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="A run directory, or a checkpoint in one.")],
    episodes: Annotated[int, typer.Option(help="Number of episodes.")] = 10,
    explore: Explore = False,
) -> None:
    """Run episodes with a trained policy; returns are the environment's own."""
    from rllib_rise.experiments import session
    from rllib_rise.experiments.evaluate import evaluate as run_evaluation
    from rllib_rise.experiments.evaluate import find_checkpoint

    session.silence_rllib()
    _, found = find_checkpoint(checkpoint)
    with session.ray_session():
        result = run_evaluation(found, episodes=episodes, explore=explore)
    for name, value in result.items():
        text = value if isinstance(value, str) else _number(value)
        console.print(f"{name:>12}  {text}", soft_wrap=True)


@app.command()
def play(
    checkpoint: Annotated[Path, typer.Argument(help="A run directory, or a checkpoint in one.")],
    out: Annotated[
        Path | None, typer.Option(help="A .gif or .mp4; by default play.gif in the run directory.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the episode; by default the run's own.")
    ] = None,
    explore: Explore = False,
    max_steps: Annotated[
        int, typer.Option(min=1, help="Cut the episode after this many steps.")
    ] = 1000,
) -> None:
    """Film one episode of a trained policy, with its bonus at every step.

    The bonus is that of the run's method in the run's state, before its weight lambda. Where it
    compares states (RISE, RE3), it compares those of this episode with each other; in training
    with those of a whole batch.
    """
    from rllib_rise.experiments import display, session
    from rllib_rise.experiments.evaluate import find_checkpoint
    from rllib_rise.experiments.play import play as film

    session.silence_rllib()
    find_checkpoint(checkpoint)
    with session.ray_session(), display.Lines(console) as shown:
        result = film(
            checkpoint,
            out=out,
            seed=seed,
            explore=explore,
            max_steps=max_steps,
            on_progress=shown.update,
        )
    if result.pop("cut"):
        _warn([f"the episode goes on; it was cut after {max_steps:,} steps (--max-steps)"])
    for name, value in result.items():
        text = value if isinstance(value, str) else _number(value)
        console.print(f"{name:>12}  {text}", soft_wrap=True, highlight=False, markup=False)


@app.command()
def compare(
    config: Config,
    methods: Annotated[
        str, typer.Option(help="Comma-separated names; `all` for those that the file names.")
    ] = "none,rise",
    seeds: Annotated[int, typer.Option(help="Runs per method.")] = 5,
    set_: Overrides = [],  # noqa: B006
    out: Out = None,
    resume: Resume = False,
    max_concurrent: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at a time; by default as many as there are cores."),
    ] = None,
) -> None:
    """Run several methods over several seeds with the same budget, and compare them."""
    from rllib_rise.experiments import display, report, resources, schema, session
    from rllib_rise.experiments.compare import compare as run_comparison

    session.silence_rllib()
    experiment = schema.load_experiment(config, set_)
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if names == ["all"]:
        names = list(dict.fromkeys([experiment.method, *experiment.methods]))
    for name in names:
        schema.check(experiment.with_method(name, experiment.seed))
        if not experiment.names(name):
            _warn([f"{config} does not name {name}: it runs with its default settings"])
    directory = out or Path("runs") / f"compare-{config.stem}"
    cpus = resources.needed_cpus(experiment)
    with (
        session.ray_session(cpus=cpus),
        display.CompareDisplay(console) as shown,
    ):
        summary = run_comparison(
            experiment,
            directory,
            methods=names,
            seeds=seeds,
            resume=resume,
            max_concurrent=max_concurrent,
            on_progress=shown.update,
        )
    console.print(display.comparison_table(summary))
    _warn(summary["warnings"])
    _point_to(report.write_report([directory]))


@app.command()
def tune(
    sweep: Annotated[Path, typer.Argument(help="A YAML file, e.g. tune_experiments/alpha.yaml.")],
    set_: Overrides = [],  # noqa: B006
    out: Out = None,
    resume: Resume = False,
    max_concurrent: Annotated[
        int | None,
        typer.Option(min=1, help="Trials at a time; by default as many as there are CPUs for."),
    ] = None,
    checkpoint_every: CheckpointEvery = 10,
    restarts: Restarts = 0,
    address: Address = None,
) -> None:
    """Sweep settings with Ray Tune, every one of them over several seeds."""
    _restarting(restarts)
    from rllib_rise.experiments import display, report, resources, session
    from rllib_rise.experiments.submit.environment import differences
    from rllib_rise.experiments.sweep import display as sweep_display
    from rllib_rise.experiments.sweep import results, run, schema, trial

    session.silence_rllib()
    _warn(differences())
    asked = schema.load_sweep(sweep, set_)
    directory = out or Path("runs") / f"tune-{sweep.stem}"
    largest, budget = trial.largest_trial(asked), asked.experiment.stop.env_steps
    cpus = resources.needed_cpus(largest)
    with session.ray_session(cpus=cpus, address=address, folder=directory):
        _warn(resources.lacking(largest, cluster=address is not None))
        with sweep_display.SweepDisplay(console, asked.search.num_trials(), budget) as shown:
            failure = run.run_sweep(
                asked,
                directory,
                resume=resume,
                max_concurrent=max_concurrent,
                checkpoint_every=checkpoint_every,
                on_progress=shown.update,
            )
    if failure is not None and not results.has_trials(directory):
        raise failure
    rows = results.setting_rows(results.write_results(directory), asked.search.metric)
    console.print(display.plain_table("settings, the best first", rows[:10]))
    if (directory / "best.yaml").exists():
        command = results.best_command(directory)
        console.print(f"best: {command}", soft_wrap=True, highlight=False, markup=False)
    else:
        _warn([f"there is no best setting: no trial has a {asked.search.metric} at its end"])
    _point_to(report.write_report([directory]))
    if failure is not None:
        raise failure


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A config or a sweep, below this directory.")],
    storage: Annotated[
        str, typer.Option(help="A folder that all nodes mount; the run's is made below it.")
    ],
    address: Annotated[
        str,
        typer.Option(
            envvar="RAY_API_SERVER_ADDRESS", help="The cluster's dashboard, which takes jobs."
        ),
    ] = "http://127.0.0.1:8265",
    name: Annotated[
        str | None,
        typer.Option(help="Name of the run's folder; by default made from file, method and seed."),
    ] = None,
    set_: Overrides = [],  # noqa: B006
    seed: Seed = None,
    checkpoint_every: CheckpointEvery = 10,
    restarts: Restarts = 3,
    pip: Annotated[
        Path | None, typer.Option(help="A requirements file to install for this job.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show its output, and end with its exit code.")
    ] = False,
) -> None:
    """Send a run or a sweep to a Ray cluster. The same command later goes on with it."""
    from rllib_rise.experiments.submit import address as addresses

    token = addresses.allow_token()
    url, notes = addresses.checked_address(address, token=token)
    _warn(notes)
    from rllib_rise.experiments import session
    from rllib_rise.experiments.submit import job as jobs
    from rllib_rise.experiments.submit.follow import follow as follow_job

    session.silence_rllib()
    logging.getLogger("ray").setLevel(logging.ERROR)  # it tells of every file that is left out
    overrides = [*set_, *([f"seed={seed}"] if seed is not None else [])]
    sent = Path.cwd()
    options = ("--checkpoint-every", str(checkpoint_every), "--restarts", str(restarts))
    job = jobs.plan_job(file, overrides, storage=storage, name=name, options=options, sent=sent)
    client = jobs.connect(url)
    found = jobs.submit(client, job, sent=sent, pip=pip)
    state = {
        "submitted": f"submitted as {found.id}",
        "running": f"runs already, as {found.id}",
        "running to another end": f"runs already, as {found.id}, with another stop: "
        "submit it again when that has ended",
        "done": f"is done, by {found.id}; to run it again, give it another --name",
    }[found.state]
    lines = [f"{job.name} {state}", f"results: {job.folder}, on the cluster"]
    lines += [f"ray job {verb} --address {url} {found.id}" for verb in ("status", "logs", "stop")]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    if follow and found.state != "done":
        raise typer.Exit(follow_job(client, found.id, _write))


@app.command("report")
def report_(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories, one comparison, or one sweep.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write: by default report.html, in the directory if there is one, "
            "here if there are several."
        ),
    ] = None,
) -> None:
    """Write one self-contained HTML page about runs, a comparison or a sweep."""
    from rllib_rise.experiments import report

    _point_to(report.write_report(runs, out))


@app.command()
def bench(
    only: Annotated[
        str,
        typer.Option(
            help="Parts, by commas: bonus, growth, training, methods, phase1, profile, scaling."
        ),
    ] = "all",
    full: Annotated[
        bool, typer.Option("--full", help="More turns and larger sizes, for committed results.")
    ] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Neighbours on a CUDA device, and nothing else.")
    ] = False,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads per process; `rise train` has one too.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write: by default runs/bench, benchmarks/results if full."),
    ] = None,
) -> None:
    """Measure what the bonus costs and how fast training is, side by side with others."""
    from rllib_rise.bench import display, suites
    from rllib_rise.experiments import session

    if gpu and only != "all":
        raise ConfigError("--gpu measures nothing else: leave --only out")
    session.silence_rllib()
    form = "full" if full else "quick"
    folder = out or suites.FOLDERS[form]
    names = list(suites.SUITES) if only == "all" else [name.strip() for name in only.split(",")]
    if gpu:
        names = ["gpu"]
    with session.ray_session() if {*names} - {*suites.ON_REQUEST} else nullcontext():
        summary = suites.run_suites(
            names,
            folder,
            form=form,
            threads=threads,
            on_progress=lambda line: console.print(line, soft_wrap=True, highlight=False),
        )
    console.print(display.summary_table(summary, form))
    _warn([f"not measured: {line}" for line in suites.skipped(folder)])
    console.print(f"results: {folder}", soft_wrap=True, highlight=False, markup=False)


@app.command()
def reproduce(
    target: Annotated[
        str, typer.Argument(help="contours, theory, maze, atari, bullet or throughput.")
    ],
    scale: Annotated[
        str, typer.Option(help="small (minutes), workstation (hours), paper (a cluster).")
    ] = "small",
    out: Out = None,
    address: Address = None,
) -> None:
    """Make a figure or a table of the paper again.

    Mazes, Atari and Bullet go on where they were interrupted.
    """
    from rllib_rise.bench.throughput import throughput
    from rllib_rise.experiments import display, session
    from rllib_rise.experiments.reproduce import record, targets

    makers = {**targets.TARGETS, "throughput": throughput}
    if target not in makers:
        raise ConfigError(f"{target!r} is no target: {', '.join(makers)}")
    with_ray = target in targets.WITH_RAY
    if address is not None and not with_ray:
        raise ConfigError(f"--address: {target} runs on this machine, without Ray")
    targets.check(target)
    session.silence_rllib()
    folder = out or Path("runs") / "reproduce" / f"{target}-{scale}"
    record.open_folder(folder, target, scale, keep=target in targets.RESUMABLE)
    with (
        session.ray_session(address=address) if with_ray else nullcontext(),
        display.Lines(console) as shown,
    ):
        tables = makers[target](folder, scale, shown.update)
    for title, rows in tables:
        console.print(display.plain_table(title, rows))
    console.print(f"results: {folder}", soft_wrap=True, highlight=False, markup=False)


@app.command()
def doctor() -> None:
    """Say what this machine has, and what is missing."""
    from rllib_rise.experiments.doctor import examine

    healthy = True
    for check in examine():
        sign = {"ok": "[green] ok[/]", "missing": "[yellow] --[/]", "bad": "[red]bad[/]"}[
            check.state
        ]
        console.print(f"{sign}  {check.name:<14} {escape(check.detail)}", soft_wrap=True)
        healthy &= check.state != "bad"
    raise typer.Exit(0 if healthy else 1)


def _restarting(restarts: int) -> None:
    """Leave the work to a child process that is started again when it dies, and end with it."""
    if not restarts:
        return
    if is_child():
        die_with_parent()
        return
    raise SystemExit(run_with_restarts(sys.argv[1:], restarts, lambda line: _warn([line])))


def _number(value: float) -> str:
    """Four digits, and of large numbers all that are before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _warn(texts: list[str]) -> None:
    for text in texts:
        console.print(f"[yellow]warning:[/] {escape(text)}", soft_wrap=True, highlight=False)


def _point_to(page: Path) -> None:
    console.print(f"report: {page}", soft_wrap=True, highlight=False, markup=False)


def main() -> None:
    """Entry point: errors of ours are one sentence, not a traceback."""
    # Small networks gain nothing from more threads, and on a busy machine they wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    # RLlib registers each environment once per env runner, under the same name.
    warnings.filterwarnings("ignore", message=".*already in registry.*")
    # Bonuses given as "module:Class" are looked for where the command was started.
    sys.path.insert(0, os.getcwd())
    try:
        code = app(standalone_mode=False) or 0
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        raise SystemExit(code)
    except _ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except RiseError as error:
        console.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        raise SystemExit(LOST if isinstance(error, LostProcessError) else 2) from None
    except (KeyboardInterrupt, typer.Abort):
        command = "".join(sys.argv[1:2])
        console.print(f"interrupted; {_GOES_ON.get(command, 'the same command begins again')}")
        raise SystemExit(_INTERRUPTED) from None


if __name__ == "__main__":
    main()
