"""Writes the manual page muster(1) from the commands themselves, in the macros of man(7)."""

import admission
from tests.docs.reference import commands
from tests.docs.reference.commands import Command

HEAD = """\
.\\" Written from admission/cli; change it there and run `make reference`.
.TH MUSTER 1 "" "muster {version}" "User Commands"
.SH NAME
muster \\- queue\\-aware batch admission for Kubernetes clusters that hand out devices by DRA
.SH SYNOPSIS
.B muster
[OPTIONS] COMMAND [ARGS]..."""


def page() -> str:
    """Return the page."""
    every = commands.every()
    lines = [HEAD.format(version=admission.__version__), ".SH OPTIONS", *_options(every[0]), ".SH COMMANDS"]
    for one in every[1:]:
        lines += [f".SS {_text(one.name)}", *_command(one)]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR kubectl (1)", ""])


def _command(one: Command) -> list[str]:
    usage = " ".join(one.command.collect_usage_pieces(one.context))
    lines = [_text(one.command.help or ""), ".PP", f".B {_text(one.name)}", _text(usage), *_options(one)]
    for paragraph in filter(None, (one.command.epilog or "").split("\n\n")):
        if paragraph.startswith("\b"):
            shown = [_text(line.strip()) for line in paragraph.splitlines()[1:]]
            lines += [".PP", shown[0], ".PP", ".nf", ".RS", *shown[1:], ".RE", ".fi"]
        else:
            lines += [".PP", _text(paragraph)]
    return lines


def _options(one: Command) -> list[str]:
    params = [param for param in one.command.get_params(one.context) if param.name != "help"]
    records = filter(None, (param.get_help_record(one.context) for param in params))
    return [line for name, meaning in records for line in (".TP", f".B {_text(name)}", _text(meaning))]


def _text(text: str) -> str:
    """Return text on one line, in which nothing is a macro or an escape; hyphens are those that are typed."""
    line = " ".join(text.replace("\\", "\\e").replace("-", "\\-").split())
    return f"\\&{line}" if line.startswith((".", "'")) else line
