"""`python -m tests.promtool install`: what `make deps` runs."""

import argparse
import sys

from tests.promtool import programs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.promtool", description=__doc__)
    parser.add_argument("command", choices=("install",))
    parser.parse_args()
    programs.install()
    return 0


if __name__ == "__main__":
    sys.exit(main())
