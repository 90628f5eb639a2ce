"""Pages of floor 3 about reviews."""
