"""Locks for threads."""
