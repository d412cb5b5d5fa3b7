"""The process that runs one stage of `gpu_card`: it compiles programs in threads, and runs and times them one at a time.

It prints `@running NAME` before it runs an item, and `@record JSON` after it.
"""

import functools
import importlib
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn.parallel import kernel_vmap
from tests.helpers import random_chain, random_mechanism

from . import launches, subjects

GROUP = 16  # number of programs that are compiled at a time before they are timed
PATIENCE, LONGEST = 40.0, 110.0  # seconds that a group waits for its programs, and after which one is given up
MOST = 65536  # number of different states; larger batches repeat them
SOLVED = ("forward dynamics", "step", "rollout", "gradient", "derivatives of forward dynamics")
TOLERANCES = {"float32": (1e-5, 2e-3), "float64": (1e-12, 1e-10)}  # the second of quantities in SOLVED
DT = 1e-3

Tree = Any
Item = dict[str, Any]
Record = dict[str, Any]


class Broken(Exception):
    """The card no longer runs any program in this process."""


@functools.cache
def robot(name: str) -> jaxdyn.Chain:
    if name == "panda":
        return jaxdyn.robots.panda()
    if name == "floating tree":
        return random_mechanism(0, coupled=False)
    if name == "humanoid":  # 29 joints and a floating base, like a G1
        urdf = subjects.plain(jaxdyn.io.to_urdf(subjects.subject("tree-29").chain))
        return jaxdyn.io.loads(urdf, floating_base="root_joint", allow_nonphysical=True)
    return random_chain(int(name.removeprefix("chain-")), 0, "revolute")


def rounded(x: Tree, dtype: Any) -> Tree:
    """Arrays of NumPy with the values of float32, so that all precisions compute the same."""
    return jax.tree.map(lambda x: np.asarray(np.asarray(x, np.float32), dtype), x)


def model(name: str, dtype: Any) -> jaxdyn.Chain:
    with jax.default_device(jax.devices("cpu")[0]):
        return jax.tree.map(jnp.asarray, rounded(robot(name), dtype))


@functools.cache
def states(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random positions, velocities, and accelerations or torques, of the robot."""
    chain, rng = robot(name), np.random.default_rng(0)
    count = MOST if chain.nq == chain.nv or name == "humanoid" else 4097
    v, a = rng.normal(size=(2, count, chain.nv))
    q = rng.normal(size=(count, chain.nq))
    for first in quaternions(name):
        q[:, first : first + 4] /= np.linalg.norm(q[:, first : first + 4], axis=1, keepdims=True)
    return q, v, a


def quaternions(name: str) -> list[int]:
    """The first of the four coordinates of each quaternion."""
    chain = robot(name)
    if chain.nq == chain.nv:
        return []
    sample = jax.vmap(lambda key: jaxdyn.random_configuration(chain, key))
    with jax.default_device(jax.devices("cpu")[0]):
        q = np.asarray(sample(jax.random.split(jax.random.key(0), 8)))
    found, k = [], 0
    while k + 4 <= chain.nq:
        if np.allclose(np.sum(q[:, k : k + 4] ** 2, axis=1), 1, atol=1e-5):
            found.append(k)
            k += 4
        else:
            k += 1
    if len(found) != chain.nq - chain.nv:
        raise ValueError(f"{name}: found quaternions at {found}, expected {chain.nq - chain.nv}")
    return found


def steps_of(quantity: str) -> int:
    words = quantity.split()
    return int(words[-2]) if words[-1] == "steps" else 0


def program(x: Item, dtype: Any, over: Callable[..., Callable]) -> tuple[Callable, list[np.ndarray]]:
    """The batched function of an item, with the robot's parameters as constants, and its arguments."""
    chain, dt, quantity = model(x["robot"], dtype), dtype(np.float32(DT)), x["quantity"]
    steps, batch = steps_of(quantity), x["batch"]
    three = [np.resize(y, (batch, *y.shape[1:])) if batch > len(y) else y[:batch] for y in states(x["robot"])]
    q, v, a = rounded(three, dtype)
    if quantity.startswith("gradient"):

        def swing(q, qd, gain):
            pd = lambda t, q, qd: -gain[0] * q - gain[1] * qd
            end = jaxdyn.rollout(chain, q, qd, pd, dt, steps, every=steps)
            return jnp.sum(end[0][-1] ** 2) + jnp.sum(end[1][-1] ** 2)

        batched = over(swing, (0, 0, None))
        gains = rounded(np.stack([np.full(chain.nv, 2.0), np.full(chain.nv, 1.0)]), dtype)
        return jax.grad(lambda *y: jnp.sum(batched(*y)), (0, 1, 2)), [q, v, gains]
    if steps:
        policy = lambda t, q, qd: -qd
        return over(lambda q, qd: jaxdyn.rollout(chain, q, qd, policy, dt, steps, every=steps), (0, 0)), [q, v]
    if quantity == "mass matrix":
        return over(lambda q: jaxdyn.mass_matrix(chain, q), 0), [q]
    if quantity == "crba":
        return over(lambda q: jaxdyn.crba(chain, q), 0), [q]
    if quantity == "coriolis matrix":
        return over(lambda q, qd: jaxdyn.coriolis_matrix(chain, q, qd), 0), [q, v]
    of_state = {
        "inverse dynamics": lambda *y: jaxdyn.inverse_dynamics(chain, *y),
        "forward dynamics": lambda *y: jaxdyn.forward_dynamics(chain, *y),
        "regressor": lambda *y: jaxdyn.regressor(chain, *y),
        "derivatives of inverse dynamics": lambda *y: jaxdyn.inverse_dynamics_derivatives(chain, *y),
        "derivatives of forward dynamics": lambda *y: jaxdyn.forward_dynamics_derivatives(chain, *y),
        "step": lambda q, qd, tau: jaxdyn.step(chain, q, qd, tau, dt),
    }
    return over(of_state[quantity], 0), [q, v, a]


class Compiled:
    """A program that was compiled for one device, with its arguments there."""

    lock = threading.Lock()  # tracing is Python: in several threads at a time, it would only be slower

    def __init__(self, function: Callable, given: list[np.ndarray], device: Any):
        place = jax.sharding.SingleDeviceSharding(device)
        shapes = [jax.ShapeDtypeStruct(y.shape, y.dtype, sharding=place) for y in given]
        with self.lock:
            start = time.perf_counter()
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                lowered = jax.jit(function).lower(*shapes)
            self.trace_seconds = time.perf_counter() - start
        start = time.perf_counter()
        self.program = lowered.compile()
        self.seconds = self.trace_seconds + time.perf_counter() - start
        self.fell_back = [str(w.message) for w in warned if w.category.__name__ == "FallbackWarning"]
        self.given, self.device = given, device

    def kernels(self) -> dict[str, Any]:
        """The number of kernels, and the bytes that they read and write, according to XLA."""
        try:
            total = launches.launched(launches.computations(self.program.as_text() or ""))
        except Exception as error:
            return {"kernels": None, "text": why(error)}
        return {"kernels": total.kernels, "moved": total.moved}

    def arguments(self) -> list[jax.Array]:
        return [jax.device_put(y, self.device) for y in self.given]


class Stage:
    """The items of a stage, with their references, and the time limit."""

    def __init__(self, plan: dict):
        self.plan, self.items = plan, plan["items"]
        self.deadline = time.monotonic() + plan["seconds"] - 3
        self.device, self.cpu = jax.devices()[0], jax.devices("cpu")[0]
        workers = 1 if plan["serial"] else max(min((os.cpu_count() or 2) - 1, GROUP), 2)
        self.pool = ThreadPoolExecutor(workers)
        self.references: dict[tuple, Future] = {}
        self.rows = {x["robot"]: max(y["batch"] for y in self.items if y["robot"] == x["robot"]) for x in self.items}

    def over(self, form: str) -> Callable[..., Callable]:
        if form == "vmap":
            return lambda function, in_axes=0: jax.vmap(function, in_axes)
        return lambda function, in_axes=0: kernel_vmap(function, in_axes, interpret=self.plan["interpret"])

    def compiled(self, x: Item) -> Compiled:
        dtype = np.dtype(x["precision"]).type
        if self.plan["broken"] and (x["quantity"], x["precision"]) == ("coriolis matrix", "float64"):
            os._exit(139)
        return Compiled(*program(x, dtype, self.over(x["form"])), self.device)

    def reference(self, x: Item) -> Future:
        """The results in float64 on the CPU, for the largest batch of this robot; a gradient's depend on its batch."""
        rows = x["batch"] if x["quantity"].startswith("gradient") else self.rows[x["robot"]]
        key = x["robot"], x["quantity"], rows

        def compute() -> list[np.ndarray]:
            made = Compiled(*program({**x, "batch": rows}, np.float64, self.over("vmap")), self.cpu)
            return [np.asarray(y) for y in jax.tree.leaves(made.program(*made.arguments()))]

        if key not in self.references:
            self.references[key] = self.pool.submit(compute)
        return self.references[key]

    # -- the loop over items

    def run(self) -> None:
        check = self.items[0]["stage"] == "check"
        if self.plan["serial"]:
            for x in self.items:
                if self.late():
                    return
                running(x["name"])
                future = self.submit(x)
                wait([future], timeout=LONGEST)
                self.finish(x, future)
        elif check:
            self.stream()
        else:
            self.groups()

    def late(self) -> bool:
        return time.monotonic() > self.deadline

    def submit(self, x: Item) -> Future:
        if x["stage"] == "check":
            self.reference(x)
        return self.pool.submit(self.compiled, x)

    def stream(self) -> None:
        """Run each item as soon as it is compiled."""
        pending = {self.submit(x): x for x in self.items}
        while pending and not self.late():
            done, _ = wait(pending, timeout=2, return_when=FIRST_COMPLETED)
            if not done:
                running("")
            for future in done:
                x = pending.pop(future)
                if not self.late():
                    self.finish(x, future)

    def groups(self) -> None:
        """Compile a group of items, then time those that are compiled while nothing else runs."""
        left, pending, since = list(self.items), {}, {}
        while (left or pending) and not self.late():
            while left and len(pending) < GROUP:
                x = left.pop(0)
                pending[future := self.submit(x)] = x
                since[future] = time.monotonic()
            start = time.monotonic()
            while not self.late() and time.monotonic() - start < PATIENCE:
                _, waiting = wait(pending, timeout=2)
                running("")
                if not waiting:
                    break
            for future in list(pending):
                if self.late():
                    return
                if future.done():
                    x = pending.pop(future)
                    self.finish(x, future, sum(not y.done() for y in pending))
                elif time.monotonic() - since[future] > LONGEST:
                    x = pending.pop(future)
                    record({**x, "failed": f"not compiled after {LONGEST:.0f} s"})

    def finish(self, x: Item, future: Future, compiling: int = 0) -> None:
        """Run an item, and record its result or why there is none."""
        running(x["name"])
        try:
            if self.plan["broken"]:
                sabotage(x)
            made = future.result(timeout=0)
            found = self.check(x, made) if x["stage"] == "check" else self.time(x, made)
            facts = {"compile_seconds": made.seconds, "trace_seconds": made.trace_seconds, **made.kernels()}
            record({**x, **found, **facts, "fell_back": made.fell_back, "compiling": compiling})
        except TimeoutError:
            record({**x, "failed": f"not compiled after {LONGEST:.0f} s"})
        except Exception as error:
            record({**x, "failed": why(error)})
            alive(self.device)
        running("")

    # -- what is measured

    def check(self, x: Item, made: Compiled) -> dict[str, Any]:
        given = made.arguments()
        first, second = (jax.tree.leaves(jax.block_until_ready(made.program(*given))) for _ in range(2))
        first, second = ([np.asarray(y) for y in z] for z in (first, second))
        wanted = self.reference(x).result(timeout=max(self.deadline - time.monotonic(), 1))
        errors = []
        for y, z in zip(first, wanted, strict=True):
            if not x["quantity"].startswith("gradient"):
                z = z[: x["batch"]]
            if y.shape != z.shape:
                raise AssertionError(f"shape {y.shape} instead of {z.shape}")
            if not np.isfinite(y).all():
                raise AssertionError(f"{np.size(y) - np.isfinite(y).sum()} of {np.size(y)} numbers are not finite")
            errors.append(float(np.abs(y - z).max() / max(np.abs(z).max(), 1e-300)) if z.size else 0.0)
        tolerance = TOLERANCES[x["precision"]][any(x["quantity"].startswith(y) for y in SOLVED)]
        identical = all(np.array_equal(y, z) for y, z in zip(first, second, strict=True))
        found: dict[str, Any] = {
            "error": max(errors, default=0.0),
            "tolerance": tolerance,
            "repeats_identical": identical,
        }
        problems = [] if found["error"] < tolerance else [f"differs by {found['error']:.1e}, more than {tolerance:.0e}"]
        problems += [] if identical else ["two calls differ"]
        return found | ({"failed": "; ".join(problems)} if problems else {})

    def time(self, x: Item, made: Compiled) -> dict[str, Any]:
        found = timed(made.program, made.arguments())
        steps = steps_of(x["quantity"])
        best = min(found["seconds"], found["queued"])
        found["steps_per_second"] = steps * x["batch"] / best if steps else None
        statistics = self.device.memory_stats() or {}
        found["peak_bytes"] = statistics.get("peak_bytes_in_use")
        return found


def timed(function: Callable, given: list[jax.Array]) -> dict[str, Any]:
    """The median time of a call that waits for its result, and the time per call of several that do not wait [s]."""
    call = lambda: jax.block_until_ready(function(*given))
    call()
    start = time.perf_counter()
    call()
    once = time.perf_counter() - start
    repeats = int(np.clip(0.4 / once, 3, 50))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    queued = int(np.clip(0.3 / once, 1, 50))
    result = None
    start = time.perf_counter()
    for _ in range(queued):
        result = function(*given)
    jax.block_until_ready(result)
    rate = (time.perf_counter() - start) / queued
    return {"seconds": float(np.median(times)), "queued": rate, "least": min(times), "repeats": repeats}


# -- other libraries


def others(plan: dict) -> None:
    """MJX on the same robot, written by the library; its forward dynamics are compared before anything is timed."""
    deadline = time.monotonic() + plan["seconds"] - 3
    try:
        mjx, there, blank, error = mjx_model()
    except Exception as failure:
        for x in plan["items"]:
            record({**x, "failed": why(failure)})
        return
    q, v, a = rounded(states("panda"), np.float32)
    data = lambda q, v, tau: blank.replace(qpos=q, qvel=v, qfrc_applied=tau)

    def step(q, v, tau):
        after = mjx.step(there, data(q, v, tau))
        return after.qpos, after.qvel

    def roll(steps):
        def rolled(q, v, tau):
            advance = lambda d, _: (mjx.step(there, d.replace(qfrc_applied=-d.qvel)), None)
            end, _ = jax.lax.scan(advance, data(q, v, tau), None, steps)
            return end.qpos, end.qvel

        return rolled

    def compiled(x):
        steps = steps_of(x["quantity"])
        forward = lambda q, v, tau: mjx.forward(there, data(q, v, tau)).qacc
        function = roll(steps) if steps else step if x["quantity"] == "step" else forward
        return Compiled(jax.vmap(function), [y[: x["batch"]] for y in (q, v, a)], jax.devices()[0])

    pool = ThreadPoolExecutor(4)
    ours = [x for x in plan["items"] if x["form"] == "MJX"]
    for x in plan["items"]:
        if x["form"] != "MJX":
            record({**x, "failed": "not measured: needs warp-lang"})
    pending = {pool.submit(compiled, x): x for x in ours}
    while pending and time.monotonic() < deadline:
        done, _ = wait(pending, timeout=2, return_when=FIRST_COMPLETED)
        running("")
        for future in done:
            x = pending.pop(future)
            running(x["name"])
            try:
                made = future.result()
                found = timed(made.program, made.arguments())
                steps = steps_of(x["quantity"])
                best = min(found["seconds"], found["queued"])
                found["steps_per_second"] = steps * x["batch"] / best if steps else None
                facts = {"compile_seconds": made.seconds, "error": error, "compiling": len(pending), **made.kernels()}
                record({**x, **found, **facts})
            except Exception as failure:
                record({**x, "failed": why(failure)})
            running("")


def mjx_model() -> tuple[Any, Any, Any, float]:
    """MJX, its model and data of the Panda, and the relative difference of its forward dynamics from the library's."""
    mujoco: Any = importlib.import_module("mujoco")
    mjx: Any = importlib.import_module("mujoco.mjx")
    chain = robot("panda")
    spec = mujoco.MjSpec.from_string(jaxdyn.io.to_mjcf(chain))
    off = mujoco.mjtDisableBit
    spec.option.disableflags |= int(off.mjDSBL_CONSTRAINT) | int(off.mjDSBL_LIMIT) | int(off.mjDSBL_CONTACT)
    spec.option.timestep = DT
    compiled = spec.compile()
    q, v, tau = rounded([y[:16] for y in states("panda")], np.float32)
    there = mjx.put_model(compiled)
    blank = mjx.make_data(there)
    forward = lambda q, v, tau: mjx.forward(there, blank.replace(qpos=q, qvel=v, qfrc_applied=tau)).qacc
    found = np.asarray(jax.jit(jax.vmap(forward))(q, v, tau))
    small = model("panda", np.float32)
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = np.asarray(jax.jit(jax.vmap(lambda *y: jaxdyn.forward_dynamics(small, *y)))(q, v, tau))
    return mjx, there, blank, float(np.abs(found - wanted).max() / np.abs(wanted).max())


# -- the process


def why(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def running(name: str) -> None:
    print(f"@running {name}", flush=True)


def record(found: Record) -> None:
    print(f"@record {json.dumps(found, default=float)}", flush=True)


def alive(device: Any) -> None:
    """Raise `Broken` if the device no longer computes, for example after an illegal access to memory."""
    try:
        if float(jax.device_put(np.float32(1), device) + 1) == 2:
            return
    except Exception as error:
        raise Broken(why(error)) from None
    raise Broken("1 + 1 is not 2")


def sabotage(x: Item) -> None:
    """Fail in each of the ways that the script has to survive, at certain items."""
    if (x["quantity"], x["precision"]) == ("crba", "float32"):
        raise ValueError("broken on purpose")
    if (x["quantity"], x["precision"]) == ("crba", "float64"):
        print("crash on purpose", flush=True)
        os._exit(139)
    if (x["quantity"], x["precision"]) == ("regressor", "float32") and x["form"] == "vmap":
        print("hang on purpose", flush=True)
        time.sleep(1000)


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    other = plan["items"][0]["stage"] == "other"
    jax.config.update("jax_enable_compilation_cache", False)  # compile times are measured
    # in float32, throughput is that of users who have not enabled double precision; checks need it for their references
    jax.config.update(
        "jax_enable_x64", any(x["precision"] == "float64" or x["stage"] == "check" for x in plan["items"])
    )
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and "cpu" not in platforms:  # references are computed on the CPU
        jax.config.update("jax_platforms", f"{platforms},cpu")
    code = 0
    try:
        print(f"device: {jax.devices()[0].device_kind}, {len(jax.devices())}", flush=True)
        if other:
            others(plan)
        else:
            Stage(plan).run()
    except Broken as error:
        print(f"the device is lost: {error}", flush=True)
        code = 3
    sys.stdout.flush()
    os._exit(code)  # without waiting for programs that are still being compiled


if __name__ == "__main__":
    main()
