"""The parts of the suite, one module each, whose `run(session)` measures and adds records to the session."""

# part: what it measures
PARTS = {
    "latency": "duration of one call for one robot in one state, as in a control loop",
    "throughput": "all quantities for a batch, compared with the other libraries",
    "batches": "throughput versus batch size",
    "trees": "humanoids with a floating base",
    "scaling": "computing and compilation time versus number of links",
    "compile": "compilation time, and size of the programs",
    "memory": "memory used by the compiled programs",
    "distances": "distances of all pairs of shapes on a robot, compared with coal",
    "contacts": "steps and Jacobians of a quadruped on the ground, compared with MuJoCo",
    "accuracy": "errors of float32 for many states",
    "identification": "factors of a log with a million samples, compared with a loop over Pinocchio's regressor",
}
CURVES = ("inverse_dynamics", "forward_dynamics", "forward_dynamics_derivatives", "rollout")
QUANTITIES = (
    "inverse_dynamics",
    "mass_matrix",
    "crba",
    "mass_matrix_inverse",
    "coriolis_matrix",
    "gravity",
    "frame_pose",
    "jacobian",
    "forward_dynamics",
    "inverse_dynamics_derivatives",
    "forward_dynamics_derivatives",
    "regressor",
    "step",
    "rollout",
    "rollout_gradient",
)
