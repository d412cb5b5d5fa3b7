"""Vectors and matrices as tuples of scalars: NumPy, JAX or SymPy scalars, or arrays of them over a batch.

Separate arrays for the components let XLA fuse an entire step of a scan over links into a few unit-stride loops over
the batch; docs/design.md compares the speed with that of packed vectors.

- `Vec` is (x, y, z).
- `Mat` contains the nine entries of a matrix in row-major order.
- `Sym` is a symmetric matrix (xx, xy, yy, xz, yz, zz), in the order of the ten inertial parameters.
"""

import functools
import operator
from collections.abc import Sequence
from types import ModuleType
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

Component = Any
"""An array, or an object that supports the same arithmetic, such as the symbolic values of `jaxdyn.symbolic.generate`."""
Vec = tuple[Component, Component, Component]
Mat = tuple[Component, ...]
Sym = tuple[Component, ...]
A = TypeVar("A", Array, np.ndarray)  # functions of NumPy arrays return NumPy arrays
Values = ArrayLike | Array | float | Sequence[Any]  # ArrayLike alone makes checkers reject tuples and numbers


def module_of(x: Any) -> ModuleType:
    """NumPy for NumPy arrays, which keep float64 whatever JAX's default type; `jax.numpy` for all others."""
    return np if isinstance(x, np.ndarray) else jnp


def stacked(like: Any, entries: Sequence[Any]) -> Any:
    """The entries as an array of NumPy or of JAX, as `like` is; `np.stack` takes five times as long as `np.array`."""
    return np.array(entries) if isinstance(like, np.ndarray) else jnp.stack(entries)


def add(*vectors: Sequence[Component]) -> tuple[Component, ...]:
    """Entrywise sum of tuples of equal length."""
    total = tuple(vectors[0])
    for v in vectors[1:]:
        total = tuple(a + b for a, b in zip(total, v, strict=True))
    return total


def sub(a: Sequence[Component], b: Sequence[Component]) -> tuple[Component, ...]:
    """Entrywise difference a - b."""
    return tuple(x - y for x, y in zip(a, b, strict=True))


def scale(s: Component | float | int, v: Sequence[Component]) -> tuple[Component, ...]:
    """Product s v of a scalar and a vector."""
    return tuple(s * x for x in v)


def dot(a: Sequence[Component], b: Sequence[Component]) -> Component:
    """Dot product a . b of two tuples of equal length."""
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


def cross(a: Sequence[Component], b: Sequence[Component]) -> tuple[Component, ...]:
    """Cross product a x b."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def rotate(r: Mat, v: Sequence[Component]) -> tuple[Component, ...]:
    """Product R v of a matrix and a vector."""
    return (dot(r[0:3], v), dot(r[3:6], v), dot(r[6:9], v))


def unrotate(r: Mat, v: Sequence[Component]) -> tuple[Component, ...]:
    """Product R^T v of a transposed matrix and a vector."""
    return (dot(r[0::3], v), dot(r[1::3], v), dot(r[2::3], v))


def matmul(a: Mat, b: Mat) -> Mat:
    """Matrix product A B."""
    return tuple(dot(a[3 * i : 3 * i + 3], b[j::3]) for i in range(3) for j in range(3))


def transpose(a: Mat) -> Mat:
    """Transposed matrix A^T."""
    return (*a[0::3], *a[1::3], *a[2::3])


def skew(v: Any, zero: Component = 0) -> Mat:
    """The matrix [v] with [v] u = v x u (Lynch & Park 2017, sec. 3.2.1)."""
    x, y, z = v[0], v[1], v[2]
    return (zero, -z, y, z, zero, -x, -y, x, zero)


_GENERATORS = np.array([skew(axis) for axis in np.eye(3)])


def skew_matrix(v: A) -> A:
    """The matrix [v] as an array."""
    if isinstance(v, np.ndarray):
        return (v @ _GENERATORS.astype(v.dtype, copy=False)).reshape(3, 3)
    return jnp.stack(skew(v, jnp.zeros_like(v[0]))).reshape(3, 3)


def rotation_of_rpy(cosines: Any, sines: Any) -> Mat:
    """The rotation Rz(yaw) Ry(pitch) Rx(roll), from the cosines and sines of (roll, pitch, yaw)."""
    (cr, cp, cy), (sr, sp, sy) = cosines, sines
    return (
        *(cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr),
        *(sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr),
        *(-sp, cp * sr, cp * cr),
    )


def skew_times(p: Sequence[Component], m: Mat) -> Mat:
    """Product [p] M, where [p] is the skew-symmetric matrix of p."""
    return transpose(tuple(x for j in range(3) for x in cross(p, m[j::3])))


def move_wrench(r: Mat, p: Sequence[Component], wrench: Sequence[Component]) -> tuple[Component, ...]:
    """The wrench (R n + p x R f, R f) in frame a of (n, f) in frame b, whose pose in frame a is (R, p)."""
    force = rotate(r, wrench[3:])
    return (*add(rotate(r, wrench[:3]), cross(p, force)), *force)


def sym_apply(s: Sym, v: Sequence[Component]) -> tuple[Component, ...]:
    """Product S v of a symmetric matrix and a vector."""
    xx, xy, yy, xz, yz, zz = s
    return (dot((xx, xy, xz), v), dot((xy, yy, yz), v), dot((xz, yz, zz), v))


def sym_to_mat(s: Sym) -> Mat:
    """All nine entries of a symmetric matrix."""
    xx, xy, yy, xz, yz, zz = s
    return (xx, xy, xz, xy, yy, yz, xz, yz, zz)


def mat_to_sym(m: Mat) -> Sym:
    """The six independent entries of a symmetric matrix."""
    return (m[0], m[1], m[4], m[2], m[5], m[8])


def sym_congruence(r: Mat, s: Sym) -> Sym:
    """Symmetric matrix R S R^T for a symmetric matrix S."""
    rs = matmul(r, sym_to_mat(s))
    rows = (rs[0:3], rs[3:6], rs[6:9])
    cols = (r[0:3], r[3:6], r[6:9])
    return tuple(dot(rows[i], cols[j]) for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)))


def unstack(x: Array) -> tuple[Array, ...]:
    """The entries of a 1-D array, as a tuple of scalars."""
    return tuple(x[i] for i in range(x.shape[0]))


def zeros(count: int, *groups: Sequence[Array]) -> tuple[Array, ...]:
    """Zeros with the batch axes of arrays whose first 1, 2, ... axes (first, second, ... group) are those of components."""
    firsts = [x[(0,) * axes] for axes, group in enumerate(groups, 1) for x in group]
    return (jnp.zeros_like(functools.reduce(operator.add, firsts)),) * count


def rotation_about(axis: Float[np.ndarray, "3"], angle: float) -> Float[np.ndarray, "3 3"]:
    """Rotation exp([axis] angle) about a unit axis, with NumPy."""
    k = skew_matrix(axis)
    return np.eye(3) + (np.sin(angle) * k + 2 * np.sin(angle / 2) ** 2 * (k @ k))
