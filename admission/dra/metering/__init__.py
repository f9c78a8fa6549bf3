"""What devices cost on meters."""
