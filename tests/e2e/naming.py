"""`python -m tests.e2e.naming NAME serve …`: `muster` on a machine of that name, as a container has its pod's."""

import socket
import sys

from admission import cli


def main() -> None:
    name = sys.argv.pop(1)
    socket.gethostname = lambda: name
    cli.main()


if __name__ == "__main__":
    main()
