"""Where things lie: neurons, lists of spikes, arrays, and products as the library plans them."""
