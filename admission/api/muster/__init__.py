"""Objects of Muster, decoded."""
