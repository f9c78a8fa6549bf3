"""Typed values of API objects.

Modules define frozen values with a `decode`, which turns an API object (a parsed JSON mapping) into a value or raises
`errors.MalformedObjectError` with the paths of all wrong fields. No JSON mapping passes beyond this package, except the
parts of objects that Muster copies or patches as JSON.
"""

__all__ = [
    "capacity",
    "device_use",
    "kubernetes",
    "listings",
    "muster",
    "scheduling",
    "snapshot",
    "storage",
    "suggestions",
    "traces",
    "validation",
    "values",
]
