"""Experiments as files: train, evaluate, compare, and the statistics and pages about them."""
