"""`python -m tests.image install`: what `make deps-image` runs."""

import argparse
import sys

from tests.image import programs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.image", description=__doc__)
    parser.add_argument("command", choices=("install",))
    parser.parse_args()
    try:
        programs.install()
    except programs.ProgramsMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
