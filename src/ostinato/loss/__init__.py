"""From a batch to a loss: which loss, and on what scale."""
