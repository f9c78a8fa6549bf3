"""Decodes objects of Kubernetes from JSON, or writes them to it.

Every module here has frozen values and a `decode` that turns an API object (a parsed JSON mapping) into one, raising
`errors.MalformedObjectError` with all field paths that are wrong. No JSON mapping passes beyond this package.
"""

__all__ = ["kubernetes", "muster", "snapshot", "traces", "validation", "values"]
