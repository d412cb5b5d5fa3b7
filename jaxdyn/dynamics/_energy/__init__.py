"""Energies, Lagrange's and Hamilton's equations, passivity, and their regressors."""
