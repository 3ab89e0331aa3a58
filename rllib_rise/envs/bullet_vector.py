"""Several of PyBullet's robots at once, stepped faster and equal to the last bit.

pybullet-envs-gymnasium asks the simulation for one link or joint at a time, for many of them again
and again, and computes with arrays of three numbers. Here the simulation of a robot is asked once
for all links and once for all joints, and what follows is computed for all robots together. Sums
keep the package's order and products of vectors go through its BLAS functions: other last digits
would be other paths some steps later.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rllib_rise.envs import bullet

_Flags = NDArray[np.bool_]
_Moved = tuple[NDArray[np.float32], NDArray[np.float64], _Flags]


class BulletVector(gym.vector.SyncVectorEnv):
    """A `gymnasium.vector.SyncVectorEnv` of `bullet.make` whose steps go to the simulations.

    All else is left to the environments in `envs`. Of the attributes that their own `step` would
    leave behind (`rewards`, `body_xyz`) they have those of the last reset.

    Args:
        env_id: Of a robot of the subclass's kind.
        num_envs: Number of robots.
        arguments: Those of `bullet.make`.

    Raises:
        MissingExtraError: If pybullet or pybullet-envs-gymnasium is not installed.
    """

    _autoreset_envs: _Flags

    def __init__(self, env_id: str, num_envs: int = 1, **arguments: Any) -> None:
        super().__init__([partial(bullet.make, env_id, **arguments)] * num_envs)
        import pybullet

        self._bullet = pybullet
        self._bare = [env.unwrapped for env in self.envs]
        self._max_steps = self.envs[0].spec.max_episode_steps or math.inf
        self._steps = np.zeros(num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start new episodes, in all environments or in those of `options["reset_mask"]`."""
        begun = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=np.bool_))
        obs, infos = super().reset(seed=seed, options=options)
        self._steps[begun] = 0
        for i in np.flatnonzero(begun).tolist():
            self._begin(i)
        return obs, infos

    def step(
        self, actions: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], _Flags, _Flags, dict[str, Any]]:
        """Move the robots; where an episode is over, begin the next one instead."""
        actions = np.ascontiguousarray(actions).reshape(self.action_space.shape)
        over = self._autoreset_envs
        if not np.isfinite(actions[~over]).all():
            raise ValueError(f"actions must be finite, got {actions}")
        for i in np.flatnonzero(over).tolist():
            self._restart(i)
        obs, rewards, terminated = self._move(actions, ~over)
        self._steps = np.where(over, 0, self._steps + 1)
        truncated = self._steps >= self._max_steps
        rewards[over], terminated[over] = 0.0, False
        self._autoreset_envs = terminated | truncated
        self._env_obs = obs.copy()  # a reset of some environments returns those of all
        return obs, rewards, terminated, truncated, {}

    def _begin(self, index: int) -> None:
        """Take over from the reset of an environment."""

    def _restart(self, index: int) -> None:
        """Reset a robot that `_move` is about to observe."""
        self._bare[index].reset()

    def _move(self, actions: NDArray[Any], moving: _Flags) -> _Moved:
        """Observations of all robots; rewards and ends of those that move."""
        raise NotImplementedError


class PendulumVector(BulletVector):
    """InvertedPendulum."""

    def __init__(self, env_id: str, num_envs: int = 1, **arguments: Any) -> None:
        super().__init__(env_id, num_envs, **arguments)
        slider, hinge = self._bare[0].robot.slider, self._bare[0].robot.j1
        self._joints = [slider.jointIndex, hinge.jointIndex]
        self._body = slider.bodies[slider.bodyIndex]

    def _move(self, actions: NDArray[Any], moving: _Flags) -> _Moved:
        bullet, body, joints = self._bullet, self._body, self._joints
        forces = 100 * np.clip(actions[:, 0], -1, 1).astype(np.float64)
        read = []
        for env, force, moves in zip(self._bare, forces.tolist(), moving.tolist(), strict=True):
            client = env.physicsClientId
            if moves:
                bullet.setJointMotorControl2(
                    body, joints[0], bullet.TORQUE_CONTROL, force=force, physicsClientId=client
                )
                bullet.stepSimulation(physicsClientId=client)
            slider, hinge = bullet.getJointStates(body, joints, physicsClientId=client)
            read.append((*slider[:2], *hinge[:2]))
        x, speed, angle, turning = np.array(read).T.copy()
        obs = np.array((x, speed, np.cos(angle), np.sin(angle), turning), dtype=np.float32)
        return obs.T.copy(), np.ones(self.num_envs), np.abs(angle) > 0.2


class WalkerVector(BulletVector):
    """Hopper, Walker2D, HalfCheetah, Ant and Humanoid."""

    def __init__(self, env_id: str, num_envs: int = 1, **arguments: Any) -> None:
        super().__init__(env_id, num_envs, **arguments)
        robot = self._bare[0].robot
        (self._body,) = robot.objects
        ((self._ground, _),) = self._bare[0].ground_ids

        joints = robot.ordered_joints
        self._joints = [joint.jointIndex for joint in joints]
        self._lower = np.array([joint.lowerLimit for joint in joints])
        self._range = np.array([joint.upperLimit for joint in joints]) - self._lower
        self._humanoid = hasattr(robot, "motor_power")
        powers = robot.motor_power if self._humanoid else [joint.power_coef for joint in joints]
        self._gains = robot.power * np.array(powers)

        parts = dict(robot.parts)
        self._floor = tuple(parts.pop("floor").current_position())
        self._torso = list(parts.values()).index(robot.robot_body)
        self._torso_is_base = robot.robot_body.bodyPartIndex == -1
        self._links = [part.bodyPartIndex for part in parts.values() if part.bodyPartIndex != -1]
        self._feet = [foot.bodyPartIndex for foot in robot.feet]

        self._contacts = np.zeros((num_envs, len(self._feet)), dtype=np.float32)
        self._initial_z = np.zeros(num_envs)
        self._potential = np.zeros(num_envs)
        self._rotation = np.tile(np.eye(3), (num_envs, 1, 1))
        for i in range(num_envs):
            self._begin(i)

    def _begin(self, index: int) -> None:
        env = self._bare[index]
        self._contacts[index] = 0.0
        env.robot.feet_contact = self._contacts[index]
        self._initial_z[index] = env.robot.initial_z
        self._potential[index] = env.potential

    def _restart(self, index: int) -> None:
        robot = self._bare[index].robot
        # The robot's own takes most of the time of a reset.
        robot.calc_state = partial(_find_initial_z, robot)
        super()._restart(index)
        del robot.calc_state
        self._begin(index)

    def _move(self, actions: NDArray[Any], moving: _Flags) -> _Moved:
        robot = self._bare[0].robot
        # Of all robots only the humanoid's forces have the precision of its actions.
        precision = np.result_type(actions, 0.0) if self._humanoid else np.float64
        forces = self._gains.astype(precision) * np.clip(actions, -1, 1)
        joints, places, turns, speeds, touched = self._simulate(forces.tolist(), moving)

        relative = np.empty(joints.shape, dtype=np.float32)
        relative[..., 0] = 2 * (joints[..., 0] - self._lower) / self._range - 1.0
        relative[..., 1] = 0.1 * joints[..., 1]
        # A copy, for sums over an axis that is not contiguous have another order.
        x, y, _ = places.transpose(2, 0, 1).copy().mean(axis=-1)
        z = places[:, self._torso, 2]
        roll, pitch, yaw = turns.T
        to_y, to_x = robot.walk_target_y - y, robot.walk_target_x - x
        to_target = np.stack((to_y, to_x), axis=1)
        angle = np.arctan2(to_y, to_x) - yaw
        self._rotation[:, 0, 0] = self._rotation[:, 1, 1] = np.cos(-yaw)
        self._rotation[:, 1, 0] = np.sin(-yaw)
        self._rotation[:, 0, 1] = -self._rotation[:, 1, 0]
        velocity = 0.3 * (self._rotation @ speeds[:, :, None])[:, :, 0]
        posture = (z - self._initial_z, np.sin(angle), np.cos(angle), *velocity.T, roll, pitch)
        parts = (np.array(posture, dtype=np.float32).T, relative.reshape(self.num_envs, -1))
        obs = np.concatenate((*parts, self._contacts), axis=1)
        obs.clip(-5, 5, out=obs)

        alive, terminated = self._alive(obs, pitch.tolist())
        # Only here: observations and the cheetah's bonus have the contacts of the step before.
        self._contacts[:] = touched
        distance = np.sqrt(np.vecdot(to_target, to_target))
        return obs, self._sum_rewards(actions, relative, distance, alive), terminated

    def _simulate(self, forces: list[list[float]], moving: _Flags) -> Any:
        """Step those that move, read from all: joints, parts, torso (2), feet on the ground."""
        bullet, body, joints = self._bullet, self._body, self._joints
        read = []
        for env, force, moves in zip(self._bare, forces, moving.tolist(), strict=True):
            client = env.physicsClientId
            if moves:
                bullet.setJointMotorControlArray(
                    body, joints, bullet.TORQUE_CONTROL, forces=force, physicsClientId=client
                )
                bullet.stepSimulation(physicsClientId=client)
            hinges = bullet.getJointStates(body, joints, physicsClientId=client)
            links = bullet.getLinkStates(
                body, self._links, not self._torso_is_base, physicsClientId=client
            )
            places = [link[0] for link in links]
            if self._torso_is_base:
                place, turn = bullet.getBasePositionAndOrientation(body, physicsClientId=client)
                speed, _ = bullet.getBaseVelocity(body, physicsClientId=client)
                places.insert(self._torso, place)
            else:
                place, turn, *_, linear, angular = links[self._torso]
                # As the package has it: in place of y, how fast the torso turns around z.
                speed = (linear[0], angular[2], linear[2])
            places.append(self._floor)
            env.robot.body_real_xyz = place  # where the camera looks
            contacts = bullet.getContactPoints(body, self._ground, physicsClientId=client)
            touching = {contact[3] for contact in contacts}
            feet = [moves and foot in touching for foot in self._feet]
            angles = bullet.getEulerFromQuaternion(turn)
            read.append(([hinge[:2] for hinge in hinges], places, angles, speed, feet))
        return map(np.array, zip(*read, strict=True))

    def _alive(self, obs: NDArray[np.float32], pitch: list[float]) -> tuple[list[float], _Flags]:
        """The bonus for being alive, and where it or a number that is none ends the episode."""
        terminated: _Flags = np.isnan(obs.sum(axis=1))
        for i, env in enumerate(self._bare):
            env._alive = float(env.robot.alive_bonus(obs[i, 0] + env.robot.initial_z, pitch[i]))
            terminated[i] |= env._isDone()
        return [env._alive for env in self._bare], terminated

    def _sum_rewards(
        self,
        actions: NDArray[Any],
        joints: NDArray[np.float32],
        distance: NDArray[np.float64],
        alive: list[float],
    ) -> NDArray[np.float64]:
        """Bonus + progress towards the target + costs of the motors and of joints at a limit."""
        env = self._bare[0]
        before, self._potential = self._potential, -distance / env.scene.dt
        electricity = env.electricity_cost * _row_means(np.abs(actions * joints[..., 1]))
        electricity += env.stall_torque_cost * _row_means(np.square(actions))
        at_limit = env.joints_at_limit_cost * (np.abs(joints[..., 0]) > 0.99).sum(axis=1)
        terms = (self._potential - before, electricity, at_limit)
        # By Python's sum, which compensates for rounding from Python 3.12 on.
        rows = zip(alive, *(term.tolist() for term in terms), strict=True)
        return np.array([sum(row) for row in rows])


def _find_initial_z(robot: Any) -> NDArray[Any]:
    """What a reset needs of `WalkerBase.calc_state`; its result is not looked at."""
    if robot.initial_z is None:
        robot.initial_z = robot.robot_body.pose().xyz()[2]
    return np.empty(0)


def _row_means(values: NDArray[Any]) -> NDArray[np.float64]:
    return values.mean(axis=1).astype(np.float64)
