"""Sources of data: what each provides, which of its samples are read, and how events become spikes per timestep."""
