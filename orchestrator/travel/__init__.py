"""Going back in time: fork, replay, rewind, and forks of many runs."""
