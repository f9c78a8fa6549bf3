"""`muster submit`: a Job in a queue, made from an image."""

__all__ = ["objects"]
