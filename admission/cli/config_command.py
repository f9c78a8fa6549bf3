"""The commands' settings, from the file, the environment and options; and `muster config`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from admission.cli import apps, terminal
from admission.cli.terminal import Format
from admission.errors import FixError
from admission.settings import load
from admission.settings.load import Flag, LoadedSettings
from admission.settings.redaction import format_value
from admission.settings.schema import fields, value

app = apps.group()

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help=f"Settings as TOML; by default the file that {load.CONFIG} names, if any."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SETTING=VALUE", help="Any setting, repeatable: controller.steps=9."),
]

PATHS: Mapping[str, str] = {
    "--role": "roles",
    "--kubeconfig": "kubeconfig",
    "--database": "ledger.url",
    "--cluster": "ledger.cluster",
    "--webhook-host": "webhook.host",
    "--webhook-port": "webhook.port",
    "--webhook-url": "webhook.url",
    "--workers": "webhook.workers",
    "--metrics-port": "metrics.port",
    "--log-level": "log_level",
    "--log-format": "log_format",
}
"""The setting of each option."""

EPILOG = apps.epilog(
    (
        "muster config show",
        "muster config show --config muster.toml --set controller.steps=100000 --changed",
        "kubectl -n muster-system exec deployment/muster-controller -- muster config show",
    ),
    "Exit codes: 0 done, 2 the settings are wrong.",
)


@app.callback()
def _group() -> None:
    """Settings."""


def chosen(config: Path | None, options: Mapping[str, Any], changes: Sequence[str] | None = None) -> LoadedSettings:
    """Return the settings of file, environment and options; an option of None was not typed.

    changes: `SETTING=VALUE`, as --set takes them. Raises FixError with all problems.
    """
    flags = [
        Flag(option, PATHS[option], option_value)
        for option, option_value in options.items()
        if option_value is not None
    ]
    for change in changes or ():
        path, equals, text = change.partition("=")
        if not equals:
            raise FixError(f"--set {change}: write SETTING=VALUE, as in --set controller.steps=100000")
        flags.append(Flag("--set", path.strip(), text.strip()))
    return load.read(config or file(), os.environ, flags)


def file() -> Path | None:
    """Return the file in the environment variable, if any."""
    path = os.environ.get(load.CONFIG)
    return Path(path) if path else None


@app.command(epilog=EPILOG)
def show(
    *,
    only_changed: Annotated[bool, typer.Option("--changed", help="Leave out what is a default.")] = False,
    output: Annotated[Format, typer.Option("--format", "-o", help="A table, or one JSON object.")] = Format.TEXT,
    config: ConfigOption = None,
    changes: SetOption = None,
) -> None:
    """Show the value of every setting, where it comes from, and when a new one holds. Passwords are masked.

    It is what `muster serve` would be given with the same file, environment and options.
    """
    found = chosen(config, {}, changes)
    paths = [path for path in fields() if not only_changed or path in found.origins]
    if output is Format.JSON:
        terminal.as_json({"settings": {path: _json(found, path) for path in paths}})
    else:
        rows = [
            (path, _format(_masked(found, path)), str(found.origin(path)), "live" if fields()[path].live else "restart")
            for path in paths
        ]
        terminal.table("Settings", ("setting", "value", "from", "a new one needs"), rows)


def _masked(found: LoadedSettings, path: str) -> Any:
    return format_value(fields()[path], value(found.settings, path))


def _format(raw: Any) -> str:
    if isinstance(raw, tuple):
        return ",".join(raw)
    return str(raw).lower() if isinstance(raw, bool) else "" if raw is None else str(raw)


def _json(found: LoadedSettings, path: str) -> dict[str, Any]:
    origin = found.origin(path)
    return {
        "value": _masked(found, path),
        "default": fields()[path].default,
        "origin": {"source": str(origin.source), "where": origin.where},
        "live": fields()[path].live,
    }
