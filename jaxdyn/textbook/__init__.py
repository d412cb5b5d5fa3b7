"""Textbook systems as chains: small robots with closed-form equations of motion, linkages, wheeled robots and arms.

Masses are in [kg], lengths in [m], moments of inertia in [kg m^2], angles in [rad], and gravity is a positive magnitude in
[m/s^2]. Each docstring gives M, h = C qd and g in tau = M qdd + h + g, where c_i, s_i and c_ij are cos q_i, sin q_i and
cos(q_i + q_j).
"""

from .._exports import publish as _publish
from . import linkages as linkages, nonholonomic as nonholonomic, robots as robots
from .systems import (
    biped as biped,
    cartesian_two_link as cartesian_two_link,
    coupled_wrist as coupled_wrist,
    elastic_link as elastic_link,
    geared_link as geared_link,
    pendulum as pendulum,
    pendulum_3dof as pendulum_3dof,
    planar_2r_point_masses as planar_2r_point_masses,
    planar_elbow as planar_elbow,
    remotely_driven_elbow as remotely_driven_elbow,
    single_link as single_link,
    spherical_rrp as spherical_rrp,
)

_publish(__name__, "linkages", "nonholonomic", "robots")
