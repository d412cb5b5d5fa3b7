"""`save_torque_model`, `load_torque_model`: the whole fitted model in one file, with the terms that a chain cannot hold.

The file is that of `save_model`; further terms stand in its first line by kind and static fields, their numbers behind the
chain's. A term is found again by the name of its class, so that a new one needs nothing here.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import DTypeLike

from ...errors import ModelError
from ...io._model_file import read_model, write_model
from .._friction.model import FrictionModel
from .._friction.terms import FrictionTerm
from .._regression.columns import RECIPES
from .torque_model import TorqueModel


def save_torque_model(model: TorqueModel, path: str | os.PathLike[str], about: Mapping[str, str] | None = None) -> None:
    """Write a model whole to one file (`model.eqx`), for `load_torque_model`: all numbers to the last bit.

    `load_model` reads the same file and gives its chain, with a warning where that is not all. A model that is a chain alone
    gives the file that `save_model` writes.

    Args:
        about: what else is to be said of it, as text; kept in the first line.

    Raises:
        ModelError: it has columns of your own (`ExtraColumns`), functions that no file holds: save it without them,
            `dataclasses.replace(model, extra=(), extra_values=None)`, or keep them in your program; or as `save_model`.
    """
    if own := [name for e in model.extra if e.recipe is None for name in e.names]:
        raise ModelError(
            f"the columns {', '.join(own)} are functions of your own, which a file cannot hold",
            "save the model without them: dataclasses.replace(model, extra=(), extra_values=None)",
        )
    beyond: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    if model.friction is not None:
        assert model.coefficients is not None
        terms = [_described(term) for term in model.friction.terms]
        beyond["friction"] = {"cutoff": model.friction.cutoff, "terms": terms}
        arrays["coefficients"] = model.coefficients
        for k, term in enumerate(model.friction.terms):
            arrays |= {f"terms.{k}.{name}": value for name, value in _numbers(term)}
    if model.extra:
        assert model.extra_values is not None
        beyond["extra"] = [e.recipe for e in model.extra]
        arrays["extra_values"] = model.extra_values
    if model.delay is not None:
        arrays["delay"] = model.delay
    write_model(model.chain, path, about, beyond, arrays)


def load_torque_model(path: str | os.PathLike[str], *, dtype: DTypeLike | None = None) -> TorqueModel:
    """Read a model written by `save_torque_model`, or a chain written by `save_model`, of any version.

    Args:
        dtype: floating-point type of the leaves; that of the file where None.

    Raises:
        ModelError: as `load_model`; a friction term in it is of a class that this process does not have (a subclass of
            `FrictionTerm` of your own: import it first).
    """
    chain, beyond, arrays = read_model(path, dtype)
    try:
        friction = _friction(beyond["friction"], arrays) if "friction" in beyond else None
        extra = tuple(
            RECIPES[name](*(tuple(x) if isinstance(x, list) else x for x in arguments))
            for name, arguments in beyond.get("extra", ())
        )
        numbers = (arrays.get(name) for name in ("extra_values", "delay"))
        return TorqueModel(chain, friction, arrays.get("coefficients"), extra, *numbers)
    except ModelError as error:
        raise ModelError(error.fault, error.remedy, place=path) from None
    except Exception:  # whatever JSON of another form leads to
        raise ModelError("the first line does not describe a model: it was changed by hand", place=path) from None


def _friction(held: Mapping[str, Any], arrays: Mapping[str, Array]) -> FrictionModel:
    kinds, terms = {kind.__name__: kind for kind in _kinds(FrictionTerm)}, []
    for k, said in enumerate(held["terms"]):
        static = {name: tuple(x) if isinstance(x, list) else x for name, x in said["static"].items()}
        if (kind := kinds.get(said["kind"])) is None:
            raise ModelError(
                f"the friction term {said['kind']} is of a class that is not known here",
                "import the module that defines it before",
            )
        start = f"terms.{k}."
        numbers = {name.removeprefix(start): x for name, x in arrays.items() if name.startswith(start)}
        terms.append(kind(**static, **numbers))
    return FrictionModel(tuple(terms), held["cutoff"])


def _described(term: FrictionTerm) -> dict[str, Any]:
    """A term's class and static fields."""
    static = {f.name: getattr(term, f.name) for f in dataclasses.fields(term) if f.metadata.get("static")}
    return {"kind": type(term).__name__, "static": static}


def _numbers(term: FrictionTerm) -> Iterator[tuple[str, Array]]:
    for field in dataclasses.fields(term):
        if not field.metadata.get("static"):
            yield field.name, jnp.asarray(np.asarray(getattr(term, field.name)))


def _kinds(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from _kinds(one)
