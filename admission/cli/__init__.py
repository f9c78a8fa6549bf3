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
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import admission
from admission.cli import apps, terminal
from admission.errors import FixError, MusterError

FAILED, NEEDS_FIX, INTERRUPTED = 1, 2, 130

COMMANDS = {
    "serve": "admission.cli.serve.command",
    "config": "admission.cli.config_command",
    "simulate": "admission.cli.simulate.command",
    "lint": "admission.cli.lint",
    "why": "admission.cli.why.command",
    "gang": "admission.cli.gang",
    "queue": "admission.cli.queue.list_command",
    "fence": "admission.cli.fence",
    "install": "admission.cli.install",
    "init": "admission.cli.init.command",
    "uninstall": "admission.cli.uninstall.command",
    "doctor": "admission.cli.doctor.command",
    "smoke-test": "admission.cli.smoke_test.command",
    "ledger": "admission.cli.ledger.command",
}
"""The name of a command → the module with its `app`."""

_debugging: ContextVar[bool] = ContextVar("debugging", default=False)


class _OnDemand(TyperGroup):
    """A group that imports its commands one by one, since a database's or cluster's client takes a while to import."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base class's
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the base class's
        module = COMMANDS.get(cmd_name)
        return None if module is None else typer.main.get_command(importlib.import_module(module).app)


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
        terminal.say(f"muster {admission.__version__}")
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


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Turn an error that leaves the block into a sentence and an exit code, and end the process."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the end of the line: whatever comes here becomes a sentence
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
