"""The leader's loops: wait for the lease, then run admission cycles whenever something has changed."""

__all__ = ["admission_loop", "leadership", "standby", "status_writer"]
