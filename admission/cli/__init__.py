"""The command `muster`: one module for each group of commands, imported when the command is run.

Exit codes: 0 done; 1 failed, and a retry may help; 2 the command line, the input or the installation is wrong; any
other code is in its command's help. Errors are sentences on the standard error, never tracebacks; `--debug` adds the
traceback.
"""

import os
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import typer

import admission
from admission.cli import apps, outline
from admission.errors import FixError, MusterError

FAILED, NEEDS_FIX, INTERRUPTED = 1, 2, 130


COMMANDS = {
    "serve": "serve.command",
    "config": "config_command",
    "simulate": "simulate.command",
    "capacity": "capacity.command",
    "lint": "lint",
    "convert": "convert.command",
    "why": "why.command",
    "gang": "gang.command",
    "queue": "queue.list_command",
    "shapes": "shapes.command",
    "submit": "submit.command",
    "fence": "fence",
    "install": "install",
    "init": "init.command",
    "uninstall": "uninstall.command",
    "doctor": "doctor.command",
    "smoke-test": "smoke_test.command",
    "ledger": "ledger.command",
}
"""The module of each command or group; it has its `app`."""

_debugging: ContextVar[bool] = ContextVar("debugging", default=False)


class _Root(outline.Group):
    """The group of all commands, each of which is imported when it is run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update(outline.commands(COMMANDS))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _plain(error.message)
            raise


def _plain(message: str) -> str:
    """Return what is wrong with an option's value without the words of pydantic, by which typer reads it."""
    text = message.removeprefix("Value error, ").partition(", unable to parse")[0]
    return (
        text.replace("valid integer", "whole number")
        .replace("Input should", "the value has to")
        .replace("valid number", "number")
    )


app = typer.Typer(
    cls=_Root,
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

    It has no completion to install, since the shell asks kubectl, which runs `kubectl_complete-muster`.
    """
    command = typer.main.get_command(app)
    command.params = [param for param in command.params if param.name not in {"install_completion", "show_completion"}]
    with errors_as_messages():
        command(prog_name="kubectl muster")


def kubectl_completion() -> None:
    """Print what may end a line of `kubectl muster`, one a line, as kubectl asks `kubectl_complete-muster`."""
    words = sys.argv[1:] or [""]
    line = {
        "_MUSTER_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(["muster", *words]),
        "COMP_CWORD": str(len(words)),
    }
    os.environ.update(line)
    app(prog_name="muster")


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
