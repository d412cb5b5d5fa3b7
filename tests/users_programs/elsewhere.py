"""Public callables that have no case in a group: why, or where else they are compiled as users do."""

# compiled by an example, which .ci/run runs without the flags of the tests: name -> (example, a function of `jaxdyn` in its
# text), the function itself or one that calls it
BY_EXAMPLES = {
    "solve_by_shooting": ("reach_with_limits.py", "solve_by_shooting"),
    "solve_by_inverse_dynamics": ("minimum_time.py", "solve_by_inverse_dynamics"),
    "optimise_policy": ("policy.py", "optimise_policy"),
    "animate": ("policy.py", "animate"),
    "contact_forces": ("drop_quadruped.py", "contact_forces"),
    "contact_rollout": ("drop_quadruped.py", "contact_rollout"),
    "make_contacts": ("drop_quadruped.py", "make_contacts"),
    "kernel_vmap": ("notebooks/many_robots.ipynb", "kernel_vmap"),
    "sharded_vmap": ("devices.py", "sharded_vmap"),
    "sharded_sum": ("hosts.py", "sharded_sum"),
    "shard_batch": ("hosts.py", "shard_batch"),
    "local_rows": ("hosts.py", "local_rows"),
    "accumulate_stream": ("long_log.py", "accumulate_stream"),
    "base_parameters": ("long_log.py", "base_parameters"),
    "load_factors": ("long_log.py", "load_factors"),
    "save_factors": ("long_log.py", "save_factors"),
    "merge_over_processes": ("long_log.py", "merge_over_processes"),
    "merge_factors": ("long_log.py", "merge_over_processes"),
    "preprocess_stream": ("long_log.py", "preprocess_stream"),
    "read_log_chunks": ("long_log.py", "read_log_chunks"),
    "solve": ("long_log.py", "solve"),
    "preprocess": ("possible_bodies.py", "identify"),
    "identify": ("possible_bodies.py", "identify"),
    "check_log": ("possible_bodies.py", "identify"),
    "fit_quality": ("possible_bodies.py", "identify"),
    "split": ("possible_bodies.py", "identify"),
    "identify_from_commands": ("identify_from_commands.py", "identify_from_commands"),
    "read_log": ("friction.py", "read_log"),
    "calibrate_gains": ("weigh_payload.py", "calibrate_gains"),
    "diagnose": ("weigh_payload.py", "diagnose"),
    "identify_payload": ("weigh_payload.py", "identify_payload"),
    "random_excitation": ("weigh_payload.py", "random_excitation"),
    "synthetic_log": ("weigh_payload.py", "synthetic_log"),
    "motion_limits": ("excite_arm.py", "motion_limits"),
    "optimal_excitation": ("excite_arm.py", "optimal_excitation"),
    "variance_ratio": ("excite_arm.py", "variance_ratio"),
    "sample_trajectory": ("excite_arm.py", "sample_trajectory"),
    "draw_trajectory": ("excite_arm.py", "draw_trajectory"),
    "write_trajectory": ("excite_arm.py", "write_trajectory"),
    "export_function": ("gravity_compensation.py", "export_function"),
    "load_exported": ("gravity_compensation.py", "load_exported"),
    "write_all": ("notebooks/identify_a_log.ipynb", "write_all"),
    "plot_positions": ("view_arm.py", "plot_positions"),
    "plot_torques": ("view_arm.py", "plot_torques"),
    "read_motion": ("view_arm.py", "read_motion"),
}

# called inside a case of this name
WITHIN = {
    "DriveAdaptation": "AdaptiveControl",
    "EuclideanAdaptation": "AdaptiveControl",
    "LogCholeskyAdaptation": "AdaptiveControl",
    "NaturalAdaptation": "AdaptiveControl",
    "ErrorIntegral": "computed_torque",
    "FrictionTerm": "Coulomb.columns",
    "recursive_start": "recursive_step",
    "recursive_values": "recursive_step",
    "JointReference": "computed_torque",
    "TaskReference": "impedance_control",
    "Knot": "StateCost",
    "OptimalControlProblem": "total_cost",
    "with_transmission": "motor_rates",
    "motor_terms": "motor_regressor",
    "elastic_joints": "elastic_torque",
    "linkages.five_bar": "constraint_residual",
    "point_constraint": "constraint_residual",
}

NOT_OF_ARRAYS = {
    "builder of a robot or a constraint, or a closed form of its numbers": (
        "attach with_masses make_chain from_dh from_screws "
        "with_coupling with_moving_base_point elastic_chain pose_constraint linkages.four_bar "
        "linkages.five_bar_chain linkages.four_bar_chain nonholonomic.particles nonholonomic.knife_edge "
        "nonholonomic.rolling_coin "
        "linkages.four_bar_chains robots.iiwa14 robots.panda robots.ur10 robots.ur5 robots.ur5e robots.xarm7 "
        "textbook.biped textbook.cartesian_two_link textbook.coupled_wrist textbook.elastic_link textbook.geared_link "
        "textbook.pendulum textbook.pendulum_3dof textbook.planar_2r_point_masses textbook.planar_elbow "
        "textbook.remotely_driven_elbow textbook.single_link textbook.spherical_rrp "
        "inertia.check_consistent connect weld follow with_stiffness "
        "capsule choose_pairs floor height_field make_shapes sphere with_environment with_pairs"
    ).split(),
    "file or text": (
        "load loads load_model load_torque_model model_about from_mujoco contacts_from_mujoco servos_from_mujoco "
        "geometry_from_mujoco read_geometry save_model "
        "save_torque_model save_urdf to_urdf update_urdf to_mjcf with_inertias_of_shapes "
        "pair_table read read_srdf "
        "read_mechanism_log write_mechanism_log write_mjcf write_predictor write_source"
    ).split(),
    "picture, page or printed text": (
        "build_scene open_viewer Viewer print_comparison print_summary write_comparison write_errors write_parameters "
        "write_report write_payload_report write_servos collect_provenance equivalent_ellipsoid"
    ).split(),
    "NumPy alone, or a choice among results": (
        "check_motion closest_approaches compare_with_log "
        "known_parameters linear_constraints motor_to_joint parse_limit "
        "certified_mass_matrix_bounds identify_mechanism identify_elastic_joints identify_together "
        "mirrored_links "
        "verdict with_gains without_delay "
        "clipped_adam"
    ).split(),
    "error": (
        "ControlError DeploymentError FallbackWarning IdentificationError JaxdynError LogError ModelError ModelWarning "
        "OutputError TrajectoryError"
    ).split(),
    "class whose objects are results, settings or interfaces": (
        "Approach ClosestPoints Connect ContactDynamics ContactDynamicsDerivatives ContactForces ContactState "
        "ContactStepDerivatives Contacts Disabled Fixed Follow "
        "LeftOut MotionCheck Rows Separation ServoTorques Servos Shapes Softness Usage Weld "
        "Adaptation BaseMotion BaseParameters BlockFactors "
        "Chain "
        "Consistency "
        "Constraint Constraints Cost Coupling ElasticJoints "
        ""
        "Ellipsoid ErrorLimit Estimate "
        "ExportedFunction ExtraColumns Filters "
        "FourierSeries FrameConstraint Friction FrictionModel "
        "FunctionConstraint Geometry "
        "Identification InputFile "
        "JointLimits LinearQuadratic Log "
        "MechanismLog "
        "Knowledge "
        "Motion NoiseLevel ObserverState "
        "PfaffianConstraint "
        "PolicySettings "
        "Provenance "
        "Samples Scene Solution SourceFunction Springs Status TaskStatus "
        "TaskTorque Terms Topology TorqueModel Trajectory "
        "Transmission UseVerdict Verdict VerdictCheck"
    ).split(),
}
