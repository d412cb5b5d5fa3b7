"""The parts of the suite, one module each, whose `run(session)` measures and adds records to the session."""

# part: (what it measures, whether it is run by default)
PARTS = {
    "latency": ("duration of one call for one robot in one state, as in a control loop", True),
    "throughput": ("all quantities for a batch, compared with the other libraries", True),
    "batches": ("throughput versus batch size", True),
    "trees": ("humanoids with a floating base", True),
    "scaling": ("computing and compilation time versus number of links", True),
    "compile": ("compilation time, and size of the programs", True),
    "memory": ("memory used by the compiled programs", True),
    "accuracy": ("errors of float32 for many states", True),
    "identification": (
        "factors of a log with a million samples, compared with a loop over Pinocchio's regressor",
        True,
    ),
    "gpu": ("throughput versus batch size on JAX's default device", False),
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
