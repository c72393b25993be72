"""What a cluster would do with objects, and what it has: pure answers to the questions of people."""
