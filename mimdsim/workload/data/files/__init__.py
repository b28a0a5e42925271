"""Files to arrays: NPZ and HDF5, opened as files that may be damaged or hostile."""
