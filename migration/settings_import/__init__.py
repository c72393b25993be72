"""The settings of HAMi, Koordinator and Volcano as settings of ours."""
