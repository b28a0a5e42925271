"""What is computed, independent of any hardware: operations on values, the scan over timesteps, its gradient.

Reading order: records (the grammar) -> neurons, spikes, dense, training (one record per operation) -> operations (the
table, the scan) -> differentiate -> network (the training graph) -> interpret (its plain semantics).
"""

from mimdsim.graph.differentiate import differentiate
from mimdsim.graph.layer import Layer
from mimdsim.graph.names import gradient_of
from mimdsim.graph.network import SpikingNetwork
from mimdsim.graph.network_graphs import inference_graph, inference_network, training_graph
from mimdsim.graph.operations import OPERATIONS, interpret
from mimdsim.graph.records import Graph, Operation, Scan, SparseSpikes, Value
from mimdsim.numerics.optimisers import Adam, Sgd

__all__ = [
    "OPERATIONS",
    "Adam",
    "Graph",
    "Layer",
    "Operation",
    "Scan",
    "Sgd",
    "SparseSpikes",
    "SpikingNetwork",
    "Value",
    "differentiate",
    "gradient_of",
    "inference_graph",
    "inference_network",
    "interpret",
    "training_graph",
]
