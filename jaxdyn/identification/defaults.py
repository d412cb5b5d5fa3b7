"""Statistical constants of the identification, with their units, origins and what depends on them.

Constants of algorithms, such as tolerances and numbers of iterations, stand beside the code that uses them.
"""

# Blocks of data, for standard deviations by a jackknife (`factors.left_out_covariance`).
BLOCKS = 16  # [blocks of all runs together]; twice LEFT_OUT, so that each half of the data has as many as the whole
LEFT_OUT = (
    8  # [jackknife blocks]; they must be much longer than the correlation time of the residuals, so there are few
)
# [degrees of freedom] of the shrinkage target, beside LEFT_OUT - 1 of the blocks; tuned on simulated logs and on halves of
# real ones. Zero leaves the jackknife alone, whose matrix has rank LEFT_OUT - 1; a large number assumes white residuals.
PRIOR_DEGREES = 5.0
# [share] least information on a direction that is attributed to the other blocks; limits the deviations of directions that
# one block alone determines, and affects no others.
LEAST_LEFT = 0.05

# Weights of rows (`least_squares.solve`).
# [1] independent samples per base parameter for noise of a run's own; a run with fewer could be fitted almost exactly, and
# would outweigh all others.
ROWS_OF_A_RUN = 2.0
PRECISION = 1e-4  # [share of the RMS torque] least noise of a joint; affects only logs without noise
HUBER = (
    1.345  # [standard deviations] largest residual with full weight: 95 % efficient if the noise is normal (Huber 1981)
)
MEDIAN = 0.6745  # [standard deviations] median of the magnitude of a normally distributed number
OUTLYING = (
    4.0  # [standard deviations] beyond which residuals are called outliers, in a note; nothing else depends on it
)
AGREEING = 2.0  # [standard deviations] largest difference between agreeing estimates; 95 % of normal ones

# Links (`consistent.link_bounds`, `base.with_stand_ins`).
DENSITIES = (100.0, 20_000.0)  # [kg/m^3] from a hollow link with covers to slightly more than solid tungsten
AROUND = 0.5  # [share] lateral extent of a link, relative to the larger of its lengths; room for motors beside the axis
LEAST_REACH = 0.1  # [share] least lateral extent, relative to the sum of the distances between consecutive joints
ROOM = 1.5  # [1] factor by which bounds exceed what the links of the given model require
# [kg], [m] the sphere that stands in for a missing inertia. It decides only what the motion does not determine.
STAND_IN_MASS, STAND_IN_RADIUS = 2.0, 0.1

# Preprocessing.
LOWEST_CUTOFF = 8.0  # [Hz] least cutoff chosen by default; for arms, whose motion has power below 1 Hz
LEAST_SAMPLES = 10  # [samples] shorter pieces are discarded
BANDWIDTH = (
    0.9  # [cutoffs] of white noise behind the zero-phase fourth-order filter; decides the share of independent samples
)

# Repeated motion (`preprocessing.repeated_motion`).
ALIKE = 0.1  # [share of the motion's RMS] largest difference of equal windows; far above noise, far below other motions
STANDSTILL = 0.1  # [share of the RMS velocity] below which, for all joints, the robot stands still
MOSTLY = 0.5  # [share of a run's motion] above which it repeats another one
SAME_PLACE = 0.1  # [s] distance between places of the same motion
