"""Writes admission/cli/outline.json, by which `muster` shows its help, from the commands themselves."""

import json
from itertools import zip_longest
from typing import Any

import typer
from typer.core import TyperOption

from admission.cli import COMMANDS, outline


def page() -> str:
    """Return the file."""
    described = {name: _described(outline.load(module), None) for name, module in COMMANDS.items()}
    return json.dumps(described, indent=1, ensure_ascii=False) + "\n"


def _described(command: Any, parent: Any) -> dict[str, Any]:
    context = typer.Context(command, parent=parent)
    told = {"help": command.help, "epilog": command.epilog}
    if hasattr(command, "commands"):
        return told | {"commands": {name: _described(one, context) for name, one in command.commands.items()}}
    return told | {"params": [_param(param, context) for param in command.params]}


def _param(param: Any, context: Any) -> dict[str, Any]:
    """Return what `outline._param` makes a parameter of."""
    is_option = isinstance(param, TyperOption)
    # A flag that can be turned off has both names in one word.
    pairs = zip_longest(param.opts, param.secondary_opts, fillvalue="") if is_option else ()
    told = {
        "name": param.name,
        "options": ["/".join(filter(None, pair)) for pair in pairs],
        "isFlag": is_option and param.is_flag,
        "multiple": param.multiple,
        "nargs": param.nargs if param.nargs != 1 else None,
        "row": param.get_help_record(context),
        "usage": param.get_usage_pieces(context),
        "values": [str(choice) for choice in param.type_descriptor.choices or ()],
        # What the cluster has.
        "asks": param._custom_shell_complete is not None,
    }
    return {key: value for key, value in told.items() if value}
