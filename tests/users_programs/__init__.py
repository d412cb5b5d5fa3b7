"""Public functions as users compile them: tables of functions with arguments, and a process that runs them.

A group is a module with `cases() -> dict[str, Case]`, keyed by the name in `jaxdyn` ("so3.skew" of its modules' functions,
"MomentumObserver.update" of its classes'). `run` compiles each alone, in batches and differentiated, with JAX's and XLA's own
settings; tests/test_users_programs.py starts it, since an abort of XLA ends the process.
"""
