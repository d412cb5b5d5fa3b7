"""Preparation of payload fits: the link that carries the payload, known parameters, and preprocessing of runs."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError, ModelError
from ...io._logs.log import Log, check_log
from ...io._logs.motion import coordinate_names
from ...model._chain import Chain, frame_index
from ...spatial.inertia import transform_inertial_parameters
from .._preprocessing.samples import Filters, Samples, preprocess_alike
from .._regression.robot import check_identifiable

Runs = Log | Samples | Sequence[Log | Samples]


def carrier(chain: Chain, frame: str | None) -> tuple[int, np.ndarray]:
    """Index of the link that carries a payload, and pose of the payload's frame in this link.

    Raises:
        IdentificationError: the frame is unknown or fixed to the base, or the robot has a floating base or spherical
            joints.
    """
    check_identifiable(chain)
    try:
        link, index = frame_index(chain, frame)
    except ModelError as error:
        raise IdentificationError(f"the payload's frame: {error}") from None
    if link < 0:
        raise IdentificationError(
            f"the payload's frame {frame!r} is fixed to the base, so no joint carries the payload; specify a moving link"
        )
    return link, np.eye(4) if index is None else np.asarray(chain.frame_poses[index], float)


def given_body(
    mass: float, com: Sequence[float] | np.ndarray | None, pose: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Vector `known` and matrix `free` in p = known + free @ z, for a known mass and, optionally, centre of mass."""
    known = np.zeros(10)
    known[0] = mass
    if com is None:
        return known, np.eye(10)[:, 1:]
    centre = np.asarray(com, float)
    if centre.shape != (3,) or not np.all(np.isfinite(centre)):
        raise IdentificationError(f"the payload's centre of mass is {com}; specify three coordinates in metres")
    known[1:4] = mass * (pose[:3, :3] @ centre + pose[:3, 3])
    return known, np.eye(10)[:, 4:]


def prepare_runs(
    chain: Chain, unloaded: Runs, loaded: Runs, filters: Filters | None
) -> tuple[list[tuple[Samples, bool]], list[str]]:
    """Preprocess all runs with the same filters, flag them as loaded (True) or unloaded, and collect notes for the user.

    Raises:
        IdentificationError: a run has the wrong number of joints, or there is no loaded run.
        LogError: a log looks as if it were in degrees (`check_log`).
    """
    groups = [[group] if isinstance(group, Log | Samples) else list(group) for group in (unloaded, loaded)]
    given = [(run, on) for on, group in enumerate(groups) for run in group]
    for run, on in given:
        if run.n != chain.nv:
            name = run.source if isinstance(run, Log) else f"{'loaded' if on else 'unloaded'} run"
            raise IdentificationError(
                f"{name}: the run has {run.n} joints, but the model has {chain.nv}: {', '.join(coordinate_names(chain))}"
            )
    if not groups[1]:
        raise IdentificationError("there is no run with the payload; pass at least one")
    given = [(check_log(run, chain, allow_still=True) if isinstance(run, Log) else run, on) for run, on in given]
    runs, notes = [], []
    for (run, on), samples in zip(given, preprocess_alike([run for run, _ in given], filters), strict=True):
        runs.append((samples, bool(on)))
        if isinstance(run, Log):
            notes += [f"{run.source}: {note}" for note in dict.fromkeys(samples.notes)]
    return runs, notes


def transform_matrix(pose: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "10 10"]:
    """Matrix T in p_a = T p_b, which transforms the ten inertial parameters from frame b to frame a.

    `pose` is the pose of b in a. Call this function with x64 enabled.
    """
    return np.asarray(_transformed(jnp.asarray(pose), jnp.eye(10)))


@jax.jit
def _transformed(pose, parameters):
    return jax.vmap(transform_inertial_parameters, in_axes=(None, 1), out_axes=1)(pose, parameters)
