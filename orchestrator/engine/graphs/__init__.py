"""Graphs: declared, checked and compiled. Pure."""
