"""Runs the leader's loops: wait for the lease, then an admission cycle whenever something has changed."""

__all__ = ["admission_loop", "leadership", "standby", "status_writer"]
