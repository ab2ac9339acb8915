"""Locks with threads."""
