"""Energies, Lagrange's and Hamilton's equations, passivity, and the corresponding regressors."""
