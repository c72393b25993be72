"""Every word of an answer: why claims do not fit, and the smallest change with which they would."""
