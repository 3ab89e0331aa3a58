"""One training run: its loop, its directory, its checkpoints, and how it ends."""
