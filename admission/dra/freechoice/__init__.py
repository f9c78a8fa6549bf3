"""A gang over nodes, device choice made by Muster."""
