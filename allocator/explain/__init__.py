"""Every word of an answer: reasons that claims do not fit, and the smallest change to make them fit."""
