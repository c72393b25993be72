"""HAMi: shares of NVIDIA GPUs by extended resources and annotations."""
