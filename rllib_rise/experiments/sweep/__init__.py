"""Sweeps with Ray Tune: `rise tune SWEEP.yaml`."""
