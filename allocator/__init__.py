"""The allocation library: the devices that a set of claims gets on a node, or the reasons for none."""
