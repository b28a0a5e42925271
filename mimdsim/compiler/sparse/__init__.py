"""Rules of lowering for lists of spikes."""
