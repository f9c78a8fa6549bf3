"""A further worker of `muster serve --workers N`, which starts it: `python -m admission.cli.serve.worker`; no command.

Its standard input is a line to the first process, which says what it has to do. It ends on SIGTERM, on SIGINT, and when
the first process is gone; its exit codes are those of `muster serve`.
"""

import asyncio
import socket
import sys

from admission import app as application, cli
from admission.cli.serve import command


def main() -> None:
    """Work until told to end."""
    with cli.sentences():
        command.run(_work)


async def _work(stop: asyncio.Event) -> None:
    await application.work(socket.socket(fileno=sys.stdin.fileno()), stop=stop)


if __name__ == "__main__":
    main()
