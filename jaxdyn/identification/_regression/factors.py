"""Triangular factors of a stacked regressor (`QRFactors`): merging, exchange between processes, and files."""

import io
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..._jax_compat import process_allgather
from ...errors import IdentificationError, OutputError
from ...io._files import write_whole


class QRFactors(NamedTuple):
    """Triangular factors of the stacked regressor and torque, one per joint.

    Attributes:
        r: (n, p + 1, p + 1) factors for p columns; the last column is the torque.
        counts: (n,) number of samples in each joint's factor.
    """

    r: np.ndarray
    counts: np.ndarray

    def with_signs(self, signs: Float[np.ndarray, " n"]) -> "QRFactors":
        """The factors after multiplying each joint's torque by its sign."""
        r = self.r.copy()
        r[:, :, -1] *= signs[:, None]
        return QRFactors(r, self.counts)

    def joint_rms(self, kept: Int[np.ndarray, " b"], values: Float[np.ndarray, " b"]) -> Float[np.ndarray, " n"]:
        """RMS torque residual of each joint, for given parameter values of the `kept` columns."""
        residual = self.r[:, :, -1] - self.r[:, :, kept] @ values
        return np.sqrt((residual**2).sum(1) / np.maximum(self.counts, 1))


def merge_factors(*factors: QRFactors) -> QRFactors:
    """Merge the factors of several parts of the samples, by a QR decomposition of the stacked factors.

    The merged factor R of each joint satisfies R^T R = sum_k R_k^T R_k. Up to rounding errors, R therefore does not
    depend on the devices, or on the order in which samples are accumulated.

    Raises:
        IdentificationError: there are no factors, or they come from different robots or columns.
    """
    if not factors:
        raise IdentificationError("there are no factors to merge; pass at least one")
    shapes = {f.r.shape for f in factors}
    if len(shapes) > 1:
        raise IdentificationError(
            f"factors of shapes {' and '.join(map(str, sorted(shapes)))} are incompatible: they must come from one "
            "robot and the same columns"
        )
    return QRFactors(combined([f.r for f in factors]), np.sum([f.counts for f in factors], axis=0))


def merge_over_processes(factors: QRFactors) -> QRFactors:
    """Merge the factors of all processes, and return the merged factors on every process.

    Call `jax.distributed.initialize` first. Each process passes the factors of its own samples. With only one process,
    the factors are returned unchanged. Each process sends 8 n (p + 1)^2 bytes, however many samples there are.

    Args:
        factors: factors of this process's samples.

    Raises:
        IdentificationError: the factors of the processes come from different robots or columns.
    """
    import jax

    if jax.process_count() == 1:
        return factors
    counts = np.asarray(factors.counts, np.float64)
    with jax.enable_x64(True):
        r, counts = process_allgather((np.asarray(factors.r, np.float64), counts))
    return merge_factors(*(QRFactors(np.asarray(a), np.asarray(b).astype(int)) for a, b in zip(r, counts, strict=True)))


def save_factors(path: str | os.PathLike[str], factors: QRFactors) -> None:
    """Save factors to an .npz archive that contains the arrays `r` and `counts`.

    The file is written completely or not at all.

    Args:
        path: the file to write.
        factors: the factors to save.

    Raises:
        OutputError: the file cannot be written. An existing file remains unchanged.
    """
    held = io.BytesIO()
    np.savez(held, r=factors.r, counts=factors.counts)
    write_whole(path, held.getvalue(), OutputError)


def load_factors(path: str | os.PathLike[str]) -> QRFactors:
    """Load factors saved by `save_factors`, for example to continue an accumulation.

    Args:
        path: the file.

    Raises:
        IdentificationError: the file is missing, or was not written by `save_factors`.
    """
    name = os.fspath(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            r, counts = np.asarray(archive["r"]), np.asarray(archive["counts"])
    except FileNotFoundError:
        raise IdentificationError(f"{name}: there is no such file; check the path") from None
    except Exception as error:
        raise IdentificationError(f"{name}: not a file written by `save_factors`: {error}") from None
    if r.dtype.kind != "f" or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise IdentificationError(
            f"{name}: invalid factors: r has type {r.dtype} and must be float; counts have type {counts.dtype} and must be "
            "integers >= 0"
        )
    if r.ndim != 3 or r.shape[1] != r.shape[2] or counts.shape != r.shape[:1] or not np.isfinite(r).all():
        raise IdentificationError(
            f"{name}: invalid factors: r has shape {r.shape} and must be finite with shape (n, p + 1, p + 1); counts have "
            f"shape {counts.shape} and must have shape (n,)"
        )
    return QRFactors(r, counts)


def combined(factors: Sequence[Float[np.ndarray, "n w w"]]) -> Float[np.ndarray, "n w w"]:
    """Merge several factors of each joint into one."""
    return factors[0] if len(factors) == 1 else triangles_of(np.concatenate(factors, axis=1))


def triangle_of(rows: Float[np.ndarray, "*batch m w"]) -> Float[np.ndarray, "*batch k w"]:
    """Factor R of a QR decomposition, computed by Householder reflections."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def triangles_of(rows: Float[np.ndarray, "n m w"]) -> Float[np.ndarray, "n w w"]:
    """Triangular factor of each joint's rows, padded with rows of zeros.

    In a kinematic tree, a joint's rows are zero in the columns of all links that the joint does not move. These
    columns, and rows of zeros, are excluded from the decomposition.
    """
    r = np.zeros((len(rows), rows.shape[2], rows.shape[2]), rows.dtype)
    for joint, x in enumerate(rows):
        seen, filled = np.flatnonzero(x.any(axis=0)), x.any(axis=1)
        if len(seen):
            small = triangle_of(x[filled][:, seen])
            r[joint, seen[: len(small), None], seen] = small
    return r
