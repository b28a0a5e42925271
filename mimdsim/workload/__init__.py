"""Floor 3: the network to train and the data to train it on."""
