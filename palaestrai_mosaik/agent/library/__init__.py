"""Algorithms that ship with the package, one per file."""
