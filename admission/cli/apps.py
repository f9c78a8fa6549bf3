"""The constructors of all commands and groups, so that they look and behave alike."""

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand

WIDTH = 110
"""The most columns of help texts."""

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}


class _SeveralArguments(TyperArgument):
    """An argument that takes several words. typer's help shows such a one with its type in Python, `<list[str]>`."""

    def display_type_rich(self, ctx: Any) -> str | None:  # noqa: ARG002 - as its base class has it
        return None


class _Command(TyperCommand):
    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        for param in self.params:
            if isinstance(param, TyperArgument) and param.nargs == -1:
                # typer makes its arguments itself, of no other class.
                param.__class__ = _SeveralArguments


class _Application(typer.Typer):
    def command(self, *names: Any, **settings: Any) -> Any:
        return super().command(*names, **{"cls": _Command, **settings})


def single() -> typer.Typer:
    """Return an application for one command."""
    return _Application(rich_markup_mode=None, add_completion=False, context_settings=CONTEXT)


def group() -> typer.Typer:
    """Return an application for a group of commands; its callback's docstring is its help."""
    return _Application(rich_markup_mode=None, add_completion=False, context_settings=CONTEXT, no_args_is_help=True)


def epilog(examples: Sequence[str], *paragraphs: str) -> str:
    """Return the text below the options: examples as they are typed, one per line, and paragraphs."""
    # Help text is rewrapped by paragraph, except for paragraphs that begin with a backspace character.
    listed = "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])
    return "\n\n".join([listed, *paragraphs])
