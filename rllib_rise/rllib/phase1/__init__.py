"""Phase 1: collect observations, fit the bonus on one learner, share it with all.

`collect` runs on the env runners, `fit` on the learners, `cache` keeps fits for other runs, and
`drive` leads them from the algorithm's process.
"""

from rllib_rise.rllib.phase1.drive import Phase1Report, pending_steps, run_phase1, warmup_steps

__all__ = ["Phase1Report", "pending_steps", "run_phase1", "warmup_steps"]
