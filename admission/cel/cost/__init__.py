"""What a CEL expression costs, in cel-go's units."""
