"""EASY backfill: reservations in time for the heads of queues."""
