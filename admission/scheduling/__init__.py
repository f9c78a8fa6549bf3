"""Whether a gang may start now."""
