"""What a leader keeps from one cycle to the next, part by part."""

__all__ = ["leader", "pending_pods"]
