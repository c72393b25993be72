"""Commands that make, check and try things; nothing of the product imports them."""
