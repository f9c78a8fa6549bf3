"""Muster's own objects at the door: what is refused of them, and what their author should know."""
