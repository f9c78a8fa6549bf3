"""`python -m tests.postgres install`: what `make deps` runs. `… up`: a server to try things by hand, until Ctrl-C."""

import argparse
import signal
import sys

from tests.postgres import programs
from tests.postgres.serving import Server, StartFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.postgres", description=__doc__)
    parser.add_argument("command", choices=("install", "up"))
    try:
        return _up() if parser.parse_args().command == "up" else _install()
    except (programs.ProgramsMissing, StartFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _install() -> int:
    programs.install()
    return 0


def _up() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with Server(fsync=True) as server:
            print(server.url("postgres"), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
