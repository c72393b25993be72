"""What an inventory can ever serve: the idle cluster, its questions, and the high-water mark."""
