"""What the books say of usage."""
