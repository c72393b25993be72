"""The status of DeviceQuotas, and the scheduling gates of pods that wait for one."""
