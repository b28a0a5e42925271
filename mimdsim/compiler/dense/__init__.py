"""Rules of lowering for dense spikes, which are arrays."""
