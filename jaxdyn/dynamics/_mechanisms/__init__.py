"""Mechanisms beyond an open chain of rigid links; public in `jaxdyn.mechanisms`."""
