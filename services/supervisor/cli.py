"""The command line: every command, its options and its examples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from services.supervisor import examples
from streamway import __version__
from streamway.errors import StreamwayError
from streamway.runtime.process import StartError

app = typer.Typer(
    name="streamway",
    help="A gRPC streaming mesh for self-hosted LLM inference.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Show or check the settings of every service.", no_args_is_help=True)
keys_app = typer.Typer(help="Make API keys. Only their hashes are stored.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(keys_app, name="keys")
tasks_app = typer.Typer(help="Tasks that brought down too many workers.", no_args_is_help=True)
app.add_typer(tasks_app, name="tasks")

_Router = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Router to talk to. Default: that of the mesh in --data-dir.")
]
_Key = Annotated[str | None, typer.Option("--key", help="API key. Better in STREAMWAY_CLIENT_API_KEY.")]
_Valkey = Annotated[str | None, typer.Option(metavar="URL", help="Valkey of the mesh.")]
_DataDir = Annotated[Path | None, typer.Option(help="Data folder of the mesh. Default: ~/.local/share/streamway.")]


def _version(asked: bool) -> None:
    if asked:
        print(f"streamway {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A gRPC streaming mesh for self-hosted LLM inference."""


@app.command(epilog=examples.UP)
def up(
    engine: Annotated[
        str | None, typer.Option(metavar="llamacpp|simulated|URL", help="What runs the model. Default: llamacpp.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="GGUF file for llamacpp.")] = None,
    workers: Annotated[int | None, typer.Option(help="Inference-adapters, each with an engine. Default: 1.")] = None,
    edges: Annotated[int | None, typer.Option(help="Edge processes; they share one port. Default: 1.")] = None,
    routers: Annotated[
        int | None, typer.Option(help="Routers; edges and gRPC clients use any of them. Default: 1.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on; beyond loopback a mesh token and keys are needed. Default: 127.0.0.1."
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the edges; 0 takes free ports for everything. Default: 8080.")
    ] = None,
    data_dir: _DataDir = None,
    valkey: Annotated[
        str | None, typer.Option(metavar="URL", help="A Valkey or Redis to use. Default: an embedded one is started.")
    ] = None,
    try_failure: Annotated[
        str | None,
        typer.Option(
            metavar="auto|on|off",
            help="Whether the console may kill and pause workers. Default: auto, on loopback without keys.",
        ),
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Written as JSON once all is healthy, and again after each restart.")
    ] = None,
) -> None:
    """Starts a whole mesh on this machine and keeps it running: Valkey, cache, adapters, router, edges."""
    from services.supervisor.commands.up import start

    start(
        {
            "engine": engine,
            "model": model,
            "workers": workers,
            "edges": edges,
            "routers": routers,
            "host": host,
            "port": port,
            "data_dir": data_dir,
            "valkey": valkey,
            "try_failure": try_failure,
            "ready_file": ready_file,
        }
    )


@app.command(epilog=examples.CHAT)
def chat(
    question: Annotated[str | None, typer.Argument(help="Ask this and exit; - reads standard input.")] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the last chat of this machine, and with its answer if it was broken off."
        ),
    ] = False,
    generation: Annotated[
        str | None,
        typer.Option(
            metavar="ID[@CURSOR]", help="Read this generation, from its beginning or behind a cursor, and exit."
        ),
    ] = None,
    router: _Router = None,
    model: Annotated[str | None, typer.Option(help="Model to ask. Default: the only one, or the first.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest answer. Default: the engine's own limit.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Characters as they come, instead of Markdown.")] = False,
    key: _Key = None,
    data_dir: _DataDir = None,
) -> None:
    """Talks to a model from the terminal, over gRPC. What broke is read on where it stopped.

    The chat is kept in chat.json in the data folder, for you alone, until the next one takes its place.
    """
    from services.supervisor.commands.chat import Wishes, talk

    if generation is not None and (resume or question is not None):
        raise StartError("--generation reads one answer: leave the question and --resume out")
    wishes = Wishes(model, max_tokens, resume, generation, plain)
    talk(question, wishes, {"router": router, "api_key": key, "data_dir": data_dir})


@app.command(epilog=examples.TOP)
def top(
    once: Annotated[bool, typer.Option("--once", help="Print it once, after a second, and exit.")] = False,
    every: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between two looks.")] = 1.0,
    valkey: _Valkey = None,
    key: _Key = None,
    data_dir: _DataDir = None,
) -> None:
    """Shows workers, their lanes and streams, and tokens a second, live. Ctrl-C ends it."""
    from services.supervisor.commands.top import watch

    watch(valkey, every, {"api_key": key, "data_dir": data_dir}, once=once)


@app.command(epilog=examples.STATUS)
def status(
    valkey: _Valkey = None,
    key: _Key = None,
    data_dir: _DataDir = None,
) -> None:
    """Shows workers, routers, caches and models as they are now."""
    from services.supervisor.commands.status import show

    show(valkey, {"api_key": key, "data_dir": data_dir})


@app.command(epilog=examples.TRACE)
def trace(
    generation: Annotated[str, typer.Argument(help="Its id, as `accepted` tells it.")],
    ask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Operations port of a process to ask too: of an edge of another machine that listens everywhere. Repeatable.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
    valkey: _Valkey = None,
    data_dir: _DataDir = None,
) -> None:
    """Shows the hops of a generation with their times, as the processes of the running mesh remember them.

    Each keeps its newest rows in memory (STREAMWAY_RECENT_HOPS); no collector and no setting is needed.
    """
    from services.supervisor.commands.trace import show

    show(generation, valkey, ask or [], {"data_dir": data_dir}, as_json=as_json)


@app.command(epilog=examples.CHAOS)
def chaos(
    short: Annotated[bool, typer.Option("--short", help="Seven deeds, about a minute.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Also every phase on every surface: 55 deeds, about a quarter of an hour.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Only edge, router, adapter, cache or valkey. Repeatable.")
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", help="On the mesh that runs in --data-dir, instead of one started for it.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the table as JSON too.")
    ] = None,
    key: _Key = None,
    data_dir: _DataDir = None,
) -> None:
    """Kills, pauses and cuts off processes of a mesh under load, and counts what streams lost or were told twice.

    Each answer is compared as a whole with what an undisturbed run gives. Exit code 1: something was lost or repeated.
    """
    from services.supervisor.commands.chaos import torment
    from services.supervisor.core.rounds import FULL, SHORT, STANDARD, VICTIMS, chosen

    if short and full:
        raise StartError("--short and --full exclude each other")
    if unknown := sorted({*(only or ())} - {*VICTIMS}):
        raise StartError(f"--only {unknown[0]!r} is unknown; use {', '.join(VICTIMS)}")
    rounds = chosen(SHORT if short else FULL if full else STANDARD, [kind for kind in VICTIMS if kind in (only or ())])
    torment(rounds, running=running, json_file=json_file, options={"api_key": key, "data_dir": data_dir})


@app.command(epilog=examples.TUNE)
def tune(
    seed: Annotated[int, typer.Option(help="Of the search; the same one finds the same.")] = 1,
    population: Annotated[int, typer.Option(min=4, max=1000, help="Configurations of a generation.")] = 24,
    generations: Annotated[int, typer.Option(min=1, max=1000, help="Generations of the search.")] = 12,
    load: Annotated[
        float, typer.Option(min=0.05, max=3, help="Turns asked, as a share of what the mesh finishes.")
    ] = 0.8,
    live: Annotated[int, typer.Option(min=0, max=100, help="A/B rounds on a mesh, about three minutes each.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the chosen configuration goes.")] = Path("tuned.yaml"),
) -> None:
    """Looks for settings in virtual time: first tokens against connections used again and CPU a token.

    A genetic search (NSGA-II) over preload depth, flush window, longest wait for a slot, and how many connections to an engine
    are kept for how long. Prints the front and writes a file for STREAMWAY_CONFIG. Wants a checkout and the extra `tune`.
    """
    from services.supervisor.commands.tune import look_for

    search = {"seed": seed, "population": population, "generations": generations}
    look_for({**search, "load": load, "live": live, "out": out})


@app.command("prune", epilog=examples.PRUNE)
def prune_command(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be freed.")] = False,
    valkey: _Valkey = None,
    data_dir: _DataDir = None,
) -> None:
    """Frees what nobody will ask for again in Valkey and in the cache's index folder; never what a lease holds."""
    from services.supervisor.commands.prune import prune

    prune(dry=dry_run, valkey=valkey, options={"data_dir": data_dir})


@app.command("reload", epilog=examples.RELOAD)
def reload_command(
    workers: Annotated[list[str] | None, typer.Argument(help="Workers to ask. Default: all with a llama.cpp.")] = None,
    valkey: _Valkey = None,
    data_dir: _DataDir = None,
) -> None:
    """Has workers load their model file again, where other weights lie now, one after another, while answers go on.

    The old weights serve until the new ones do, where memory allows both. The first that fails ends it.
    """
    from services.supervisor.commands.reload import reload

    reload(workers or (), valkey=valkey, options={"data_dir": data_dir})


@config_app.command("show", epilog=examples.CONFIG_SHOW)
def config_show() -> None:
    """Prints the effective settings of every service as YAML, secrets masked."""
    from services.supervisor.commands.config import show

    show()


@config_app.command("check", epilog=examples.CONFIG_CHECK)
def config_check() -> None:
    """Checks the settings of every service; exit code 2 and one line for each that would not start."""
    from services.supervisor.commands.config import check

    check()


@tasks_app.command("dead", epilog=examples.DEAD)
def dead_list(
    model: Annotated[str | None, typer.Argument(help="Model to list. Default: how many each model has.")] = None,
    valkey: _Valkey = None,
    data_dir: _DataDir = None,
) -> None:
    """Lists dead tasks, with the workers that each was lost with."""
    from services.supervisor.commands.dead import show

    show(model, valkey, {"data_dir": data_dir})


@tasks_app.command("redrive", epilog=examples.REDRIVE)
def dead_retry(
    model: Annotated[str, typer.Argument(help="Model whose tasks to try again.")],
    generation: Annotated[str | None, typer.Option(help="Only this one. Default: all.")] = None,
    valkey: _Valkey = None,
    data_dir: _DataDir = None,
) -> None:
    """Puts dead tasks into the pool of their model for one more try, under their own ids.

    A worker ends what nobody reads when the grace is over: resume the generation to get its answer.
    """
    from services.supervisor.commands.dead import retry

    retry(model, generation, valkey, {"data_dir": data_dir})


@keys_app.command("new", epilog=examples.KEYS_NEW)
def keys_new(
    tenant: Annotated[str, typer.Option(help="Tenant the key belongs to: letters, digits, _ . -")],
) -> None:
    """Makes a key and the row for the API keys file. The key is shown once and stored nowhere."""
    from services.supervisor.commands.keys import new

    new(tenant)


@keys_app.command("hash", epilog=examples.KEYS_HASH)
def keys_hash() -> None:
    """Reads a key from standard input, or asks for it without showing it, and prints its hash."""
    from services.supervisor.commands.keys import print_hash

    print_hash()


def run() -> None:
    """Runs the command line; refusals become one line and exit code 2, failures of the mesh one line and 1."""
    try:
        app(prog_name="streamway")
    except StartError as problem:
        print(f"streamway: {problem}", file=sys.stderr)
        sys.exit(2)
    except StreamwayError as problem:
        print(f"streamway: {problem.message}", file=sys.stderr)
        sys.exit(1)
