"""What follows from a grant until it is released."""
