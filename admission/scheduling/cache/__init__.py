"""Answers of earlier cycles that still stand."""
