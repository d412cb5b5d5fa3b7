"""Diagnostics of runs and identifications: torque signs, gravity, gains, excitation, run length, and the prior model."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np

from ...errors import LogError
from ...io._logs.log import Log
from ...io._logs.motion import coordinate_names
from ...model._chain import Chain
from ...model._layout import leading_joints
from .._delay import LATEST, shown_delay
from .._payload.loaded_runs import accumulate_runs, jackknife, model_of, solve
from .._preprocessing.samples import Filters, Samples, preprocess_alike
from .._regression.accumulate import accumulate_samples
from .._regression.base_parameters import BaseParameters, base_parameters, stacked
from .._regression.columns import Columns, all_columns
from .._regression.completion import impossible_links, prior_parameters
from .._regression.factors import QRFactors
from .._regression.robot import as_float64, check_identifiable
from .._result import Identification
from .._stretches import with_friction_terms
from .gravity import EARTH, GravityFit, fit_gravity
from .prior_scale import prior_scales
from .signs import confirmed_signs, weighted_fit

SIGNIFICANT = 4.0  # standard deviations
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
      measured torque to model torque, without friction and rotor inertia (`prior_scales`), differs significantly from
      that of the other joints, by a factor of more than 1.75. Joints whose link torque is negligible relative to
      friction are not checked. A factor common to all gains cannot be detected, because no motion determines this
      factor.
    - *scale*: the torques due to motion and gravity differ from those of the given model by a factor of 2 or more.
      Models without inertials are not checked.
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
    samples = list(preprocess_alike(runs, filters))
    with jax.enable_x64(True):
        base = base_parameters(chain, columns)
        model, rows = as_float64(chain), [(s, s.tau, None, None) for s in samples]
        factors = accumulate_samples(columns, model, rows, edges=[[(0, len(s))] for s in samples]).total
    return tuple(_findings(chain, samples, columns, base, factors))


def _findings(
    chain: Chain, samples: list[Samples], columns: Columns, base: BaseParameters, factors: QRFactors
) -> list[Finding]:
    """Diagnose runs from their samples, and from the triangular factors of their columns and torques."""
    with jax.enable_x64(True):
        independence = min(s.independence for s in samples)
        findings = _prior(chain)
        short = _short(factors, base, independence)
        if short:
            return [*findings, *short]
        fit = _gravity_fit(chain, samples)
        if fit and (wrong := _gravity(chain, fit)):
            return [*findings, *wrong]
        names = coordinate_names(chain)
        if fit and _reversed(fit):
            signs = np.full(len(names), -1.0)
        else:
            signs = confirmed_signs(chain, samples, columns, base, _signs(chain, columns, factors, base, independence))
        if (signs < 0).all() and len(signs) > 1:
            findings.append(Finding("sign", names, ALL_REVERSED))
        else:
            findings += [_sign(names[j]) for j in np.flatnonzero(signs < 0)]
        righted = QRFactors(factors.r.copy(), factors.counts)
        righted.r[:, :, -1] *= signs[:, None]
        findings += _gains(chain, samples, signs)
        findings += _prior_gains(
            chain, samples, signs, {name for f in findings if f.kind == "gain" for name in f.about}
        )
        findings += _scale(chain, columns, righted, base)
        findings += _unexcited(chain, columns, righted, base, independence)
    return findings


def diagnose_identification(result: Identification) -> tuple[Finding, ...]:
    """Diagnose the fitted runs of an identification, and the identified inertias, friction and armature.

    The runs are checked as in `diagnose`. If the fitted columns include friction, the triangular factors of the fit are
    reused. Four more kinds of findings are reported:

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
        findings = _findings(result.prior, samples, result.columns, result.base, result.factors)
    else:  # the factors lack the friction columns, which are needed to determine signs
        findings = list(diagnose(result.prior, samples, columns=with_friction_terms(result.columns)))
    for sentence in result.inconsistent_links:
        findings.append(Finding("result", (_quoted(sentence),), f"identified: {sentence}"))
    findings += [*_late(result), *_loose(result)]
    flipped = {name for f in findings if f.kind == "sign" for name in f.about}
    deviations = result.wls.standard_deviations
    names = result.names
    n, terms = result.chain.n, result.columns.drive_terms
    for row, k in enumerate(result.base.kept):
        place = k - 10 * n
        if not 0 <= place < n * len(terms) or np.count_nonzero(result.base.matrix[row]) > 1:
            continue
        joint, term = result.chain.joint_names[place // len(terms)], terms[place % len(terms)]
        value, sd = result.wls.values[row], deviations[row]
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
        f"(Terms(choose=('delays',)), --choose delays), or remove it with --delay {common:.3g}; check the time stamps and the "
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


def _weighted(factors: QRFactors, base: BaseParameters) -> tuple[float, np.ndarray]:
    """Sum of count * log(residual variance) over the joints, for a weighted fit, and the noise of each joint."""
    noise = weighted_fit(factors, base)[1]
    return float((factors.counts * 2 * np.log(noise)).sum()), noise


def _signs(chain: Chain, columns: Columns, factors: QRFactors, base: BaseParameters, independence: float) -> np.ndarray:
    """Torque signs (n,), +1 or -1, for which the parameters shared by the joints fit best and friction dissipates power."""
    n = len(factors.counts)
    signs = np.ones(n)

    def better(signs: np.ndarray) -> np.ndarray:
        """Factor by which each joint's residual decreases if only that joint's torque sign is reversed."""
        here = _weighted(factors.with_signs(signs), base)[0]
        there = [_weighted(factors.with_signs(np.where(np.arange(n) == j, -signs, signs)), base)[0] for j in range(n)]
        return np.exp((here - np.array(there)) / (2 * factors.counts))

    gain = better(signs)
    for _ in range(n):
        j = int(np.argmax(gain))
        if gain[j] < CLEARLY:
            break
        signs[j] *= -1
        gain = better(signs)
    power = _friction_power(chain, columns, factors, base, independence)
    alone = np.abs(power) > SIGNIFICANT
    coupled = gain < 1 / CLEARLY  # the sign is determined by the other joints
    votes = (np.sign(power) * signs)[alone & coupled].sum()
    if votes < 0 or (votes == 0 and (signs[coupled] < 0).sum() > coupled.sum() / 2):
        signs = np.where(coupled, -signs, signs)  # reversing all these signs changes only the fit of friction
    by_friction, by_others = np.where(alone, np.sign(power), 0.0), np.where(coupled, signs, 0.0)
    agreed = (by_friction + by_others < 0) & (by_friction <= 0) & (by_others <= 0)
    return np.where(agreed, -1.0, 1.0)


def _friction_power(
    chain: Chain, columns: Columns, factors: QRFactors, base: BaseParameters, independence: float
) -> np.ndarray:
    """Power (n,) that friction dissipates in a separate fit of each joint, in standard deviations."""
    n, terms = chain.n, columns.drive_terms
    out = np.zeros(chain.nv)
    for j, joint in enumerate(leading_joints(chain).tolist()):
        mine = [10 * n + joint * len(terms) + terms.index(t) for t in ("viscous", "coulomb") if t in terms]
        rest = [k for k in base.kept if k not in mine]
        r = factors.r[j]
        norms = np.linalg.norm(r[:, rest], axis=0)
        u, s, _ = np.linalg.svd(r[:, rest] / np.where(norms > 0, norms, 1.0), full_matrices=False)
        u = u[:, s > 1e-10 * s[0]]
        clear = r[:, [*mine, r.shape[1] - 1]]
        clear = clear - u @ (u.T @ clear)
        f, tau = clear[:, :-1], clear[:, -1]
        size = np.linalg.norm(f, axis=0)
        if not mine or size.min() <= 1e-9 * np.linalg.norm(r[:, mine]):
            continue
        value = np.linalg.lstsq(f, tau, rcond=None)[0]
        variance = ((tau - f @ value) ** 2).sum() / factors.counts[j] / independence
        # both columns have the sign of qd, so the dissipated power is a sum of their coefficients with positive weights
        weight = np.linalg.norm(r[:, mine], axis=0)
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
    if chain.topology.quaternion_joints or any(np.isnan(s.tau).any() for s in samples):
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


def _gains(chain: Chain, samples: list[Samples], signs: np.ndarray) -> list[Finding]:
    n, names = chain.nv, coordinate_names(chain)
    if n < 2:
        return []
    model = model_of(chain, chain.n - 1, ("viscous", "coulomb", "offset"), (), known_arm=False)
    runs = [(dataclasses.replace(s, tau=s.tau * signs), False) for s in samples]
    factors = accumulate_runs(model, runs, None)
    nothing, none = np.zeros(10), np.zeros((10, 0))
    ties = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1]  # basis of the logarithms of gains, which sum to zero
    solution = solve(factors, nothing, none, ties, spread=GAIN_SPREAD)
    covariance = jackknife(factors, solution, nothing, none, ties, GAIN_SPREAD)[10:, 10:]
    variances = np.diag(covariance)
    sd = np.sqrt(np.maximum(variances[:, None] + variances[None, :] - 2 * covariance, 0))  # of log gain ratios
    ratio = solution.gains[:, None] - solution.gains[None, :]
    told = (sd < TOLD) & ~np.eye(n, dtype=bool)
    out = []
    for j in range(n):
        if not told[j].any():
            continue
        middle = float(np.median(ratio[j, told[j]]))
        off = (np.abs(ratio[j]) > np.log(RATIO)) & (np.abs(ratio[j]) > SIGNIFICANT * sd[j])
        if abs(middle) > np.log(RATIO) and 2 * (off & told[j]).sum() > told[j].sum():
            joint, factor = names[j], float(np.exp(-middle))
            others = ", ".join(names[i] for i in np.flatnonzero(told[j]))
            text = (
                f"{joint}: its torque is about {factor:.2g} times the torque that is consistent with {others}: "
                "check its gain, gear ratio and units"
            )
            out.append(Finding("gain", (joint,), text))
    return out


def _prior_gains(chain: Chain, samples: list[Samples], signs: np.ndarray, named: set[str]) -> list[Finding]:
    """Find joints whose ratio of measured torque to the given model's torque differs from that of the other joints."""
    if not np.any(np.asarray(chain.inertia)):
        return []
    found = prior_scales(chain, [dataclasses.replace(s, tau=s.tau * signs) for s in samples])
    if found.determined.sum() < 3:
        return []
    logs = np.log(np.where(found.determined, found.factors, 1.0))
    common = float(np.median(logs[found.determined]))
    off = np.abs(logs - common) > np.maximum(np.log(PRIOR_RATIO), SIGNIFICANT * found.deviations)
    out = []
    for j in np.flatnonzero(found.determined & off):
        joint, factor = coordinate_names(chain)[j], float(found.factors[j])
        if joint not in named:
            text = (
                f"{joint}: its torque is {factor:.2g} times that of the given model's links, but this ratio is "
                f"{np.exp(common):.2g} for the other joints: check its gain, gear ratio and units, and whether the model "
                "includes the payload"
            )
            out.append(Finding("gain", (joint,), text))
    return out


def _scale(chain: Chain, columns: Columns, factors: QRFactors, base: BaseParameters) -> list[Finding]:
    if not np.any(np.asarray(chain.inertia)):
        return []
    expected = base.matrix[:, : 10 * chain.n] @ prior_parameters(chain, columns)[: 10 * chain.n]
    rigid = base.kept < 10 * chain.n
    noise = _weighted(factors, base)[1]
    r = stacked(factors, 1 / noise)
    model = r[:, base.kept[rigid]] @ expected[rigid]
    clear = [model, r[:, -1]]
    q = np.linalg.qr(r[:, base.kept[~rigid]])[0] if (~rigid).any() else np.zeros((len(r), 0))
    model, tau = (x - q @ (q.T @ x) for x in clear)  # remove the components that friction and armature can explain
    if model @ model == 0:
        return []
    slope, angle = float(model @ tau / (model @ model)), float(model @ tau / np.sqrt((model @ model) * (tau @ tau)))
    if angle < 0.5 or 1 / SCALE < slope < SCALE:
        return []
    text = (
        f"torques of all joints are about {slope:.3g} times those of the given model's inertials: check whether they "
        "are currents or motor torques, whether gear ratios and units are correct, and whether the model is that of this "
        "robot"
    )
    return [Finding("scale", (), text)]


def _unexcited(
    chain: Chain, columns: Columns, factors: QRFactors, base: BaseParameters, independence: float
) -> list[Finding]:
    noise = _weighted(factors, base)[1]
    r = stacked(factors, 1 / noise)
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
