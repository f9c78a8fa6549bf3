"""The command `muster`: one module for each group of commands, imported when the command is run.

Exit codes: 0 done; 1 failed, and a retry may help; 2 the command line, the input or the installation is wrong; any
other code is in its command's help. Errors are sentences on the standard error, never tracebacks; `--debug` adds the
traceback.
"""

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

import admission
from admission.cli import apps
from admission.errors import FixError, MusterError

FAILED, NEEDS_FIX, INTERRUPTED = 1, 2, 130


class _Command(NamedTuple):
    """A command: the module with its `app`, and the first paragraph of its help, which is told without an import."""

    module: str
    summary: str


COMMANDS = {
    "serve": _Command(
        "serve.command",
        "Run Muster: the webhook that holds pods, the controller that admits gangs, the dashboard that shows them.",
    ),
    "config": _Command("config_command", "Settings."),
    "simulate": _Command(
        "simulate.command",
        "Show which gangs would start, where and on which devices, and why the others wait. Needs no cluster.",
    ),
    "capacity": _Command(
        "capacity.command",
        "Say how many more gangs of given shapes would start now, and what stops the next one. Needs no cluster.",
    ),
    "lint": _Command(
        "lint",
        "Find what is wrong with manifests: CEL traps, what would be refused, what never fits. Needs no cluster.",
    ),
    "convert": _Command(
        "convert.command",
        "Write manifests of earlier DRA APIs (v1alpha2 to v1beta2) for resource.k8s.io/v1. Needs no cluster.",
    ),
    "why": _Command("why.command", "Say why a pod or gang waits, in words and numbers, and what would have to change."),
    "gang": _Command("gang.command", "Gangs: who waits, who runs, and where."),
    "queue": _Command("queue.list_command", "Queues: use against quota, and whether they let gangs in."),
    "shapes": _Command("shapes.command", "NodeShapes: what nodes would be like that may still come."),
    "submit": _Command(
        "submit.command", "Create a Job in a queue from an image, a command and the devices that it needs."
    ),
    "fence": _Command("fence", "Fences: devices that kube-scheduler leaves to Muster."),
    "install": _Command("install", "Print the manifests that install Muster, as the Helm chart renders them."),
    "init": _Command(
        "init.command", "Print a Meter, Queues and a sample Job for this very cluster, of devices that it has."
    ),
    "uninstall": _Command(
        "uninstall.command",
        "Take Muster out of a cluster, in an order in which it closes nothing that it no longer opens.",
    ),
    "doctor": _Command(
        "doctor.command",
        "Check the installation: Kubernetes, rights, webhook, certificates, leader, clocks, devices, queues, ledger.",
    ),
    "smoke-test": _Command(
        "smoke_test.command", "Have Muster admit a gang of two pods without devices, and delete it again."
    ),
    "ledger": _Command("ledger.command", "The ledger: schema, statements, reports, exports, and proof."),
}

_debugging: ContextVar[bool] = ContextVar("debugging", default=False)


class _OnDemand(TyperGroup):
    """A group that imports a command to run it, since a database's or cluster's client takes a while to import.

    Until then a command is its name and its summary, which is what help, completion and suggestions need.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update(
            {name: TyperCommand(name=name, help=command.summary) for name, command in COMMANDS.items()}
        )

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _plain(error.message)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        if name is not None and found is not None:
            module = importlib.import_module(f"{__name__}.{COMMANDS[name].module}")
            found = typer.main.get_command(module.app)
        return name, found, rest


def _plain(message: str) -> str:
    """Return what is wrong with an option's value without the words of pydantic, by which typer reads it."""
    text = message.removeprefix("Value error, ").partition(", unable to parse")[0]
    return (
        text.replace("valid integer", "whole number")
        .replace("Input should", "the value has to")
        .replace("valid number", "number")
    )


app = typer.Typer(
    cls=_OnDemand,
    name="muster",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=apps.CONTEXT,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"muster {admission.__version__}")
        raise typer.Exit


@app.callback(epilog="Exit codes: 0 done, 1 failed, 2 the command line or the input is wrong; others: see the command.")
def _options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Queue-aware batch admission for Kubernetes clusters that hand out devices by Dynamic Resource Allocation."""
    _debugging.set(debug)


def main() -> None:
    """Run the command line."""
    with errors_as_messages():
        app()


def kubectl_plugin() -> None:
    """Run the command line as `kubectl muster`; kubectl finds the program `kubectl-muster` by its name.

    It has no completion to install, since the shell asks kubectl.
    """
    command = typer.main.get_command(app)
    command.params = [param for param in command.params if param.name not in {"install_completion", "show_completion"}]
    with errors_as_messages():
        command(prog_name="kubectl muster")


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Turn an error that leaves the block into a sentence and an exit code, and end the process."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the end of the line: whatever comes here becomes a sentence
        from admission.cli import terminal  # noqa: PLC0415 - most of what the help would take to import

        if _debugging.get():
            traceback.print_exc()
        errors = list(_flatten(error))
        for inner in errors:
            terminal.error(_message(inner))
        sys.exit(NEEDS_FIX if all(isinstance(inner, FixError) for inner in errors) else FAILED)


def _flatten(error: Exception) -> Iterator[Exception]:
    """Yield the errors of a group, which tasks raise, or the error itself."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _flatten(inner)
    else:
        yield error


def _message(error: Exception) -> str:
    if isinstance(error, MusterError):
        return str(error)
    return f"this should not happen: {type(error).__name__}: {error}; run it again with `muster --debug` and report it"
