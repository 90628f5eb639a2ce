"""The pages on which a run leaves as a bundle, and one comes in."""
