"""What is wrong with an option is said in plain words, by every command and of every option that it has."""

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from admission import cli
from tests.docs.reference import commands

PYTHON = re.compile(
    r"Traceback|pydantic|Input should|unable to parse|Value error|this should not happen"
    r"|\b(str|int|integer|float|bool|boolean|list|dict|enum|None|NoneType|True|False|ValueError|TypeError)\b|<class|\w\[\w"
)
"""Words of Python and of the libraries that read options."""

TEXTS = {"str", "Path", "list[str]", "list[Path]"}
"""Options of these types take any text; what is wrong with it is said by the command."""

BAD_VALUES = ("no?such", "1.5", "-1", "")


def lines() -> Iterator[tuple[list[str], str]]:
    """Yield lines that the parser has to refuse, each with what the message has to name."""
    for one in commands.every():
        words = one.name.split()[1:]
        yield [*words, "--no-such-option"], "--no-such-option"
        for option in options(one):
            name = max(option.opts, key=len)
            if option.is_flag:
                yield [*words, f"{name}=yes"], name
                continue
            yield [*words, name], name
            if str(option.bare_type()) not in TEXTS:
                yield from (([*words, f"{name}={value}"], name) for value in BAD_VALUES if is_bad(option, value))


def options(one: commands.Command) -> list[Any]:
    return [param for param in one.command.get_params(one.context) if param.param_type_name == "option"]


def is_bad(option: Any, value: str) -> bool:
    """Whether a value is none of the option: numbers may be any, unless they are whole or have bounds."""
    kind = str(option.bare_type())
    if value == "1.5":
        return kind != "float"
    return value != "-1" or kind not in {"int", "float"} or option.min is not None


def test_every_command_says_what_is_wrong_with_an_option_without_words_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
    muster, faults, tried = typer.main.get_command(cli.app), [], 0
    for words, named in lines():
        tried += 1
        try:
            muster.main(words, prog_name="muster", standalone_mode=False)
            message = "nothing"
        except Exception as error:  # noqa: BLE001 - whatever is raised has to be a message for people
            message = error.format_message() if hasattr(error, "format_message") else repr(error)
        if named not in message or PYTHON.search(message):
            faults.append((" ".join(words), message))

    assert not faults
    assert tried > 300
