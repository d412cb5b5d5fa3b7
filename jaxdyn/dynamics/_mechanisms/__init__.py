"""Mechanisms other than open chains of rigid links; exported by `jaxdyn.mechanisms`."""
