"""The steps of an admission cycle, one module for each."""
