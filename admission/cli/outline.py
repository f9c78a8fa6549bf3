"""What help and completion say of each command, read from `outline.json`, so that only running a command imports it.

The modules of commands import clients of databases and clusters, which takes seconds. `make reference` writes the
file from the commands, and a test compares them.
"""

import importlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from admission.cli import apps

PATH = Path(__file__).with_suffix(".json")
PACKAGE = __name__.rpartition(".")[0]

Source = Callable[[], Any]
"""Imports a command or group and returns it."""


class _Param:
    """A parameter with its row of the help and the values that are known. The command itself judges values."""

    def __init__(self, described: Mapping[str, Any], source: Source, **attributes: Any) -> None:
        self._described = described
        self._source = source
        values = described.get("values", ())
        attributes |= {"nargs": described.get("nargs", 1), "autocompletion": lambda *_: list(values)}
        # Without a type typer converts no value, and imports no pydantic for it.
        attributes["type_descriptor"] = None
        super().__init__(**attributes)

    def get_help_record(self, ctx: Any) -> tuple[str, str]:  # noqa: ARG002 - as its base class has it
        left, right = self._described["row"]
        return left, right

    def get_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as its base class has it
        return list(self._described.get("usage", ()))

    def process_value(self, ctx: Any, value: Any) -> Any:  # noqa: ARG002 - as its base class has it
        return value

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        if not self._described.get("asks"):
            return super().shell_complete(ctx, incomplete)  # type: ignore[misc]
        own = {param.name: param for param in self._source().params}[self._described["name"]]
        return own.shell_complete(ctx, incomplete)


class _Option(_Param, TyperOption):
    pass


class _Argument(_Param, TyperArgument):
    pass


class _QuickFlags:
    """A command whose flags, `--help` above all, are False instead of None: typer needs no pydantic to read that."""

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)  # type: ignore[misc]
        for param in found:
            if param.default is None and isinstance(param, TyperOption) and param.is_flag:
                param.default = False
        return found


class _Command(_QuickFlags, TyperCommand):
    """A command that shows its help, refuses unknown options and completes names; for all else it is imported."""

    def __init__(self, source: Source, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._source = source

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the command itself, unless the line is only to be completed."""
        context = super().make_context(info_name, [*args], parent=parent, **extra)
        if context.resilient_parsing:
            return context
        return self._source().make_context(info_name, args, parent=parent, **extra)


class Group(_QuickFlags, TyperGroup):
    """A group; it has no options but flags."""


def commands(modules: Mapping[str, str]) -> dict[str, Any]:
    """Return commands and groups by name. modules: below this package, by the name of the command that each has.

    A command that the file does not have yet is left out, so that the file can be written again.
    """
    described = json.loads(PATH.read_text(encoding="utf-8"))
    return {
        name: _command(name, described[name], partial(load, module))
        for name, module in modules.items()
        if name in described
    }


def load(module: str) -> Any:
    """Return the command or group of a module below this package."""
    return typer.main.get_command(importlib.import_module(f"{PACKAGE}.{module}").app)


def _command(name: str, described: Mapping[str, Any], source: Source) -> _Command | Group:
    shared: dict[str, Any] = {
        "name": name,
        "help": described["help"],
        "epilog": described["epilog"],
        "rich_markup_mode": None,
        "context_settings": apps.CONTEXT,
    }
    if "params" in described:
        return _Command(source, params=[_param(one, source) for one in described["params"]], **shared)
    below: dict[str, Any] = {
        name: _command(name, one, partial(_member, source, name)) for name, one in described["commands"].items()
    }
    return Group(commands=below, no_args_is_help=True, **shared)


def _member(source: Source, name: str) -> Any:
    return source().commands[name]


def _param(described: Mapping[str, Any], source: Source) -> _Param:
    names = [described["name"], *described.get("options", ())]
    if "options" not in described:
        return _Argument(described, source, param_decls=names)
    flag, multiple = described.get("isFlag", False), described.get("multiple", False)
    return _Option(described, source, param_decls=names, is_flag=flag, multiple=multiple)
