"""What gangs, queues are told in their status."""
