"""Identification of robots whose base moves, and of mechanisms with forces that are not measured."""
