"""What the pages answer, to whom, and in how many queries."""
