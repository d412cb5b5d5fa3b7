"""Diagnostics of runs and identifications: torque signs, gravity, gains, excitation, run length, and the prior model.

All but gravity are found from one set of triangular factors of the regressor, in blocks."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import IdentificationError, LogError
from ..io.logs import Log
from ..model.chain import Chain, coordinate_names, leading_joints
from .accumulate import accumulate_samples
from .base import BaseParameters, base_parameters, impossible_links, prior_parameters, stacked
from .columns import Columns, all_columns
from .delay import LATEST, RIGID, shown_delay
from .factors import BlockFactors, QRFactors, as_float64, below, check_identifiable
from .least_squares import solve
from .loaded_runs import all_of, cleared, fit_loads, independent_columns, late_part, with_rows
from .prediction import by_chunks, link_rows
from .preprocessing import Filters, Samples, left_out_deviations, preprocess_alike
from .result import Identification
from .stretches import with_friction_terms

ROWS = 1000  # samples used, evenly spaced; the effects sought are large
OWN = 4  # columns of each joint: acceleration, velocity, its sign, and one
WEIGHED = 4  # of ten parameters of a link, the mass and the first moments act through gravity
RIDGE = 1e-10  # added to the diagonal of the normal equations after scaling columns to unit norm
STEPS, CONVERGED = 10, 1e-3  # Gauss-Newton steps, and the change of the mean log error at which they stop
EARTH = 9.81  # [m/s^2]


@dataclasses.dataclass(frozen=True, eq=False)
class GravityFit:
    """How well a rigid-body model with free parameters explains torques under several gravities.

    Errors are geometric means of the joints' RMS errors, relative to that under the given gravity.

    Attributes:
        found: (3,) the gravity with the least error, in the axes of the chain's gravity [m/s^2].
        found_error: relative error under `found`.
        none_error: relative error without gravity.
        weight: (n,) RMS torque of the given model's weight, without its constant part and what friction can explain
            [N m or N].
        expected: (n,) `weight` relative to the RMS error without gravity.
        motion: correlation of acceleration and identified inertial torque, summed over the joints. The inertia of a
            robot is positive definite, so it is positive, unless all torques have the opposite sign.
        dissipation: correlation of velocity and identified friction, summed over the joints; positive as well.
    """

    found: Float[np.ndarray, "3"]
    found_error: float
    none_error: float
    weight: Float[np.ndarray, " n"]
    expected: Float[np.ndarray, " n"]
    motion: float
    dissipation: float


def fit_gravity(chain: Chain, samples: Sequence[Samples]) -> GravityFit:
    """Fit the parameters of all links under the given gravity, without gravity, and with gravity as a further unknown.

    The regressor is affine in gravity, Y(q, qd, qdd; g) = Y_0 + g_x Y_x + g_y Y_y + g_z Y_z, so inner products of these
    four parts, of each joint's friction and rotor inertia, and of the torques suffice for a weighted least-squares fit
    under any gravity. The gravity is found by Gauss-Newton steps in g and the parameters together, from the best of the
    given gravity and the six directions of the axes. No inertias of the chain are used for this; its masses only serve to
    tell how large the weight should be.

    Call this function under `jax.enable_x64(True)`.
    """
    fit, given = _Products(chain, samples), np.asarray(chain.gravity, float)
    values, noise = fit.solved(given)
    size = float(np.linalg.norm(given)) or EARTH
    error = lambda g: float(np.log(fit.solved(g)[1]).mean())
    here = float(np.log(noise).mean())
    axes = [size * sign * axis for axis in np.eye(3) for sign in (1.0, -1.0)]
    starts = sorted([(here, *given), *((error(g), *g) for g in axes)])
    found, least = fit.descended(np.array(starts[0][1:]), starts[0][0])
    none = fit.solved(np.zeros(3))[1]
    motion, dissipation = fit.powers(given, values)
    weight = fit.weight(given, prior_parameters(chain, RIGID))
    return GravityFit(
        found=found,
        found_error=float(np.exp(least - here)),
        none_error=float(np.exp(np.log(none).mean() - here)),
        weight=weight,
        expected=weight / none,
        motion=motion,
        dissipation=dissipation,
    )


class _Products:
    """Inner products of the columns [own, Y_0, Y_x, Y_y, Y_z, tau] of each joint."""

    def __init__(self, chain: Chain, samples: Sequence[Samples]):
        model, total = as_float64(chain), sum(len(s) for s in samples)
        under = lambda g: dataclasses.replace(model, gravity=jnp.asarray(g, float))
        width = np.asarray(chain.friction.coulomb_velocity, float)[leading_joints(chain)]
        heavy = np.flatnonzero(np.arange(10 * chain.n) % 10 < WEIGHED)
        columns = OWN + 10 * chain.n + 3 * len(heavy) + 1
        self.all: Float[np.ndarray, "n c c"] = np.zeros((chain.nv, columns, columns))
        self.count = 0
        for s in samples:
            count = max(1, min(len(s), round(ROWS * len(s) / total)))
            some = np.linspace(0, len(s) - 1, count).astype(int)
            q, qd, qdd, tau = (x[some] for x in (s.q, s.qd, s.qdd, s.tau))
            still = np.zeros_like(qd)
            own = np.stack([qdd, qd, np.tanh(qd / width), np.ones_like(qd)], axis=2)
            moving = by_chunks(lambda *x: link_rows(under(np.zeros(3)), *x), q, qd, qdd)
            weights = [
                by_chunks(lambda *x, g=g: link_rows(under(g), *x), q, still, still)[:, :, heavy] for g in np.eye(3)
            ]
            rows = np.moveaxis(np.concatenate([own, moving, *weights, tau[:, :, None]], axis=2), 1, 0)
            self.all = self.all + np.swapaxes(rows, 1, 2) @ rows
            self.count += count
        self.p, self.heavy = 10 * chain.n, heavy
        self.own = [_regressed(m) for m in self.all]  # (n, OWN, ...): what the own columns explain of all others
        clear = [m[OWN:, OWN:] - m[OWN:, :OWN] @ x for m, x in zip(self.all, self.own, strict=True)]
        self.clear = np.stack(clear)

    def mixed(self, g: Float[np.ndarray, "3"]) -> Float[np.ndarray, "c p"]:
        """The matrix that combines the columns [Y_0, Y_x, Y_y, Y_z] into those under a gravity."""
        out = np.zeros((self.p + 3 * len(self.heavy), self.p))
        out[: self.p] = np.eye(self.p)
        for k in range(3):
            out[self.p + k * len(self.heavy) + np.arange(len(self.heavy)), self.heavy] = g[k]
        return out

    def solved(self, g: Float[np.ndarray, "3"]) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " n"]]:
        """Parameters of the links from a weighted fit, and the RMS error of each joint."""
        return self._weighted(self.mixed(g))

    def _weighted(self, mixed: Float[np.ndarray, "c m"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " n"]]:
        a = mixed.T @ self.clear[:, :-1, :-1] @ mixed
        c, y = self.clear[:, :-1, -1] @ mixed, self.clear[:, -1, -1]
        floor = 1e-6 * np.sqrt(np.maximum(self.all[:, -1, -1], 1e-300) / self.count)
        noise = np.maximum(np.sqrt(np.maximum(y, 0) / self.count), floor)
        x = np.zeros(mixed.shape[1])
        for _ in range(6):
            x = _solution(np.einsum("j,jab->ab", noise**-2, a), noise**-2 @ c)
            squares = y - 2 * c @ x + np.einsum("a,jab,b->j", x, a, x)
            noise = np.maximum(np.sqrt(np.maximum(squares, 0) / self.count), floor)
        return x, noise

    def descended(self, g: Float[np.ndarray, "3"], error: float) -> tuple[Float[np.ndarray, "3"], float]:
        """The gravity after Gauss-Newton steps from g, and its mean log error."""
        for _ in range(STEPS):
            x = self.solved(g)[0]
            beside = np.zeros((len(self.mixed(g)), 3))
            for k in range(3):
                beside[self.p + k * len(self.heavy) + np.arange(len(self.heavy)), k] = x[self.heavy]
            step = self._weighted(np.concatenate([self.mixed(g), beside], axis=1))[0][-3:]
            trials = [g + 0.5**k * step for k in range(4)]
            errors = [float(np.log(self.solved(trial)[1]).mean()) for trial in trials]
            best = int(np.argmin(errors))
            gained = error - errors[best]
            if gained > 0:
                g, error = trials[best], errors[best]
            if gained < CONVERGED:
                break
        return g, error

    def weight(self, g: Float[np.ndarray, "3"], prior: Float[np.ndarray, " p"]) -> Float[np.ndarray, " n"]:
        """RMS torque of the weight of links with given parameters, after elimination of each joint's own columns."""
        x = (self.mixed(g) - self.mixed(np.zeros(3))) @ prior[: self.p]
        return np.sqrt(np.maximum(np.einsum("a,jab,b->j", x, self.clear[:, :-1, :-1], x), 0) / self.count)

    def powers(self, g: Float[np.ndarray, "3"], values: Float[np.ndarray, " p"]) -> tuple[float, float]:
        """Correlation of accelerations with inertial torques, and of velocities with friction, over all joints."""
        links = np.concatenate([self.mixed(g) @ values, [0.0]])
        moving = np.concatenate([values, np.zeros(len(links) - self.p)])
        inertial, friction = np.zeros(3), np.zeros(3)
        for m, own in zip(self.all, self.own, strict=True):
            coefficients = own[:, -1] - own @ links
            size = 1 / max(m[-1, -1], 1e-300)  # joints count by their torque
            torque = np.zeros((len(m), 2))
            torque[0, 0], torque[OWN:, 0], torque[1:3, 1] = coefficients[0], moving, coefficients[1:3]
            for found, k, rate in ((inertial, 0, 0), (friction, 1, 1)):
                scale = np.sqrt(size / max(m[rate, rate], 1e-300))
                found += [scale * m[rate] @ torque[:, k], 1.0, size * torque[:, k] @ m @ torque[:, k]]
        return tuple(float(x[0] / np.sqrt(max(x[1] * x[2], 1e-300))) for x in (inertial, friction))  # type: ignore[return-value]


def _regressed(m: Float[np.ndarray, "c c"]) -> Float[np.ndarray, "o d"]:
    """Coefficients of a joint's own columns in the regression of all other columns on them."""
    size = np.sqrt(np.maximum(np.diag(m), 1e-300))
    scaled = m / size[:, None] / size
    return np.linalg.lstsq(scaled[:OWN, :OWN], scaled[:OWN, OWN:], rcond=1e-10)[0] / size[:OWN, None] * size[OWN:]


def _solution(h: Float[np.ndarray, "m m"], right: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Solve normal equations of any rank; the parameters of negligible columns are zero."""
    norms = np.sqrt(np.maximum(np.diag(h), 0))
    norms = np.where(norms > 1e-9 * max(norms.max(), 1e-300), norms, np.inf)
    return np.linalg.solve(h / norms[:, None] / norms + RIDGE * np.eye(len(h)), right / norms) / norms


# -- diagnostics

SIGNIFICANT = 4.0  # standard deviations
SAME = (
    1.05  # held-out errors within this ratio count as equal, since a joint without shared parameters fits either sign
)
LEAST_CORRELATION = 0.4  # below this correlation with the model's torque, the factor of a joint is not meaningful
CERTAIN = 0.15  # above this relative standard deviation, a factor is not determined
GAIN_SPREAD = 0.1  # prior spread of the gains, which regularises those of joints that share few parameters with others
TOLD = 0.25  # gain ratios with a larger relative standard deviation are ignored
# as `RATIO`, but for the ratio of a joint's measured torque to the given model's torque: about twice the deviation of the
# logarithm of this ratio between two joints, if the given model's links are wrong by 20 % each (exp(2 sqrt(2) 0.2) = 1.76)
PRIOR_RATIO = 1.75
RATIO = 1.4  # report a gain that differs from those of the other joints by this factor
SCALE = 2.0  # report torques that differ from those of the given model by this factor
DOUBTFUL = 0.3  # maximum standard deviation of an excited parameter, relative to the largest one with the same unit
DRIVE_FLOOR = 0.02  # negligible torque of a drive parameter at 1 rad/s and 1 rad/s^2, as a fraction of the torque
CLEARLY = 1.2  # a sign is determined by the other joints if the opposite sign increases the residual by this factor
OPPOSED = 0.1  # magnitude above which a correlation of power counts as positive or negative (`GravityFit`)
UNWEIGHED = 1.05  # errors within this ratio are equal: leaving gravity out then makes no difference
WEIGHTY = 3.0  # ratio of the given model's weight to the error above which this weight would have been seen
SPHERE = 0.3  # relative deviation of a gravity's magnitude up to which it can be gravity in another direction
PLAIN_GAIN = 10.0  # reduction of a joint's error by the removal of its delay that shows this delay [%]
LATE = 0.02  # delay that is no longer one of drives and sensors, but of time stamps, networks or filters [s]
TOGETHER = 1e-6  # below this relative singular value, parameters are determined only in combination


@dataclasses.dataclass(frozen=True)
class Finding:
    """A suspected fault, or parameters that the data do not determine.

    Attributes:
        kind: kind of the finding. The kinds "short", "unexcited", "sign", "gravity", "gain", "scale" and "prior" are
            described in `diagnose`, and "result", "friction", "delay" and "play" in `diagnose_identification`.
        about: names of the joints, links or parameters concerned.
        text: description of the finding, with advice.
    """

    kind: Literal[
        "sign", "gravity", "gain", "scale", "unexcited", "short", "prior", "result", "friction", "delay", "play"
    ]
    about: tuple[str, ...]
    text: str


@dataclasses.dataclass(frozen=True, eq=False)
class _Runs:
    """The regressor of the runs to diagnose.

    Attributes:
        chain: the assumed model.
        columns: the columns to identify.
        base: their base parameters.
        blocks: triangular factors of the columns and the torques.
        independence: fraction of the samples that count as independent.
    """

    chain: Chain
    columns: Columns
    base: BaseParameters
    blocks: BlockFactors
    independence: float

    @property
    def independent(self) -> BlockFactors:
        """The factors of combinations of the base columns that the runs determine."""
        back = independent_columns(stacked(self.blocks.total)[:, self.base.kept])[0]
        r = np.concatenate([self.blocks.r[..., self.base.kept] @ back, self.blocks.r[..., -1:]], axis=3)
        return with_rows(self.blocks, r)

    def with_signs(self, signs: Float[np.ndarray, " n"]) -> "_Runs":
        """These runs after multiplying each joint's torque by its sign."""
        return dataclasses.replace(self, blocks=_with_signs(self.blocks, signs))

    def noise(self) -> Float[np.ndarray, " n"]:
        """Noise of each joint in a weighted fit [N m or N]."""
        return _fitted(self.independent.total, self.independence)[1]

    def drives(self, row: int) -> list[int]:
        """Columns of the drive of the joint that belongs to a row, in the order of the columns' drive terms."""
        many, joint = len(self.columns.drive_terms), leading_joints(self.chain)[row]
        return [10 * self.chain.n + int(joint) * many + k for k in range(many)]


def _with_signs(blocks: BlockFactors, signs: Float[np.ndarray, " n"]) -> BlockFactors:
    scaled = np.concatenate([blocks.r[..., :-1], blocks.r[..., -1:] * signs[:, None, None]], axis=3)
    return dataclasses.replace(blocks, r=scaled)


def _fitted(factors: QRFactors, independence: float) -> tuple[np.ndarray, np.ndarray]:
    """Values of a weighted fit to independent columns, and the noise of each joint."""
    found = solve(factors, all_of(factors.r.shape[2] - 1), independence=independence, iterations=6)
    size = np.sqrt((factors.r[:, :, -1] ** 2).sum(1) / np.maximum(factors.counts, 1))
    return found.values, np.maximum(found.noise, np.maximum(1e-9 * size, 1e-300))


def diagnose(
    chain: Chain,
    runs: Log | Samples | Sequence[Log | Samples],
    columns: Columns | None = None,
    filters: Filters | None = None,
) -> tuple[Finding, ...]:
    """Diagnose runs of a robot before identification.

    The findings can be of these kinds:

    - *short*: there are fewer independent samples than base parameters. The runs are then not checked further.
    - *unexcited*: some base parameters have no effect in this motion, are determined only in combination with others,
      or have a standard deviation above 0.3 times the largest parameter with the same unit.
    - *sign*: the friction of a joint would generate power instead of dissipating it, or the joint's torque fits the
      parameters shared with other joints much better with the opposite sign. A joint is not reported if the two
      criteria disagree, or if a fit to the first 70 % of the runs with the opposite sign predicts the last 30 % worse.
      The torques of all joints are reversed if the identified inertia and friction are negative: accelerations and
      velocities then correlate negatively with the torques that belong to them.
    - *gravity*: the torques contain no gravity, although the given model's weight would be visible in them, or, for a
      model without inertials, although the chain has gravity; or they fit gravity in another direction much better
      (`fit_gravity`). Signs of single joints, gains and scale are then not checked, because they depend on gravity.
    - *gain*: the torque gain of a joint differs significantly, by a factor of more than 1.4, from the value that best
      fits the parameters shared with other joints. Joints that share few parameters, such as those of a wrist, are
      instead compared with the given model, if the model has inertials. Such a joint is reported if its ratio of
      measured torque to model torque, without friction and rotor inertia, differs significantly from
      that of the other joints, by a factor of more than 1.75. Joints whose link torque is negligible relative to
      friction are not checked. A factor common to all gains cannot be detected, because no motion determines this
      factor.
    - *scale*: these ratios of measured torque to model torque have a median of 2 or more, or of 1/2 or less.
    - *prior*: links of the given model have physically inconsistent inertias.

    Args:
        chain: the assumed model of the robot.
        runs: one or more runs.
        columns: columns to identify; by default those of all drive terms and of the chain's motors and springs.
        filters: as in `preprocess`.

    Raises:
        IdentificationError: the robot has a floating base or spherical joints.
        LogError: a run is too short to be filtered, or a filter setting is invalid.

    Cost: about 3 s for 5000 samples of 6 joints, after compilation.
    """
    check_identifiable(chain)
    columns = columns or all_columns(chain)
    with jax.enable_x64(True):
        base = base_parameters(chain, columns)
    return tuple(_findings(chain, list(preprocess_alike(runs, filters)), columns, base))


def _findings(chain: Chain, samples: list[Samples], columns: Columns, base: BaseParameters) -> list[Finding]:
    """Diagnose runs from their samples."""
    with jax.enable_x64(True):
        rows = [(s, s.tau, None, None) for s in samples]
        blocks = accumulate_samples(columns, as_float64(chain), rows)
        runs = _Runs(chain, columns, base, blocks, min(s.independence for s in samples))
        findings = _prior(chain)
        if short := _short(blocks.total, base, runs.independence):
            return [*findings, *short]
        fit = _gravity_fit(chain, samples)
        if fit and (wrong := _gravity(chain, fit)):
            return [*findings, *wrong]
        names = coordinate_names(chain)
        signs = np.full(len(names), -1.0) if fit and _reversed(fit) else _confirmed(runs, _signs(runs))
        if (signs < 0).all() and len(signs) > 1:
            findings.append(Finding("sign", names, ALL_REVERSED))
        else:
            findings += [_sign(names[j]) for j in np.flatnonzero(signs < 0)]
        righted = runs.with_signs(signs)
        findings += _gains(righted)
        findings += _model_gains(righted, {name for f in findings if f.kind == "gain" for name in f.about})
        findings += _unexcited(righted)
    return findings


def diagnose_identification(result: Identification) -> tuple[Finding, ...]:
    """Diagnose the fitted runs of an identification, and the identified inertias, friction and armature.

    The runs are checked as in `diagnose`. Four more kinds of findings are reported:

    - *result*: identified links that are physically inconsistent.
    - *friction*: parameters of viscous friction, Coulomb friction or armature that are base parameters by themselves
      and are negative by more than four standard deviations.
    - *delay*: torques that are delayed relative to the positions by more than 20 ms. The delay was removed before the fit if
      it was specified or selected; otherwise, it is looked for, up to 200 ms, and reported if most joints share it.
    - *play*: joint positions that jump when the torque changes its sign (`Identification.play`).

    Args:
        result: result of `identify`.
    """
    samples = [e.samples for e in result.fitted]
    if result.friction is None:
        findings = _findings(result.prior, samples, result.columns, result.base)
    else:  # friction columns are needed to determine signs
        findings = list(diagnose(result.prior, samples, columns=with_friction_terms(result.columns)))
    for sentence in result.inconsistent_links:
        findings.append(Finding("result", (_quoted(sentence),), f"identified: {sentence}"))
    findings += [*_late(result), *_loose(result)]
    flipped = {name for f in findings if f.kind == "sign" for name in f.about}
    deviations = result.estimate.standard_deviations
    names = result.names
    n, terms = result.chain.n, result.columns.drive_terms
    for row, k in enumerate(result.base.kept):
        place = k - 10 * n
        if not 0 <= place < n * len(terms) or np.count_nonzero(result.base.matrix[row]) > 1:
            continue
        joint, term = result.chain.joint_names[place // len(terms)], terms[place % len(terms)]
        value, sd = result.estimate.values[row], deviations[row]
        if term != "offset" and value < -SIGNIFICANT * sd and joint not in flipped:
            cause = (
                "torques measured on the link side of the gears do not depend on the rotors; for such torques, remove the "
                "armature term"
                if term == "armature"
                else "the friction law is unsuitable, or the torques are delayed relative to the positions (see estimate_delay)"
            )
            text = f"{joint}: the identified {term} term is negative, {names[k]} = {value:.3g} +- {sd:.2g}; {cause}"
            findings.append(Finding("friction", (joint,), text))
    return tuple(findings)


def _late(result: Identification) -> list[Finding]:
    searched = result.choice is not None and any(trial.kind == "delay" for trial in result.choice.trials)
    if result.delay is None and not searched:
        return _delay_that_stayed(result)
    late = np.zeros(1) if result.delay is None else np.asarray(result.delay)
    some = np.flatnonzero(np.abs(late) > LATE).tolist()
    if not some:
        return []
    names = tuple(result.rows[j] for j in some)
    listed = ", ".join(f"{result.rows[j]} {1e3 * late[j]:.3g} ms" for j in some)
    text = (
        f"the logged torques are late relative to the positions (early if negative): {listed}. These delays were removed "
        "before the fit; check the time stamps and the filters of the log"
    )
    return [Finding("delay", names, text)]


def _loose(result: Identification) -> list[Finding]:
    some = [] if result.play is None else np.flatnonzero(result.play).tolist()
    if not some:
        return []
    assert result.play is not None
    listed = ", ".join(f"{result.rows[j]} {result.play[j]:.2g}" for j in some)
    text = (
        f"positions jump when the torque changes its sign, by (rad or m): {listed}. This is the play, or backlash, of gears; "
        "the model has none, so simulated positions are wrong by about as much"
    )
    return [Finding("play", tuple(result.rows[j] for j in some), text)]


def _delay_that_stayed(result: Identification) -> list[Finding]:
    """A long delay of the torques in the longest run, which neither the user nor the choice of terms removed.

    Friction that builds up over a distance looks like a delay of single joints, so more than half of the joints must show one.
    """
    run = max((e.samples for e in result.fitted), key=len)
    try:
        late, gain = shown_delay(result.prior, run, LATEST)
    except LogError:  # the run is too short, or consists of short pieces
        return []
    common = float(np.median(late[gain > PLAIN_GAIN])) if np.any(gain > PLAIN_GAIN) else 0.0
    alike = (gain > PLAIN_GAIN) & (late * np.sign(common) > LATE)
    if 2 * np.count_nonzero(alike) <= len(late) or abs(common) <= LATE:
        return []
    names = tuple(result.rows[j] for j in np.flatnonzero(alike))
    text = (
        f"the logged torques are {'late' if common > 0 else 'early'} relative to the positions by {1e3 * abs(common):.3g} ms "
        "(median of the joints). This delay was not removed and distorts inertias and friction: select delays too "
        f"(Terms(choose=('delays',))), or remove it with --delay {common:.3g}; check the time stamps and the "
        "filters of the log"
    )
    return [Finding("delay", names, text)]


def _prior(chain: Chain) -> list[Finding]:
    out = []
    for sentence in impossible_links(chain):
        text = f"the given model: {sentence}; correct this link before using the model as a prior"
        out.append(Finding("prior", (_quoted(sentence),), text))
    return out


def _quoted(sentence: str) -> str:
    return sentence.split("'")[1] if sentence.count("'") > 1 else sentence


def _short(factors: QRFactors, base: BaseParameters, independence: float) -> list[Finding]:
    rows = factors.counts.sum() * independence
    if rows > base.size:
        return []
    text = (
        f"{int(factors.counts.max())} samples of {len(factors.counts)} joints contain about {rows:.0f} independent values, "
        f"too few for {base.size} base parameters: log a longer run"
    )
    return [Finding("short", (), text)]


def _confirmed(runs: _Runs, signs: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Undo sign changes that worsen the prediction of held-out motion, and return the confirmed signs.

    A weighted fit to the first 70 % of each run predicts the torques of the rest, with and without the sign change of
    each joint. The sign change is undone if it increases the prediction error of its joint, or the geometric mean of
    the errors of all joints, by more than 5 %. This test is needed for joints whose model lacks a term. Reversing the
    sign of such a joint may improve the fit of the other joints, but it worsens the prediction of the joint's own
    torque.
    """
    independent = runs.independent
    late = late_part(independent)
    if not (signs < 0).any() or late.all() or not late.any():
        return signs
    first, last = independent.of(~late).total, independent.of(late).total

    def error(signs: np.ndarray) -> np.ndarray:
        values = _fitted(first.with_signs(signs), runs.independence)[0]
        return np.log(np.maximum(last.with_signs(signs).joint_rms(np.arange(len(values)), values), 1e-300))

    try:
        here, out = error(signs), signs.copy()
        for j in np.flatnonzero(signs < 0):
            ratio = here - error(np.where(np.arange(len(signs)) == j, 1.0, signs))
            if max(ratio[j], ratio.mean()) > math.log(SAME):
                out[j] = 1.0
    except IdentificationError:  # too short to split
        return signs
    return out


def _signs(runs: _Runs) -> Float[np.ndarray, " n"]:
    """Torque signs, +1 or -1, for which the parameters shared by the joints fit best and friction dissipates power."""
    factors = runs.independent.total
    n = len(factors.counts)
    signs, turned = np.ones(n), 1 - 2 * np.eye(n)
    cost = lambda signs: float(factors.counts @ np.log(_fitted(factors.with_signs(signs), runs.independence)[1]))

    def better(signs: np.ndarray) -> np.ndarray:
        """Factor by which each joint's residual decreases if only that joint's torque sign is reversed."""
        return np.exp((cost(signs) - np.array([cost(signs * row) for row in turned])) / factors.counts)

    gain = better(signs)
    for _ in range(n):
        j = int(np.argmax(gain))
        if gain[j] < CLEARLY:
            break
        signs[j] *= -1
        gain = better(signs)
    power = _friction_power(runs)
    alone = np.abs(power) > SIGNIFICANT
    coupled = gain < 1 / CLEARLY  # the sign is determined by the other joints
    votes = (np.sign(power) * signs)[alone & coupled].sum()
    if votes < 0 or (votes == 0 and (signs[coupled] < 0).sum() > coupled.sum() / 2):
        signs = np.where(coupled, -signs, signs)  # reversing all these signs changes only the fit of friction
    by_friction, by_others = np.where(alone, np.sign(power), 0.0), np.where(coupled, signs, 0.0)
    agreed = (by_friction + by_others < 0) & (by_friction <= 0) & (by_others <= 0)
    return np.where(agreed, -1.0, 1.0)


def _friction_power(runs: _Runs) -> Float[np.ndarray, " n"]:
    """Power that friction dissipates in a separate fit of each joint, in standard deviations."""
    factors, terms = runs.blocks.total, runs.columns.drive_terms
    out = np.zeros(len(factors.counts))
    for j, r in enumerate(factors.r):
        mine = [k for k, term in zip(runs.drives(j), terms, strict=True) if term in ("viscous", "coulomb")]
        clear = cleared(r, np.setdiff1d(runs.base.kept, mine), [*mine, -1])
        f, tau = clear[:, :-1], clear[:, -1]
        weight = np.linalg.norm(r[:, mine], axis=0)
        if not mine or np.linalg.norm(f, axis=0).min() <= 1e-9 * np.linalg.norm(weight):
            continue
        value = np.linalg.lstsq(f, tau, rcond=None)[0]
        variance = ((tau - f @ value) ** 2).sum() / factors.counts[j] / runs.independence
        # both columns have the sign of qd, so the dissipated power is a sum of their coefficients with positive weights
        sd = np.sqrt(variance * weight @ np.linalg.pinv(f.T @ f) @ weight)
        out[j] = weight @ value / max(sd, 1e-300)
    return out


def _sign(joint: str) -> Finding:
    text = (
        f"{joint}: the sign of its torque or of its position is wrong; with the opposite sign, the torque is consistent "
        "with the other joints, and friction dissipates power instead of generating it"
    )
    return Finding("sign", (joint,), text)


ALL_REVERSED = (
    "the torques of all joints have the opposite sign: the model fits them only with negative inertia and friction; log the "
    "torques that the drives exert on the links, or change the sign of all torque columns"
)


def _gravity_fit(chain: Chain, samples: Sequence[Samples]) -> GravityFit | None:
    """Fit under several gravities; None for robots with a moving base or unmeasured torques."""
    if chain.topology.has_curved_joints or any(np.isnan(s.tau).any() for s in samples):
        return None
    return fit_gravity(chain, samples)


def _reversed(fit: GravityFit) -> bool:
    """True if inertia or friction is negative, and the other is not positive."""
    found = (fit.motion, fit.dissipation)
    return min(found) < -OPPOSED and max(found) < OPPOSED


def _gravity(chain: Chain, fit: GravityFit) -> list[Finding]:
    given = np.asarray(chain.gravity, float)
    size = float(np.linalg.norm(given)) or EARTH
    here = ", ".join(f"{x:.3g}" for x in given)
    if fit.found_error < 1 / CLEARLY and abs(np.linalg.norm(fit.found) - size) < SPHERE * size:
        there = " ".join(f"{x:.2f}" for x in fit.found * size / np.linalg.norm(fit.found))
        text = (
            f"gravity acts in another direction: the torques fit gravity along ({there}) m/s^2 much better than along the "
            f"given ({here}) (errors are {fit.found_error:.2g} times as large). Pass the gravity in the axes of the base, "
            f"for example --gravity {there} for a robot on a wall or on a slope, or correct the model's base"
        )
        return [Finding("gravity", (), text)]
    if not given.any():
        return []
    seen = fit.expected >= WEIGHTY
    if np.any(np.asarray(chain.inertia)) and fit.none_error < UNWEIGHED and seen.any():
        j = int(np.argmax(fit.weight))
        text = (
            f"these torques contain no gravity: they are explained as well without it, but the given model's weight would be "
            f"up to {fit.weight[j]:.2g} N m (RMS, {coordinate_names(chain)[j]}). Some drivers subtract gravity: log the "
            "complete torques, or set the model's gravity to zero with --gravity 0 0 0"
        )
    elif not np.any(np.asarray(chain.inertia)) and fit.none_error < 1 / CLEARLY:
        text = (
            f"these torques contain no gravity: without it, errors are {fit.none_error:.2g} times as large. Some drivers "
            "subtract gravity: log the complete torques, or set the model's gravity to zero with --gravity 0 0 0"
        )
    else:
        return []
    return [Finding("gravity", (), text)]


def _gains(runs: _Runs) -> list[Finding]:
    """Find joints whose gain differs from that which best fits the parameters shared with the other joints."""
    n, names, base = runs.chain.nv, coordinate_names(runs.chain), runs.base
    if n < 2:
        return []
    friction = runs.columns.of_friction(runs.chain.n)[base.kept]
    rigid, rest = base.kept[~friction], base.kept[friction]
    none, r = np.zeros((*runs.blocks.r.shape[:3], 1)), runs.blocks.r
    whole = np.concatenate([r[..., rigid], np.repeat(none, 10, axis=3), r[..., rest], none, r[..., -1:]], axis=3)
    ties = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1]  # basis of the logarithms of gains, which sum to zero
    at = slice(len(rigid), len(rigid) + 10)
    found = fit_loads(
        with_rows(runs.blocks, whole), at, runs.independence, np.zeros(10), np.zeros((10, 0)), ties, GAIN_SPREAD
    )
    return _unlike(names, found.gains, found.covariance[10:, 10:])


def _unlike(
    names: Sequence[str], gains: Float[np.ndarray, " n"], covariance: Float[np.ndarray, "n n"]
) -> list[Finding]:
    """Find joints whose log gains differ from those of most joints to which they can be compared."""
    variances, out = np.diag(covariance), []
    sd = np.sqrt(np.maximum(variances[:, None] + variances[None, :] - 2 * covariance, 0))  # of log gain ratios
    ratio = gains[:, None] - gains[None, :]
    told = (sd < TOLD) & ~np.eye(len(gains), dtype=bool)
    for j in range(len(gains)):
        if not told[j].any():
            continue
        middle = float(np.median(ratio[j, told[j]]))
        off = (np.abs(ratio[j]) > np.log(RATIO)) & (np.abs(ratio[j]) > SIGNIFICANT * sd[j])
        if abs(middle) > np.log(RATIO) and 2 * (off & told[j]).sum() > told[j].sum():
            joint, factor = names[j], float(np.exp(-middle))
            others = ", ".join(names[int(i)] for i in np.flatnonzero(told[j]))
            text = (
                f"{joint}: its torque is about {factor:.2g} times the torque that is consistent with {others}: "
                "check its gain, gear ratio and units"
            )
            out.append(Finding("gain", (joint,), text))
    return out


def model_factors(runs: _Runs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratio of each joint's measured torque to that of the given model's links: factor, sd of its logarithm, correlation.

    The equation tau_j = s_j Y_j pi_0 + Ia qdd_j + fv qd_j + fc tanh(qd_j / w) + off is fitted for each joint j
    separately. Here, Y_j pi_0 is the torque expected from the model's inertias pi_0. The factor s_j is determined by
    gravity and by the coupling between links. Friction and rotor inertia, which model files rarely contain, do not
    affect this factor. The standard deviation is that of a jackknife over the blocks, infinite if a factor is negative.
    """
    prior, at = prior_parameters(runs.chain, runs.columns), runs.blocks.r.shape[3] - 1

    def slopes(r: Float[np.ndarray, "n m w"]) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for j, rows in enumerate(r):
            links = rows[:, : 10 * runs.chain.n] @ prior[: 10 * runs.chain.n]
            model, tau = cleared(np.column_stack([rows, links]), runs.drives(j), [at + 1, at]).T
            size = model @ model
            there = size > 1e-9 * max(links @ links, 1e-300)
            found.append(
                (model @ tau / size, model @ tau / np.sqrt(size * (tau @ tau) or 1.0)) if there else (0.0, 0.0)
            )
        factor, correlation = np.array(found).T
        return factor, correlation

    blocks = runs.blocks
    factors, correlations = slopes(blocks.total.r)
    parts = np.stack([slopes(below(np.delete(blocks.r, k, axis=0)))[0] for k in range(len(blocks.r))])
    positive = (factors > 0) & (parts > 0).all(axis=0) & (len(blocks.r) > 1)
    deviations = left_out_deviations(np.log(np.where(parts > 0, parts, 1.0)))
    return factors, np.where(positive, deviations, np.inf), correlations


def _model_gains(runs: _Runs, named: set[str]) -> list[Finding]:
    """Compare the joints' ratios of measured torque to the given model's torque with each other, and all with one."""
    if not np.any(np.asarray(runs.chain.inertia)):
        return []
    factors, deviations, correlations = model_factors(runs)
    determined = (correlations > LEAST_CORRELATION) & (deviations < CERTAIN)
    if not determined.any():
        return []
    logs = np.log(np.where(determined, factors, 1.0))
    common, out = float(np.median(logs[determined])), []
    off = np.abs(logs - common) > np.maximum(np.log(PRIOR_RATIO), SIGNIFICANT * deviations)
    for j in np.flatnonzero(determined & off) if determined.sum() > 2 else ():
        joint = coordinate_names(runs.chain)[int(j)]
        if joint not in named:
            text = (
                f"{joint}: its torque is {factors[j]:.2g} times that of the given model's links, but this ratio is "
                f"{np.exp(common):.2g} for the other joints: check its gain, gear ratio and units, and whether the model "
                "includes the payload"
            )
            out.append(Finding("gain", (joint,), text))
    if abs(common) > np.log(SCALE):
        text = (
            f"torques of all joints are about {np.exp(common):.3g} times those of the given model's inertials: check whether "
            "they are currents or motor torques, whether gear ratios and units are correct, and whether the model is that of "
            "this robot"
        )
        out.append(Finding("scale", (), text))
    return out


def _unexcited(runs: _Runs) -> list[Finding]:
    chain, columns, base, factors, independence = (
        runs.chain,
        runs.columns,
        runs.base,
        runs.blocks.total,
        runs.independence,
    )
    r = stacked(factors, 1 / runs.noise())
    w, y = r[:, base.kept], r[:, -1]
    norms = np.linalg.norm(w, axis=0)
    out = []
    dead = norms <= 1e-9 * norms.max()
    if dead.any():
        names = tuple(base.names[k] for k in np.flatnonzero(dead))
        out.append(Finding("unexcited", names, f"the motion does not excite these parameters: {'; '.join(names)}"))
    alive = np.flatnonzero(~dead)
    u, s, vt = np.linalg.svd(w[:, alive] / norms[alive], full_matrices=False)
    lost = s < TOGETHER * s[0]
    mixed = np.zeros(len(alive), bool)
    for direction in vt[lost]:
        some = np.abs(direction) > 1e-2
        mixed |= some
        names = tuple(base.names[alive[k]] for k in np.flatnonzero(some))
        listed = "; ".join(names)
        text = (
            f"the motion determines these parameters only in combination: {listed}. Move more joints at once, over larger "
            "ranges"
        )
        out.append(Finding("unexcited", names, text))
    values = (vt[~lost].T @ ((u[:, ~lost].T @ y) / s[~lost])) / norms[alive]
    sd = np.sqrt(((vt[~lost].T / s[~lost]) ** 2).sum(1) / independence) / norms[alive]
    units = np.array(columns.units(chain))[base.kept[alive]]
    largest = {unit: np.abs(values[units == unit]).max() for unit in set(units.tolist())}
    strongest = DRIVE_FLOOR * np.sqrt((factors.r[:, :, -1] ** 2).sum(1) / factors.counts).max()
    drives = base.kept[alive] >= 10 * chain.n  # drive parameters known to be negligible count as determined
    floor = np.where(drives, strongest, 0.0)
    doubtful = [
        (base.names[k], v, d)
        for k, v, d, unit, together, least in zip(alive, values, sd, units, mixed, floor, strict=True)
        if not together and d > max(DOUBTFUL * max(largest[unit], least), abs(v))
    ]
    if doubtful:
        listed = "; ".join(f"{name} = {v:.2g} +- {d:.2g}" for name, v, d in doubtful)
        text = (
            f"the motion hardly excites these parameters: {listed}. Take their values from another source, or log a more "
            "informative motion"
        )
        out.append(Finding("unexcited", tuple(name for name, _, _ in doubtful), text))
    return out
