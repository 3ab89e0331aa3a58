"""The paper's tables of returns, in thousands: mean and standard deviation over eight seeds."""

from __future__ import annotations

METHODS = {"none": "PPO", "re3": "PPO+RE3", "max-renyi": "PPO+MaxRényi", "rise": "PPO+RISE"}
"""As the tables name them, by our names."""

Numbers = tuple[tuple[float, float], ...]

# In the order of METHODS. The paper speaks of nine games and prints six.
ATARI: dict[str, Numbers] = {
    "assault": ((5.24, 1.86), (5.54, 2.12), (5.68, 1.99), (5.78, 2.44)),
    "battle_zone": ((18.63, 1.96), (20.47, 2.73), (19.17, 3.48), (21.80, 5.44)),
    "demon_attack": ((13.55, 4.65), (17.40, 9.63), (16.18, 8.19), (18.39, 7.61)),
    "kung_fu_master": ((21.86, 8.92), (23.21, 5.74), (27.20, 5.59), (27.76, 5.86)),
    "riverraid": ((7.99, 0.53), (8.14, 0.37), (8.21, 0.36), (10.07, 0.77)),
    "space_invaders": ((0.72, 0.25), (0.89, 0.33), (0.81, 0.37), (1.09, 0.21)),
    "gravitar": (),
    "private_eye": (),
    "solaris": (),
    "montezuma_revenge": (),
}
BULLET: dict[str, Numbers] = {
    "ant": ((2.25, 0.06), (2.36, 0.01), (2.43, 0.03), (2.71, 0.07)),
    "half_cheetah": ((2.36, 0.02), (2.41, 0.02), (2.40, 0.01), (2.47, 0.07)),
    "hopper": ((1.53, 0.57), (2.08, 0.55), (2.23, 0.31), (2.44, 0.04)),
    "humanoid": ((0.83, 0.25), (0.95, 0.64), (1.17, 0.54), (1.24, 0.92)),
    "inverted_pendulum": ((1.00, 0.00), (1.00, 0.00), (1.00, 0.00), (1.00, 0.00)),
    "walker_2d": ((1.66, 0.37), (1.85, 0.71), (1.73, 0.21), (1.96, 0.34)),
}
