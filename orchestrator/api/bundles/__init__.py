"""The part of the API in which a run leaves as a bundle, and one comes in."""
