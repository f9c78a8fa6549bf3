"""`muster serve`: run the webhook, the controller and the dashboard."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from admission import app as application, heap
from admission.cli import apps, config_command
from admission.cli.config_command import ConfigOption, SetOption
from admission.cli.serve import reload
from admission.settings import Settings

app = apps.single()

SWITCH_SECONDS = 0.0005
"""A cycle decides in a thread. A review waits for the interpreter's lock for this long each time it has read or
written, some ten times; with Python's default of 5 ms, a cycle would delay each review by tens of milliseconds."""

EPILOG = apps.epilog(
    (
        "muster serve",
        "muster serve --config /etc/muster/settings/muster.toml --role controller",
        "muster serve --database sqlite:///muster.sqlite3 --webhook-port 9443 --webhook-url https://127.0.0.1:9443",
        "muster serve --workers 4 --metrics-port 9090 --set controller.steps=100000",
        "muster serve --role dashboard --config /etc/muster/settings/muster.toml",
    ),
    "Settings come from the defaults, over them the file, over it the environment (MUSTER_LEDGER_URL and so on), and "
    "over all the options; `muster config show` tells which. The file is read again on SIGHUP and when it changes.",
    "It ends on SIGTERM or SIGINT. Exit codes: 0 it was told to end, 1 the cluster or the database "
    "does not answer, 2 the settings or the installation are wrong.",
)


@app.command(epilog=EPILOG)
def serve(
    *,
    config: ConfigOption = None,
    changes: SetOption = None,
    role: Annotated[
        str | None, typer.Option(help="What this process does: webhook,controller,dashboard; by default the first two.")
    ] = None,
    kubeconfig: Annotated[str | None, typer.Option(help="By default $KUBECONFIG, else the pod's account.")] = None,
    database: Annotated[str | None, typer.Option("--database", "-d", help="SQLAlchemy URL of the ledger.")] = None,
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
    """Run Muster: the webhook that holds pods, the controller that admits gangs, the dashboard that shows them."""
    options = {
        "--role": role,
        "--kubeconfig": kubeconfig,
        "--database": database,
        "--cluster": cluster,
        "--webhook-host": webhook_host,
        "--webhook-port": webhook_port,
        "--webhook-url": webhook_url,
        "--workers": workers,
        "--metrics-port": metrics_port,
        "--log-level": log_level,
        "--log-format": log_format,
    }

    def read() -> Settings:
        return config_command.chosen(config, options, changes).settings

    reloader = reload.Reloader(config, read)
    chosen = read()
    run(lambda stop: _serve(chosen, stop, reloader))


def run(serving: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run the servers until their event is set, on SIGTERM or SIGINT."""
    sys.setswitchinterval(SWITCH_SECONDS)
    heap.share()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_until_signalled(serving))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory; None if the optional uvloop is not installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _until_signalled(serving: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serving(stop)


async def _serve(chosen: Settings, stop: asyncio.Event, reloader: reload.Reloader) -> None:

    reloader.listen()
    await application.serve(chosen, stop=stop, reloader=reloader)
