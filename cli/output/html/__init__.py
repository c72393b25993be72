"""Pages for a browser: one file each, without a network, with everything escaped by one builder."""
