"""A manifest in JSON whose value is changed in place, written back as JSON with the indentation that it had."""

import copy
import json
import re
from dataclasses import dataclass
from typing import Any

_INDENTED = re.compile(r"\A\s*[\[{]\s*?\n([ \t]+)")


@dataclass(slots=True)
class JsonText:
    """A text that is one JSON value. before: a copy of what was read."""

    source: str
    value: Any
    before: Any

    def written(self) -> str:
        """Return the text with all changes; as it was if there are none."""
        if self.value == self.before:
            return self.source
        found = _INDENTED.match(self.source)
        indent = found[1] if found is not None else None
        return json.dumps(self.value, indent=indent, ensure_ascii=False) + "\n"


def read(text: str) -> JsonText | None:
    """Return a text that is JSON; None for another, such as YAML in braces."""
    if text.lstrip()[:1] != "{":
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return JsonText(source=text, value=value, before=copy.deepcopy(value))
