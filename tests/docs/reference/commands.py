"""Writes the reference of the command line from the commands themselves."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from admission import cli
from admission.cli import outline
from tests.docs.reference.tables import code, plain, table

HEADER = "<!-- Written from admission/cli; change it there and run `make reference`. -->"
INTRODUCTION = """\
Every command, its arguments and its options, as `--help` tells them. [Commands](../commands.md) says what they are for,
what they print, and what their JSON holds."""

PARSED = "parsed"
"""The attribute of blocks with examples: a test gives them to the parser, and runs nothing."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command or group with its name as it is typed, and its context."""

    name: str
    command: Any
    context: Any


def page() -> str:
    """Return the page of the command line."""
    lines = ["# Command line", "", HEADER, "", INTRODUCTION, ""]
    for one in every():
        lines += _section(one)
    return "\n".join(lines)


def every() -> list[Command]:
    """Return `muster`, and every command and group below it, in the order of the help."""
    return list(_below("muster", typer.main.get_command(cli.app), None))


def _below(name: str, command: Any, parent: Any) -> Iterator[Command]:
    context = typer.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    yield Command(name, command, context)
    if hasattr(command, "list_commands"):
        for word in command.list_commands(context):
            below = command.commands[word]
            if parent is None:
                below = outline.load(cli.COMMANDS[word])
            yield from _below(f"{name} {word}", below, context)


def _section(one: Command) -> list[str]:
    usage = " ".join([one.name, *one.command.collect_usage_pieces(one.context)])
    lines = [
        f"{'#' * (len(one.name.split()) + 1)} {one.name}",
        "",
        *_paragraph(one.command.help),
        "```text synopsis",
        usage,
        "```",
        "",
    ]
    params = [param for param in one.command.get_params(one.context) if param.name != "help"]
    records = (param.get_help_record(one.context) for param in params)
    listed = table(
        ("argument, option", "meaning"), ((code(name), plain(meaning)) for name, meaning in filter(None, records))
    )
    return [*lines, *listed, *([""] if listed else []), *_below_options(one.command.epilog or "")]


def _paragraph(text: str | None) -> list[str]:
    return [plain(text), ""] if text else []


def _below_options(epilog: str) -> list[str]:
    """Return the paragraphs below the options; the first one may list examples."""
    lines: list[str] = []
    for paragraph in filter(None, epilog.split("\n\n")):
        listed = paragraph.replace("\b", "").strip("\n")
        if listed.startswith("Examples:"):
            shown = [line.strip() for line in listed.splitlines()[1:]]
            lines += ["Examples:", "", f"```shell {PARSED}", *shown, "```", ""]
        else:
            lines += [plain(listed), ""]
    return lines


def parse(line: str) -> None:
    """Give the parser what stands behind `muster` in a line that is typed; raises what it says if that is wrong."""
    for part in _piped(line):
        words = shlex.split(part)
        if words[:1] == ["muster"]:
            _parse(words[1:])


def unknown(line: str) -> list[str]:
    """Return what of a command in a sentence does not exist: its words up to the first argument, and its options.

    It may be written as in a synopsis, `muster fence list|lift [DRIVER…]`, and need not have its arguments.
    """
    first, *rest = re.sub(r"[\[\]…]", " ", line).split()
    assert first == "muster", line
    known = {one.name: one for one in every()}
    names = [first]
    while rest and all(f"{name} {word}" in known for name in names for word in rest[0].split("|")):
        names = [f"{name} {word}" for name in names for word in rest.pop(0).split("|")]
    grouped = [name for name in names if hasattr(known[name].command, "list_commands")]
    missing = [word for word in rest[:1] if grouped and not word.startswith("-") and not word.isupper()]
    for name in names:
        params = known[name].command.get_params(known[name].context)
        options = {option for param in params for option in (*param.opts, *param.secondary_opts)}
        missing += [word for word in rest if word.startswith("-") and word.partition("=")[0] not in options]
    return missing


def _piped(line: str) -> Iterator[str]:
    """Yield the commands of a pipe; a `|` between quotes is none."""
    lexer = shlex.shlex(line, posix=False, punctuation_chars="|;&>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|;&>"):
            yield " ".join(words)
            words = []
        else:
            words.append(word)
    yield " ".join(words)


def _parse(words: list[str]) -> None:
    command: Any = typer.main.get_command(cli.app)
    context = None
    while True:
        context = command.make_context("muster", words, parent=context)
        if not hasattr(command, "list_commands"):
            return
        _, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
