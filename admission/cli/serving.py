"""`muster serve`: run the webhook and the controller; and the settings that other commands share with it."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from admission import settings as settings_
from admission.cli import applications
from admission.errors import MendError
from admission.settings import Settings

app = applications.single()

ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Settings as YAML; options go before it.")]

SWITCH_SECONDS = 0.0005
"""A cycle decides in a thread. An answer waits for the interpreter's lock that long each time it has read or written,
some ten times a review; with Python's own 5 ms, a cycle would make each of them tens of milliseconds late."""

DATABASE = "MUSTER_LEDGER_URL"
"""The environment variable for the ledger's URL, which holds a password and so belongs neither in a file that many may
read nor on a command line."""

EPILOG = applications.epilog(
    (
        "muster serve",
        "muster serve --config /etc/muster/settings.yaml --role controller",
        "muster serve --database sqlite:///muster.sqlite3 --webhook-port 9443 --webhook-url https://127.0.0.1:9443",
        "muster serve --workers 4 --metrics-port 9090",
    ),
    "It ends on SIGTERM or SIGINT. Exit codes: 0 it was told to end, 1 the cluster or the database "
    "does not answer, 2 the settings or the installation are wrong.",
)


@app.command(epilog=EPILOG)
def serve(
    *,
    config: ConfigOption = None,
    role: Annotated[
        str | None, typer.Option(help="What this process does: webhook,controller; by default both.")
    ] = None,
    kubeconfig: Annotated[str | None, typer.Option(help="By default $KUBECONFIG, else the pod's account.")] = None,
    database: Annotated[
        str | None, typer.Option("--database", "-d", envvar=DATABASE, help="SQLAlchemy URL of the ledger.")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster's name in the ledger.")] = None,
    webhook_host: Annotated[str | None, typer.Option(help="Address that the webhook listens on.")] = None,
    webhook_port: Annotated[int | None, typer.Option(help="Port that it listens on; 0 takes a free one.")] = None,
    webhook_url: Annotated[str | None, typer.Option(help="URL that the API server reaches it by.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that answer reviews on that port; by default 1.")
    ] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Port for metrics and probes over plain HTTP.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="json, text, or auto.")] = None,
) -> None:
    """Run Muster: the webhook that holds pods, and the controller that admits gangs."""
    chosen = settings(
        config,
        roles=tuple(role.split(",")) if role else None,
        kubeconfig=kubeconfig,
        log_level=log_level,
        log_format=log_format,
        ledger={"url": database, "cluster": cluster},
        webhook={"host": webhook_host, "port": webhook_port, "url": webhook_url, "workers": workers},
        metrics={"port": metrics_port},
    )
    run(lambda stop: _serve(chosen, stop))


def run(serving: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run what serves until its event is set, which SIGTERM and SIGINT do."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_until_told(serving))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes loops of uvloop, which is optional; None where it is not installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return uvloop.new_event_loop


def settings(config: Path | None, **options: Any) -> Settings:
    """Return the file's settings with options put over them: values, or mappings of values for a section.

    None leaves a setting as it is. Raises MendError that names the setting.
    """
    values = _file(config)
    for name, value in options.items():
        if isinstance(value, dict):
            section = values.get(name)
            base = section if isinstance(section, dict) else {}
            values[name] = base | {key: item for key, item in value.items() if item is not None}
        elif value is not None:
            values[name] = value
    return settings_.read(values)


def _file(config: Path | None) -> dict[str, Any]:
    if config is None:
        return {}
    try:
        values = yaml.safe_load(config.read_text())
    except OSError as error:
        raise MendError(f"settings {config}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MendError(f"settings {config}: is not YAML: {error}") from error
    if not isinstance(values or {}, dict):
        raise MendError(f"settings {config}: must be a mapping of settings")
    return dict(values or {})


async def _until_told(serving: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serving(stop)


async def _serve(chosen: Settings, stop: asyncio.Event) -> None:
    # Imported here: the other commands share this module's settings, and need neither cluster nor database for them.
    from admission import app as application  # noqa: PLC0415

    await application.serve(chosen, stop=stop)
