"""Pinocchio: the reference for all results, called from Python once per state, and its batched functions."""

from collections.abc import Callable

import numpy as np

from ..comparison import Layout
from ..subjects import DT, STEPS, Subject


class Pinocchio:
    """A robot's model in Pinocchio, and the functions that compute the quantities.

    Attributes:
        layout: conversion from jaxdyn's layout to Pinocchio's.
        single: functions f(q, v, a, tau, controls) of one state, by quantity; each uses only the arguments it needs.
    """

    name = "Pinocchio"

    def __init__(self, robot: Subject):
        import pinocchio as pin

        self.pin = pin
        self.model = pin.buildModelFromXML(robot.urdf, *([pin.JointModelFreeFlyer()] if robot.floating else []))
        self.data = self.model.createData()
        self.layout = Layout(robot, list(self.model.names)[1:])
        self.frame = self.model.getFrameId(robot.frame)
        m, d = self.model, self.data
        local = pin.ReferenceFrame.LOCAL

        def step(q, v, tau):
            v = v + DT * pin.aba(m, d, q, v, tau)
            return pin.integrate(m, q, DT * v), v

        def rollout(q, v, controls):
            positions, velocities = [q], [v]
            for tau in controls:
                q, v = step(q, v, tau)
                positions.append(q)
                velocities.append(v)
            return np.array(positions), np.array(velocities)

        def pose(q):
            pin.forwardKinematics(m, d, q)
            return pin.updateFramePlacement(m, d, self.frame)

        self.rollout = rollout
        self.single: dict[str, Callable] = {
            "inverse_dynamics": lambda q, v, a, tau, u: pin.rnea(m, d, q, v, a),
            "mass_matrix": lambda q, v, a, tau, u: pin.crba(m, d, q),
            "crba": lambda q, v, a, tau, u: pin.crba(m, d, q),
            "mass_matrix_inverse": lambda q, v, a, tau, u: pin.computeMinverse(m, d, q),
            "coriolis_matrix": lambda q, v, a, tau, u: pin.computeCoriolisMatrix(m, d, q, v),
            "gravity": lambda q, v, a, tau, u: pin.computeGeneralizedGravity(m, d, q),
            "frame_pose": lambda q, v, a, tau, u: pose(q),
            "jacobian": lambda q, v, a, tau, u: pin.computeFrameJacobian(m, d, q, self.frame, local),
            "forward_dynamics": lambda q, v, a, tau, u: pin.aba(m, d, q, v, tau),
            "inverse_dynamics_derivatives": lambda q, v, a, tau, u: pin.computeRNEADerivatives(m, d, q, v, a),
            "forward_dynamics_derivatives": lambda q, v, a, tau, u: pin.computeABADerivatives(m, d, q, v, tau),
            "regressor": lambda q, v, a, tau, u: pin.computeJointTorqueRegressor(m, d, q, v, a),
            "step": lambda q, v, a, tau, u: step(q, v, tau),
            "rollout": lambda q, v, a, tau, u: rollout(q, v, u),
        }

    def torques(self, state: dict) -> np.ndarray:
        """The torques tau of the rows (q, v, a), in jaxdyn's layout."""
        q, v, a = (self.layout.q(state["q"]), self.layout.vector(state["v"]), self.layout.vector(state["a"]))
        tau = np.array([self.pin.rnea(self.model, self.data, *row) for row in zip(q, v, a, strict=True)])
        ours = np.empty_like(tau)
        ours[:, self.layout.columns] = tau
        return ours

    def rows(self, state: dict) -> list[tuple]:
        """(q, v, a, tau, controls) of each state, in Pinocchio's layout."""
        of = self.layout.vector
        return list(
            zip(
                self.layout.q(state["q"]),
                of(state["v"]),
                of(state["a"]),
                of(state["tau"]),
                of(state["controls"]),
                strict=True,
            )
        )

    def results(self, name: str, state: dict) -> list[np.ndarray]:
        """The results for all states, as arrays in Pinocchio's layout."""
        rows = self.rows(state)
        if name == "rollout_gradient":
            return [np.array([self._gradient(*row) for row in rows])]
        found = [self._arrays(name, self.single[name](*row), row) for row in rows]
        return [np.array(x) for x in zip(*found, strict=True)]

    def parallel(self, name: str, state: dict, threads: int) -> Callable | None:
        """A call that computes a batch without a loop in Python; None if Pinocchio has no such function."""
        function = {"inverse_dynamics": "rneaInParallel", "forward_dynamics": "abaInParallel"}.get(name)
        if function is None or not hasattr(self.pin, function):
            return None
        pool = self.pin.ModelPool(self.model, threads)
        last = state["a"] if name == "inverse_dynamics" else state["tau"]
        arrays = [self.layout.q(state["q"]), self.layout.vector(state["v"]), self.layout.vector(last)]
        columns = [np.asfortranarray(x.T) for x in arrays]
        return lambda: getattr(self.pin, function)(threads, pool, *columns)

    def _arrays(self, name: str, result, row: tuple) -> list[np.ndarray]:
        if name in ("crba", "mass_matrix", "mass_matrix_inverse"):
            upper = np.triu(result)
            return [upper + np.triu(upper, 1).T]
        if name == "coriolis_matrix":
            return [result @ row[1]]
        if name == "frame_pose":
            return [result.homogeneous]
        if name == "inverse_dynamics_derivatives":
            by_q, by_v, by_a = (np.array(x) for x in result)
            return [by_q, by_v, np.triu(by_a) + np.triu(by_a, 1).T]
        if name == "forward_dynamics_derivatives":
            by_q, by_v, by_tau = (np.array(x) for x in result)
            return [by_q, by_v, np.triu(by_tau) + np.triu(by_tau, 1).T]
        return [np.array(x) for x in result] if isinstance(result, tuple) else [np.array(result)]

    def _gradient(self, q, v, a, tau, controls) -> np.ndarray:
        """The gradient of the cost in `quantities`, by fourth-order differences of Pinocchio's rollout, to about 1e-9."""

        def cost(u):
            positions, velocities = self.rollout(q, v, u)
            return np.sum(positions[-1] ** 2) + np.sum(velocities[-1] ** 2)

        gradient, h = np.empty_like(controls), 1e-2
        for i in np.ndindex(STEPS, controls.shape[1]):
            moved = np.zeros_like(controls)
            moved[i] = h
            near, far = (cost(controls + k * moved) - cost(controls - k * moved) for k in (1, 2))
            gradient[i] = (8 * near - far) / (12 * h)
        return gradient
