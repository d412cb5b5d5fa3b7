"""Identifications with the verdict that two careful engineers would give, written down before the program was asked.

A case says how a log is made and what each use is judged to be: gravity compensation, feed-forward, simulation. Where two
engineers may differ by one level, both levels stand ("fair|poor"); a case never allows good and poor together. Where a
made fault hardly showed in the torques, the fault was made worse, and the verdict stayed; where a verdict was changed, a
line says so. The simulated arm has three joints: a turning base, an upper arm of 0.4 m and a forearm of 0.35 m, 14 kg
together, with friction, rotor inertia and 0.2 N m of noise on its torques; it is fitted on 20 s and validated on other
10 s.
"""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Case:
    """A log to be judged.

    Attributes:
        gravity, feed_forward, simulation: the level that engineers would give this use; several are parted by "|".
        reason: why.
        make: how the simulated runs differ from those of a sound identification; None for real logs.
        tier: "default" or "ci".
    """

    gravity: str
    feed_forward: str
    simulation: str
    reason: str
    make: dict[str, Any] | None = None
    tier: str = "ci"


SIMULATED = {
    "sound": Case(
        "good",
        "good",
        "good",
        "rich motion, little noise, a CAD model that is 15 % off: everything that matters is determined to a few percent",
        {},
        "default",
    ),
    "kinematics only": Case(
        "good",
        "good",
        "good|fair",
        "the same log, but a model without inertials: torques determine what matters; what they leave open is made up",
        {"inertials": False},
    ),
    "noise": Case(
        "good",
        "good|fair",
        "good|fair",
        "3 N m of white noise: single samples are predicted badly, but 2000 of them average it out, and the filter most of it",
        {"noise": 3.0},
    ),
    "wrong sign": Case(
        "poor", "poor", "poor", "the torque of joint 2 was logged with the other sign", {"gains": (1, -1, 1)}, "default"
    ),
    "wrong gain": Case(
        "fair|poor",
        "fair|poor",
        "poor",
        "joint 3 reads 2.5 times its torque: the forearm weighs another thing at the shoulder than at the elbow",
        {"gains": (1, 1, 2.5)},
    ),
    "delay": Case(
        "good|fair",
        "fair|poor",
        "fair|poor",
        "torques 60 ms late: what depends on acceleration and the friction at reversals is wrong, slow gravity is not",
        {"delay": 0.06},
    ),
    "missing counterbalance": Case(
        "poor",
        "fair|poor",
        "poor",
        "a gas spring at joint 2, which the model has no term for: its torque is no sine and no cosine of q2",
        {"counterbalance": 100.0},
    ),
    # feed-forward was "poor" until it was seen that two thirds of the torques are predicted all the same
    "little excitation": Case(
        "poor",
        "fair|poor",
        "poor",
        "fitted to motion of a few degrees without a CAD model, then asked for torques of motion over the whole range",
        {"span": 0.015, "inertials": False},
        "default",
    ),
    "little excitation, validated by itself": Case(
        "fair|poor",
        "fair|good",
        "poor",
        "motion of a few degrees predicts more of the same, but determines neither gravity elsewhere nor inertia",
        {"span": 0.05, "validate": 0.3},
    ),
    "another robot": Case(
        "poor",
        "poor",
        "poor",
        "the URDF is another arm's: the upper arm's axis is turned by 90 degrees",
        {"axis": "1 0 0"},
    ),
    "another load": Case(
        "poor",
        "poor|fair",
        "poor",
        "4 kg were hung on the tip after the fit: at the elbow, gravity doubled",
        {"load": 4.0},
        "default",
    ),
    "warm gears": Case(
        "good",
        "fair",
        "good|fair",
        "validated on a warm robot with a fifth less friction: gravity holds, feed-forward is off by the friction",
        {"friction": 0.8},
    ),
    "not physically consistent": Case(
        "good|fair",
        "good|fair",
        "poor",
        "plain least squares on a short, noisy run: some link's inertia is not positive definite",
        {"noise": 4.0, "consistent": None, "seconds": 6.0, "inertials": False},
    ),
    "no friction terms": Case(
        "good|fair",
        "fair|poor",
        "fair|poor",
        "friction is neither in the model nor identified: it is left in the residual",
        {"terms": ("armature",)},
    ),
}

REAL = {
    # simulation was "good|fair" until positions were simulated: joint 6 errs six times as much as a coasting robot
    "panda": Case(
        "good",
        "good",
        "poor",
        "torque sensors at the links, rich motion, 1.4 % total error; but the wrist's inertia hardly shows",
    ),
    "panda, with armature": Case(
        "good",
        "good",
        "poor",
        "the same log and the same predictions: rotors behind the sensors are found to be nothing",
    ),
    "rokae": Case(
        "good|fair",
        "fair|poor",
        "poor",
        "poorly excited: half of joint 1's torque is missed, a fifth of joints 3, 5 and 7; simulated positions ran away",
    ),
    "rokae, without armature": Case(
        "good|fair", "fair|poor", "poor", "the same predictions as with armature, so the same verdict"
    ),
    "ur10": Case(
        "good|fair", "fair", "fair|poor", "held-out errors of 6 to 17 %, mostly friction; it was run once, for 27 s"
    ),
    "kr300": Case(
        "poor",
        "poor",
        "poor",
        "the counterbalance of joint 2 is missing: half of its torque is missed on the other run",
    ),
    "tx40": Case(
        "good", "good", "good|fair", "motor torques at 5 kHz, 61 parameters that agree with the published ones"
    ),
    "ur10e": Case(
        "good",
        "good",
        "fair|poor",
        "errors of 4 to 10 % on another run, of point-to-point motion; wrist inertias hardly show",
    ),
    "ur10e, loaded later": Case(
        "poor|fair",
        "poor|fair",
        "poor",
        "fitted without load, validated with 2.8 kg at the flange, which the wrist feels most",
    ),
    "ur10e, a sign": Case("poor", "poor", "poor", "joint 2's current was logged with the other sign"),
    "ur10e, gains": Case(
        "fair|poor",
        "fair|poor",
        "poor",
        "joint 2's gain is taken for twice what it is, so that no one arm fits all joints",
    ),
    "ur10e on the kr300's URDF": Case(
        "fair|poor", "fair|poor", "poor", "another robot's kinematics, with links five times as long"
    ),
}
