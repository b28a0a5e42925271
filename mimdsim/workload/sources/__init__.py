"""Sources of data: what each has, which of its samples are read, and how events become spikes per timestep."""
