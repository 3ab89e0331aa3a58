"""How an environment tells figures about a finished episode to whoever logs them.

In the info of an episode's last step, under `EPISODE_FIGURES`, stands a dict of names and numbers,
such as `{"one_life_return": 210.0}`. A figure is there only where it came to its end with this
episode. Vector environments give arrays with Gymnasium's masks (`_one_life_return`).
"""

EPISODE_FIGURES = "episode_figures"
