"""Arguments of wrong shapes: every public function names the argument, its shape and the expected one."""

import inspect
import typing

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import AbstractArray

import jaxdyn
from jaxdyn.model import Chain, layouts

NAMESPACES = (
    jaxdyn,
    jaxdyn.dynamics,
    jaxdyn.mechanisms,
    jaxdyn.trajectory,
    jaxdyn.control,
    jaxdyn.simulation,
    jaxdyn.model,
    layouts,
)
ARM, FLOATING = jaxdyn.textbook.planar_elbow(), jaxdyn.textbook.biped(floating=True)
BUILDERS = {"make_chain", "from_dh", "from_screws"}  # accept anything that broadcasts


def form_of(annotation):
    """The axes of an argument that must be an array of numbers with a known number of axes."""
    choices = [x for x in typing.get_args(annotation) if x is not type(None)] or [annotation]
    if not all(isinstance(x, type) and issubclass(x, AbstractArray) for x in choices) or len(choices) > 1:
        return None
    form = choices[0].dim_str.split()
    return form if form and all(axis in ("n", "nq", "nv") or axis.isdigit() for axis in form) else None


def functions():
    """Public functions of a chain, with the axes of their array arguments."""
    found = {}
    for space in NAMESPACES:
        for name in dir(space):
            function = getattr(space, name)
            if name.startswith("_") or not inspect.isfunction(function) or name in BUILDERS:
                continue
            parameters = inspect.signature(function).parameters.values()
            if any(p.annotation is Chain for p in parameters):
                forms = {p.name: form_of(p.annotation) for p in parameters}
                if any(forms.values()):
                    found[name] = function, forms
    return found


FUNCTIONS = functions()


def test_many_functions_are_covered():
    assert len(FUNCTIONS) > 80 and {"integrate", "to_mujoco_state", "computed_torque"} <= FUNCTIONS.keys()


def wrong(shape, chain):
    """Shapes near to a right one: an axis more or less, an entry more, and the number of velocities for that of positions."""
    yield from ((), (*shape, 1), (5, *shape), (3, 5, *shape), (shape[0] + 1, *shape[1:]))
    if chain.nq != chain.nv and shape[0] in (chain.nq, chain.nv):
        yield (chain.nq + chain.nv - shape[0], *shape[1:])


@pytest.mark.parametrize("chain", [ARM, FLOATING], ids=["arm", "floating"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_shapes_are_refused_by_every_function(name, chain, annotations_unchecked):
    function, forms = FUNCTIONS[name]
    sizes = {"n": chain.n, "nq": chain.nq, "nv": chain.nv}
    shape_of = lambda form: tuple(int(axis) if axis.isdigit() else sizes[axis] for axis in form)
    right = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.annotation is Chain:
            right[parameter.name] = chain
        elif forms[parameter.name]:
            right[parameter.name] = jnp.zeros(shape_of(forms[parameter.name]))
        elif parameter.default is inspect.Parameter.empty:
            right[parameter.name] = None  # not reached: shapes are checked first
    for argument in (x for x in right if forms[x]):
        shape = right[argument].shape
        for given in wrong(shape, chain):
            with pytest.raises(jaxdyn.JaxdynError, match=rf"\b{argument}\b") as caught:
                function(**right | {argument: np.zeros(given)})
            assert str(given) in str(caught.value) and str(shape) in str(caught.value)
            if given[-len(shape) :] == shape:
                assert "jax.vmap" in str(caught.value)


def test_poses():
    arm = jaxdyn.robots.panda()
    pose = jaxdyn.frame_pose(arm, jnp.full(7, 0.3))
    scaled = pose.at[:3, :3].multiply(1.1)
    for target in (
        jnp.eye(3),
        pose[:3],
        pose.T,
        jnp.zeros(7),
        jnp.stack([pose, pose]),
        scaled,
        pose.at[:3, 0].multiply(-1.0),
    ):
        with pytest.raises(jaxdyn.TrajectoryError, match="target"):
            jaxdyn.inverse_kinematics(arm, target)
    with pytest.raises(jaxdyn.TrajectoryError, match="weights have shape"):
        jaxdyn.inverse_kinematics(arm, pose, weights=(1.0, 1.0, 1.0))
