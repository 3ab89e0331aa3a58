"""Sending a run or a sweep to a Ray cluster."""
