"""Values of settings as people may see them: without the passwords that a database's URL may hold."""

import re
from typing import Any

from admission.settings.fields import Field

MASK = "***"

_IN_FRONT = re.compile(r"(?P<start>://[^:/@?]*):.*@", re.DOTALL)
"""`://user:password@`. A password may hold what ends others, so it reaches to the last `@`."""

_AS_PARAMETER = re.compile(r"(?P<start>[?&](?:ssl)?password=)[^&#]*", re.IGNORECASE)


def shown(field: Field, value: Any) -> Any:
    """Return a value, with the password masked where the setting may hold one."""
    if not field.secret or not isinstance(value, str):
        return value
    return _AS_PARAMETER.sub(rf"\g<start>{MASK}", _IN_FRONT.sub(rf"\g<start>:{MASK}@", value))
