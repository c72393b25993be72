"""The settings of HAMi and Koordinator as settings of ours."""
