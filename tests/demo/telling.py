"""How the demo speaks: headings, sentences, and commands with what they print."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

MUSTER = Path(sys.executable).with_name("muster")
WIDEST = 160
FINE = (0, 3, 4)
"""Exit codes of commands that did their work: nothing waits, something is held, something is denied."""


class Teller:
    """Writes to the standard output, with colours where a person looks."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(highlight=False, quiet=quiet, soft_wrap=False)

    def heading(self, text: str) -> None:
        self._console.print()
        if self._console.is_terminal:
            self._console.print(Rule(Text(text, style="bold"), align="left", style="cyan"))
        else:
            self._console.print(Text(f"=== {text}"), soft_wrap=True)

    def say(self, text: str) -> None:
        """Write a sentence."""
        self._console.print(Text(text), soft_wrap=True)

    async def run(self, *commands: str, env: Mapping[str, str]) -> None:
        """Run `muster` with the words of each command, side by side, and show them and their output in order."""
        run = (muster(*command.split(), env={**env, **self._look()}) for command in commands)
        for command, (code, output) in zip(commands, await asyncio.gather(*run), strict=True):
            self._show(command, output)
            if code not in FINE:
                raise StoryError(f"`muster {command}` ended with {code}: {output}")

    async def run_wrong(self, command: str, *, code: int, env: Mapping[str, str]) -> str:
        """Run `muster` where it has to end with an exit code of its own, show it, and return what it wrote."""
        ended, output = await muster(*command.split(), env={**env, **self._look()})
        self._show(command, output)
        if ended != code:
            raise StoryError(f"`muster {command}` ended with {ended}, not with {code}: {output}")
        return output

    def _show(self, command: str, output: str) -> None:
        self._console.print(Text(f"$ muster {command}", style="bold green"), soft_wrap=True)
        for line in output.rstrip().splitlines():
            self._console.print(Text("  ").append_text(Text.from_ansi(line)), soft_wrap=True)
        self._console.print()

    def _look(self) -> dict[str, str]:
        """Let commands draw their tables for our terminal, though they write to a pipe."""
        if not self._console.is_terminal:
            return {}
        return {"FORCE_COLOR": "1", "COLUMNS": str(min(self._console.width - 2, WIDEST))}


class StoryError(Exception):
    """The story took another turn than it should; the message says where."""


async def muster(*words: str, env: Mapping[str, str]) -> tuple[int, str]:
    """Run `muster`; return its exit code, and what it wrote to output and errors."""
    process = await asyncio.create_subprocess_exec(
        str(MUSTER),
        *words,
        env={**os.environ, **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
