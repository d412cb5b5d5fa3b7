"""The parts of the suite, one file each: `run(session)` measures and adds records."""

# part: (what it measures, whether it is run by default)
PARTS = {
    "latency": ("one robot, one state, one call: what a control loop pays", True),
    "throughput": ("every quantity of a whole batch, beside all libraries", True),
    "batches": ("throughput over the size of the batch", True),
    "trees": ("humanoids on a floating base", True),
    "scaling": ("time and compilation over the number of links", True),
    "compile": ("what compilation takes, and the size of the programs", True),
    "memory": ("memory of the compiled programs", True),
    "accuracy": ("errors in float32 over many states", True),
    "identification": ("the factors of a log of a million samples, beside Pinocchio's regressor in a loop", True),
    "gpu": ("throughput over the size of the batch on JAX's default device", False),
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
