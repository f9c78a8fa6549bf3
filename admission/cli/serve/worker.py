"""The program of a worker, which `muster serve --workers N` starts as `python -m admission.cli.serve.worker`.

Its standard input is a connection to the first process, which sends its task. It ends on SIGTERM, on SIGINT, and when
the first process has ended; its exit codes are those of `muster serve`.
"""

import asyncio
import socket
import sys

from admission import app as application, cli
from admission.cli.serve import command


def main() -> None:
    """Work until signalled to end."""
    with cli.errors_as_messages():
        command.run(_work)


async def _work(stop: asyncio.Event) -> None:
    await application.work(socket.socket(fileno=sys.stdin.fileno()), stop=stop)


if __name__ == "__main__":
    main()
