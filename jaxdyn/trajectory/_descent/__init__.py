"""Controls and policies by gradients through the simulation."""
