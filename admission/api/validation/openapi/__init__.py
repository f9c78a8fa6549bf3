"""The shape of objects of all kinds, as by the OpenAPI of the API server: names of fields, types of values."""

__all__ = ["field_types", "unknown_fields"]
