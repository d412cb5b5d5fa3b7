"""Diagnostics of runs and identifications: torque signs, gravity, gains, excitation, run length, and the prior model."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import optimize

from ..errors import IdentificationError, LogError
from ..io.logs import Log
from ..model.chain import Chain, coordinate_names, leading_joints
from .accumulate import accumulate_samples
from .base import BaseParameters, all_of, base_parameters, impossible_links, prior_parameters, stacked
from .columns import Columns, all_columns
from .delay import LATEST, shown_delay
from .factors import BlockFactors, QRFactors, as_float64, check_identifiable, cleared, triangles_of
from .least_squares import solve
from .payload import fit_loads, independent_columns, late_part
from .prediction import by_chunks, link_rows
from .preprocessing import Filters, Samples, preprocess_alike
from .result import Identification

SIGNIFICANT = 4.0  # standard deviations
SAME = 1.05  # held-out errors within this ratio count as equal: a joint without shared parameters fits either sign
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
OPPOSED = 0.1  # magnitude above which a correlation of power counts as positive or negative
UNWEIGHED = 1.05  # errors within this ratio are equal: leaving gravity out then makes no difference
WEIGHTY = 3.0  # ratio of the given model's weight to the error above which this weight would have been seen
SPHERE = 0.3  # relative deviation of a gravity's magnitude up to which it can be gravity in another direction
PLAIN_GAIN = 10.0  # reduction of a joint's error by the removal of its delay that shows this delay [%]
LATE = 0.02  # delay that is no longer one of drives and sensors, but of time stamps, networks or filters [s]
TOGETHER = 1e-6  # below this relative singular value, parameters are determined only in combination
ROWS = 1000  # samples from which gravity is found, evenly spaced; the effects sought are large
WEIGHED = 4  # of ten parameters of a link, the mass and the first moments act through gravity
EARTH = 9.81  # [m/s^2]

Kind = Literal["sign", "gravity", "gain", "scale", "unexcited", "short", "prior", "result", "friction", "delay", "play"]
TEXTS = {
    "prior": "the given model: {sentence}; correct this link before using the model as a prior",
    "short": "{samples} samples of {joints} joints contain about {rows:.0f} independent values, too few for {size} base "
    "parameters: log a longer run",
    "sign": "{about}: the sign of its torque or of its position is wrong; with the opposite sign, the torque is consistent "
    "with the other joints, and friction dissipates power instead of generating it",
    "all signs": "the torques of all joints have the opposite sign: the model fits them only with negative inertia and "
    "friction; log the torques that the drives exert on the links, or change the sign of all torque columns",
    "direction": "gravity acts in another direction: the torques fit gravity along ({there}) m/s^2 much better than along the "
    "given ({here}) (errors are {ratio:.2g} times as large). Pass the gravity in the axes of the base, for example --gravity "
    "{there} for a robot on a wall or on a slope, or correct the model's base",
    "weightless": "these torques contain no gravity: they are explained as well without it, but the given model's weight "
    "would be up to {weight:.2g} N m (RMS, {joint}). Some drivers subtract gravity: log the complete torques, or set the "
    "model's gravity to zero with --gravity 0 0 0",
    "better without": "these torques contain no gravity: without it, errors are {ratio:.2g} times as large. Some drivers "
    "subtract gravity: log the complete torques, or set the model's gravity to zero with --gravity 0 0 0",
    "gain": "{about}: its torque is about {factor:.2g} times the torque that is consistent with {others}: check its gain, gear "
    "ratio and units",
    "gain of model": "{about}: its torque is {factor:.2g} times that of the given model's links, but this ratio is "
    "{common:.2g} for the other joints: check its gain, gear ratio and units, and whether the model includes the payload",
    "scale": "torques of all joints are about {common:.3g} times those of the given model's inertials: check whether they are "
    "currents or motor torques, whether gear ratios and units are correct, and whether the model is that of this robot",
    "dead": "the motion does not excite these parameters: {about}",
    "combined": "the motion determines these parameters only in combination: {about}. Move more joints at once, over larger "
    "ranges",
    "doubtful": "the motion hardly excites these parameters: {values}. Take their values from another source, or log a more "
    "informative motion",
    "result": "identified: {sentence}",
    "friction": "{about}: the identified {term} term is negative, {name} = {value:.3g} +- {sd:.2g}; the friction law is "
    "unsuitable, or the torques are delayed relative to the positions (see estimate_delay)",
    "armature": "{about}: the identified {term} term is negative, {name} = {value:.3g} +- {sd:.2g}; torques measured on the "
    "link side of the gears do not depend on the rotors; for such torques, remove the armature term",
    "delay": "the logged torques are late relative to the positions (early if negative): {values}. These delays were removed "
    "before the fit; check the time stamps and the filters of the log",
    "delay that stayed": "the logged torques are {late} relative to the positions by {size:.3g} ms (median of the joints). "
    "This delay was not removed and distorts inertias and friction: select delays too (Terms(choose=('delays',))), or remove "
    "it with --delay {common:.3g}; check the time stamps and the filters of the log",
    "play": "positions jump when the torque changes its sign, by (rad or m): {values}. This is the play, or backlash, of "
    "gears; the model has none, so simulated positions are wrong by about as much",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A suspected fault, or parameters that the data do not determine.

    Attributes:
        kind: kind of the finding. The kinds "short", "unexcited", "sign", "gravity", "gain", "scale" and "prior" are
            described in `diagnose`, and "result", "friction", "delay" and "play" in `diagnose_identification`.
        about: names of the joints, links or parameters concerned.
        text: description of the finding, with advice.
    """

    kind: Kind
    about: tuple[str, ...]
    text: str


def _found(kind: Kind, about: Sequence[str], text: str | None = None, **values: object) -> Finding:
    """A finding with one of `TEXTS`, by default that of its kind."""
    listed = ("; " if kind == "unexcited" else ", ").join(about)
    return Finding(kind, tuple(about), TEXTS[text or kind].format(about=listed, **values))


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
        return self.blocks.with_rows(r)

    def with_signs(self, signs: Float[np.ndarray, " n"]) -> "_Runs":
        """These runs after multiplying each joint's torque by its sign."""
        r = np.concatenate([self.blocks.r[..., :-1], self.blocks.r[..., -1:] * signs[:, None, None]], axis=3)
        return dataclasses.replace(self, blocks=dataclasses.replace(self.blocks, r=r))

    def fitted(self, factors: QRFactors) -> tuple[np.ndarray, np.ndarray]:
        """Values of a weighted fit to independent columns, and the noise of each joint [N m or N]."""
        found = solve(factors, all_of(factors.r.shape[2] - 1), independence=self.independence, iterations=6)
        size = np.sqrt((factors.r[:, :, -1] ** 2).sum(1) / np.maximum(factors.counts, 1))
        return found.values, np.maximum(found.noise, np.maximum(1e-9 * size, 1e-300))

    def noise(self) -> Float[np.ndarray, " n"]:
        """Noise of each joint in a weighted fit [N m or N]."""
        return self.fitted(self.independent.total)[1]

    def drives(self, row: int) -> list[int]:
        """Columns of the drive of the joint that belongs to a row, in the order of the columns' drive terms."""
        many, joint = len(self.columns.drive_terms), leading_joints(self.chain)[row]
        return [10 * self.chain.n + int(joint) * many + k for k in range(many)]


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
      model without inertials, although the chain has gravity; or they fit gravity in another direction much better. Signs
      of single joints, gains and scale are then not checked, because they depend on gravity.
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
    columns = (columns or all_columns(chain)).with_drives
    with jax.enable_x64(True):
        base = base_parameters(chain, columns)
    return tuple(_findings(chain, list(preprocess_alike(runs, filters)), columns, base))


def _findings(chain: Chain, samples: list[Samples], columns: Columns, base: BaseParameters) -> list[Finding]:
    """Diagnose runs from their samples."""
    with jax.enable_x64(True):
        blocks = accumulate_samples(columns, as_float64(chain), [(s, s.tau) for s in samples])
        runs = _Runs(chain, columns, base, blocks, min(s.independence for s in samples))
        findings = [_found("prior", [_quoted(sentence)], sentence=sentence) for sentence in impossible_links(chain)]
        if short := _short(blocks.total, base, runs.independence):
            return [*findings, *short]
        wrong, reversed_ = _gravity(chain, samples)
        if wrong:
            return [*findings, *wrong]
        names = coordinate_names(chain)
        signs = np.full(len(names), -1.0) if reversed_ else _confirmed(runs, _signs(runs))
        if (signs < 0).all() and len(signs) > 1:
            findings.append(_found("sign", names, "all signs"))
        else:
            findings += [_found("sign", [names[j]]) for j in np.flatnonzero(signs < 0)]
        righted = runs.with_signs(signs)
        findings += _gains(righted)
        findings += _model_gains(righted, {name for f in findings if f.kind == "gain" for name in f.about})
        return [*findings, *_unexcited(righted)]


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
    else:  # drive terms are needed to determine signs
        findings = list(diagnose(result.prior, samples, columns=result.columns.with_drives))
    findings += [_found("result", [_quoted(sentence)], sentence=sentence) for sentence in result.inconsistent_links]
    findings += _late(result)
    if result.play is not None and np.any(result.play):
        loose = {result.rows[j]: f"{result.rows[j]} {result.play[j]:.2g}" for j in np.flatnonzero(result.play)}
        findings.append(_found("play", [*loose], values=", ".join(loose.values())))
    flipped = {name for f in findings if f.kind == "sign" for name in f.about}
    n, terms = result.chain.n, result.columns.drive_terms
    for row, k in enumerate(result.base.kept):
        place = k - 10 * n
        if not 0 <= place < n * len(terms) or np.count_nonzero(result.base.matrix[row]) > 1:
            continue
        joint, term = result.chain.joint_names[place // len(terms)], terms[place % len(terms)]
        value, sd = result.estimate.values[row], result.estimate.standard_deviations[row]
        if term != "offset" and value < -SIGNIFICANT * sd and joint not in flipped:
            text = "armature" if term == "armature" else "friction"
            findings.append(_found("friction", [joint], text, term=term, name=result.names[k], value=value, sd=sd))
    return tuple(findings)


def _late(result: Identification) -> Iterator[Finding]:
    """Long delays that were removed or, if none was specified or looked for, one that most joints show in the longest run.

    Friction that builds up over a distance looks like a delay of single joints.
    """
    searched = result.choice is not None and any(trial.kind == "delay" for trial in result.choice.trials)
    if result.delay is not None or searched:
        late = np.zeros(1) if result.delay is None else np.asarray(result.delay)
        of = {result.rows[j]: f"{result.rows[j]} {1e3 * late[j]:.3g} ms" for j in np.flatnonzero(np.abs(late) > LATE)}
        if of:
            yield _found("delay", [*of], values=", ".join(of.values()))
        return
    try:
        late, gain = shown_delay(result.prior, max((e.samples for e in result.fitted), key=len), LATEST)
    except LogError:  # the run is too short, or consists of short pieces
        return
    plain = gain > PLAIN_GAIN
    common = float(np.median(late[plain])) if plain.any() else 0.0
    alike = np.flatnonzero(plain & (late * np.sign(common) > LATE))
    if 2 * len(alike) > len(late) and abs(common) > LATE:
        said = {"late": "late" if common > 0 else "early", "size": 1e3 * abs(common), "common": common}
        yield _found("delay", [result.rows[j] for j in alike], "delay that stayed", **said)


def _quoted(sentence: str) -> str:
    return sentence.split("'")[1] if sentence.count("'") > 1 else sentence


def _short(factors: QRFactors, base: BaseParameters, independence: float) -> list[Finding]:
    rows, samples, joints = factors.counts.sum() * independence, int(factors.counts.max()), len(factors.counts)
    few = rows <= base.size
    return [_found("short", (), samples=samples, joints=joints, rows=rows, size=base.size)] if few else []


# -- gravity


def _weighed(chain: Chain, samples: Sequence[Samples]) -> QRFactors:
    """Factors of the columns [Y_0, own, Y_x, Y_y, Y_z, tau] of each joint, for `ROWS` samples.

    Y_0 are the links' columns without gravity, own are acceleration, velocity, its sign and one, and Y_k are the columns of
    the links' masses and first moments under gravity of 1 m/s^2 along axis k.
    """
    model, heavy = as_float64(chain), np.arange(10 * chain.n) % 10 < WEIGHED
    under = lambda g: dataclasses.replace(model, gravity=jnp.asarray(g, float))
    width = np.asarray(chain.friction.coulomb_velocity, float)[leading_joints(chain)]
    share, data = ROWS / sum(map(len, samples)), []
    for s in samples:
        some = np.linspace(0, len(s) - 1, max(1, min(len(s), round(share * len(s))))).astype(int)
        q, qd, qdd, tau = (x[some] for x in (s.q, s.qd, s.qdd, s.tau))
        own = np.stack([qdd, qd, np.tanh(qd / width), np.ones_like(qd)], axis=2)
        along = [by_chunks(lambda *x, g=g: link_rows(under(g), *x), q, 0 * qd, 0 * qd)[..., heavy] for g in np.eye(3)]
        data.append(((q, qd, qdd), tau, None, np.concatenate([own, *along], axis=2)))
    return accumulate_samples(Columns(()), under(np.zeros(3)), data, count=1).total


def _gravity(chain: Chain, samples: Sequence[Samples]) -> tuple[list[Finding], bool]:
    """Findings about gravity, and True if the torques of all joints are reversed; neither if torques were not measured.

    The parameters of all links are fitted under the given gravity, without gravity, and with gravity as a further unknown.
    The regressor is affine in gravity, Y(q, qd, qdd; g) = Y_0 + g_x Y_x + g_y Y_y + g_z Y_z, so inner products of these
    four parts and of the torques, both without what each joint's friction and rotor inertia can explain, suffice for a
    weighted least-squares fit under any gravity. Errors are geometric means of the joints' RMS errors. The gravity with the
    least error is sought from the best of the given gravity and the six directions of the axes. The given model's masses
    only serve to tell how large the weight should be.

    The inertia of a robot is positive definite, and friction dissipates power. The torques are reversed if the correlations
    of acceleration with inertial torque and of velocity with friction, summed over the joints, are not positive.
    """
    if chain.topology.has_curved_joints or any(np.isnan(s.tau).any() for s in samples):
        return [], False
    (r, counts), p, given = _weighed(chain, samples), 10 * chain.n, np.asarray(chain.gravity, float)
    own, parts = range(p, p + 4), [*range(p), *range(p + 4, r.shape[2] - 1)]
    clear = np.stack([cleared(x, [*own], [*parts, -1]) for x in r])
    products = np.swapaxes(clear, 1, 2) @ clear
    floor = 1e-6 * np.sqrt(np.maximum((r[:, :, -1] ** 2).sum(1), 1e-300) / counts)
    heavy = np.eye(p)[np.arange(p) % 10 < WEIGHED]
    under = lambda g: np.concatenate([np.eye(p), *(x * heavy for x in g)])  # combines the parts
    rms = lambda x: np.sqrt(np.maximum(np.einsum("a,jab,b->j", x, products, x), 0) / counts)

    def fitted(g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parameters of the links under a gravity, and the RMS error of each joint."""
        mix, x = under(g), np.zeros(p)
        noise = np.maximum(rms(np.eye(len(mix) + 1)[-1]), floor)
        for _ in range(6):
            whole = np.tensordot(noise**-2, products, 1)
            h = mix.T @ whole[:-1, :-1] @ mix
            norms = np.sqrt(np.maximum(np.diag(h), 0))
            norms = np.where(norms > 1e-9 * max(norms.max(), 1e-300), norms, np.inf)
            h = h / norms[:, None] / norms + 1e-10 * np.eye(p)  # of any rank
            x = np.linalg.solve(h, mix.T @ whole[:-1, -1] / norms) / norms
            noise = np.maximum(rms(np.append(mix @ x, -1.0)), floor)
        return x, noise

    def error(g: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean logarithm of the RMS errors under a gravity, and its gradient: that for fixed parameters, which are the best."""
        x, noise = fitted(g)
        slope = noise**-2 / counts / len(r) @ (products @ np.append(under(g) @ x, -1.0))
        return float(np.log(noise).mean()), slope[p:-1].reshape(3, -1) @ (heavy @ x)

    size = float(np.linalg.norm(given)) or EARTH
    values, (here, _), without = fitted(given)[0], error(given), fitted(np.zeros(3))[1]
    start = min([given, *(size * np.concatenate([np.eye(3), -np.eye(3)]))], key=lambda g: error(g)[0])
    best = optimize.minimize(error, start, jac=True, method="BFGS", options={"gtol": 1e-3})
    found, better = best.x, math.exp(best.fun - here)
    bare = math.exp(float(np.log(without).mean()) - here)  # relative error without gravity
    weight = rms(np.append((under(given) - under(np.zeros(3))) @ prior_parameters(chain, Columns(()))[:p], 0.0))
    findings, has_inertia = [], bool(np.any(np.asarray(chain.inertia)))
    if better < 1 / CLEARLY and abs(np.linalg.norm(found) - size) < SPHERE * size:
        there = " ".join(f"{x:.2f}" for x in found * size / np.linalg.norm(found))
        said = {"there": there, "here": ", ".join(f"{x:.3g}" for x in given), "ratio": better}
        findings = [_found("gravity", (), "direction", **said)]
    elif given.any() and has_inertia and bare < UNWEIGHED and (weight >= WEIGHTY * without).any():
        j = int(np.argmax(weight))
        findings = [_found("gravity", (), "weightless", weight=weight[j], joint=coordinate_names(chain)[j])]
    elif given.any() and not has_inertia and bare < 1 / CLEARLY:
        findings = [_found("gravity", (), "better without", ratio=bare)]
    torques = np.zeros((2, 2))  # of inertia and of friction: along the rates, and squared; joints count by their torque
    for x in r:
        k = np.linalg.lstsq(x[:, own], x[:, -1] - x[:, parts] @ under(given) @ values, rcond=1e-10)[0]
        both = x[:, :p] @ values + k[0] * x[:, p], x[:, own[1:3]] @ k[1:3]
        for total, torque, rate in zip(torques, both, x[:, own[:2]].T, strict=True):
            torque = torque / max(np.linalg.norm(x[:, -1]), 1e-150)
            total += rate @ torque / max(np.linalg.norm(rate), 1e-150), torque @ torque
    powers = torques[:, 0] / np.sqrt(np.maximum(len(r) * torques[:, 1], 1e-300))
    return findings, bool(powers.min() < -OPPOSED and powers.max() < OPPOSED)


# -- signs and gains


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
        values = runs.fitted(first.with_signs(signs))[0]
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
    cost = lambda signs: float(factors.counts @ np.log(runs.fitted(factors.with_signs(signs))[1]))
    # factor by which each joint's residual decreases if only that joint's torque sign is reversed
    better = lambda signs: np.exp((cost(signs) - np.array([cost(signs * row) for row in turned])) / factors.counts)
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
        # both columns have the sign of qd, so the dissipated power is a sum of their coefficients with positive weights
        weight = np.linalg.norm(r[:, mine], axis=0)
        if mine and np.linalg.norm(clear[:, :-1], axis=0).min() > 1e-9 * np.linalg.norm(weight):
            alone = QRFactors(triangles_of(clear[None]), factors.counts[j : j + 1])
            found = solve(alone, all_of(len(mine)), "ordinary", runs.independence)
            out[j] = weight @ found.values / max(np.sqrt(weight @ found.covariance @ weight), 1e-300)
    return out


def _gains(runs: _Runs) -> list[Finding]:
    """Find joints whose gain differs from that which best fits the parameters shared with the other joints."""
    n, base, r = runs.chain.nv, runs.base, runs.blocks.r
    if n < 2:
        return []
    friction = runs.columns.of_friction(runs.chain.n)[base.kept]
    rigid, rest = base.kept[~friction], base.kept[friction]
    whole = runs.blocks.with_rows(r[..., [*rigid, *rest, -1]])
    ties = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1]  # basis of the logarithms of gains, which sum to zero
    nobody = slice(len(rigid), len(rigid)), runs.independence, np.zeros(0), np.zeros((0, 0))
    found = fit_loads(whole, *nobody, ties, GAIN_SPREAD)
    return _unlike(coordinate_names(runs.chain), found.gains, found.covariance)


def _unlike(
    names: Sequence[str], gains: Float[np.ndarray, " n"], covariance: Float[np.ndarray, "n n"]
) -> list[Finding]:
    """Find joints whose log gains differ from those of most joints to which they can be compared."""
    variances, out = np.diag(covariance), []
    sd = np.sqrt(np.maximum(variances[:, None] + variances[None, :] - 2 * covariance, 0))  # of log gain ratios
    ratio = gains[:, None] - gains[None, :]
    told = (sd < TOLD) & ~np.eye(len(gains), dtype=bool)
    off = (np.abs(ratio) > np.log(RATIO)) & (np.abs(ratio) > SIGNIFICANT * sd) & told
    for j in np.flatnonzero(2 * off.sum(1) > told.sum(1)):
        middle = float(np.median(ratio[j, told[j]]))
        if abs(middle) > np.log(RATIO):
            others = ", ".join(names[int(i)] for i in np.flatnonzero(told[j]))
            out.append(_found("gain", [names[int(j)]], factor=np.exp(-middle), others=others))
    return out


def model_factors(runs: _Runs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratio of each joint's measured torque to that of the given model's links: factor, sd of its logarithm, correlation.

    The equation tau_j = s_j Y_j pi_0 + Ia qdd_j + fv qd_j + fc tanh(qd_j / w) + off is fitted for each joint j
    separately. Here, Y_j pi_0 is the torque expected from the model's inertias pi_0. The factor s_j is determined by
    gravity and by the coupling between links. Friction and rotor inertia, which model files rarely contain, do not
    affect this factor. The standard deviation is that of `Estimate` relative to the factor, infinite if the factor is
    negative or the motion does not determine it.
    """
    prior, blocks, links = prior_parameters(runs.chain, runs.columns), runs.blocks, slice(10 * runs.chain.n)
    factors, deviations, correlations = np.zeros((3, runs.chain.nv))
    for j, rows in enumerate(np.swapaxes(blocks.r, 0, 1)):
        model = rows[..., links] @ prior[links]
        whole = np.concatenate([rows, model[..., None]], axis=2)
        clear = cleared(whole.reshape(-1, whole.shape[2]), runs.drives(j), [-1, -2]).reshape(*model.shape, 2)
        size, deviations[j] = np.linalg.norm(clear, axis=(0, 1)), np.inf
        if size[0] > 3e-5 * max(np.linalg.norm(model), 1e-150):
            own = blocks.with_rows(clear[:, None], slice(j, j + 1))
            found = solve(own, all_of(1), independence=runs.independence)
            factors[j], correlations[j] = found.values[0], found.values[0] * size[0] / max(size[1], 1e-150)
            deviations[j] = found.standard_deviations[0] / factors[j] if factors[j] > 0 else np.inf
    return factors, deviations, correlations


def _model_gains(runs: _Runs, named: set[str]) -> list[Finding]:
    """Compare the joints' ratios of measured torque to the given model's torque with each other, and all with one."""
    if not np.any(np.asarray(runs.chain.inertia)):
        return []
    factors, deviations, correlations = model_factors(runs)
    determined = (correlations > LEAST_CORRELATION) & (deviations < CERTAIN)
    if not determined.any():
        return []
    logs = np.log(np.where(determined, factors, 1.0))
    middle = float(np.median(logs[determined]))
    common, names = math.exp(middle), coordinate_names(runs.chain)
    off = np.abs(logs - middle) > np.maximum(np.log(PRIOR_RATIO), SIGNIFICANT * deviations)
    some = [j for j in np.flatnonzero(determined & off) if determined.sum() > 2 and names[j] not in named]
    out = [_found("gain", [names[j]], "gain of model", factor=factors[j], common=common) for j in some]
    return [*out, _found("scale", (), common=common)] if abs(middle) > np.log(SCALE) else out


# -- excitation


def _unexcited(runs: _Runs) -> list[Finding]:
    base, factors = runs.base, runs.blocks.total
    names, r = np.array(base.names), stacked(factors, 1 / runs.noise())
    w, y = r[:, base.kept], r[:, -1]
    norms = np.linalg.norm(w, axis=0)
    alive = norms > 1e-9 * norms.max()
    out = [] if alive.all() else [_found("unexcited", names[~alive].tolist(), "dead")]
    names, kept, norms = names[alive], base.kept[alive], norms[alive]
    u, s, vt = np.linalg.svd(w[:, alive] / norms, full_matrices=False)
    lost = s < TOGETHER * s[0]
    mixed = np.abs(vt[lost]) > 1e-2
    out += [_found("unexcited", names[some].tolist(), "combined") for some in mixed]
    back = vt[~lost].T / s[~lost] / norms[:, None]
    values, sd = back @ (u[:, ~lost].T @ y), np.sqrt((back**2).sum(1) / runs.independence)
    units = np.array(runs.columns.units(runs.chain))[kept]
    largest = np.array([np.abs(values[units == unit]).max() for unit in units])
    strongest = DRIVE_FLOOR * np.sqrt((factors.r[:, :, -1] ** 2).sum(1) / factors.counts).max()
    floor = np.where(kept >= 10 * runs.chain.n, strongest, 0.0)  # negligible drive parameters count as determined
    doubtful = ~mixed.any(axis=0) & (sd > np.maximum(DOUBTFUL * np.maximum(largest, floor), np.abs(values)))
    if doubtful.any():
        listed = zip(names[doubtful], values[doubtful], sd[doubtful], strict=True)
        said = "; ".join(f"{name} = {v:.2g} +- {d:.2g}" for name, v, d in listed)
        out.append(_found("unexcited", names[doubtful].tolist(), "doubtful", values=said))
    return out
