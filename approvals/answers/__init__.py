"""What the own functions of gates answer about what waits: their rows in a slice."""
