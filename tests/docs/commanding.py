"""Runs what pages tell people to type, and compares what they show with what comes.

A block of the language `shell` is a script. One of the language `console` has commands after `$ `, going on after `> `,
and behind each what it prints. Attributes behind the language, which no reader sees, say how a block is run:

    skip="…"      nowhere, for this reason; a test counts them
    parsed        nowhere: an example of the help, which is given to the parser of the command line
    offline       without a cluster
    last          on a cluster, when all other pages are done
    apart         on a cluster of its own: another way to do what a page has done already
    eventually    again and again until it exits and prints as shown: it asks for what comes with time
    anywhere      the nodes and devices that it shows may be others: which are free first is chance
    exits="3"     its last command ends with this exit code
    since=1.36    on a cluster of this Kubernetes or a later one: before it there is not what the block is about
    serves="URL"  its only command goes on until somebody ends it, and meanwhile this URL answers
"""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs import pages
from tests.docs.pages import Block

LANGUAGES = ("shell", "console")
ATTRIBUTES = ("skip", "parsed", "offline", "last", "apart", "eventually", "anywhere", "exits", "since", "serves")
LOOKS = "curl -sS --fail --location --retry 5 --retry-connrefused --output /dev/null -H Accept:text/html"
"""Asks for a page, as a browser does, until somebody answers; anything but a page is a failure."""

SECONDS = 120
PATIENCE = 90.0
SECONDS_BETWEEN_LOOKS = 0.5
HANGS_UP = "trap '{ kill $(jobs -p) && wait; } 2>/dev/null || true' EXIT"
"""Ends what runs in the background when a block is done; it would hold on to the output, and to its port."""

CHANGING = {
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?",
    r"\b[0-9a-f]{12,}\b": r"[0-9a-f]{12,}",
    r"-(?=[a-z]*[0-9])[0-9a-z]{5}\b": r"-[0-9a-z]{5}",
    r"\b(\d+[dhms])+\b": r"(\d+[dhms])+",
    r"\b\d+\.\d+\b": r"[\d.]+",
    r"…": r".*?",
}
"""What differs from run to run where a page shows it: times, digests, ends of names, ages, hours, what is left out."""

PLACES = {r"\bnode-[a-z]\b": r"node-[a-z]", r"\bgpu-\d+\b": r"gpu-\d+"}
"""What differs as well where it is chance which devices are free first."""


class Differs(AssertionError):  # noqa: N818 - named by what happened
    """A command did not do what its page says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command of a block, what the page shows that it prints (None: nothing is shown), and its exit code."""

    block: Block
    command: str
    shown: str | None
    exits: int = 0


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where commands are typed: a folder, and the environment."""

    folder: Path
    environment: Mapping[str, str]

    def run(self, block: Block) -> None:
        """Run a block; raises Differs with its place, its words and what came of them."""
        for step in steps(block):
            deadline = time.monotonic() + (PATIENCE if "eventually" in block.attributes else 0.0)
            while (difference := self._difference(step)) and time.monotonic() < deadline:
                time.sleep(SECONDS_BETWEEN_LOOKS)
            if difference:
                raise Differs(difference)

    def _difference(self, step: Step) -> str:
        """Run a step, and say how what came of it differs; empty where it does not."""
        done = self._typed(step.command)
        if done.returncode == step.exits and (step.shown is None or self._is_shown(step, done.stdout)):
            return ""
        told = (
            f"{step.block.place}: {step.command}\nexit code {done.returncode}, the page says {step.exits}; it printed\n"
        )
        return f"{told}{done.stdout}\n--- the page shows\n{step.shown or '(nothing)'}"

    @staticmethod
    def _is_shown(step: Step, printed: str) -> bool:
        assert step.shown is not None
        changing = {**CHANGING, **PLACES} if "anywhere" in step.block.attributes else CHANGING
        return is_like(step.shown, printed, changing)

    def _typed(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            # `timeout` ends what the command has started as well, with exit code 124.
            ["timeout", str(SECONDS), "/bin/bash", "-euo", "pipefail", "-c", f"{HANGS_UP}\n{command}"],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


def steps(block: Block) -> list[Step]:
    """Return the commands of a block, in order."""
    if url := block.attributes.get("serves"):
        return [Step(block=block, command=f"{block.text} &\n{LOOKS} {url}\nkill -0 $!", shown=None)]
    found = [Step(block=block, command=block.text, shown=None)] if block.language == "shell" else list(_typed(block))
    assert found, f"{block.place}: there is no command in it; each begins with `$ `"
    last = found[-1]
    exits = int(block.attributes.get("exits", "0"))
    return [*found[:-1], Step(block=block, command=last.command, shown=last.shown, exits=exits)]


def _typed(block: Block) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        while lines and lines[0].startswith("> "):
            command = f"{command}\n{lines.pop(0).removeprefix('> ')}"
        yield Step(block=block, command=command, shown="\n".join(lines) if lines else None)


def is_like(shown: str, printed: str, changing: Mapping[str, str] = CHANGING) -> bool:
    """Whether output is what a page shows, but for what changes from run to run, line ends and the width of columns."""
    kinds = {f"kind{number}": printed for number, printed in enumerate(changing.values())}
    one_of = re.compile("|".join(f"(?P<{kind}>{text})" for kind, text in zip(kinds, changing, strict=True)))
    pieces, begin = [], 0
    text = " ".join(shown.split())
    for found in one_of.finditer(text):
        kind = next(kind for kind in kinds if found[kind] is not None)
        pieces += [re.escape(text[begin : found.start()]), kinds[kind]]
        begin = found.end()
    pattern = "".join([*pieces, re.escape(text[begin:])])
    return re.fullmatch(pattern, " ".join(printed.split()), flags=re.DOTALL) is not None


def blocks() -> list[Block]:
    """Return every block of every page with something to type."""
    return [block for name in pages.names() for block in pages.blocks(name) if block.language in LANGUAGES]


def runs(block: Block, *, offline: bool) -> bool:
    """Whether a block is run, there where there is no cluster or there where there is one that pages share."""
    return not {"skip", "parsed", "apart"} & block.attributes.keys() and ("offline" in block.attributes) == offline
